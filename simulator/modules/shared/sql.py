"""What SQL and CQL have in common."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """An identifier as SQL and CQL write it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'
