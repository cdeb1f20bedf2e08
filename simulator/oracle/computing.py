"""Computes a query's answer from blocks of events, group by group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.drawing import BoundQuery
from ..workloads.queries import Every, Exactness, Function, Where
from ..workloads.schema import Column, ColumnType, EventBlock, Schema, read_path
from .columns import (
    DIGITS,
    PRECISION,
    WHOLE,
    Groups,
    Part,
    Rows,
    Samples,
    Values,
    combine,
    join,
    rank,
    round_off,
    sum_up,
    to_values,
)

# --- blocks ---------------------------------------------------------------------------------------


class Devices:
    """The devices of blocks. They are sorted again only if they differ from the last block's."""

    def __init__(self) -> None:
        self._last: NDArray[np.bytes_] | None = None
        self._known: tuple[NDArray[np.bytes_], NDArray[np.intp]]

    def number(self, devices: NDArray[np.bytes_]) -> tuple[NDArray[np.bytes_], NDArray[np.intp]]:
        """The distinct names in order, and the index of each event's device among them."""
        if self._last is None or not np.array_equal(self._last, devices):
            places = rank(Values(devices))
            names = np.empty(int(places.max()) + 1, dtype=devices.dtype)
            names[places] = devices
            self._last, self._known = devices, (names, places)
        return self._known


class Block:
    """Events, and derived values that several queries share."""

    def __init__(self, block: EventBlock, devices: Devices) -> None:
        self.events = block
        self.times: NDArray[np.int64] = block.columns[block.schema.time]
        self._devices = devices

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The earliest and the latest time of the events."""
        return int(self.times.min()), int(self.times.max())

    @cached_property
    def devices(self) -> tuple[NDArray[np.bytes_], NDArray[np.intp]]:
        """`Devices.number` of the events' devices."""
        return self._devices.number(self.events.devices)

    def values(self, name: str, rows: Rows) -> Values:
        """A column's values."""
        block = self.events
        if name != block.schema.device and name not in block.columns:
            return self._read_documents(block.schema.column(name)).take(rows)
        array = block.devices if name == block.schema.device else block.columns[name]
        missing = block.missing.get(name)
        return Values(array[rows], None if missing is None else missing[rows])

    def _read_documents(self, column: Column) -> Values:
        """The values at a path in all events' documents; few of these are different."""
        documents = np.array([text.encode() for text in column.texts])
        order = np.argsort(documents)
        stored = self.values(column.stored_as, slice(None))
        places = np.searchsorted(documents, stored.array, sorter=order)
        known = to_values(column.type, read_path(column.texts, column.path))
        values = known.take(order[np.minimum(places, len(order) - 1)])
        if stored.missing is None:
            return values
        missing = stored.missing if values.missing is None else values.missing | stored.missing
        return Values(values.array, missing)


# --- computing ------------------------------------------------------------------------------------


class Evaluation(ABC):
    """A query's answer, from the blocks added so far."""

    def __init__(self, bound: BoundQuery, schema: Schema) -> None:
        self._bound = bound
        self.query = bound.query
        self.schema = schema
        self._names = None
        if bound.devices is not None:
            self._names = np.array([name.encode() for name in bound.devices])

    def add(self, block: Block) -> None:
        """Add the events that the query covers."""
        rows = self._select(block)
        if isinstance(rows, slice) or len(rows):
            self._take(block, rows)

    def _select(self, block: Block) -> Rows:
        """The events that the query covers."""
        bound, where = self._bound, self.query.where
        conditions: list[NDArray[np.bool_]] = []
        start, end = bound.start_ms, bound.end_ms
        if start is not None and end is not None:
            first, last = block.span_ms
            if last < start or first >= end:
                return np.empty(0, dtype=np.intp)
            if first < start or last >= end:
                conditions.append((block.times >= start) & (block.times < end))
        if self._names is not None:
            names, places = block.devices
            conditions.append(np.isin(names, self._names)[places])
        if where is not None:
            values = block.values(where.column, slice(None))
            conditions.append(_fulfil(where, values.array))
            if values.missing is not None:
                conditions.append(~values.missing)
        if not conditions:
            return slice(None)
        return np.flatnonzero(np.logical_and.reduce(conditions))

    @abstractmethod
    def _take(self, block: Block, rows: Rows) -> None:
        """Add these events."""

    @abstractmethod
    def collect(self, kinds: Sequence[ColumnType]) -> list[Values]:
        """The columns of all rows, in any order. `kinds`: the types of their values."""


def _fulfil(where: Where, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values fulfil a condition, if they are all taken as present."""
    if where.texts:
        found = np.isin(values, np.array([text.encode() for text in where.texts]))
        return found if where.one_of is not None else ~found
    limit: Any = where.above if where.above is not None else where.below
    if values.dtype.kind == "f":
        limit = values.dtype.type(limit)
    fulfilled: NDArray[np.bool_] = values > limit if where.above is not None else values < limit
    return fulfilled


class _Events(Evaluation):
    """The events themselves."""

    def __init__(self, bound: BoundQuery, schema: Schema) -> None:
        super().__init__(bound, schema)
        self._found: list[list[Values]] = []

    def _take(self, block: Block, rows: Rows) -> None:
        self._found.append([block.values(name, rows) for name in self.query.events])

    def collect(self, kinds: Sequence[ColumnType]) -> list[Values]:
        parts = self._found or [[to_values(kind, []) for kind in kinds]]
        return [join([part[place] for part in parts]) for place in range(len(kinds))]


class _Grouped(Evaluation):
    """Values computed from groups of events; or values of each device's newest event."""

    def __init__(self, bound: BoundQuery, schema: Schema, exactness: Exactness) -> None:
        super().__init__(bound, schema)
        query = self.query
        self._exactness = exactness
        self._groups = Groups()
        self._per = (schema.device,) if query.newest else query.per
        newest = [(Function.LAST, name) for name in query.events]
        self._compute: list[tuple[Function, str | None]] = [
            *newest,
            *((aggregate.function, aggregate.column) for aggregate in query.compute),
        ]
        named = [(function, name) for function, name in self._compute if name is not None]
        self._last = dict.fromkeys(name for function, name in named if function is Function.LAST)
        self._listed = {name for function, name in named if function.percent is not None}
        self._summed = {
            name
            for function, name in named
            if function is not Function.LAST and function.percent is None
        }

    def _take(self, block: Block, rows: Rows) -> None:
        times = block.times[rows]
        groups = np.zeros(len(times), dtype=np.intp)
        keys = []
        for part in self._per:
            values, numbers = self._read_key(block, part, rows)
            keys.append(values)
            groups = combine(groups, numbers)
        count = int(groups.max()) + 1
        # Any event of a group has its key.
        examples = np.empty(count, dtype=np.intp)
        examples[groups] = np.arange(len(groups))
        newest = None
        last: dict[str, Values] = {}
        if self._last:
            newest = np.full(count, np.iinfo(np.int64).min)
            np.maximum.at(newest, groups, times)
            newest_rows = np.flatnonzero(times == newest[groups])
            # Of several events at that time, the last is assigned last.
            places = np.empty(count, dtype=np.intp)
            places[groups[newest_rows]] = newest_rows
            last = {name: block.values(name, rows).take(places) for name in self._last}
        self._groups.add(
            Part(
                [key.take(examples) for key in keys],
                np.bincount(groups, minlength=count),
                {name: sum_up(block.values(name, rows), groups, count) for name in self._summed},
                {name: Samples.of(block.values(name, rows), groups) for name in self._listed},
                newest,
                last,
            )
        )

    def _read_key(
        self, block: Block, part: str | Every, rows: Rows
    ) -> tuple[Values, NDArray[np.intp]]:
        """A part of each event's key, and a number for it."""
        if isinstance(part, Every):
            buckets = block.times[rows] // part.every
            return Values(buckets * part.every), buckets - buckets.min()
        if part == self.schema.device:
            _, places = block.devices
            return block.values(part, rows), places[rows]
        values = block.values(part, rows)
        return values, rank(values)

    def collect(self, kinds: Sequence[ColumnType]) -> list[Values]:
        groups = self._groups.finish()
        if groups is not None:
            computed = (self._compute_one(groups, *what) for what in self._compute)
            return [*groups.keys, *computed]
        # Without events there are no groups, except the one of all events: its count is 0, and it has no
        # values.
        columns = [to_values(kind, []) for kind in kinds]
        if self._per:
            return columns
        return [
            Values(np.zeros(1, dtype=np.int64))
            if aggregate.function is Function.COUNT
            else Values(np.zeros(1, column.array.dtype), np.ones(1, dtype=bool))
            for aggregate, column in zip(self.query.compute, columns, strict=True)
        ]

    def _compute_one(self, groups: Part, function: Function, name: str | None) -> Values:
        """One value of each group."""
        if name is None:
            return Values(groups.events)
        if function is Function.LAST:
            return groups.last[name]
        kind = self.schema.column(name).type
        if function.percent is not None:
            samples, how = groups.samples[name], self._exactness.percentiles
            return samples.find_percentile(function.percent, how, len(groups), PRECISION[kind])
        sums = groups.sums[name]
        if function is Function.COUNT:
            return Values(sums.count)
        missing = sums.count == 0
        whole = kind in WHOLE
        in_floats = whole and function in self._exactness.rounded
        if function in (Function.MIN, Function.MAX):
            extreme = sums.low if function is Function.MIN else sums.high
            slack = round_off(np.abs(extreme.astype(np.float64)), 1) if in_floats else None
            return Values(extreme, missing, slack)
        if function is Function.SUM:
            if whole:
                slack = round_off(sums.size, sums.count) if in_floats else None
                return Values(sums.totals(), missing, slack)
            return Values(sums.total, missing, PRECISION[kind] * sums.size)
        totals = sums.totals().astype(np.float64) if whole else sums.total
        count = np.maximum(sums.count, 1)
        means = totals / count
        slack = PRECISION[kind] * sums.size / count + DIGITS * np.abs(means)
        return Values(means, missing, slack)


def evaluate(bound: BoundQuery, schema: Schema, exactness: Exactness) -> Evaluation:
    """The evaluation that computes a query's answer."""
    query = bound.query
    if query.compute or query.newest:
        return _Grouped(bound, schema, exactness)
    return _Events(bound, schema)
