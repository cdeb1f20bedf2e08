"""The order in which events are sent, if some are late: those are put back, within windows of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..contract import MAX_WORKERS

Numbers = NDArray[np.int64]

_KEPT_LATE = 2_000_000
"""How many late events are kept for finding single ones, more or less: 50 MB."""


@dataclass(frozen=True, slots=True)
class LateEvents:
    """The late events of a window, in the order in which they are sent: shape (late events,). All others are
    sent in the order of their numbers."""

    numbers: Numbers
    """The late events' numbers, counted from the window's beginning."""
    places: Numbers
    """The numbers as which they are sent, which rise."""


def delay_events(late: Numbers, delays: NDArray[np.float64], window: int) -> LateEvents:
    """Put back the late events of a window of so many events, given by number: each behind all events whose
    numbers are up to its own plus its delay in events, at the window's end at the latest."""
    due = np.minimum(late + np.ceil(delays), window)
    sequence = np.argsort(due, kind="stable")
    due = due[sequence].astype(np.int64)
    # Before each: those that aren't late with numbers up to the one at which it is due, and late ones.
    punctual = np.minimum(due + 1, window) - np.searchsorted(late, due, side="right")
    return LateEvents(late[sequence], punctual + np.arange(len(late)))


class SendOrder:
    """Which event of a worker is sent as which number."""

    def __init__(self, window: int, find_late: Callable[[int, int, int], LateEvents]) -> None:
        """`window`: how many numbers a window has. `find_late` gets worker, first number and `window`."""
        self._window = window
        self._find_late = find_late
        self._orders: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._known = _KnownWindows.none(window)

    def find(self, worker: int, first: int, count: int) -> Numbers:
        """The events that are sent as numbers `first` and so on."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        for window in range(first // self._window, -(-(first + count) // self._window)):
            begin = window * self._window
            start, stop = max(first, begin), min(first + count, begin + self._window)
            order = self._order(worker, window)[start - begin : stop - begin]
            np.add(order, begin, out=numbers[start - first : stop - first])
        return numbers

    def _order(self, worker: int, window: int) -> NDArray[np.int32]:
        """The events of a window in the order in which they are sent."""
        order = self._orders.get((worker, window))
        if order is None:
            while len(self._orders) >= 2:
                self._orders.pop(next(iter(self._orders)))
            late = self._find_late(worker, window * self._window, self._window)
            order = self._orders[worker, window] = self._write(late)
        return order

    def _write(self, late: LateEvents) -> NDArray[np.int32]:
        is_late, is_place = np.zeros((2, self._window), dtype=np.bool_)
        is_late[late.numbers] = True
        is_place[late.places] = True
        order = np.empty(self._window, dtype=np.int32)
        order[is_place] = late.numbers
        order[~is_place] = np.flatnonzero(~is_late)
        return order

    def find_single(self, workers: Numbers, numbers: Numbers) -> Numbers:
        """The event that each worker sends as this number of its own.

        Of each window in which one is, the late ones are found once, which takes milliseconds, and kept.
        """
        windows, places = np.divmod(numbers, self._window)
        keys = windows * MAX_WORKERS + workers
        cache = self._known
        slots, is_known = cache.find_slots(keys)
        if not is_known.all():
            if cache.late_count > _KEPT_LATE:
                cache, is_known = _KnownWindows.none(self._window), np.zeros_like(is_known)
            new = np.unique(keys[~is_known])
            late_events = [
                self._find_late(worker, window * self._window, self._window)
                for window, worker in (divmod(key, MAX_WORKERS) for key in new.tolist())
            ]
            self._known = cache = cache.extend(new, late_events)
            slots, _ = cache.find_slots(keys)
        return numbers - places + cache.find(slots, places)


@dataclass(frozen=True, slots=True)
class _KnownWindows:
    """The late events of several windows, each of which has a slot, one behind the other."""

    window: int
    keys: Numbers
    """Which windows they are, and of which workers: rising, and finally a number above all."""
    slots: Numbers
    """The windows' slots; and 0."""
    starts: Numbers
    """How many late events there are before each slot, and in all."""
    numbers: Numbers
    """The late events' numbers within their windows, in the order in which they are sent; and 0."""
    places: Numbers
    """The numbers as which they are sent, slot after slot; and a number above all."""
    punctual: Numbers
    """How many events that aren't late are before each late one: slot after slot, in the order of their
    numbers."""

    @classmethod
    def none(cls, window: int) -> _KnownWindows:
        """No windows yet; they will be of so many events."""
        nothing, end = np.zeros(1, dtype=np.int64), np.full(1, np.iinfo(np.int64).max)
        return cls(window, end, nothing, nothing, nothing, end, nothing[:0])

    @property
    def late_count(self) -> int:
        """How many late events there are in all windows."""
        return int(self.starts[-1])

    def extend(self, keys: Numbers, late_events: Sequence[LateEvents]) -> _KnownWindows:
        """These windows and more, whose keys and late events are given."""
        numbers, places, punctual = [self.numbers[:-1]], [self.places[:-1]], [self.punctual]
        first_slot = len(self.keys) - 1
        for slot, late in enumerate(late_events, first_slot):
            begin = self.window * slot
            numbers.append(late.numbers)
            places.append(begin + late.places)
            punctual.append(begin + np.sort(late.numbers) - np.arange(len(late.numbers)))
        counts = np.cumsum([len(late.numbers) for late in late_events])
        slots = np.arange(first_slot, first_slot + len(late_events))
        keys = np.concatenate([self.keys[:-1], keys, self.keys[-1:]])
        order = np.argsort(keys)
        return _KnownWindows(
            self.window,
            keys[order],
            np.concatenate([self.slots[:-1], slots, self.slots[-1:]])[order],
            np.concatenate([self.starts, self.late_count + counts]),
            np.concatenate([*numbers, self.numbers[-1:]]),
            np.concatenate([*places, self.places[-1:]]),
            np.concatenate(punctual),
        )

    def find_slots(self, keys: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """The slot of each window, and whether it has one."""
        places = np.searchsorted(self.keys, keys)
        return self.slots[places], self.keys[places] == keys

    def find(self, slots: Numbers, places: Numbers) -> Numbers:
        """Which event of a slot's window is sent at each place of it."""
        begins, starts = slots * self.window, self.starts[slots]
        behind = np.searchsorted(self.places, begins + places)
        # One that isn't late is the n-th of these, and has a number higher by the late ones before it.
        numbers = places - (behind - starts)
        numbers += np.searchsorted(self.punctual, begins + numbers, side="right") - starts
        is_late = self.places[behind] == begins + places
        return np.where(is_late, self.numbers[behind], numbers)
