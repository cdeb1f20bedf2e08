"""Everything that judges stored results; `cli.show` only prints it."""
