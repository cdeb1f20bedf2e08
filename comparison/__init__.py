"""The published comparison: campaigns, what starts their servers, and the table on the front page."""
