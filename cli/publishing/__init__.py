"""A static site of stored results: candidates beside each other, and everything behind each figure."""
