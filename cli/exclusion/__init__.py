"""A database is one command's at a time: two would drop each other's tables."""
