"""What tables take on disk, as CrateDB tells it.

`sys.segments` rather than the size in `sys.shards`: that is up to 10 s old, since each node keeps it for so
long, whatever has been written since. Both are of Lucene's files alone: the translog is apart
(`translog_stats`), and a flush makes it superfluous.

https://cratedb.com/docs/crate/reference/en/latest/admin/system-information.html#segments
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import MIB, Allocation, Level, Storage
from ...errors import SimulatorError
from .._base.sql_queries import quote_name
from .server import Connection

_SIZE = "SELECT sum(size), sum(num_docs) FROM sys.segments WHERE table_schema = ? AND table_name = ANY(?)"
_SHARDS = (
    'SELECT "primary", count(*) FROM sys.shards'
    " WHERE schema_name = ? AND table_name = ANY(?) AND state = 'STARTED' GROUP BY 1"
)
# TieredMergePolicy's floor of segments: CrateDB leaves it at 2 MB.
ALLOCATION = Allocation(
    unit_bytes=2 * MIB, cause="small segments, below 2 MB, are merged before others"
)
"""Of a shard."""
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
    return read_segments(connection, schema, tables)


def read_segments(connection: Connection, schema: str, tables: Sequence[str]) -> Storage:
    """The segments so far. Raises SimulatorError if no shard is started; Retryable."""
    values = [schema, list(tables)]
    [(size, rows)] = connection.ask(_SIZE, values)
    shards = connection.ask(_SHARDS, values)
    copies = count_copies(shards)
    if not copies:
        raise SimulatorError(f"CrateDB lists no started shards of {', '.join(tables)}")
    units = sum(count for _, count in shards)
    return Storage(
        total_bytes=int(size or 0),
        copies=copies,
        level=Level(size_bytes=int(size or 0), events=int(rows or 0) // copies),
        allocation=ALLOCATION.model_copy(update={"unit_bytes": ALLOCATION.unit_bytes * units}),
        source=_SOURCE,
    )


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
