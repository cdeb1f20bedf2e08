"""Campaigns: targets, variants and steps from a file, with one report at the end."""
