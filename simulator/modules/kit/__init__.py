"""What modules of several databases have in common."""
