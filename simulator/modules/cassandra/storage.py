"""What tables take on disk, as Cassandra tells it.

Only SSTables are counted, so memtables are flushed first. CQL has no statement for that, but a table whose
properties change is flushed: its comment gets a new text. The flush goes on after the answer.

https://cassandra.apache.org/doc/latest/cassandra/managing/operating/virtualtables.html
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...contract import MIB, Allocation, Storage
from ...errors import SimulatorError
from ..kit.connected import MARK

if TYPE_CHECKING:
    from .options import CassandraOptions
    from .server import ClusterSession

VIRTUAL_TABLES_SINCE = (4, 0)

_SIZES = "SELECT table_name, mebibytes FROM system_views.disk_usage WHERE keyspace_name = %s"
_FLUSHES = (
    "SELECT active_tasks, pending_tasks FROM system_views.thread_pools"
    " WHERE name IN ('MemtableFlushWriter', 'MemtablePostFlush')"
)
_SOURCE = (
    "system_views.disk_usage of each node, after a flush: SSTables, rounded up to whole MiB per node and"
    " table; without the commit log"
)

ALLOCATION = Allocation(
    unit_bytes=MIB, cause="Cassandra reports sizes in whole MiB per node and table"
)
"""The allocation of a table on a node."""
# Sizes stand still once they have been the same for so long, and no node was flushing.
_STILL_S = 0.5
_PAUSE_S = 0.1
# If flushes are not done by then, the size is not known.
_PATIENCE_S = 20.0


def read_storage(
    session: ClusterSession, options: CassandraOptions, tables: Sequence[str]
) -> Storage:
    """The sum over the tables and the data center's nodes, once memtables are flushed.

    The tables must be the tool's. Raises SimulatorError if the server doesn't tell or lists
    no SSTables, the user may not ask or alter the tables, or flushing takes too long; Retryable if a node
    doesn't answer.
    """
    if session.release < VIRTUAL_TABLES_SINCE:
        raise SimulatorError(
            "Cassandra reports the size on disk only since 4.0 (system_views.disk_usage)"
        )
    for table in tables:
        name = options.name_table(table)
        session.ask(f"ALTER TABLE {name} WITH comment = '{MARK}, flushed at {time.time_ns()}'")
    sizes = _await_sizes(session, options.keyspace, set(tables))
    if not any(sizes):
        raise SimulatorError(f"Cassandra lists no SSTables of {', '.join(tables)}")
    return Storage(
        total_bytes=sum(sizes) * MIB,
        copies=min(options.replication_factor, len(sizes)),
        allocation=ALLOCATION.times(len(sizes) * len(tables)),
        source=_SOURCE,
    )


def _await_sizes(session: ClusterSession, keyspace: str, tables: set[str]) -> list[int]:
    """MiB on each node, once they stand still."""
    deadline = time.monotonic() + _PATIENCE_S
    sizes: list[int] = []
    since = time.monotonic()
    while True:
        busy = any(any(row) for rows in session.ask_each_node(_FLUSHES) for row in rows)
        latest = [
            sum(int(mebibytes) for table, mebibytes in rows if table in tables)
            for rows in session.ask_each_node(_SIZES, [keyspace])
        ]
        now = time.monotonic()
        if busy or latest != sizes:
            sizes, since = latest, now
        elif now - since >= _STILL_S:
            return sizes
        if now >= deadline:
            raise SimulatorError(f"Cassandra's nodes were still flushing after {_PATIENCE_S:g} s")
        time.sleep(_PAUSE_S)
