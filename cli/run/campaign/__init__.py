"""Several commands in one go: targets, variants and steps from a file, one report at the end."""
