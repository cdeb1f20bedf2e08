"""How events' columns are stored.

Devices' names and ids, and texts that describe them, are symbols: QuestDB keeps each text of theirs once,
and a number in the rows. A boolean is never NULL, so a column of truth values that may be missing is an INT:
1, 0 or NULL. NULL of an INT, and of a LONG, is its smallest number, which can't be stored as a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN
from ...errors import SimulatorError
from ...workloads.events import EventBlock
from ...workloads.schema import Column, ColumnType, Schema
from ...workloads.tags import ID
from .._base.sql_queries import quote_name
from ..base import Job

TYPES = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.INT64: "LONG",
    ColumnType.INT32: "INT",
    ColumnType.FLOAT32: "FLOAT",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "VARCHAR",
    ColumnType.JSON: "VARCHAR",
}
"""https://questdb.com/docs/query/datatypes/overview/"""

INT32_RANGE = (-(2**31) + 1, 2**31 - 1)
INT64_RANGE = (-(2**63) + 1, 2**63 - 1)
_LEAST = {ColumnType.INT32: INT32_RANGE[0], ColumnType.INT64: INT64_RANGE[0]}

_TEXTS = (ColumnType.TEXT, ColumnType.JSON)


STORED_AT = "_stored_at"
"""The time of the rows of the tags' table, which is the same for all: deduplication needs one."""


def is_symbol(schema: Schema, column: Column) -> bool:
    """Whether a column is stored as symbols."""
    if column.name == ID:
        return True
    return column.type in _TEXTS and (column.tag or column.name == schema.device)


def as_sent(column: Column) -> Column:
    """The column as its values are sent."""
    if column.type is ColumnType.BOOL and column.nullable:
        return Column(column.name, ColumnType.INT32, nullable=True)
    return column


def type_of(schema: Schema, column: Column) -> str:
    """The column's type in a table."""
    return "SYMBOL" if is_symbol(schema, column) else TYPES[as_sent(column).type]


def describe_tags(schema: Schema) -> Schema:
    """The tags' table, as a schema whose events are devices."""
    columns = (*schema.tags_row, Column(STORED_AT, ColumnType.TIMESTAMP_MS))
    key = (STORED_AT, ID)
    return Schema(schema.tags_table, columns, STORED_AT, schema.device, key)


def list_columns(job: Job) -> dict[str, str]:
    """Name -> type of the columns of an events' table, in order."""
    schema = job.schema
    found = {column.name: type_of(schema, column) for column in schema.row}
    if job.load.primary_key is PrimaryKey.CLIENT:
        return {KEY_COLUMN: "VARCHAR", **found}
    return found


def list_keys(job: Job) -> list[str]:
    """The columns by which QuestDB tells an event from all others: the time is always one."""
    schema = job.schema
    if job.load.primary_key is PrimaryKey.CLIENT:
        return [schema.time, KEY_COLUMN]
    return [schema.time, *(name for name in schema.row_key if name != schema.time)]


def create_table(
    table: str,
    columns: dict[str, str],
    keys: Sequence[str],
    partition_by: str,
    settings: Sequence[str] = (),
    indexed: Sequence[str] = (),
) -> str:
    """The statement; `keys`: the time first; `settings`: like o3MaxLag=1s; `indexed`: symbols."""
    defined = ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns.items())
    indices = "".join(f", INDEX({quote_name(name)})" for name in indexed)
    settled = f" WITH {', '.join(settings)}" if settings else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({defined}){indices}"
        f" TIMESTAMP({quote_name(keys[0])}) PARTITION BY {partition_by} WAL{settled}"
        f" DEDUP UPSERT KEYS({', '.join(map(quote_name, keys))})"
    )


def check_numbers(column: Column, values: NDArray[np.generic]) -> None:
    """SimulatorError if one of them would become NULL."""
    least = _LEAST.get(column.type)
    if least is not None and len(values) and int(values.min()) < least:
        raise SimulatorError(
            f"column {column.name}: QuestDB's {TYPES[column.type]} takes {least} for its smallest number:"
            f" {least - 1} is what it stores for no value at all"
        )


def find_sent_values(column: Column, block: EventBlock) -> NDArray[np.generic]:
    """A column's values as `as_sent` has them; SimulatorError if one can't be stored."""
    values: NDArray[np.generic] = block.row_columns[column.name]
    if as_sent(column).type is not column.type:
        return values.astype(np.int32)
    check_numbers(column, values)
    return values
