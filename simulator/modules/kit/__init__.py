"""What modules of several databases share."""
