"""Paths of IoTDB's tree model."""

from __future__ import annotations

import re

from .thrift import write_text

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NODE = re.compile(r"`(?:[^`]|``)*`|[^.]+")
LEVEL = 2
"""Of a table in a path; root is 0."""
_MOST = 100_000
"""So many devices' paths are kept, some ten megabytes."""


def quote(name: str) -> str:
    """A name as a statement has it, where some plain ones are words of the language."""
    return "`" + name.replace("`", "``") + "`"


def write_node(name: str) -> str:
    """A name as a path has it that is no part of a statement: quoted if it must be."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def split_path(path: str) -> list[str]:
    """The names in a path as the server writes it."""
    if "`" not in path:
        return path.split(".")
    nodes = _NODE.findall(path)
    return [n[1:-1].replace("``", "`") if n.startswith("`") else n for n in nodes]


def name_database(database: str) -> str:
    """A database's path."""
    return f"root.{database}"


def name_table(database: str, table: str) -> str:
    """The path above a table's devices."""
    return f"{name_database(database)}.{write_node(table)}"


class Paths(dict[bytes, bytes]):
    """By a device's name its path below a table, with its length before it. Made when it is asked for."""

    def __init__(self, table: str) -> None:
        """`table`: its path."""
        super().__init__()
        self._table = table

    def __missing__(self, device: bytes) -> bytes:
        if len(self) >= _MOST:
            self.clear()
        path = self[device] = write_text(f"{self._table}.{write_node(device.decode())}")
        return path
