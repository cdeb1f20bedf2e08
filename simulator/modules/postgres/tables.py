"""Tables as they are made in PostgreSQL and its relatives: how large a row may be, and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from ...errors import OptionError
from ...workloads.schema import ID, ColumnType, Schema, Tags
from .._base.sql_queries import SqlDialect, quote_name

MOST_ROW_BYTES = 8160
"""A row lies on one page of 8 kB, but for long texts, which are stored elsewhere: `MaxHeapTupleSize` in
https://github.com/postgres/postgres/blob/master/src/include/access/htup_details.h"""

# https://www.postgresql.org/docs/current/storage-page-layout.html
_HEADER_BYTES = 24
# https://www.postgresql.org/docs/current/datatype.html: sizes, to which values are aligned, too. A text has a
# byte at least, and no alignment as long as it is short.
_BYTES = {
    ColumnType.TIMESTAMP_MS: 8,
    ColumnType.INT64: 8,
    ColumnType.INT32: 4,
    ColumnType.FLOAT32: 4,
    ColumnType.FLOAT64: 8,
    ColumnType.BOOL: 1,
    ColumnType.TEXT: 1,
    ColumnType.JSON: 1,
}


def count_row_bytes(schema: Schema) -> int:
    """What a row takes at least: texts and values that may be missing are counted as next to nothing."""
    size = _HEADER_BYTES
    for column in schema.row:
        if not column.nullable:
            width = _BYTES[column.type]
            size += -size % width + width
    return size


def check_row(schema: Schema, most: int) -> None:
    """OptionError if no row can be stored, as each is larger than that."""
    size = count_row_bytes(schema)
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
