"""`tune`: which settings suit a database."""
