"""What is known of groups of events, in arrays: a million groups take as much memory as their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.columns import Values, join, rank_rows

_FEWEST_MERGED = 262_144
"""Groups of blocks are merged when there are so many, or as many as have been merged before."""

_LOW_BITS = 0xFFFF_FFFF


@dataclass(frozen=True)
class Sums:
    """What is known of a column's values in each group."""

    count: NDArray[np.int64]
    total: NDArray[np.float64]
    """For whole numbers `upper` and `lower` stand for it."""
    size: NDArray[np.float64]
    """Sum of the values' sizes, without their signs."""
    upper: NDArray[np.int64]
    lower: NDArray[np.int64]
    """Sums of 64-bit numbers need more bits: both halves of each number are summed up."""
    low: NDArray[Any]
    high: NDArray[Any]

    def merge(
        self, others: Sequence[Sums], starts: NDArray[np.intp], order: NDArray[np.intp]
    ) -> Sums:
        """The sums of groups that consist of these and the others' groups, in this order, from each start
        to before the next."""

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
        """The sums of whole numbers, exactly: in Python's own if they need more than 64 bits."""
        totals = [
            (upper << 32) + lower
            for upper, lower in zip(self.upper.tolist(), self.lower.tolist(), strict=True)
        ]
        fits = all(-(2**63) <= total < 2**63 for total in totals)
        return np.array(totals, dtype=np.int64 if fits else object)


def sum_up(values: Values, groups: NDArray[np.intp], count: int) -> Sums:
    """`groups`: the group of each value, from 0 to before `count`."""
    array = values.array
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
        # A block's halves, summed up, are whole numbers that a float64 holds.
        upper = added(whole >> 32).astype(np.int64)
        lower = added(whole & _LOW_BITS).astype(np.int64)
    return Sums(
        np.bincount(groups, minlength=count),
        total,
        added(np.abs(numbers)),
        upper,
        lower,
        low,
        high,
    )


@dataclass(frozen=True)
class Part:
    """Groups, each with its key."""

    keys: Sequence[Values]
    events: NDArray[np.int64]
    sums: Mapping[str, Sums] = field(default_factory=dict)
    newest: NDArray[np.int64] | None = None
    """The time of each group's newest event, if `last` holds anything."""
    last: Mapping[str, Values] = field(default_factory=dict)
    """Values of that event."""

    def __len__(self) -> int:
        return len(self.events)


class Groups:
    """Groups of events that come in parts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._waiting = 0

    def add(self, part: Part) -> None:
        """Take more events into account; of the same time, they are later than those before."""
        self._parts.append(part)
        if len(self._parts) > 1:
            self._waiting += len(part)
        if self._waiting > max(_FEWEST_MERGED, len(self._parts[0])):
            self._merge()

    def finish(self) -> Part | None:
        """All groups, in the order of their keys; None if there is none."""
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
        # Of events of the same time, the one that came last is the newest: both sorts are stable.
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
                None if newest is None else newest[ends],
                {name: join([part.last[name] for part in parts]).take(ends) for name in first.last},
            )
        ]
        self._waiting = 0
