"""Prints and draws what `cli.results` says, and decides nothing."""
