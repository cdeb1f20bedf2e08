"""The right answers, computed from the generator, and what a database's answers have to do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import ColumnType, EventBlock, Schema
from .queries import Bound, Every, Function, Query
from .stored import Stored

Row = tuple[Any, ...]

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


@dataclass(frozen=True)
class Answer:
    """The right answer to a bound query."""

    query: Query
    names: tuple[str, ...]
    """What each value of a row is, for messages."""
    kinds: tuple[ColumnType, ...]
    """The type of each value."""
    all_rows: list[Row]
    """In the query's order, if it has one, and without its limit."""
    slack: list[tuple[float, ...]]
    """How far each value of each row may be off; 0: not at all."""

    @property
    def rows(self) -> list[Row]:
        """The answer itself."""
        return self.all_rows[: self.query.limit]


def answer(bound: Bound, stored: Stored) -> Answer:
    """The right answer. Memory grows with its rows only."""
    return answer_all([bound], stored)[0]


def answer_all(bounds: Sequence[Bound], stored: Stored) -> list[Answer]:
    """The right answers of several queries: events are generated once."""
    schema = stored.workload.schema
    found = [_evaluate(bound, schema) for bound in bounds]
    for block in stored.blocks():
        for one in found:
            one.add(block)
    return [one.finish() for one in found]


# --- computing ------------------------------------------------------------------------------------


class _Evaluation:
    """A query's answer as far as blocks have been added."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        self._bound = bound
        self._schema = schema
        self._devices = bound.devices and np.array([name.encode() for name in bound.devices])

    def add(self, block: EventBlock) -> None:
        """Take the events that are asked about into account."""
        rows = self._select(block)
        if len(rows):
            self._take(block, rows)

    def _select(self, block: EventBlock) -> NDArray[np.intp]:
        bound, where = self._bound, self._bound.query.where
        chosen = np.ones(len(block), dtype=bool)
        if self._devices is not None:
            chosen &= np.isin(block.devices, self._devices)
        if bound.start_ms is not None and bound.end_ms is not None:
            times = block.columns[self._schema.time]
            chosen &= (times >= bound.start_ms) & (times < bound.end_ms)
        if where is not None:
            values = block.columns[where.column]
            limit: Any = where.above if where.above is not None else where.below
            if values.dtype.kind == "f":
                limit = values.dtype.type(limit)
            chosen &= values > limit if where.above is not None else values < limit
            if where.column in block.missing:
                chosen &= ~block.missing[where.column]
        return np.flatnonzero(chosen)

    def _take(self, block: EventBlock, rows: NDArray[np.intp]) -> None:
        raise NotImplementedError

    def _rows(self) -> tuple[list[Row], list[tuple[float, ...]]]:
        raise NotImplementedError

    def _describe(self) -> list[tuple[str, ColumnType]]:
        """Name and type of each value of a row."""
        raise NotImplementedError

    def finish(self) -> Answer:
        """The answer."""
        query = self._bound.query
        rows, slack = self._rows()
        described = self._describe()
        # Without an order, keys make it easy to find a row.
        places = sorted(range(len(rows)), key=lambda place: _sort_key(rows[place]))
        if query.order is not None:
            places = _put_in_order(places, rows, query)
        names, kinds = zip(*described, strict=True)
        ordered = [rows[place] for place in places]
        return Answer(query, names, kinds, ordered, [slack[place] for place in places])


def _put_in_order(places: list[int], rows: list[Row], query: Query) -> list[int]:
    """Rows in the query's order: what has no value comes last."""
    order = query.order
    assert order is not None
    some = [place for place in places if rows[place][order.by] is not None]
    none = [place for place in places if rows[place][order.by] is None]
    # Stable: equal rows stay in the order of their keys, whichever way.
    some.sort(key=lambda place: rows[place][order.by], reverse=order.descending)
    return some + none


class _Events(_Evaluation):
    """The events themselves."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        super().__init__(bound, schema)
        self._found: list[Row] = []

    def _take(self, block: EventBlock, rows: NDArray[np.intp]) -> None:
        names = self._bound.query.events
        self._found += zip(*(_read(block, name, rows) for name in names), strict=True)

    def _rows(self) -> tuple[list[Row], list[tuple[float, ...]]]:
        return self._found, [(0.0,) * len(self._bound.query.events)] * len(self._found)

    def _describe(self) -> list[tuple[str, ColumnType]]:
        return _describe_columns(self._bound.query.events, self._schema)


class _Newest(_Evaluation):
    """Each device's newest event."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        super().__init__(bound, schema)
        self._newest: dict[bytes, tuple[int, Row]] = {}

    def _take(self, block: EventBlock, rows: NDArray[np.intp]) -> None:
        devices, times = block.devices[rows], block.columns[self._schema.time][rows]
        order = np.lexsort((times, devices))
        ends = np.flatnonzero(np.append(devices[order][1:] != devices[order][:-1], True))
        last = order[ends]
        values = zip(
            *(_read(block, name, rows[last]) for name in self._bound.query.events), strict=True
        )
        for device, time, row in zip(
            devices[last].tolist(), times[last].tolist(), values, strict=True
        ):
            known = self._newest.get(device)
            if known is None or time >= known[0]:
                self._newest[device] = time, row

    def _rows(self) -> tuple[list[Row], list[tuple[float, ...]]]:
        rows = [(device.decode(), *row) for device, (_, row) in self._newest.items()]
        return rows, [(0.0,) * self._bound.query.width] * len(rows)

    def _describe(self) -> list[tuple[str, ColumnType]]:
        names = (self._schema.device, *self._bound.query.events)
        return _describe_columns(names, self._schema)


@dataclass(slots=True)
class _Sums:
    """What is known of a column's values in a group."""

    count: int
    total: Any
    size: float
    """Sum of the values' sizes, without their signs."""
    low: Any
    high: Any

    def merge(self, other: _Sums) -> None:
        if not other.count:
            return
        if not self.count:
            self.low, self.high = other.low, other.high
        self.count += other.count
        self.total += other.total
        self.size += other.size
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)


@dataclass(slots=True)
class _Group:
    """What is known of the events of a row."""

    events: int
    sums: dict[str, _Sums]
    newest: int
    last: dict[str, Any]

    def merge(self, other: _Group) -> None:
        self.events += other.events
        for name, sums in self.sums.items():
            sums.merge(other.sums[name])
        if other.newest >= self.newest:
            self.newest, self.last = other.newest, other.last


class _Computed(_Evaluation):
    """Values computed of groups of events."""

    def __init__(self, bound: Bound, schema: Schema) -> None:
        super().__init__(bound, schema)
        self._groups: dict[Row, _Group] = {}
        compute = bound.query.compute
        self._summed = {
            one.column
            for one in compute
            if one.column is not None and one.function is not Function.LAST
        }
        self._last = {one.column for one in compute if one.column and one.function is Function.LAST}

    def _take(self, block: EventBlock, rows: NDArray[np.intp]) -> None:
        keys = [self._read_key(block, part, rows) for part in self._bound.query.per]
        group = np.zeros(len(rows), dtype=np.int64)
        for values in keys:
            distinct, places = np.unique(values, return_inverse=True)
            group = np.unique(group * len(distinct) + places, return_inverse=True)[1]
        times = block.columns[self._schema.time][rows]
        # By group, the newest event last.
        order = np.lexsort((times, group))
        starts = np.flatnonzero(np.append(True, np.diff(group[order]) != 0))
        ends = np.append(starts[1:], len(order))
        newest = order[ends - 1]
        names = zip(*(_plain(values[newest]) for values in keys), strict=True) if keys else [()]
        summed = {name: _sum_up(block, name, rows[order], starts, ends) for name in self._summed}
        last = {name: _read(block, name, rows[newest]) for name in self._last}
        for place, key in enumerate(names):
            found = _Group(
                int(ends[place] - starts[place]),
                {name: sums[place] for name, sums in summed.items()},
                int(times[newest[place]]),
                {name: values[place] for name, values in last.items()},
            )
            known = self._groups.setdefault(key, found)
            if known is not found:
                known.merge(found)

    def _read_key(self, block: EventBlock, part: str | Every, rows: NDArray[np.intp]) -> Any:
        if isinstance(part, Every):
            times = block.columns[self._schema.time][rows]
            return times - times % part.every
        if part == self._schema.device:
            return block.devices[rows]
        return block.columns[part][rows]

    def _rows(self) -> tuple[list[Row], list[tuple[float, ...]]]:
        query = self._bound.query
        groups = self._groups
        if not query.per and not groups:
            nothing = {name: _Sums(0, 0, 0.0, None, None) for name in self._summed}
            groups = {(): _Group(0, nothing, 0, dict.fromkeys(self._last))}
        rows, slack = [], []
        for key, group in groups.items():
            values = [self._compute(group, one.function, one.column) for one in query.compute]
            rows.append((*key, *(value for value, _ in values)))
            slack.append((0.0,) * len(key) + tuple(off for _, off in values))
        return rows, slack

    def _compute(self, group: _Group, function: Function, name: str | None) -> tuple[Any, float]:
        """A value, and how far it may be off."""
        if name is None:
            return group.events, 0.0
        if function is Function.LAST:
            return group.last[name], 0.0
        sums = group.sums[name]
        if not sums.count:
            return None, 0.0
        if function is Function.MIN:
            return sums.low, 0.0
        if function is Function.MAX:
            return sums.high, 0.0
        kind = self._schema.column(name).type
        whole = kind in (ColumnType.INT32, ColumnType.INT64)
        if function is Function.SUM:
            return sums.total, 0.0 if whole else _PRECISION[kind] * sums.size
        mean = sums.total / sums.count
        return mean, _PRECISION[kind] * sums.size / sums.count + _DIGITS * abs(mean)

    def _describe(self) -> list[tuple[str, ColumnType]]:
        query, schema = self._bound.query, self._schema
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
            whole = kind in (ColumnType.INT32, ColumnType.INT64)
            if one.function is Function.AVG or (one.function is Function.SUM and not whole):
                kind = ColumnType.FLOAT64
            found.append((f"{one.function} of {one.column}", kind))
        return found


def _evaluate(bound: Bound, schema: Schema) -> _Evaluation:
    query = bound.query
    if query.compute:
        return _Computed(bound, schema)
    return _Newest(bound, schema) if query.newest else _Events(bound, schema)


def _sum_up(
    block: EventBlock,
    name: str,
    rows: NDArray[np.intp],
    starts: NDArray[np.intp],
    ends: NDArray[np.intp],
) -> list[_Sums]:
    """Of the values of `rows`, those from each start to before its end."""
    values = block.columns[name][rows]
    there = ~block.missing[name][rows] if name in block.missing else np.ones(len(rows), dtype=bool)
    counts = np.add.reduceat(there, starts, dtype=np.int64)
    sizes = np.add.reduceat(np.where(there, np.abs(values.astype(np.float64)), 0.0), starts)
    totals: list[Any]
    if values.dtype.kind == "f":
        least, most = -np.inf, np.inf
        totals = np.add.reduceat(np.where(there, values, 0.0).astype(np.float64), starts).tolist()
    else:
        limits = np.iinfo(values.dtype)
        least, most = limits.min, limits.max
        # In halves: whole numbers of 64 bits, summed up, need more.
        whole = np.where(there, values, 0).astype(np.int64)
        upper = np.add.reduceat(whole >> 32, starts).tolist()
        lower = np.add.reduceat(whole & 0xFFFF_FFFF, starts).tolist()
        totals = [(high << 32) + low for high, low in zip(upper, lower, strict=True)]
    lows = np.minimum.reduceat(np.where(there, values, values.dtype.type(most)), starts).tolist()
    highs = np.maximum.reduceat(np.where(there, values, values.dtype.type(least)), starts).tolist()
    parts = zip(counts.tolist(), totals, sizes.tolist(), lows, highs, strict=True)
    return [_Sums(*part) for part in parts]


def _read(block: EventBlock, name: str, rows: NDArray[np.intp]) -> list[Any]:
    """An event column's values in plain types, None where there is none."""
    column = block.devices if name == block.schema.device else block.columns[name]
    values = _plain(column[rows])
    if name in block.missing:
        gone = block.missing[name][rows].tolist()
        return [None if no else value for value, no in zip(values, gone, strict=True)]
    return values


def _plain(values: NDArray[Any]) -> list[Any]:
    found: list[Any] = values.tolist()
    return [value.decode() for value in found] if found and isinstance(found[0], bytes) else found


def _describe_columns(names: Iterable[str], schema: Schema) -> list[tuple[str, ColumnType]]:
    return [
        (name, ColumnType.TEXT if name == schema.device else schema.column(name).type)
        for name in names
    ]


# --- comparing ------------------------------------------------------------------------------------


def compare_answers(right: Answer, found: Sequence[Sequence[Any]]) -> str | None:
    """What is wrong with the answer that was found, naming the first row that differs; None: nothing.

    Rows, keys, counts, extrema and values of events must be right exactly (in float32 if the column is
    of that type), sums and means of numbers to the column's precision.
    """
    width = len(right.kinds)
    rows: list[Row] = []
    for number, row in enumerate(found, 1):
        if len(row) != width:
            return f"row {number} has {len(row)} values instead of {width}: {tuple(row)}"
        try:
            rows.append(
                tuple(_normal(kind, value) for kind, value in zip(right.kinds, row, strict=True))
            )
        except (TypeError, ValueError, OverflowError) as error:
            return f"row {number}, {tuple(row)}: {error}"
    expected = len(right.rows)
    wrong_length = None if len(rows) == expected else f"{len(rows):,} rows instead of {expected:,}"
    compare = _compare_keyed if right.query.keys else _compare_whole
    if not right.query.keys and right.query.compute:
        # One row, told apart by nothing.
        return wrong_length or _compare_values(right, 0, rows[0])
    differing = compare(right, rows) or (None if wrong_length else _compare_order(right, rows))
    if wrong_length and differing:
        return f"{wrong_length}; {differing}"
    return wrong_length or differing


def _compare_keyed(right: Answer, rows: list[Row]) -> str | None:
    keys = right.query.keys
    places = {row[:keys]: place for place, row in enumerate(_normal_rows(right))}
    seen: set[Row] = set()
    for row in sorted(rows, key=_sort_key):
        key = row[:keys]
        if key not in places:
            return f"a row that shouldn't be there: {row}"
        if key in seen:
            return f"two rows of {_say_key(right, key)}, one of them {row}"
        seen.add(key)
        differing = _compare_values(right, places[key], row)
        if differing:
            return differing
    if right.query.limit is None:
        for key, place in places.items():
            if key not in seen:
                return f"no row of {_say_key(right, key)}, expected {right.all_rows[place]}"
    return None


def _compare_values(right: Answer, place: int, row: Row) -> str | None:
    keys = right.query.keys
    expected = _normal_row(right, right.all_rows[place])
    for name, value, wanted, slack in zip(
        right.names, row, expected, right.slack[place], strict=True
    ):
        if _is_near(value, wanted, slack):
            continue
        whose = f" of {_say_key(right, row[:keys])}" if keys else ""
        return f"{name}{whose} is {value} instead of {wanted}"
    return None


def _is_near(value: Any, wanted: Any, slack: float) -> bool:
    if slack and value is not None and wanted is not None:
        return bool(abs(value - wanted) <= slack)
    return bool(value == wanted)


def _compare_whole(right: Answer, rows: list[Row]) -> str | None:
    """Rows that nothing tells apart but their values, all of which must be right."""
    wanted = Counter(_normal_rows(right))
    surplus = Counter(rows) - wanted
    if surplus:
        return f"a row that shouldn't be there: {min(surplus, key=_sort_key)}"
    lacking = wanted - Counter(rows)
    if lacking and right.query.limit is None:
        return f"a row is missing: {min(lacking, key=_sort_key)}"
    return None


def _compare_order(right: Answer, rows: list[Row]) -> str | None:
    """Whether the values by which rows are ordered are those of the right answer, one after the other:
    which of several rows with the same value come first, or within the limit, is open."""
    order = right.query.order
    if order is None:
        return None
    kind = right.kinds[order.by]
    for number, (row, wanted, slack) in enumerate(
        zip(rows, right.rows, right.slack[: len(rows)], strict=True), 1
    ):
        value, limit = row[order.by], _normal(kind, wanted[order.by])
        if _is_near(value, limit, slack[order.by]):
            continue
        return f"row {number} by {right.names[order.by]}: {row}, expected {wanted}"
    return None


def _normal_rows(right: Answer) -> list[Row]:
    return [_normal_row(right, row) for row in right.all_rows]


def _normal_row(right: Answer, row: Row) -> Row:
    return tuple(_normal(kind, value) for kind, value in zip(right.kinds, row, strict=True))


def _sort_key(row: Row) -> list[tuple[bool, Any]]:
    return [(value is None, "" if value is None else value) for value in row]


def _say_key(right: Answer, key: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(right.names, key, strict=False))


def _to_whole(value: Any) -> int:
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value} is no whole number")
    return whole


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _to_bool(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


def _to_float32(value: Any) -> float:
    return float(np.float32(float(value)))


_NORMAL: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.TIMESTAMP_MS: _to_whole,
    ColumnType.INT64: _to_whole,
    ColumnType.INT32: _to_whole,
    ColumnType.FLOAT32: _to_float32,
    ColumnType.FLOAT64: float,
    ColumnType.BOOL: _to_bool,
    ColumnType.TEXT: _to_text,
    ColumnType.JSON: _to_text,
}


def _normal(kind: ColumnType, value: Any) -> Any:
    """A value in the one form in which values are compared."""
    return None if value is None else _NORMAL[kind](value)
