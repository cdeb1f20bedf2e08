"""What tables take on disk, as QuestDB tells it.

By partition rather than by `table_storage()`, which has the table's write-ahead log in it: that is purged
some time after it was applied.

https://questdb.com/docs/query/functions/meta/#table_partitions
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import Allocation, Level, Storage
from ...errors import SimulatorError
from .._base.sql_queries import quote_name, quote_text
from .server import Connection

# What the operating system gives files that grow no more.
_PAGE_BYTES = 4096
_ENOUGH_PARTITIONS = 4
# So many of a table have full ones in a run's first half, and more in its second.
ALLOCATION = Allocation(
    unit_bytes=8 * 16 * 1024**2, cause="QuestDB allocates 16 MiB at a time for each column"
)
"""By default, https://questdb.com/docs/configuration/cairo-engine/, for a table of eight columns."""
_SOURCE = (
    "table_partitions(): files of all partitions, in which rows and what they are found by can't be told"
    " apart; {active:,} of these bytes are of the newest partition, whose files grow by whole pages ahead"
    " of the rows; without write-ahead log and symbol tables"
)


def read_storage(
    connection: Connection, tables: Sequence[str], plain: Sequence[str], hours: float
) -> Storage:
    """All partitions of the tables of events, each of so many hours, and of the `plain` ones.

    Growth is told from partitions that aren't the newest of their table: these are cut to their events'
    length. Raises SimulatorError, Retryable.
    """
    total = newest = full_rows = full = files = rows = 0
    span_hours = 0.0
    for table in (*tables, *plain):
        found = connection.ask(
            "SELECT active, sum(diskSize), sum(numRows), min(minTimestamp), max(maxTimestamp)"
            f" FROM table_partitions({quote_text(table)}) GROUP BY 1"
        )
        for active, size, count, first, last in found:
            total += int(size)
            newest += int(size) * active
            if table not in plain:
                rows += int(count)
                full += 0 if active else int(size)
                full_rows += 0 if active else int(count)
                span_hours += (last - first) / 3_600_000
        files += len(connection.ask(f"SHOW COLUMNS FROM {quote_name(table)}"))
    if not total:
        raise SimulatorError(f"QuestDB lists no partitions of {', '.join(tables)}")
    cause = (
        f"QuestDB allocates {newest / 1e6:,.1f} MB ahead for the newest partition, so growth shows in"
        " partitions before it"
    )
    per_partition = round(rows / span_hours * hours) if span_hours else None
    return Storage(
        total_bytes=total,
        level=Level(size_bytes=full, events=full_rows),
        allocation=Allocation(
            unit_bytes=files * _PAGE_BYTES,
            cause=cause,
            enough_events=per_partition and _ENOUGH_PARTITIONS * per_partition * len(tables),
        ),
        source=_SOURCE.format(active=newest),
    )


def squash_partitions(connection: Connection, tables: Sequence[str]) -> None:
    """Join what late events have split, and remove what that has replaced; wait for it."""
    for table in tables:
        connection.ask(f"ALTER TABLE {quote_name(table)} SQUASH PARTITIONS")
    connection.await_applied(tables)
    for table in tables:
        connection.ask(f"VACUUM TABLE {quote_name(table)}")
