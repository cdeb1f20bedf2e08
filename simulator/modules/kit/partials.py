"""Values computed of parts of the events, and put together to an answer, as an application would: for
databases that can't group as a query wants it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ...workloads.queries import Aggregate, Every, Function, Query, Where
from ...workloads.schema import ColumnType, Schema
from .row_order import Row

_KEYS = 2
"""Device and bucket of time stand before what is computed of a part."""


class Partials(ABC):
    """What a query computes: what is asked of each part, in a database's language, and what becomes of it.

    A part's row: its device and bucket of time (None if parts aren't told apart by it), the values of
    `newest`, those of `computed`. A last value is that of the part with the newest event, which is why such
    parts are of one device.
    """

    COUNTS_SUMS: bool = False
    """Whether a sum of nothing is 0, so that it must be known how many values there are."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._query, self._schema = query, schema
        tags = [part for part in query.per if isinstance(part, str) and part != schema.device]
        buckets = [part.every for part in query.per if isinstance(part, Every)]
        self.every_ms = math.gcd(*buckets)
        """Length of the buckets of time: such that those of the query are made of them; 0: all time."""
        lasts = [
            aggregate.column
            for aggregate in query.compute
            if aggregate.function is Function.LAST and aggregate.column
        ]
        times = [self.last_time(name) for name in (*lasts, schema.time)] if lasts else []
        self.newest = list(dict.fromkeys([*map(self.last, [*tags, *lasts]), *times]))
        """What is asked of a part's newest event."""
        computed = [
            expression
            for aggregate in query.compute
            for expression in self._list_computed(aggregate)
        ]
        self.computed = list(dict.fromkeys([self.number(None), *computed]))
        """What is asked of all events of a part; their number comes first."""
        expressions = [*self.newest, *self.computed]
        self._places = {expression: place for place, expression in enumerate(expressions, _KEYS)}

    @abstractmethod
    def number(self, column: str | None) -> str:
        """How many values a column has; None: how many events there are."""

    def count(self, column: str) -> str:
        """How many values a column has, where that is itself in question."""
        return self.number(column)

    @abstractmethod
    def sum(self, column: str) -> str:
        """The sum of a column's values."""

    @abstractmethod
    def extreme(self, function: Function, column: str) -> str:
        """The least or the greatest value of a column, which may be that of time."""

    @abstractmethod
    def last(self, column: str) -> str:
        """A column's last value."""

    @abstractmethod
    def last_time(self, column: str) -> str:
        """When that was; of the column of time: when the newest event was."""

    def read(self, value: Any) -> Any:
        """An extreme value as answers have it."""
        return value

    def put_together(self, parts: Iterable[Row]) -> list[Row]:
        """The answer's rows, in any order, made of the parts' rows."""
        keys = [self._read_key(part) for part in self._query.per]
        count = self._places[self.number(None)]
        groups: dict[Row, list[Row]] = {} if keys else {(): []}
        for row in parts:
            if row[count]:
                groups.setdefault(tuple([key(row) for key in keys]), []).append(row)
        return [
            (*key, *(self._compute(aggregate, rows) for aggregate in self._query.compute))
            for key, rows in groups.items()
        ]

    def _read_key(self, part: str | Every) -> Callable[[Row], Any]:
        """What reads from a part's row the value that groups are told apart by."""
        if isinstance(part, Every):
            every = part.every
            return lambda row: row[1] - row[1] % every
        return itemgetter(0 if part == self._schema.device else self._places[self.last(part)])

    def _list_computed(self, aggregate: Aggregate) -> list[str]:
        """What is asked of all events of a part to compute an aggregate."""
        if aggregate.column is None or aggregate.function is Function.LAST:
            return []
        if aggregate.function is Function.COUNT:
            return [self.count(aggregate.column)]
        if aggregate.function in (Function.MIN, Function.MAX):
            return [self.extreme(aggregate.function, aggregate.column)]
        counts = aggregate.function is Function.AVG or self.COUNTS_SUMS
        return [self.sum(aggregate.column), *([self.number(aggregate.column)] if counts else [])]

    def _compute(self, aggregate: Aggregate, rows: Sequence[Row]) -> Any:
        """The value of an aggregate, computed of a group's parts."""
        if aggregate.column is None:
            return sum(self._list_values(self.number(None), rows))
        if aggregate.function is Function.COUNT:
            return sum(self._list_values(self.count(aggregate.column), rows))
        if aggregate.function is Function.LAST:
            time, own_time, value = (
                self._places[expression]
                for expression in (
                    self.last_time(self._schema.time),
                    self.last_time(aggregate.column),
                    self.last(aggregate.column),
                )
            )
            newest = max(rows, key=itemgetter(time), default=None)
            return newest[value] if newest and newest[own_time] == newest[time] else None
        expression, *number = self._list_computed(aggregate)
        values = self._list_values(expression, rows)
        count = sum(self._list_values(number[0], rows)) if number else len(values)
        if not values or not count:
            return None
        if aggregate.function in (Function.MIN, Function.MAX):
            return self.read(min(values) if aggregate.function is Function.MIN else max(values))
        return sum(values) / count if aggregate.function is Function.AVG else sum(values)

    def _list_values(self, expression: str, rows: Iterable[Row]) -> list[Any]:
        place = self._places[expression]
        return [row[place] for row in rows if row[place] is not None]


def compare(where: Where, schema: Schema) -> tuple[str, float]:
    """Sign and limit of a condition, the limit in the column's own precision."""
    kind = schema.column(where.column).type
    sign, limit = where.comparison
    if kind in (ColumnType.INT32, ColumnType.INT64):
        return sign, math.floor(limit) if sign == ">" else math.ceil(limit)
    return sign, float(np.float32(limit)) if kind is ColumnType.FLOAT32 else limit
