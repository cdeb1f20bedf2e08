"""What is done to a database during a run: planned, injected, undone."""
