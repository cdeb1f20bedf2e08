"""Events (numpy columns) to bytes: rows, records, JSON, numerals."""
