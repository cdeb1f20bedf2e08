"""For databases without SQL: events as samples of series with labels, values computed from parts of the
events, and the order of an answer's rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ...encoding.columns import TEXTS, text_format
from ...workloads.queries import Aggregate, Every, Function, Query, Where
from ...workloads.schema import FLOATS, Column, ColumnType, Schema

Row = tuple[Any, ...]


def put_in_order(query: Query, rows: Iterable[Row]) -> list[Row]:
    """The rows in the query's order and within its limit: missing values come last, and equal rows are
    ordered by the identifying columns."""
    answer = list(rows)
    order = query.order
    if order is None:
        return answer
    try:
        answer.sort(key=lambda row: row[: query.keys])
    except TypeError:
        # Only texts of events can be missing, and each check takes time.
        answer.sort(key=lambda row: [(value is None, value) for value in row[: query.keys]])
    present = [row for row in answer if row[order.by] is not None]
    missing = [row for row in answer if row[order.by] is None]
    # Stable in both directions: equal rows keep their order.
    present.sort(key=lambda row: row[order.by], reverse=order.descending)
    return (present + missing)[: query.limit]


def tag_columns(schema: Schema) -> list[Column]:
    """The columns that become tags besides the device."""
    return [column for column in schema.columns if column.tag]


def name_device(schema: Schema) -> str:
    """The name of the device's tag."""
    return schema.device_path or schema.device


def name_tag(column: str, schema: Schema) -> str:
    """The name of a column's tag."""
    return name_device(schema) if column == schema.device else column


def field_columns(schema: Schema) -> list[Column]:
    """The columns that become fields. Nullable ones come last: an event without such a value lacks the
    field."""
    key_names = (schema.device, schema.time)
    fields = [c for c in schema.columns if c.name not in key_names and not c.tag]
    return sorted(fields, key=lambda column: column.nullable)


def find_witness(schema: Schema) -> str:
    """A field that every event has, so its count is the number of events."""
    return [column.name for column in field_columns(schema) if not column.nullable][-1]


def has_labels(schema: Schema, names: Collection[str]) -> bool:
    """Whether series with tags of these names can be a workload's. A document that names the device has
    unknown tags."""
    device = name_device(schema)
    known = {device, *(column.name for column in tag_columns(schema))}
    return device in names and (schema.device_path is not None or set(names) <= known)


@lru_cache(maxsize=65_536)
def read_labels(document: bytes) -> Mapping[str, str]:
    """The members of a JSON object as labels. Cached, since the events of a device share one document."""
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in orjson.loads(document).items()
    }


class Labels:
    """A column of numbers or truth values as texts. Tags have few distinct values: each is formatted once."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._known: NDArray[Any] | None = None
        self._texts: NDArray[Any] = np.empty(0, dtype="S1")

    def write(self, values: NDArray[Any]) -> NDArray[Any]:
        """Each value's text."""
        places = self._find(values)
        if places is None:
            seen = values if self._known is None else np.append(self._known, values)
            self._known = np.unique(seen)
            self._texts = np.array([label(self._column, value) for value in self._known])
            places = np.searchsorted(self._known, values)
        texts: NDArray[Any] = self._texts[places]
        return texts

    def _find(self, values: NDArray[Any]) -> NDArray[np.intp] | None:
        """The index of each value among the known ones; None if one is new."""
        if self._known is None:
            return None
        places = np.minimum(np.searchsorted(self._known, values), len(self._known) - 1)
        return places if bool((self._known[places] == values).all()) else None


def label(column: Column, value: Any) -> bytes:
    """A column's number or truth value as a tag's text; without decimals, the shortest exact one."""
    if column.type in FLOATS and column.decimals is None:
        return np.format_float_positional(value, trim="-").encode()
    if column.type is ColumnType.BOOL:
        return b"true" if value else b"false"
    text: bytes = text_format(column) % value
    return text


def read_tag(column: Column, text: Any) -> Any:
    """A tag's value; an empty text means that there is no tag."""
    if column.type in FLOATS:
        return float(text)
    if column.type is ColumnType.BOOL:
        return text == "true"
    if column.type in TEXTS:
        return text or ""
    return int(text)


_KEYS = 2
"""Device and bucket of time, which precede the computed values of a part."""


class Partials(ABC):
    """A query's computed values: expressions for each part in a database's language, and how to combine the
    results.

    A part's row: its device and bucket of time (None if parts don't differ in it), the values of `newest`,
    those of `computed`. A last value is that of the part with the newest event, so such parts are of one
    device.
    """

    COUNTS_SUMS: bool = False
    """Whether the sum of no values is 0, so that their number is needed."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._query, self._schema = query, schema
        tags = [part for part in query.per if isinstance(part, str) and part != schema.device]
        buckets = [part.every for part in query.per if isinstance(part, Every)]
        self.every_ms = math.gcd(*buckets)
        """Length of the buckets of time, of which those of the query are composed; 0: all time."""
        lasts = [
            aggregate.column
            for aggregate in query.compute
            if aggregate.function is Function.LAST and aggregate.column
        ]
        times = [self.last_time(name) for name in (*lasts, schema.time)] if lasts else []
        self.newest = list(dict.fromkeys([*map(self.last, [*tags, *lasts]), *times]))
        """Expressions for a part's newest event."""
        computed = [
            expression
            for aggregate in query.compute
            for expression in self._list_computed(aggregate)
        ]
        self.computed = list(dict.fromkeys([self.number(None), *computed]))
        """Expressions over all events of a part; their number comes first."""
        expressions = [*self.newest, *self.computed]
        self._places = {expression: place for place, expression in enumerate(expressions, _KEYS)}

    @abstractmethod
    def number(self, column: str | None) -> str:
        """The number of values in a column; None: the number of events."""

    def count(self, column: str) -> str:
        """The number of values in a nullable column."""
        return self.number(column)

    @abstractmethod
    def sum(self, column: str) -> str:
        """The sum of a column's values."""

    @abstractmethod
    def extreme(self, function: Function, column: str) -> str:
        """The least or the greatest value of a column, which may be the time."""

    @abstractmethod
    def last(self, column: str) -> str:
        """A column's last value."""

    @abstractmethod
    def last_time(self, column: str) -> str:
        """The time of the last value; for the time column, of the newest event."""

    def read(self, value: Any) -> Any:
        """An extreme value in the form for answers."""
        return value

    def put_together(self, parts: Iterable[Row]) -> list[Row]:
        """The answer's rows, in any order, from the parts' rows."""
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
        """A function that reads a group's key value from a part's row."""
        if isinstance(part, Every):
            every = part.every
            return lambda row: row[1] - row[1] % every
        return itemgetter(0 if part == self._schema.device else self._places[self.last(part)])

    def _list_computed(self, aggregate: Aggregate) -> list[str]:
        """The expressions over a part's events that an aggregate needs."""
        if aggregate.column is None or aggregate.function is Function.LAST:
            return []
        if aggregate.function is Function.COUNT:
            return [self.count(aggregate.column)]
        if aggregate.function in (Function.MIN, Function.MAX):
            return [self.extreme(aggregate.function, aggregate.column)]
        counts = aggregate.function is Function.AVG or self.COUNTS_SUMS
        return [self.sum(aggregate.column), *([self.number(aggregate.column)] if counts else [])]

    def _compute(self, aggregate: Aggregate, rows: Sequence[Row]) -> Any:
        """The value of an aggregate over a group's parts."""
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
    """Operator and limit of a condition, with the limit in the column's own precision."""
    kind = schema.column(where.column).type
    sign, limit = where.comparison
    if kind in (ColumnType.INT32, ColumnType.INT64):
        return sign, math.floor(limit) if sign == ">" else math.ceil(limit)
    return sign, float(np.float32(limit)) if kind is ColumnType.FLOAT32 else limit
