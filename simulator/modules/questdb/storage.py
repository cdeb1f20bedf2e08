"""What tables take on disk, as QuestDB tells it.

By partition rather than by `table_storage()`, which has the table's write-ahead log in it: that is purged
some time after it was applied.

https://questdb.com/docs/query/functions/meta/#table_partitions
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import Storage
from ...errors import SimulatorError
from ..shared.sql import quote_name
from ..shared.sql_queries import quote_text
from .server import Connection

_SOURCE = (
    "table_partitions(): files of all partitions, in which rows and what they are found by can't be told"
    " apart; {active:,} of these bytes are of the newest partition, whose files grow by whole pages ahead"
    " of the rows; without write-ahead log and symbol tables"
)


def read_storage(connection: Connection, tables: Sequence[str]) -> Storage:
    """All partitions of the tables, whose log is applied. Raises SimulatorError, Retryable."""
    connection.await_applied(tables)
    total = newest = 0
    for table in tables:
        found = connection.ask(
            f"SELECT active, sum(diskSize) FROM table_partitions({quote_text(table)}) GROUP BY 1"
        )
        sizes = {bool(active): int(size) for active, size in found}
        total += sum(sizes.values())
        newest += sizes.get(True, 0)
    if not total:
        raise SimulatorError(f"QuestDB lists no partitions of {', '.join(tables)}")
    return Storage(total_bytes=total, source=_SOURCE.format(active=newest))


def squash_partitions(connection: Connection, tables: Sequence[str]) -> None:
    """Join what late events have split, and remove what that has replaced; wait for it."""
    for table in tables:
        connection.ask(f"ALTER TABLE {quote_name(table)} SQUASH PARTITIONS")
    connection.await_applied(tables)
    for table in tables:
        connection.ask(f"VACUUM TABLE {quote_name(table)}")
