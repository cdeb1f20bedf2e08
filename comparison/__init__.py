"""The published comparison: its campaigns, their servers and their table."""
