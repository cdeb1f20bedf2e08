"""The meaning of a worker's event numbers: late events have later numbers, a history has the first ones, and
numbers correspond to event time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import MAX_WORKERS, DataSet, Load, Retention, find_step_ms
from ..errors import OptionError
from ..units import format_duration
from .base import Workload
from .schema import EventBlock, join_blocks

Numbers = NDArray[np.int64]

_KEPT_LATE = 2_000_000
"""About how many late events are kept for finding single ones: 50 MB."""


@dataclass(frozen=True, slots=True)
class LateEvents:
    """The late events of a window, in the order of sending, in shape (late events,). All others are sent in
    the order of their numbers."""

    numbers: Numbers
    """The late events' numbers, counted from the beginning of the window."""
    places: Numbers
    """The numbers under which they are sent, ascending."""


def delay_events(late: Numbers, delays: NDArray[np.float64], window: int) -> LateEvents:
    """Move back the late events of a window, given by number: each behind all events with numbers up to its
    own plus its delay in events, at most to the window's end. `window`: how many events it has."""
    due = np.minimum(late + np.ceil(delays), window)
    sequence = np.argsort(due, kind="stable")
    due = due[sequence].astype(np.int64)
    # What comes before each: punctual events with numbers up to the one at which it is due, and late ones.
    punctual = np.minimum(due + 1, window) - np.searchsorted(late, due, side="right")
    return LateEvents(late[sequence], punctual + np.arange(len(late)))


class SendOrder:
    """Which event of a worker is sent under which number."""

    def __init__(self, window: int, find_late: Callable[[int, int, int], LateEvents]) -> None:
        """`window`: how many numbers a window has. `find_late` gets worker, first number and `window`."""
        self._window = window
        self._find_late = find_late
        self._orders: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._known = _KnownWindows.none(window)

    def find(self, worker: int, first: int, count: int) -> Numbers:
        """The events that are sent as numbers `first` and following."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        for window in range(first // self._window, -(-(first + count) // self._window)):
            begin = window * self._window
            start, stop = max(first, begin), min(first + count, begin + self._window)
            order = self._order(worker, window)[start - begin : stop - begin]
            np.add(order, begin, out=numbers[start - first : stop - first])
        return numbers

    def _order(self, worker: int, window: int) -> NDArray[np.int32]:
        """The events of a window in the order of sending."""
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
        """The event that each worker sends under this number of its own. The late events of each window
        concerned are found once, which takes milliseconds, and kept."""
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
    """The late events of several windows, stored one after the other in slots."""

    window: int
    keys: Numbers
    """Windows and workers as keys, ascending, then a number above all."""
    slots: Numbers
    """The windows' slots, then 0."""
    starts: Numbers
    """How many late events there are before each slot, and in total."""
    numbers: Numbers
    """The late events' numbers within their windows, in the order of sending, then 0."""
    places: Numbers
    """The numbers under which they are sent, slot after slot, then a number above all."""
    punctual: Numbers
    """How many punctual events precede each late one: slot after slot, in the order of their numbers."""

    @classmethod
    def none(cls, window: int) -> _KnownWindows:
        """No windows yet. `window`: how many events each will have."""
        nothing, end = np.zeros(1, dtype=np.int64), np.full(1, np.iinfo(np.int64).max)
        return cls(window, end, nothing, nothing, nothing, end, nothing[:0])

    @property
    def late_count(self) -> int:
        """How many late events all windows have."""
        return int(self.starts[-1])

    def extend(self, keys: Numbers, late_events: Sequence[LateEvents]) -> _KnownWindows:
        """These windows and further ones, given by keys and late events."""
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
        """The event that is sent at each place of a slot's window."""
        begins, starts = slots * self.window, self.starts[slots]
        behind = np.searchsorted(self.places, begins + places)
        # The n-th punctual event has number n plus the late ones before it.
        numbers = places - (behind - starts)
        numbers += np.searchsorted(self.punctual, begins + numbers, side="right") - starts
        is_late = self.places[behind] == begins + places
        return np.where(is_late, self.numbers[behind], numbers)


# --- event time -----------------------------------------------------------------------------------

PASSES = 2
"""How many times the events of a run and its prefill span a retention. In the first half, or by the prefill,
the database fills up; from then on as much is deleted as arrives."""

MOST_PASSES = 50
"""The upper limit: with the steps of more passes, databases would do little else."""


_NEARBY = 100


def find_time_ms(workload: Workload, worker: int, number: int) -> int:
    """How far a worker is in event time at an event: the newest time of that event and some before it, as it
    may be late."""
    first = max(0, number - _NEARBY + 1)
    block = workload.block(worker, first, number - first + 1)
    return int(block.columns[workload.schema.time].max())


def count_own(load: Load) -> int | None:
    """How many events a load's writers insert in total; None if that depends on the database's speed."""
    if load.duration_s is None:
        return load.total_events
    return None if load.rate_per_s is None else round(load.count_due(0.0, load.duration_s))


def find_span_ms(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """How much event time a data set spans in a run of `own` events with its prefill; at least 1 ms."""
    last = max(1, -(-(data.prefill + own) // load.workers) - 1)
    return max(1, find_time_ms(workload, 0, last) - workload.begin_ms)


def find_clock_factor(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """The smallest factor with which a run of `own` events spans a data set's retention `PASSES` times."""
    assert data.retention_s is not None
    span_ms = find_span_ms(workload, data, load, own)
    return max(1, ceil(PASSES * data.retention_s * 1000 / span_ms))


def make_retention(workload: Workload, data: DataSet, load: Load) -> Retention | None:
    """The retention of a run with this data set and load; None: it deletes nothing."""
    if data.retention_s is None:
        return None
    period_ms, own = round(data.retention_s * 1000), count_own(load)
    until_ms = None
    if own is not None:
        until_ms = find_time_ms(workload, 0, -(-(data.prefill + own) // load.workers))
    return Retention(period_ms=period_ms, step_ms=find_step_ms(period_ms), until_ms=until_ms)


# --- a history ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """One event of each device at each interval, `count` times, until the measured data begin."""

    every_ms: int
    count: int
    interval_ms: float
    """The time between two events of a device in the measured data."""

    def find_ticks(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The workload's tick at each step of all devices: first those of the history, then one by one."""
        interval: float = self.interval_ms
        if interval == int(interval):
            interval = int(interval)  # so that it is exact
        before = np.minimum(steps, self.count)
        return (before * self.every_ms // interval).astype(np.int64) + steps - before

    @property
    def ticks(self) -> int:
        """The tick at which the measured data begin."""
        return int(self.find_ticks(np.array([self.count], dtype=np.int64))[0])


class WithHistory(Workload):
    """A workload whose workers' first numbers are a history, in which nothing is late. Event i of a worker
    with D devices belongs to device i modulo D, at step i // D; `History.find_ticks` gives its tick."""

    def __init__(self, base: Workload, history: History) -> None:
        self._wrap(base)
        self.history: History | None = history
        """None: it has the workload's own intervals."""
        self._ticks = history.ticks
        base.order_until(self._ticks)

    def _wrap(self, base: Workload) -> None:
        self._base = base
        self.seed = base.seed
        self.options = base.options
        self.schema = base.schema
        self.device_spread = base.device_spread
        self.clock_factor = base.clock_factor
        self.disorder = base.disorder
        self.own_rate_per_s, self.own_length_s = base.own_rate_per_s, base.own_length_s
        self.own_speed, self.ends = base.own_speed, base.ends

    def remake(self, **changes: Any) -> Workload:
        assert self.history is not None
        return WithHistory(self._base.remake(**changes), self.history)

    def count_history(self, worker: int) -> int:
        """How many of the worker's events are history."""
        assert self.history is not None
        return self.history.count * self._base.device_count(worker)

    @property
    def late_share(self) -> float:
        return self._base.late_share

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        return self._base.find_late_share(worker, first + self._ahead(worker), count)

    @property
    def device_interval_ms(self) -> float:
        return self._base.device_interval_ms

    def find_tick(self, since_ms: int) -> float:
        return self._base.find_tick(since_ms)

    @property
    def instants_are_distinct(self) -> bool:
        return self._base.instants_are_distinct

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        return self._base.devices(worker)

    def device_count(self, worker: int) -> int:
        return self._base.device_count(worker)

    def turn(self, worker: int) -> int:
        return self._base.turn(worker)

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        return self._base.device_rows(worker)

    def find_due_ms(self, worker: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._base.find_due_ms(worker, numbers + self._ahead(worker))

    def _ahead(self, worker: int) -> int:
        """The difference between the workload's numbers and those of the same events after the history."""
        assert self.history is not None
        return (self._ticks - self.history.count) * self._base.device_count(worker)

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        assert self.history is not None
        stop = first + count
        border = min(max(first, self.count_history(worker)), stop)
        parts = []
        if first < border:
            own = self._base.device_count(worker)
            steps, devices = np.divmod(np.arange(first, border, dtype=np.int64), own)
            numbers = self.history.find_ticks(steps) * own + devices
            parts.append(self._base.pick(worker, numbers))
        if border < stop or not parts:
            ahead = self._ahead(worker)
            parts.append(self._base.block(worker, border + ahead, stop - border, time_origin))
        return replace(join_blocks(parts), first=first)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        assert self.history is not None
        distinct, places = np.unique(workers, return_inverse=True)
        counts = np.array([self._base.device_count(int(worker)) for worker in distinct])[places]
        steps, devices = np.divmod(numbers, counts)
        return self._base.locate(workers, self.history.find_ticks(steps) * counts + devices)


class WithRecordedHistory(WithHistory):
    """A recording whose first `span_ms`, repetitions included, are the history of the rest."""

    def __init__(self, base: Workload, span_ms: int) -> None:
        self._wrap(base)
        self.history = None
        self._span_ms = span_ms
        self._counts: dict[int, int] = {}

    def remake(self, **changes: Any) -> Workload:
        return WithRecordedHistory(self._base.remake(**changes), self._span_ms)

    def count_history(self, worker: int) -> int:
        if worker not in self._counts:
            due_ms = self._span_ms / self.clock_factor
            assert self._base.own_length_s is not None
            turns = 1 + int(due_ms / (1000 * self._base.own_length_s))
            self._counts[worker] = bisect_left(
                range(turns * self.turn(worker)),
                due_ms,
                key=lambda number: int(self.find_due_ms(worker, np.array([number]))[0]),
            )
        return self._counts[worker]

    def _ahead(self, worker: int) -> int:
        return 0

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        return self._base.block(worker, first, count, time_origin)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        return self._base.locate(workers, numbers)

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        return self._base.pick(worker, numbers)

    def devices_among(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        return self._base.devices_among(worker, first, count)


def add_history(workload: Workload, data: DataSet) -> Workload:
    """The workload with the data set's history, if it has one. OptionError if such a history is
    impossible."""
    if data.prefill_span_s is None:
        return workload
    if workload.own_rate_per_s is not None:
        if data.prefill_every_s is not None:
            raise OptionError(
                "--prefill-every gives events one interval, and a recording has its own: leave it out"
            )
        return WithRecordedHistory(workload, round(1000 * data.prefill_span_s))
    if data.prefill_every_s is None:
        raise OptionError(
            "--prefill-span (how long a history is) and --prefill-every (how often each device has an event)"
            " go together: give both, as in --prefill-span 30d --prefill-every 10m"
        )
    interval_ms = workload.device_interval_ms
    every_ms, span_ms = round(1000 * data.prefill_every_s), round(1000 * data.prefill_span_s)
    every, span = format_duration(data.prefill_every_s), format_duration(data.prefill_span_s)
    if every_ms < interval_ms:
        raise OptionError(
            f"--prefill-every {every} is shorter than the {format_duration(interval_ms / 1000)} from one"
            " event of a device to the next: use a longer one, or --prefill with a number of events"
            " instead of a history"
        )
    if span_ms < every_ms:
        raise OptionError(
            f"--prefill-span {span} is shorter than --prefill-every {every}, so there would be no events:"
            " use a span of at least that"
        )
    return WithHistory(workload, History(every_ms, span_ms // every_ms, interval_ms))
