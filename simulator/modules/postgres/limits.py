"""How large a row of PostgreSQL's may be."""

from __future__ import annotations

from ...errors import OptionError
from ...workloads.schema import ColumnType, Schema

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
    """What a row takes at least: of texts and values that may be missing, next to nothing is counted."""
    size = _HEADER_BYTES
    for column in schema.row:
        if not column.nullable:
            width = _BYTES[column.type]
            size += -size % width + width
    return size


def check_row(schema: Schema, most: int) -> None:
    """OptionError if no row can be stored, as each is larger than that."""
    found = count_row_bytes(schema)
    if found > most:
        raise OptionError(
            f"a row of table {schema.table} takes {found:,} bytes at least, and PostgreSQL stores {most:,}"
            " at most: use fewer columns, or smaller types"
        )
