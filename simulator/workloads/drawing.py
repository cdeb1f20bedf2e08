"""Which events of a workload are stored, and the parameters of queries about them: drawn for each execution
of each reader, and the same whenever that is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..contract import StoredPart
from .base import Workload
from .queries import At, Query
from .random_streams import open_streams
from .schema import EventBlock

BLOCK_VALUES = 655_360
"""About how many values a block has: with ten columns, 65,536 events."""

_PROBES = 16
"""The times of this many events are looked up at once: one takes nearly as long."""

_REDRAWN = 29
"""How often an event is redrawn, at most, until it is within the time that may be queried."""

_PREPARED = 400
"""The most windows in which late events are found in advance: workloads keep about as many."""


@dataclass(frozen=True, order=True)
class Range:
    """Events of a part, from `start` to `stop` (exclusive)."""

    part: int
    """The part's index."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def unite(ranges: Iterable[Range]) -> list[Range]:
    """The same events, each in only one range."""
    united: list[Range] = []
    for event_range in sorted(ranges):
        last = united[-1] if united else None
        if last is not None and last.part == event_range.part and event_range.start <= last.stop:
            united[-1] = Range(event_range.part, last.start, max(last.stop, event_range.stop))
        elif event_range.start < event_range.stop:
            united.append(event_range)
    return united


class Stored:
    """The stored parts of a workload's events: queries are drawn for them and run on them."""

    def __init__(
        self,
        workload: Workload,
        parts: Sequence[StoredPart],
        before_ms: int | None = None,
        chance: int | None = None,
    ) -> None:
        """ValueError if there are no events. `before_ms`: queries are drawn for times before this one, if
        there are such events. `chance`: the seed for drawing, if not the workload's."""
        self.workload = workload
        self.seed = workload.seed if chance is None else chance
        self._before_ms = before_ms
        self.parts = [part for part in parts if part.count]
        if not self.parts:
            raise ValueError("no events are stored")
        counts = np.array([part.count for part in self.parts], dtype=np.int64)
        self._events_until = np.cumsum(counts)
        # The difference between a part's event numbers and the numbers among all events.
        self._ahead = [part.first for part in self.parts] - (self._events_until - counts)
        self._workers = np.array([part.worker for part in self.parts], dtype=np.int64)
        self._names = np.concatenate(
            [workload.devices_among(part.worker, part.first, part.count) for part in self.parts]
        )

    @property
    def epoch_ms(self) -> int:
        """The workload's first timestamp."""
        return self.workload.schema.epoch_ms

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The time from the first event to just after the last, of those for which queries are drawn."""
        time = self.workload.schema.time
        first, last = [], []
        for part in self.parts:
            edge = min(self.workload.disorder + 1, part.count)
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
        """How many devices have events."""
        return len(self._names)

    def devices(self, numbers: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """The names of devices, numbered from 0, in an array of the same shape."""
        return self._names[numbers]

    @property
    def _has_each_worker_once(self) -> bool:
        return len(np.unique(self._workers)) == len(self.parts)

    @property
    def devices_are_certain(self) -> bool:
        """Whether it is certain that each device has events, and that none is counted twice."""
        # With late events, some of the first and last windows may be sent before or after these.
        spare = 2 * self.workload.disorder if self.workload.late_share else 0
        return self._has_each_worker_once and all(
            part.count < (count := self.workload.turn(part.worker)) or part.count >= count + spare
            for part in self.parts
        )

    @property
    def is_growing(self) -> bool:
        """Whether events are added while these are queried."""
        return self._before_ms is not None

    @property
    def instants_are_distinct(self) -> bool:
        """Whether no device has two events at one time."""
        return self._has_each_worker_once and self.workload.instants_are_distinct

    @property
    def event_count(self) -> int:
        """How many events all parts have."""
        return int(self._events_until[-1])

    def events(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Devices and times (ms) of events, numbered from 0: two arrays of shape (numbers,)."""
        places = np.searchsorted(self._events_until, numbers, side="right")
        own = numbers + self._ahead[places]
        devices, times = self.workload.locate(self._workers[places], own)
        return devices.astype(self._names.dtype), times

    def prepare_events(self) -> None:
        """Find the late events that `events` needs, for the first hundred million events at most. This takes
        some milliseconds for each `workload.disorder` events."""
        if self.workload.late_share:
            until = self._events_until
            begins, ends = np.concatenate([[0], until[:-1]]), until - 1
            inside = np.arange(0, self.event_count, self.workload.disorder)
            self.events(np.concatenate([numbers[:_PREPARED] for numbers in (begins, ends, inside)]))

    # --- events in bulk --------------------------------------------------------------------------

    def find_between(self, start_ms: int | None, end_ms: int | None) -> list[Range]:
        """Ranges with all events between these times (end exclusive) and few others; None: no bound."""
        ranges, spare = [], self.workload.disorder + 1
        for place, part in enumerate(self.parts):
            start, stop = part.first, part.first + part.count
            if part.count > self.workload.disorder:
                if start_ms is not None:
                    start = max(start, self._find(part, start_ms) - spare)
                if end_ms is not None:
                    stop = min(self._find(part, end_ms) + spare, stop)
            ranges.append(Range(place, start, stop))
        return ranges

    def count_since(self, time_ms: int) -> int:
        """How many events are at or after this time."""
        counted, unsure = 0, []
        pairs = zip(self.find_between(time_ms, None), self.find_between(None, time_ms), strict=True)
        for newer, older in pairs:
            # All events before the one are older; none after the other is.
            middle = max(newer.start, older.stop)
            counted += newer.stop - middle
            unsure.append(Range(newer.part, newer.start, middle))
        times = (block.columns[self.workload.schema.time] for block in self.blocks(unsure))
        return counted + sum(int(np.count_nonzero(some >= time_ms)) for some in times)

    def _find(self, part: StoredPart, time_ms: int) -> int:
        """The number of an event at or after this time with an older one before it, if there are both.
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
        """All events, or those of `ranges`, in blocks of moderate size."""
        for event_range in self.find_between(None, None) if ranges is None else ranges:
            part = self.parts[event_range.part]
            yield from self._generate(StoredPart(part.worker, event_range.start, len(event_range)))

    def _generate(self, part: StoredPart) -> Iterator[EventBlock]:
        most = -(-BLOCK_VALUES // len(self.workload.schema.columns))
        # If devices take turns, blocks that begin with the same device have the same devices.
        turn = self.workload.device_spread
        if turn < most:
            most -= most % turn
        for start in range(0, part.count, most):
            count = min(most, part.count - start)
            yield self.workload.block(part.worker, part.first + start, count)


# --- the parameters of queries --------------------------------------------------------------------


@dataclass(frozen=True)
class BoundQuery:
    """A query with the parameters of one execution."""

    query: Query
    devices: tuple[str, ...] | None = None
    """None: all."""
    start_ms: int | None = None
    end_ms: int | None = None
    """The window, end exclusive; None: all time."""


@dataclass(frozen=True, eq=False)
class BoundQueries:
    """A query with the parameters of several executions."""

    query: Query
    count: int
    devices: NDArray[np.bytes_] | None = None
    """Names as UTF-8, in shape (count, devices of each); None: all."""
    start_ms: NDArray[np.int64] | None = None
    end_ms: NDArray[np.int64] | None = None
    """The windows, ends exclusive, in shape (count,); None: all time."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> BoundQuery:
        """The query with the parameters of one execution, numbered from 0. IndexError if there is none."""
        if not -self.count <= number < self.count:
            raise IndexError(f"execution {number} of {self.count}")
        names: list[bytes] | None = None if self.devices is None else self.devices[number].tolist()
        return BoundQuery(
            self.query,
            None if names is None else tuple(name.decode() for name in names),
            None if self.start_ms is None else int(self.start_ms[number]),
            None if self.end_ms is None else int(self.end_ms[number]),
        )

    def __iter__(self) -> Iterator[BoundQuery]:
        return map(self.__getitem__, range(self.count))

    def part(self, start: int, stop: int) -> BoundQueries:
        """Only the executions [start, stop), as views."""
        return BoundQueries(
            self.query,
            stop - start,
            None if self.devices is None else self.devices[start:stop],
            None if self.start_ms is None else self.start_ms[start:stop],
            None if self.end_ms is None else self.end_ms[start:stop],
        )

    def list_parameters(self) -> list[list[Any]]:
        """The drawn values: for each parameter a list with one value for each execution. First come the
        devices' names, as UTF-8, one parameter for each device, then the start and the end of the window, if
        the query has them."""
        names = [] if self.devices is None else self.devices.T.tolist()
        windows = (times for times in (self.start_ms, self.end_ms) if times is not None)
        return [*names, *(times.tolist() for times in windows)]


def bind(query: Query, epoch_ms: int) -> BoundQuery:
    """A query without drawn parameters, for events from this first timestamp on."""
    assert not query.is_drawn
    devices = query.devices if isinstance(query.devices, tuple) else None
    if query.window is None:
        return BoundQuery(query, devices)
    return BoundQuery(query, devices, epoch_ms, epoch_ms + query.window.span)


def draw(query: Query, stored: Stored, reader: int, execution: int) -> BoundQuery:
    """The query with the parameters of one execution: a block of one."""
    return draw_block(query, stored, reader, execution, 1)[0]


def draw_block(query: Query, stored: Stored, reader: int, first: int, count: int) -> BoundQueries:
    """The query with the parameters of executions [first, first + count), at least one. Each depends only on
    its number, the other arguments and the seed. A window longer than the time of the stored events becomes
    all of that time."""
    size = min(query.devices, stored.device_count) if isinstance(query.devices, int) else 0
    streams = open_streams(
        (stored.seed, reader), range(first, first + count), crc32(query.name.encode()), size
    )
    if query.instant:
        _, end = stored.span_ms
        last = stored.event_count - 1
        names, times = stored.events(streams.integers(0, last))
        # A late event may be too new to be queried: then another one is drawn.
        for _ in range(_REDRAWN):
            late = np.flatnonzero(times >= end)
            if not len(late):
                break
            names[late], times[late] = stored.events(streams.integers(0, last, late))
        return BoundQueries(query, count, names[:, None], times, times + 1)
    devices = None
    if size:
        devices = stored.devices(streams.choose(stored.device_count, size))
    elif isinstance(query.devices, tuple):
        named = np.array([name.encode() for name in query.devices])
        devices = np.broadcast_to(named, (count, len(named)))
    if query.window is None:
        return BoundQueries(query, count, devices)
    span, at = query.window.span, query.window.at
    if at is At.FIRST:
        starts = np.full(count, stored.epoch_ms)
        return BoundQueries(query, count, devices, starts, starts + span)
    first, end = stored.span_ms
    span = min(span, end - first)
    if at is At.DRAWN and span < end - first:
        starts = streams.integers(first, end - span)
    else:
        starts = np.full(count, end - span)
    return BoundQueries(query, count, devices, starts, starts + span)


def find_row_count(query: Query, stored: Stored) -> int | None:
    """How many rows each right answer has; None if that is uncertain without computing it."""
    rows: int | None = None
    if query.instant and query.where is None and stored.instants_are_distinct:
        rows = 1
    elif query.newest and stored.devices_are_certain:
        if isinstance(query.devices, int):
            rows = min(query.devices, stored.device_count)
        elif query.devices == "all" and not stored.is_growing:
            rows = stored.device_count
    return None if rows is None or rows > (query.limit or rows) else rows
