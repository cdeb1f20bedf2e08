"""Values computed of parts of what is asked about, put together to what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...workloads.queries import Aggregate, Every, Function, Query
from ...workloads.schema import Schema
from .answers import Row
from .schema import quote

Part = tuple[int, str, Row]
"""Beginning of a bucket of time, in ms since 1970 (0: none), device (empty: of all), and computed values."""

_JOIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "count": lambda one, other: one + other,
    "sum": lambda one, other: one + other,
    "min_value": min,
    "min_time": min,
    "max_value": max,
    "max_time": max,
    # Of a tag all of a group's are the same.
    "last_value": lambda one, _: one,
}
"""How two parts' values become one. One that isn't there changes nothing."""


class Partials:
    """What a query computes, in functions whose values of parts can be put together.

    `expressions` are those to ask for; the first is the number of events. A last value is that with the
    largest time, which is why it is computed per device or of one.
    """

    def __init__(self, query: Query, schema: Schema, steady: str) -> None:
        """`steady`: a measurement that each event has."""
        self._query, self._schema, self._steady = query, schema, steady
        self._functions: list[str] = []
        self._places: dict[str, int] = {}
        self._count = self._place("count", steady)
        self._keys = [self._make_key(part) for part in query.per]
        self._values = [self._make_value(one) for one in query.compute]
        self._lasts = [
            (self._place("last_value", one.column), self._place("max_time", one.column))
            for one in query.compute
            if one.function is Function.LAST and one.column is not None
        ]

    @property
    def expressions(self) -> list[str]:
        """What the server is to compute of each part."""
        return list(self._places)

    def put_together(self, parts: Iterable[Part]) -> list[Row]:
        """The rows of the answer."""
        groups: dict[Row, list[Any]] = {}
        for begin_ms, device, values in parts:
            if not values[self._count]:
                continue
            key = tuple(read(begin_ms, device, values) for read in self._keys)
            group = groups.get(key)
            groups[key] = list(values) if group is None else self._join(group, values)
        if not groups and not self._keys:
            groups[()] = [0 if name == "count" else None for name in self._functions]
        rows = [(*key, *(read(found) for read in self._values)) for key, found in groups.items()]
        return put_in_order(rows, self._query)

    def _place(self, function: str, column: str) -> int:
        expression = f"{function}({quote(column)})"
        if expression not in self._places:
            self._places[expression] = len(self._places)
            self._functions.append(function)
        return self._places[expression]

    def _make_key(self, part: str | Every) -> Callable[[int, str, Row], Any]:
        if isinstance(part, Every):
            every = part.every
            return lambda begin_ms, _, __: begin_ms - begin_ms % every
        if part == self._schema.device:
            return lambda _, device, __: device
        place = self._place("last_value", part)
        return lambda _, __, values: values[place]

    def _make_value(self, one: Aggregate) -> Callable[[Sequence[Any]], Any]:
        """A function that reads what is asked from a group's values."""
        if one.column is None:
            return lambda found: found[self._count]
        if one.column == self._schema.time:
            name = "min_time" if one.function is Function.MIN else "max_time"
            place = self._place(name, self._steady)
        elif one.function is Function.AVG:
            total, count = self._place("sum", one.column), self._place("count", one.column)
            return lambda found: found[total] / found[count] if found[count] else None
        elif one.function is Function.LAST:
            value, time = self._place("last_value", one.column), self._place("max_time", one.column)
            newest = self._place("max_time", self._steady)
            return lambda found: found[value] if found[time] == found[newest] else None
        elif one.function is Function.SUM:
            place = self._place("sum", one.column)
        else:
            place = self._place(f"{one.function}_value", one.column)
        return lambda found: found[place]

    def _join(self, group: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Two parts as one."""
        joined = [
            other if one is None else one if other is None else _JOIN[name](one, other)
            for name, one, other in zip(self._functions, group, values, strict=True)
        ]
        for value, time in self._lasts:
            if values[time] is not None and (group[time] is None or values[time] > group[time]):
                joined[value] = values[value]
        return joined


def put_in_order(rows: list[Row], query: Query) -> list[Row]:
    """Rows in a query's order, nothing last, and no more of them than it asks for."""
    if query.order is None:
        return rows
    by, keys = query.order.by, query.keys
    rows = sorted(rows, key=lambda row: row[:keys])
    present = [row for row in rows if row[by] is not None]
    absent = [row for row in rows if row[by] is None]
    present.sort(key=lambda row: row[by], reverse=query.order.descending)
    return [*present, *absent][: query.limit]
