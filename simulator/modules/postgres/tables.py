"""Tables as they are made in PostgreSQL and its relatives: how large a row may be, indexes, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

import numpy as np

from ...contract import Retention
from ...encoding.columns import BIG_ENDIAN, quote_name
from ...errors import OptionError
from ...workloads.schema import ID, ColumnType, Schema, Tags
from ..kit.sql_queries import SqlDialect

MOST_ROW_BYTES = 8160
"""A row lies on one page of 8 kB, but for long texts, which are stored elsewhere: `MaxHeapTupleSize` in
https://github.com/postgres/postgres/blob/master/src/include/access/htup_details.h"""

# https://www.postgresql.org/docs/current/storage-page-layout.html
_HEADER_BYTES = 24


def check_row(schema: Schema, most: int) -> None:
    """OptionError if no row can be stored, as each is larger than that."""
    size = _HEADER_BYTES
    for column in schema.row:
        # Texts and values that may be missing are counted as next to nothing.
        if not column.nullable:
            # https://www.postgresql.org/docs/current/datatype.html: sizes, to which values are aligned, too.
            # A text has a byte at least, and no alignment as long as it is short.
            width = np.dtype(BIG_ENDIAN.get(column.type, "S1")).itemsize
            size += -size % width + width
    if size > most:
        raise OptionError(
            f"a row of table {schema.table} takes {size:,} bytes at least, but PostgreSQL stores"
            f" {most:,} at most: use fewer columns, or smaller types"
        )


# --- indexes ------------------------------------------------------------------------------------------

_LONGEST_NAME = 63
"""Bytes; what is beyond is cut: https://www.postgresql.org/docs/current/limits.html"""


def name_index(table: str, index: str) -> str:
    """A name within the server's limit. It begins with the table: names belong to the schema, and an index
    that has this name already, on whichever table, would pass for the one asked for."""
    name = f"{table}_{index}"
    if len(name) <= _LONGEST_NAME:
        return name
    tail = f"_{crc32(table.encode()):08x}_{index}"
    return table[: _LONGEST_NAME - len(tail)] + tail


def list_statements(
    schema: Schema, tables: Sequence[str], dialect: SqlDialect, time_order: str
) -> dict[str, str]:
    """Name -> statement of each index of the events' tables, and of the tags' table."""
    apart = schema.tags is Tags.TABLE
    name = f"({dialect.device(schema)})" if schema.device_path else quote_name(schema.device)
    device = quote_name(ID) if apart else name
    # YugabyteDB would hash the first column if nothing were said of its order: no help for a
    # minimum or a range.
    values = [f"{quote_name(c.name)} ASC" for c in schema.row if c.type is ColumnType.FLOAT32]
    columns = {
        "device_ts": [f"{device} ASC", f"{quote_name(schema.time)} {time_order}", *values],
        "temp": values,
    }
    indexes = [
        (table, index, indexed) for table in tables for index, indexed in columns.items() if indexed
    ]
    if apart:
        indexes.append((schema.tags_table, "device", [f"{name} ASC"]))
    return {
        name_index(
            table, index
        ): f"CREATE INDEX IF NOT EXISTS {quote_name(name_index(table, index))}"
        f" ON {quote_name(table)} ({', '.join(indexed)})"
        for table, index, indexed in indexes
    }


# --- partitions ---------------------------------------------------------------------------------------
#
# Ranges of time, so that what is too old is dropped, and not deleted row by row:
# https://www.postgresql.org/docs/current/ddl-partitioning.html
#
# All are there before the first event, as schedulers such as pg_partman make them ahead of time. A default
# partition would have to be searched through for each that is made or detached, so the first and the last one
# take what lies outside.

_AHEAD = 10
"""For how many retentions partitions are made if it isn't known how much time passes in a run."""


def list_bounds(retention: Retention, first_ms: int) -> list[int]:
    """Where partitions end, except the last. `first_ms`: the first time of the run's events."""
    step_ms = retention.step_ms
    until_ms = retention.until_ms or first_ms + _AHEAD * retention.period_ms
    return list(range((first_ms // step_ms + 1) * step_ms, until_ms + step_ms, step_ms))


def name_partition(table: str, end_ms: int | None) -> str:
    """The name of the partition with events before this time; None: of the last one."""
    return f"{table}_before_{end_ms}" if end_ms is not None else f"{table}_later"


def name_partitions(table: str, bounds: list[int]) -> list[str]:
    """The names of a table's partitions; none without bounds."""
    return [name_partition(table, end) for end in (*bounds, None)] if bounds else []


def create_partitions(table: str, bounds: list[int]) -> list[str]:
    """The statements that make a table's partitions."""
    begins = ["MINVALUE", *map(str, bounds)]
    ends = [*map(str, bounds), "MAXVALUE"]
    names = name_partitions(table, bounds)
    return [
        f"CREATE TABLE IF NOT EXISTS {quote_name(name)} PARTITION OF {quote_name(table)}"
        f" FOR VALUES FROM ({begin}) TO ({end})"
        for name, begin, end in zip(names, begins, ends, strict=True)
    ]


def list_older(table: str, partitions: Iterable[str], before_ms: int) -> list[str]:
    """The partitions of a table that have nothing but older events, the oldest first."""
    prefix = name_partition(table, 0).removesuffix("0")
    ends = (int(name.removeprefix(prefix)) for name in partitions if name.startswith(prefix))
    return [name_partition(table, end) for end in sorted(ends) if end <= before_ms]
