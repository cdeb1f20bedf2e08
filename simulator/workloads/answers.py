"""The right answers, computed from the generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import ColumnType, EventBlock, Schema
from .columns import Rows, Values, combine, join, rank, rank_rows
from .grouping import Groups, Part, Sums, sum_up
from .queries import Bound, Every, Function, Order, Query
from .stored import Range, Stored, unite

Row = tuple[Any, ...]

WHOLE = (ColumnType.TIMESTAMP_MS, ColumnType.INT32, ColumnType.INT64)

_PRECISION = {
    ColumnType.FLOAT32: 1e-6,
    ColumnType.FLOAT64: 1e-12,
    ColumnType.INT32: 1e-12,
    ColumnType.INT64: 1e-12,
}
"""How far each value may be off in what a database computes of many, relative to its size. That a
database computes means of float32 columns in that type is no wrong answer."""
_DIGITS = 1e-9
"""How far any mean may be off besides: databases give decimal fractions with so many digits."""

_EXACT = 2.0**53
"""Up to this size, floats of 64 bits have all whole numbers."""
_ROUNDING = 2.0**-53
"""How far one operation on such floats may be off, relative to its result (IEEE 754, to nearest)."""

Slack = NDArray[np.float64] | None
"""How far each value of a column may be off; None: not at all."""


@dataclass(frozen=True)
class Answer:
    """The right answer to a bound query."""

    query: Query
    names: tuple[str, ...]
    """What each value of a row is, for messages."""
    kinds: tuple[ColumnType, ...]
    """The type of each value."""
    columns: Sequence[Values]
    """Of all rows, in the query's order if it has one, and without its limit."""
    slack: Sequence[Slack]

    def __len__(self) -> int:
        """Of its rows."""
        found = len(self.columns[0])
        return found if self.query.limit is None else min(found, self.query.limit)

    def row(self, place: int) -> Row:
        """One of all rows."""
        return read_row(self.columns, place)

    @property
    def all_rows(self) -> list[Row]:
        """Without the limit, in plain values."""
        return list(zip(*(column.plain() for column in self.columns), strict=True))

    @property
    def rows(self) -> list[Row]:
        """The answer itself."""
        return self.all_rows[: self.query.limit]


def read_row(columns: Sequence[Values], place: int) -> Row:
    """A row in plain values."""
    one = slice(place, place + 1)
    return tuple(column.take(one).plain()[0] for column in columns)


def answer(bound: Bound, stored: Stored, rounded: Collection[Function] = ()) -> Answer:
    """The right answer. Memory grows with its rows, and with the groups it is computed of."""
    return answer_all([bound], stored, rounded=rounded)[0]


def answer_all(
    bounds: Sequence[Bound],
    stored: Stored,
    note: Callable[[int], object] = lambda _: None,
    rounded: Collection[Function] = (),
) -> list[Answer]:
    """The right answers of several queries: events are generated once, those that none of them is about
    not at all. `note` is told how many have been generated each time that there are more.

    `rounded`: what a database computes of whole numbers in floats of 64 bits, and so may be off beyond 2**53.
    """
    schema = stored.workload.schema
    found = [_evaluate(bound, schema, rounded) for bound in bounds]
    devices = _Devices()
    done = 0
    for block in stored.blocks(find_needed(bounds, stored)):
        taken = _Block(block, devices)
        for one in found:
            one.add(taken)
        done += len(block)
        note(done)
    return [one.finish() for one in found]


def find_needed(bounds: Iterable[Bound], stored: Stored) -> list[Range]:
    """Which events must be generated for the answers to these."""
    found: list[Range] = []
    for start_ms, end_ms in {(bound.start_ms, bound.end_ms) for bound in bounds}:
        found += stored.find_between(start_ms, end_ms)
    return unite(found)


_GROUP_BYTES, _VALUE_BYTES = 200, 200
"""What a group takes at most while answers are computed, and each of its values besides: 320 to 400 bytes
were measured of a group with one or two, of a million devices."""


def estimate_memory(bound: Bound, stored: Stored) -> int:
    """So many bytes the groups of a query take at most while its right answer is computed."""
    query, schema = bound.query, stored.workload.schema
    if query.events and not query.newest:
        return 0
    groups = 1
    if query.newest or schema.device in query.per:
        groups = stored.device_count if bound.devices is None else len(bound.devices)
    start, end = (bound.start_ms, bound.end_ms)
    if start is None or end is None:
        start, end = stored.span_ms
    for part in query.per:
        if isinstance(part, Every):
            groups *= (end - start) // part.every + 1
    values = len({one.column for one in query.compute} | set(query.events))
    return groups * (_GROUP_BYTES + _VALUE_BYTES * values)


def describe_answer(query: Query, schema: Schema) -> list[tuple[str, ColumnType]]:
    """Name and type of each value of a row."""
    if query.newest:
        return _describe_columns((schema.device, *query.events), schema)
    if query.events:
        return _describe_columns(query.events, schema)
    found: list[tuple[str, ColumnType]] = []
    for part in query.per:
        if isinstance(part, Every):
            found.append(("start", ColumnType.TIMESTAMP_MS))
        else:
            found += _describe_columns([part], schema)
    for one in query.compute:
        if one.column is None:
            found.append(("count", ColumnType.INT64))
            continue
        kind = schema.column(one.column).type
        if one.function is Function.AVG or (one.function is Function.SUM and kind not in WHOLE):
            kind = ColumnType.FLOAT64
        found.append((f"{one.function} of {one.column}", kind))
    return found


def _describe_columns(names: Iterable[str], schema: Schema) -> list[tuple[str, ColumnType]]:
    return [
        (name, ColumnType.TEXT if name == schema.device else schema.column(name).type)
        for name in names
    ]


# --- blocks ---------------------------------------------------------------------------------------


class _Devices:
    """The devices of blocks. Those of one that has the same as the block before needn't be sorted."""

    def __init__(self) -> None:
        self._last: NDArray[np.bytes_] | None = None
        self._known: tuple[NDArray[np.bytes_], NDArray[np.intp]]

    def number(self, devices: NDArray[np.bytes_]) -> tuple[NDArray[np.bytes_], NDArray[np.intp]]:
        """The distinct names in order, and the place among them of each event's."""
        if self._last is None or not np.array_equal(self._last, devices):
            places = rank(Values(devices))
            names = np.empty(int(places.max()) + 1, dtype=devices.dtype)
            names[places] = devices
            self._last, self._known = devices, (names, places)
        return self._known


class _Block:
    """Events, and what several queries want to know of them."""

    def __init__(self, block: EventBlock, devices: _Devices) -> None:
        self.events = block
        self.times: NDArray[np.int64] = block.columns[block.schema.time]
        self._devices = devices

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The times of the first and of the last in time."""
        return int(self.times.min()), int(self.times.max())

    @cached_property
    def devices(self) -> tuple[NDArray[np.bytes_], NDArray[np.intp]]:
        """As `_Devices.number`."""
        return self._devices.number(self.events.devices)

    def values(self, name: str, rows: Rows) -> Values:
        """A column's."""
        block = self.events
        array = block.devices if name == block.schema.device else block.columns[name]
        missing = block.missing.get(name)
        return Values(array[rows], None if missing is None else missing[rows])


# --- computing ------------------------------------------------------------------------------------


class _Evaluation(ABC):
    """A query's answer as far as blocks have been added."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        self._bound = bound
        self._query = bound.query
        self._schema = schema
        self._names = None
        if bound.devices is not None:
            self._names = np.array([name.encode() for name in bound.devices])

    def add(self, block: _Block) -> None:
        """Take the events that are asked about into account."""
        rows = self._select(block)
        if isinstance(rows, slice) or len(rows):
            self._take(block, rows)

    def _select(self, block: _Block) -> Rows:
        """The events that are asked about."""
        bound, where = self._bound, self._query.where
        conditions: list[NDArray[np.bool_]] = []
        start, end = bound.start_ms, bound.end_ms
        if start is not None and end is not None:
            first, last = block.span_ms
            if last < start or first >= end:
                return np.empty(0, dtype=np.intp)
            if first < start or last >= end:
                conditions.append((block.times >= start) & (block.times < end))
        if self._names is not None:
            known, places = block.devices
            conditions.append(np.isin(known, self._names)[places])
        if where is not None:
            values = block.events.columns[where.column]
            limit: Any = where.above if where.above is not None else where.below
            if values.dtype.kind == "f":
                limit = values.dtype.type(limit)
            conditions.append(values > limit if where.above is not None else values < limit)
            if where.column in block.events.missing:
                conditions.append(~block.events.missing[where.column])
        if not conditions:
            return slice(None)
        return np.flatnonzero(np.logical_and.reduce(conditions))

    @abstractmethod
    def _take(self, block: _Block, rows: Rows) -> None:
        """Take these into account."""

    @abstractmethod
    def _collect(self) -> tuple[Sequence[Values], Sequence[Slack]]:
        """All rows, in any order."""

    def finish(self) -> Answer:
        """The answer."""
        names, kinds = zip(*describe_answer(self._query, self._schema), strict=True)
        found, slack = self._collect()
        columns = [_normalize(kind, column) for kind, column in zip(kinds, found, strict=True)]
        # Without an order, too: so keys make it easy to find a row.
        order = np.argsort(rank_rows(columns, len(columns[0])), kind="stable")
        if self._query.order is not None:
            order = _put_in_order(order, columns, self._query.order)
        return Answer(
            self._query,
            names,
            kinds,
            [column.take(order) for column in columns],
            [None if one is None else one[order] for one in slack],
        )


def _put_in_order(
    rows: NDArray[np.intp], columns: Sequence[Values], order: Order
) -> NDArray[np.intp]:
    """Rows in a query's order: what has no value comes last, and equal ones stay as they are."""
    values = columns[order.by].take(rows)
    places = rank(Values(values.array))
    if order.descending:
        places = -places
    if values.missing is not None:
        places = np.where(values.missing, len(rows), places)
    return rows[np.argsort(places, kind="stable")]


def _normalize(kind: ColumnType, values: Values) -> Values:
    """With the type that values of a kind are compared in."""
    if kind in WHOLE and values.array.dtype.kind != "O":
        return Values(values.array.astype(np.int64, copy=False), values.missing)
    return values


class _Events(_Evaluation):
    """The events themselves."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        super().__init__(bound, schema)
        self._found: list[list[Values]] = []

    def _take(self, block: _Block, rows: Rows) -> None:
        self._found.append([block.values(name, rows) for name in self._query.events])

    def _collect(self) -> tuple[Sequence[Values], Sequence[Slack]]:
        kinds = [kind for _, kind in describe_answer(self._query, self._schema)]
        parts = self._found or [[_nothing(kind) for kind in kinds]]
        columns = [join([part[place] for part in parts]) for place in range(len(kinds))]
        return columns, [None] * len(columns)


class _Grouped(_Evaluation):
    """What is asked of groups of events."""

    def __init__(
        self, bound: Bound, schema: Schema, per: Sequence[str | Every], last: Iterable[str]
    ) -> None:
        super().__init__(bound, schema)
        self._per = per
        self._groups = Groups()
        self._last = list(dict.fromkeys(last))
        self._summed = {
            one.column
            for one in bound.query.compute
            if one.column is not None and one.function is not Function.LAST
        }

    def _take(self, block: _Block, rows: Rows) -> None:
        times = block.times[rows]
        groups = np.zeros(len(times), dtype=np.intp)
        keys = []
        for part in self._per:
            values, numbers = self._read_key(block, part, rows)
            keys.append(values)
            groups = combine(groups, numbers)
        count = int(groups.max()) + 1
        # Any event of a group tells its key.
        examples = np.empty(count, dtype=np.intp)
        examples[groups] = np.arange(len(groups))
        newest = None
        last: dict[str, Values] = {}
        if self._last:
            newest = np.full(count, np.iinfo(np.int64).min)
            np.maximum.at(newest, groups, times)
            newest_rows = np.flatnonzero(times == newest[groups])
            # Of several at that time, the last is assigned last.
            places = np.empty(count, dtype=np.intp)
            places[groups[newest_rows]] = newest_rows
            last = {name: block.values(name, rows).take(places) for name in self._last}
        self._groups.add(
            Part(
                [key.take(examples) for key in keys],
                np.bincount(groups, minlength=count),
                {name: sum_up(block.values(name, rows), groups, count) for name in self._summed},
                newest,
                last,
            )
        )

    def _read_key(
        self, block: _Block, part: str | Every, rows: Rows
    ) -> tuple[Values, NDArray[np.intp]]:
        """Part of each event's key, and a number for it."""
        if isinstance(part, Every):
            buckets = block.times[rows] // part.every
            return Values(buckets * part.every), buckets - buckets.min()
        if part == self._schema.device:
            _, places = block.devices
            return block.values(part, rows), places[rows]
        values = block.values(part, rows)
        return values, rank(values)


class _Newest(_Grouped):
    """Each device's newest event."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        super().__init__(bound, schema, (schema.device,), bound.query.events)

    def _collect(self) -> tuple[Sequence[Values], Sequence[Slack]]:
        found = self._groups.finish()
        kinds = [kind for _, kind in describe_answer(self._query, self._schema)]
        if found is None:
            columns = [_nothing(kind) for kind in kinds]
        else:
            columns = [*found.keys, *(found.last[name] for name in self._query.events)]
        return columns, [None] * len(columns)


class _Computed(_Grouped):
    """Values computed of groups of events."""

    def __init__(self, bound: Bound, schema: Schema, rounded: Collection[Function]) -> None:
        self._rounded = rounded
        compute = bound.query.compute
        last = [one.column for one in compute if one.column and one.function is Function.LAST]
        super().__init__(bound, schema, bound.query.per, last)

    def _collect(self) -> tuple[Sequence[Values], Sequence[Slack]]:
        found = self._groups.finish()
        if found is None:
            return self._describe_nothing()
        computed = [self._compute(found, one.function, one.column) for one in self._query.compute]
        return (
            [*found.keys, *(values for values, _ in computed)],
            [*(None for _ in found.keys), *(off for _, off in computed)],
        )

    def _describe_nothing(self) -> tuple[Sequence[Values], Sequence[Slack]]:
        """No events make no groups, but for that of all events: its count is 0, and it has no values."""
        kinds = [kind for _, kind in describe_answer(self._query, self._schema)]
        columns = [_nothing(kind) for kind in kinds]
        if not self._query.per:
            columns = [
                Values(np.zeros(1, dtype=np.int64))
                if one.function is Function.COUNT
                else Values(np.zeros(1, column.array.dtype), np.ones(1, dtype=bool))
                for one, column in zip(self._query.compute, columns, strict=True)
            ]
        return columns, [None] * len(columns)

    def _compute(self, found: Part, function: Function, name: str | None) -> tuple[Values, Slack]:
        """A value of each group, and how far it may be off."""
        if name is None:
            return Values(found.events), None
        if function is Function.LAST:
            return found.last[name], None
        sums: Sums = found.sums[name]
        missing = sums.count == 0
        kind = self._schema.column(name).type
        whole = kind in WHOLE
        in_floats = whole and function in self._rounded
        if function in (Function.MIN, Function.MAX):
            extreme = sums.low if function is Function.MIN else sums.high
            size = np.abs(extreme.astype(np.float64)) if in_floats else None
            return Values(extreme, missing), None if size is None else _round(size, 1)
        if function is Function.SUM:
            if whole:
                slack = _round(sums.size, sums.count) if in_floats else None
                return Values(sums.totals(), missing), slack
            return Values(sums.total, missing), _PRECISION[kind] * sums.size
        totals = sums.totals().astype(np.float64) if whole else sums.total
        count = np.maximum(sums.count, 1)
        means = totals / count
        slack = _PRECISION[kind] * sums.size / count + _DIGITS * np.abs(means)
        return Values(means, missing), slack


def _round(size: NDArray[np.float64], operations: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """How far whole numbers of this size may be off after so many operations in floats of 64 bits: not at
    all, as long as all of them are exact. A sum of n numbers, in any order, takes n (Higham, "Accuracy and
    Stability of Numerical Algorithms", 4.2, with the conversion of each)."""
    return np.where(size <= _EXACT, 0.0, size * (_ROUNDING * operations))


def _evaluate(bound: Bound, schema: Schema, rounded: Collection[Function]) -> _Evaluation:
    query = bound.query
    if query.compute:
        return _Computed(bound, schema, rounded)
    return _Newest(bound, schema) if query.newest else _Events(bound, schema)


_DTYPES: dict[ColumnType, type[np.generic]] = {
    **dict.fromkeys(WHOLE, np.int64),
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
    ColumnType.TEXT: np.bytes_,
    ColumnType.JSON: np.bytes_,
}


def to_values(kind: ColumnType, plain: Sequence[Any]) -> Values:
    """Plain values of a kind, None where there is none, as a column."""
    dtype = _DTYPES[kind]
    gone = np.array([value is None for value in plain], dtype=bool)
    nothing: Any = b"" if dtype is np.bytes_ else 0
    if dtype is np.bytes_:
        there = [nothing if value is None else value.encode() for value in plain]
    else:
        there = [nothing if value is None else value for value in plain]
    missing = gone if gone.any() else None
    try:
        return Values(np.array(there, dtype=dtype), missing)
    except OverflowError:
        return Values(np.array(there, dtype=object), missing)


def _nothing(kind: ColumnType) -> Values:
    return to_values(kind, [])
