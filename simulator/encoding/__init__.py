"""From events (numpy columns) to bytes: rows, records, JSON, numerals."""
