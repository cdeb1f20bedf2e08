"""What tables take, as Kusto tells it of their extents.

By `.show table extents` rather than `.show table details`, whose figures may be 15 minutes old:
https://learn.microsoft.com/kusto/management/show-extents
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...contract import Level, Storage
from ...errors import SimulatorError
from .queries import quote_name

if TYPE_CHECKING:
    from .server import Connection

_SOURCE = (
    "extents: compressed columns and their indexes; without the copies that Azure's storage keeps of them,"
    " and the cache"
)


def ask_extents(table: str) -> str:
    """The command that adds up a table's extents: bytes in all, bytes of indexes, rows."""
    sums = "v0 = sum(ExtentSize), v1 = sum(IndexSize), v2 = sum(RowCount)"
    return f".show table {quote_name(table)} extents | summarize {sums}"


def read_extents(connection: Connection, tables: Sequence[str]) -> Storage:
    """What the tables' extents take, and how many rows they hold."""
    found = [connection.ask(ask_extents(table))[0] for table in tables]
    total, index, rows = (sum(int(row[number] or 0) for row in found) for number in range(3))
    return Storage(
        total_bytes=total,
        data_bytes=total - index,
        index_bytes=index,
        source=_SOURCE,
        level=Level(size_bytes=total, events=rows),
    )


def check_rows(rows: int, stored: int) -> None:
    """SimulatorError unless extents hold all rows: what was streamed is in row stores at first, and nothing
    tells how large it is there."""
    if rows < stored:
        raise SimulatorError(
            f"{rows:,} of {stored:,} events are in extents so far; the others, in row stores, tell no size"
            " (with batch: true there are none)"
        )
