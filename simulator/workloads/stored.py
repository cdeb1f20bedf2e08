"""Which events of a workload are in the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..contract import StoredPart
from .base import Workload
from .schema import EventBlock

__all__ = ["Range", "Stored", "StoredPart", "unite"]

BLOCK_VALUES = 655_360
"""About how many values a block has: with ten columns, 65,536 events."""

_PROBES = 16
"""The time of this many events is asked for at once: for one it takes nearly as long."""

_PREPARED = 400
"""The most places in which late events are looked for beforehand: workloads keep about as many."""


@dataclass(frozen=True, order=True)
class Range:
    """Events of a part, numbered from `start` to before `stop`."""

    part: int
    """The part's place among the parts."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def unite(ranges: Iterable[Range]) -> list[Range]:
    """The same events, each in one range only."""
    united: list[Range] = []
    for event_range in sorted(ranges):
        last = united[-1] if united else None
        if last is not None and last.part == event_range.part and event_range.start <= last.stop:
            united[-1] = Range(event_range.part, last.start, max(last.stop, event_range.stop))
        elif event_range.start < event_range.stop:
            united.append(event_range)
    return united


class Stored:
    """Parts of a workload's events: what queries are drawn for and asked of."""

    def __init__(
        self,
        workload: Workload,
        parts: Sequence[StoredPart],
        before_ms: int | None = None,
        chance: int | None = None,
    ) -> None:
        """ValueError if there are no events. `before_ms`: queries are drawn for times before this one, if
        there are such events; `chance`: the number by which they are drawn, if not the workload's seed."""
        self.workload = workload
        self.seed = workload.seed if chance is None else chance
        self._before_ms = before_ms
        self.parts = [part for part in parts if part.count]
        if not self.parts:
            raise ValueError("no events are stored")
        counts = np.array([part.count for part in self.parts], dtype=np.int64)
        self._events_until = np.cumsum(counts)
        # By how much a part's event numbers exceed the numbers among all events.
        self._ahead = [part.first for part in self.parts] - (self._events_until - counts)
        self._workers = np.array([part.worker for part in self.parts], dtype=np.int64)
        self._names = np.concatenate([self._find_devices(part) for part in self.parts])

    def _find_devices(self, part: StoredPart) -> NDArray[np.bytes_]:
        all_devices = self.workload.devices(part.worker)
        if part.count >= len(all_devices):
            return all_devices
        block = self.workload.block(part.worker, part.first, part.count)
        return np.unique(block.devices)

    @property
    def epoch_ms(self) -> int:
        """The workload's first timestamp."""
        return self.workload.schema.epoch_ms

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The time from the first event to just behind the last, of those that queries are drawn for."""
        time = self.workload.schema.time
        first, last = [], []
        for part in self.parts:
            edge = min(self.workload.disorder, part.count)
            behind = StoredPart(part.worker, part.first + part.count - edge, edge)
            before = StoredPart(part.worker, part.first, edge)
            first += [block.columns[time].min() for block in self._generate(before)]
            last += [block.columns[time].max() for block in self._generate(behind)]
        begin, end = int(min(first)), int(max(last)) + 1
        if self._before_ms is not None and self._before_ms > begin:
            end = min(end, self._before_ms)
        return begin, end

    @property
    def device_count(self) -> int:
        """Devices that have events."""
        return len(self._names)

    def devices(self, numbers: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """The names of some devices, numbered from 0 on, in an array of the same shape."""
        return self._names[numbers]

    @property
    def _has_each_worker_once(self) -> bool:
        return len(np.unique(self._workers)) == len(self.parts)

    @property
    def devices_are_certain(self) -> bool:
        """Whether it's certain that each device has events, and that none is counted twice."""
        # With late events, some of the first and last windows may be sent before and behind these.
        spare = 2 * self.workload.disorder if self.workload.late_share else 0
        return self._has_each_worker_once and all(
            part.count < (count := self.workload.device_count(part.worker))
            or part.count >= count + spare
            for part in self.parts
        )

    @property
    def is_growing(self) -> bool:
        """Whether events are added while these are asked about."""
        return self._before_ms is not None

    @property
    def instants_are_distinct(self) -> bool:
        """Whether no device has two events of one time."""
        return self._has_each_worker_once and self.workload.instants_are_distinct

    @property
    def event_count(self) -> int:
        """The events of all parts together."""
        return int(self._events_until[-1])

    def events(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Devices and times (ms) of some events, numbered from 0 on: two arrays of shape (numbers,)."""
        places = np.searchsorted(self._events_until, numbers, side="right")
        own = numbers + self._ahead[places]
        devices, times = self.workload.locate(self._workers[places], own)
        return devices.astype(self._names.dtype), times

    def prepare_events(self) -> None:
        """Find out now what `events` needs to know of late ones, which takes some milliseconds for each
        `workload.disorder` events; of the first hundred million at most."""
        if self.workload.late_share:
            until = self._events_until
            begins, ends = np.concatenate([[0], until[:-1]]), until - 1
            inside = np.arange(0, self.event_count, self.workload.disorder)
            self.events(np.concatenate([numbers[:_PREPARED] for numbers in (begins, ends, inside)]))

    # --- events in bulk --------------------------------------------------------------------------

    def find_between(self, start_ms: int | None, end_ms: int | None) -> list[Range]:
        """Ranges with all events of this time, its end excluded, and few others; None: no bound."""
        return [
            Range(
                place,
                part.first if start_ms is None else self._find_start(part, start_ms),
                part.first + part.count if end_ms is None else self._find_stop(part, end_ms),
            )
            for place, part in enumerate(self.parts)
        ]

    def count_since(self, time_ms: int) -> int:
        """How many events are of this time or newer."""
        counted, unsure = 0, []
        pairs = zip(self.find_between(time_ms, None), self.find_between(None, time_ms), strict=True)
        for newer, older in pairs:
            # Before the one, all are older; behind the other, none is.
            middle = max(newer.start, older.stop)
            counted += newer.stop - middle
            unsure.append(Range(newer.part, newer.start, middle))
        for block in self.blocks(unsure):
            counted += int(np.count_nonzero(block.columns[self.workload.schema.time] >= time_ms))
        return counted

    def _find_start(self, part: StoredPart, time_ms: int) -> int:
        """A number before which all events of a part are older."""
        if part.count <= self.workload.disorder:
            return part.first
        return max(part.first, self._find(part, time_ms) - self.workload.disorder - 1)

    def _find_stop(self, part: StoredPart, time_ms: int) -> int:
        """A number from which on all events of a part are of this time or newer."""
        stop = part.first + part.count
        if part.count <= self.workload.disorder:
            return stop
        return min(self._find(part, time_ms) + self.workload.disorder + 1, stop)

    def _find(self, part: StoredPart, time_ms: int) -> int:
        """The number of an event of this time or newer with an older one before it, if there are both.
        Searches parts of parts, as older events may be farther apart than newer ones."""
        low, high = part.first, part.first + part.count
        while low < high:
            probes = np.unique(np.linspace(low, high - 1, _PROBES, dtype=np.int64))
            workers = np.full(len(probes), part.worker)
            newer = np.flatnonzero(self.workload.locate(workers, probes)[1] >= time_ms)
            place = int(newer[0]) if len(newer) else len(probes)
            if place < len(probes):
                high = int(probes[place])
            if place:
                low = int(probes[place - 1]) + 1
        return low

    def blocks(self, ranges: Iterable[Range] | None = None) -> Iterator[EventBlock]:
        """All events, or those of `ranges`, in blocks of a size that memory doesn't notice."""
        for event_range in self.find_between(None, None) if ranges is None else ranges:
            part = self.parts[event_range.part]
            yield from self._generate(StoredPart(part.worker, event_range.start, len(event_range)))

    def _generate(self, part: StoredPart) -> Iterator[EventBlock]:
        most = -(-BLOCK_VALUES // len(self.workload.schema.columns))
        # Blocks that all begin with the same device have the same devices, if these take turns.
        turn = self.workload.device_spread
        if turn < most:
            most -= most % turn
        for start in range(0, part.count, most):
            count = min(most, part.count - start)
            yield self.workload.block(part.worker, part.first + start, count)
