"""Columns of values, some of which may be missing, for computing and comparing answers. Groups of events are
kept in arrays: a million groups take as much memory as their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.queries import Percentiles
from ..workloads.schema import ColumnType

Rows = NDArray[np.intp] | slice

WHOLE = (ColumnType.TIMESTAMP_MS, ColumnType.INT32, ColumnType.INT64)
"""The types of whole numbers."""

_WORD = 8
"""How many bytes of a text are compared at once."""


@dataclass(frozen=True, slots=True)
class Values:
    """A column. Texts are UTF-8 in a bytes array."""

    array: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    """Where there is no value, whatever the array holds there; None: no value is missing."""
    slack: NDArray[np.float64] | None = None
    """How far each value may be off and still be right; None: not at all."""

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Rows) -> Values:
        """Some of the values, in this order."""
        missing = None if self.missing is None else self.missing[rows]
        slack = None if self.slack is None else self.slack[rows]
        return Values(self.array[rows], missing, slack)

    def plain(self) -> list[Any]:
        """As Python values; None for a missing one."""
        values: list[Any] = self.array.tolist()
        if self.array.dtype.kind == "S":
            values = [value.decode() for value in values]
        if self.missing is not None:
            for row in np.flatnonzero(self.missing).tolist():
                values[row] = None
        return values


_DTYPES: dict[ColumnType, type[np.generic]] = {
    **dict.fromkeys(WHOLE, np.int64),
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
    ColumnType.TEXT: np.bytes_,
    ColumnType.JSON: np.bytes_,
}


def to_values(kind: ColumnType, plain: Sequence[Any]) -> Values:
    """Plain values of a kind as a column; None for a missing one."""
    dtype = _DTYPES[kind]
    is_missing = np.array([value is None for value in plain], dtype=bool)
    nothing: Any = b"" if dtype is np.bytes_ else 0
    if dtype is np.bytes_:
        filled = [nothing if value is None else value.encode() for value in plain]
    else:
        filled = [nothing if value is None else value for value in plain]
    missing = is_missing if is_missing.any() else None
    try:
        return Values(np.array(filled, dtype=dtype), missing)
    except OverflowError:
        return Values(np.array(filled, dtype=object), missing)


def join(parts: Sequence[Values]) -> Values:
    """Columns joined one after the other."""
    missing = None
    if any(part.missing is not None for part in parts):
        missing = np.concatenate(
            [np.zeros(len(p), dtype=bool) if p.missing is None else p.missing for p in parts]
        )
    return Values(np.concatenate([part.array for part in parts]), missing)


def rank(values: Values) -> NDArray[np.intp]:
    """A number for each value: equal for equal values, higher for higher ones, highest for missing ones."""
    array = values.array
    ranks = _rank_texts(array) if array.dtype.kind == "S" else _rank_distinct(array)
    if values.missing is not None and values.missing.any():
        ranks = np.where(values.missing, len(array), ranks)
    return ranks


def rank_rows(columns: Sequence[Values], count: int) -> NDArray[np.intp]:
    """A number for each row of values, from 0 without gaps; first values count most. `count`: how many rows
    there are, as they may have no values at all."""
    ranks = np.zeros(count, dtype=np.intp)
    for column in columns:
        ranks = combine(ranks, rank(column))
    return ranks


def combine(first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.intp]:
    """Ranks of pairs, without gaps."""
    if not len(first):
        return first
    return densify(first * (int(second.max()) + 1) + second)[0]


def densify(codes: NDArray[np.intp]) -> tuple[NDArray[np.intp], int]:
    """The codes renumbered from 0 without gaps, in the same order; and how many there are."""
    if not len(codes):
        return codes, 0
    most = int(codes.max()) + 1
    if most > 8 * len(codes) + 1024:
        distinct, places = np.unique(codes, return_inverse=True)
        return places, len(distinct)
    there = np.zeros(most, dtype=bool)
    there[codes] = True
    numbers = np.cumsum(there) - 1
    return numbers[codes], int(numbers[-1]) + 1


def _rank_texts(texts: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Rank texts eight bytes at a time, as numbers: numpy's comparison of texts is an order of magnitude
    slower."""
    words = max(1, -(-texts.dtype.itemsize // _WORD))
    padded = texts.astype(f"S{words * _WORD}").view(">u8").reshape(len(texts), words)
    ranks = _rank_distinct(padded[:, 0].astype(np.uint64))
    for word in range(1, words):
        ranks = combine(ranks, _rank_distinct(padded[:, word].astype(np.uint64)))
    return ranks


def _rank_distinct(array: NDArray[Any]) -> NDArray[np.intp]:
    return np.unique(array, return_inverse=True)[1]


# --- precision ------------------------------------------------------------------------------------

PRECISION = {
    ColumnType.FLOAT32: 1e-6,
    ColumnType.FLOAT64: 1e-12,
    ColumnType.INT32: 1e-12,
    ColumnType.INT64: 1e-12,
}
"""How far a value that a database computes from many may be off, relative to its size. A database may compute
means of float32 columns in float32."""
DIGITS = 1e-9
"""How far any mean may be off in addition: databases return decimal fractions with this many digits."""

_EXACT = 2.0**53
"""64-bit floats represent all whole numbers up to this size."""
_ROUNDING = 2.0**-53
"""The relative error of one operation on such floats (IEEE 754, to nearest)."""


def round_off(
    size: NDArray[np.float64], operations: NDArray[np.int64] | int
) -> NDArray[np.float64]:
    """How far whole numbers of this size may be off after this many operations in 64-bit floats: not at all
    while all of them are exact. A sum of n numbers, in any order, takes n (Higham, "Accuracy and Stability of
    Numerical Algorithms", 4.2, including the conversion of each)."""
    return np.where(size <= _EXACT, 0.0, size * (_ROUNDING * operations))


# --- groups of events -----------------------------------------------------------------------------

_FEWEST_MERGED = 262_144
"""Groups of blocks are merged when there are this many, or as many as were merged before."""

_LOW_BITS = 0xFFFF_FFFF


@dataclass(frozen=True)
class Sums:
    """Count, sums and extrema of a column's values in each group."""

    count: NDArray[np.int64]
    total: NDArray[np.float64]
    """Whole numbers use `upper` and `lower` instead."""
    size: NDArray[np.float64]
    """Sum of the absolute values."""
    upper: NDArray[np.int64]
    lower: NDArray[np.int64]
    """Sums of 64-bit numbers need more bits, so both halves of each number are summed."""
    low: NDArray[Any]
    high: NDArray[Any]

    def merge(
        self, others: Sequence[Sums], starts: NDArray[np.intp], order: NDArray[np.intp]
    ) -> Sums:
        """The sums of these groups and the others', taken in this order and added up from each start to the
        next."""

        def merged(read: Callable[[Sums], NDArray[Any]], how: np.ufunc) -> NDArray[Any]:
            whole = np.concatenate([read(sums) for sums in (self, *others)])
            values: NDArray[Any] = how.reduceat(whole[order], starts)
            return values

        return Sums(
            merged(lambda sums: sums.count, np.add),
            merged(lambda sums: sums.total, np.add),
            merged(lambda sums: sums.size, np.add),
            merged(lambda sums: sums.upper, np.add),
            merged(lambda sums: sums.lower, np.add),
            merged(lambda sums: sums.low, np.minimum),
            merged(lambda sums: sums.high, np.maximum),
        )

    def totals(self) -> NDArray[Any]:
        """The exact sums of whole numbers: Python integers if they need more than 64 bits."""
        totals = [
            (upper << 32) + lower
            for upper, lower in zip(self.upper.tolist(), self.lower.tolist(), strict=True)
        ]
        fits = all(-(2**63) <= total < 2**63 for total in totals)
        return np.array(totals, dtype=np.int64 if fits else object)


def sum_up(values: Values, groups: NDArray[np.intp], count: int) -> Sums:
    """`groups`: the group of each value, below `count`. Texts and other types can only be counted."""
    array = values.array
    if array.dtype.kind not in "iuf":
        array = np.zeros(len(array), dtype=np.int64)
    if values.missing is not None:
        there = np.flatnonzero(~values.missing)
        array, groups = array[there], groups[there]
    numbers = array.astype(np.float64)
    is_float = array.dtype.kind == "f"
    limits: Any = np.finfo(array.dtype) if is_float else np.iinfo(array.dtype)
    least, most = (-np.inf, np.inf) if is_float else (limits.min, limits.max)
    low, high = np.full(count, most, array.dtype), np.full(count, least, array.dtype)
    np.minimum.at(low, groups, array)
    np.maximum.at(high, groups, array)

    def added(weights: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(groups, weights, count)

    total = added(numbers)
    upper = lower = np.zeros(count, dtype=np.int64)
    if not is_float:
        whole = array.astype(np.int64)
        # The sums of a block's halves are whole numbers that a float64 represents.
        upper = added(whole >> 32).astype(np.int64)
        lower = added(whole & _LOW_BITS).astype(np.int64)
    counts = np.bincount(groups, minlength=count)
    return Sums(counts, total, added(np.abs(numbers)), upper, lower, low, high)


@dataclass(frozen=True)
class Samples:
    """A column's values, each with the number of its group."""

    values: NDArray[Any]
    groups: NDArray[np.intp]

    @classmethod
    def of(cls, values: Values, groups: NDArray[np.intp]) -> Samples:
        """All values that aren't missing."""
        if values.missing is None:
            return cls(values.array, groups)
        return cls(values.array[~values.missing], groups[~values.missing])

    @classmethod
    def merge(cls, parts: Sequence[Samples], places: Sequence[NDArray[np.intp]]) -> Samples:
        """The samples of several parts. `places`: each part's groups as numbers among all groups."""
        moved = [place[part.groups] for part, place in zip(parts, places, strict=True)]
        return cls(np.concatenate([part.values for part in parts]), np.concatenate(moved))

    def find_percentile(
        self, percent: float, how: Percentiles, count: int, precision: float
    ) -> Values:
        """A percentile of each of `count` groups. `precision`: how far a value may be off, relative to
        itself."""
        order = np.lexsort((self.values, self.groups))
        ranked = self.values[order].astype(np.float64)
        sizes = np.bincount(self.groups, minlength=count)
        missing = sizes == 0
        if not len(ranked):
            return Values(np.zeros(count), missing)
        last = np.maximum(sizes - 1, 0)
        starts = np.minimum(np.cumsum(sizes) - sizes, len(ranked) - 1)

        def find(places: NDArray[np.float64]) -> NDArray[np.float64]:
            """The values at these places of their groups, counted from 0, interpolated between places."""
            places = np.clip(places, 0, last)
            lower = np.floor(places)
            low, high = (
                ranked[starts + np.minimum(at, last).astype(np.intp)] for at in (lower, lower + 1)
            )
            values: NDArray[np.float64] = low + (high - low) * (places - lower)
            return values

        places = last * (percent / 100)
        values = find(places)
        neighbours = find(np.floor(places)), find(np.ceil(places))
        slack = (precision + DIGITS) * np.maximum(*map(np.abs, neighbours))
        if how.estimate:
            off = how.rank_error * sizes + 1
            low, high = find(np.floor(places - off)), find(np.ceil(places + off))
            low, high = (
                low - how.relative_error * np.abs(low),
                high + how.relative_error * np.abs(high),
            )
            values, slack = (low + high) / 2, slack + (high - low) / 2
        return Values(values, missing, slack)


@dataclass(frozen=True)
class Part:
    """Groups with their keys."""

    keys: Sequence[Values]
    events: NDArray[np.int64]
    sums: Mapping[str, Sums] = field(default_factory=dict)
    samples: Mapping[str, Samples] = field(default_factory=dict)
    newest: NDArray[np.int64] | None = None
    """The time of each group's newest event, if `last` has any columns."""
    last: Mapping[str, Values] = field(default_factory=dict)
    """Values of that event."""

    def __len__(self) -> int:
        return len(self.events)


class Groups:
    """Groups of events that arrive in parts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._waiting = 0

    def add(self, part: Part) -> None:
        """Add more events; of events at the same time, later additions count as newer."""
        self._parts.append(part)
        if len(self._parts) > 1:
            self._waiting += len(part)
        if self._waiting > max(_FEWEST_MERGED, len(self._parts[0])):
            self._merge()

    def finish(self) -> Part | None:
        """All groups in the order of their keys; None if there are none."""
        if not self._parts:
            return None
        self._merge()
        return self._parts[0]

    def _merge(self) -> None:
        parts = self._parts
        first, *others = parts
        keys = [join([part.keys[place] for part in parts]) for place in range(len(first.keys))]
        numbers = rank_rows(keys, sum(map(len, parts)))
        newest = None
        if first.newest is not None:
            newest = np.concatenate([part.newest for part in parts if part.newest is not None])
        # Each part's groups as numbers among all groups, which are in this order.
        ends_of_parts = np.cumsum([len(part) for part in parts])[:-1]
        places = np.split(numbers, ends_of_parts)
        # Of events at the same time the last added is the newest: both sorts are stable.
        order = (
            np.argsort(numbers, kind="stable") if newest is None else np.lexsort((newest, numbers))
        )
        starts = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0))
        ends = order[np.append(starts[1:], len(order)) - 1]
        events = np.concatenate([part.events for part in parts])[order]
        self._parts = [
            Part(
                [key.take(ends) for key in keys],
                np.add.reduceat(events, starts),
                {
                    name: sums.merge([part.sums[name] for part in others], starts, order)
                    for name, sums in first.sums.items()
                },
                {
                    name: Samples.merge([part.samples[name] for part in parts], places)
                    for name in first.samples
                },
                None if newest is None else newest[ends],
                {name: join([part.last[name] for part in parts]).take(ends) for name in first.last},
            )
        ]
        self._waiting = 0
