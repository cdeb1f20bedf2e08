"""What tables take on disk, as CrateDB tells it.

`sys.segments` rather than the size in `sys.shards`: that is up to 10 s old, since each node keeps it for so
long, whatever has been written since. Both are of Lucene's files alone: the translog is apart
(`translog_stats`), and a flush makes it superfluous.

https://cratedb.com/docs/crate/reference/en/latest/admin/system-information.html#segments
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import Storage
from ...errors import SimulatorError
from ..shared.sql import quote_name
from .server import Connection

_SIZE = "SELECT sum(size) FROM sys.segments WHERE table_schema = ? AND table_name = ANY(?)"
_SHARDS = (
    'SELECT "primary", count(*) FROM sys.shards'
    " WHERE schema_name = ? AND table_name = ANY(?) AND state = 'STARTED' GROUP BY 1"
)
_SOURCE = (
    "sys.segments, after a flush: Lucene's files of all shards and replicas, in which rows and what they are"
    " found by can't be told apart; without the translog"
)

# Merges nothing, as no row was deleted, and flushes.
_FLUSH = "only_expunge_deletes = true"
# https://cratedb.com/docs/crate/reference/en/latest/sql/statements/optimize.html
_MERGE = "max_num_segments = 1"


def read_storage(
    connection: Connection, schema: str, tables: Sequence[str], timeout_s: float
) -> Storage:
    """All segments of the tables, once they are on disk.

    Raises SimulatorError if no shard is started, or the user may not flush; Retryable.
    """
    _optimize(connection, tables, _FLUSH, timeout_s)
    values = [schema, list(tables)]
    [(size,)] = connection.ask(_SIZE, values)
    copies = count_copies(connection.ask(_SHARDS, values))
    if not copies:
        raise SimulatorError(f"CrateDB lists no started shards of {', '.join(tables)}")
    return Storage(total_bytes=int(size or 0), copies=copies, source=_SOURCE)


def count_copies(shards: Sequence[tuple[bool, int]]) -> int:
    """Of each row, by the numbers of primary (true) shards and replicas; 0 if no primary is there."""
    counts = dict(shards)
    primaries = counts.get(True, 0)
    return round(sum(counts.values()) / primaries) if primaries else 0


def merge_segments(connection: Connection, tables: Sequence[str], timeout_s: float) -> None:
    """Merge each shard into a single segment, and wait for it."""
    _optimize(connection, tables, _MERGE, timeout_s)


def _optimize(connection: Connection, tables: Sequence[str], how: str, timeout_s: float) -> None:
    names = ", ".join(quote_name(table) for table in tables)
    connection.ask(f"OPTIMIZE TABLE {names} WITH ({how})", timeout_s=timeout_s)
