"""The right answers to queries, and what is stored, computed from the seed."""
