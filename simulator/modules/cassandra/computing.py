"""What CQL computes of a part of the events."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ...workloads.queries import BoundQuery, Function, Where
from ...workloads.schema import ColumnType, Schema
from .._base import partials
from .._base.sql_queries import quote_name

# Times that are computed come as datetimes without a zone, in UTC.
_EPOCH, _MILLISECOND = datetime(1970, 1, 1), timedelta(milliseconds=1)  # noqa: DTZ001

# CQL's sum has the type of what is summed up, so it would lose digits or overflow.
_WIDER = {
    ColumnType.INT32: "bigint",
    ColumnType.INT64: "varint",
    ColumnType.FLOAT32: "double",
    ColumnType.FLOAT64: "double",
}
_BITS = {ColumnType.INT32: 31, ColumnType.INT64: 63}


def read_column(name: str, schema: Schema) -> str:
    """How a column of an event is selected: times in ms since 1970, of documents the device in them."""
    if name == schema.device:
        return quote_name(schema.device_path or name)
    if schema.column(name).type is ColumnType.TIMESTAMP_MS:
        return f"tounixtimestamp({quote_name(name)})"
    return quote_name(name)


def compare(where: Where, schema: Schema) -> tuple[str, float]:
    """Sign and limit of a condition, the limit in the column's own type."""
    sign, limit = partials.compare(where, schema)
    bits = _BITS.get(schema.column(where.column).type)
    if bits is None:
        return sign, limit
    least, most = -(2**bits), 2**bits - 1
    # What all numbers of the type fulfil, and what none does.
    if limit < least:
        return ">=" if sign == ">" else "<", least
    if limit > most:
        return ">" if sign == ">" else "<=", most
    return sign, limit


class Computation(partials.Partials):
    """A bound query with computed values."""

    COUNTS_SUMS = True

    def __init__(self, bound: BoundQuery, schema: Schema, is_ycql: bool) -> None:
        self.bound = bound
        self._is_ycql = is_ycql
        super().__init__(bound.query, schema)
        self.by_device = bool(bound.query.per)
        """Whether each part must be of one device: tags follow from it, and CQL groups by it first."""

    def number(self, column: str | None) -> str:
        if column is None or not self._schema.column(column).nullable:
            return "count(*)"
        return f"count({quote_name(column)})"

    def sum(self, column: str) -> str:
        if self._is_ycql:
            return f"sum({quote_name(column)})"
        return f"sum(CAST({quote_name(column)} AS {_WIDER[self._schema.column(column).type]}))"

    def extreme(self, function: Function, column: str) -> str:
        return f"{function}({quote_name(column)})"

    def last(self, column: str) -> str:
        return read_column(column, self._schema)

    def last_time(self, column: str) -> str:
        return read_column(self._schema.time, self._schema)

    def read(self, value: Any) -> Any:
        return (value - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else value

    def bucket_of(self, time_ms: int) -> int:
        """The begin of the bucket that a time is in."""
        return time_ms - time_ms % self.every_ms
