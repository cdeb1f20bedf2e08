"""What CQL computes of a part of the events, and how the parts' values become an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import numpy as np

from ...workloads.queries import Aggregate, BoundQuery, Every, Function, Where
from ...workloads.schema import ColumnType, Schema
from .._base.sql_queries import quote_name
from .reading import Row

# Times that are computed come as datetimes without a zone, in UTC.
_EPOCH, _MILLISECOND = datetime(1970, 1, 1), timedelta(milliseconds=1)  # noqa: DTZ001

_COUNT = "count(*)"
_KEYS = 2
"""Device and bucket of time stand before what is computed of a part."""

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
    kind = schema.column(where.column).type
    is_above = where.above is not None
    limit = where.above if where.above is not None else where.below
    assert limit is not None
    sign = ">" if is_above else "<"
    if kind is ColumnType.FLOAT32:
        return sign, float(np.float32(limit))
    if kind not in _BITS:
        return sign, limit
    least, most = -(2 ** _BITS[kind]), 2 ** _BITS[kind] - 1
    whole = math.floor(limit) if is_above else math.ceil(limit)
    # What all numbers of the type fulfil, and what none does.
    if whole < least:
        return ">=" if is_above else "<", least
    if whole > most:
        return ">" if is_above else "<=", most
    return sign, whole


class Computation:
    """A bound query with computed values: what is selected of each part, and what becomes of it.

    A part's row: its device and bucket of time (None if parts aren't told apart by it), the values of
    `newest`, those of `computed`.
    """

    def __init__(self, bound: BoundQuery, schema: Schema, is_ycql: bool) -> None:
        self.bound = bound
        self._schema = schema
        self._is_ycql = is_ycql
        per, compute = bound.query.per, bound.query.compute
        tags = [part for part in per if isinstance(part, str) and part != schema.device]
        self.every_ms = math.gcd(*(part.every for part in per if isinstance(part, Every)))
        """Length of the buckets of time: such that those of the query are made of them; 0: all time."""
        self.by_device = bool(per)
        """Whether each part must be of one device: tags follow from it, and CQL groups by it first."""
        last = [one.column for one in compute if one.function is Function.LAST and one.column]
        newest = [*tags, *last, *([schema.time] if last else [])]
        self.newest = list(dict.fromkeys(read_column(name, schema) for name in newest))
        """What is selected of a part's newest event."""
        selected = [_COUNT, *(text for one in compute for text in self._list_selected(one))]
        self.computed = list(dict.fromkeys(selected))
        """What is selected of all events of a part."""
        self._places = {
            text: place for place, text in enumerate([*self.newest, *self.computed], _KEYS)
        }

    def bucket_of(self, time_ms: int) -> int:
        """The begin of the bucket that a time is in."""
        return time_ms - time_ms % self.every_ms

    def put_together(self, parts: Iterable[Row]) -> list[Row]:
        """The answer's rows, of the parts' rows."""
        query = self.bound.query
        keys = [self._read_key(part) for part in query.per]
        count = self._places[_COUNT]
        groups: dict[Row, list[Row]] = {} if keys else {(): []}
        for row in parts:
            if row[count]:
                groups.setdefault(tuple([key(row) for key in keys]), []).append(row)
        return [
            (*key, *(self._compute(one, rows) for one in query.compute))
            for key, rows in groups.items()
        ]

    def _read_key(self, part: str | Every) -> Callable[[Row], Any]:
        """What has, of a part's row, what groups are told apart by."""
        if isinstance(part, Every):
            every = part.every
            return lambda row: row[1] - row[1] % every
        return itemgetter(0 if part == self._schema.device else self._places[quote_name(part)])

    def _list_selected(self, one: Aggregate) -> list[str]:
        """What is selected for a value."""
        if one.column is None or one.function is Function.LAST:
            return []
        if one.function in (Function.MIN, Function.MAX):
            return [f"{one.function}({quote_name(one.column)})"]
        return [self._sum(one.column), self._number(one.column)]

    def _sum(self, name: str) -> str:
        if self._is_ycql:
            return f"sum({quote_name(name)})"
        return f"sum(CAST({quote_name(name)} AS {_WIDER[self._schema.column(name).type]}))"

    def _number(self, name: str) -> str:
        """How many values a column has."""
        return f"count({quote_name(name)})" if self._schema.column(name).nullable else _COUNT

    def _compute(self, one: Aggregate, rows: list[Row]) -> Any:
        """A value, of a group's parts."""
        if one.column is None:
            return self._add_up(_COUNT, rows)
        if one.function is Function.LAST:
            time = self._places[read_column(self._schema.time, self._schema)]
            newest = max(rows, key=itemgetter(time), default=None)
            return newest and newest[self._places[read_column(one.column, self._schema)]]
        if one.function in (Function.MIN, Function.MAX):
            choose = min if one.function is Function.MIN else max
            place = self._places[self._list_selected(one)[0]]
            found = choose((row[place] for row in rows if row[place] is not None), default=None)
            return (found - _EPOCH) // _MILLISECOND if isinstance(found, datetime) else found
        number = self._add_up(self._number(one.column), rows)
        if not number:
            return None
        total = self._add_up(self._sum(one.column), rows)
        return total if one.function is Function.SUM else total / number

    def _add_up(self, selected: str, rows: list[Row]) -> Any:
        place = self._places[selected]
        return sum(row[place] for row in rows)
