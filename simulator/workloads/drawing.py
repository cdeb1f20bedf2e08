"""The parameters of queries: drawn for each execution of each reader, and the same whenever it's repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .queries import At, Query
from .random_streams import Streams, open_streams
from .stored import Stored


@dataclass(frozen=True)
class BoundQuery:
    """A query with the parameters of one execution."""

    query: Query
    devices: tuple[str, ...] | None = None
    """None: all."""
    start_ms: int | None = None
    end_ms: int | None = None
    """The window, its end excluded; None: all time."""


@dataclass(frozen=True, eq=False)
class BoundQueries:
    """A query with the parameters of several executions."""

    query: Query
    count: int
    devices: NDArray[np.bytes_] | None = None
    """Names as UTF-8: shape (count, devices of each); None: all."""
    start_ms: NDArray[np.int64] | None = None
    end_ms: NDArray[np.int64] | None = None
    """The windows, their ends excluded: shape (count,); None: all time."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> BoundQuery:
        """The query with the parameters of one execution, numbered from 0 on. IndexError if there is none."""
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

    def list_parameters(self) -> list[list[Any]]:
        """What was drawn, as a list for each parameter with a value for each execution: the first device's
        name, as UTF-8, and so on for the other devices, then the start and the end of the window, as far as
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
    """The query with the parameters of executions [first, first + count), one at least: each a function of
    its number, the other arguments and the seed alone.

    A window that is longer than the time of the stored events becomes all of that time.
    """
    size = min(query.devices, stored.device_count) if isinstance(query.devices, int) else 0
    streams = open_streams(
        (stored.seed, reader), range(first, first + count), crc32(query.name.encode()), size
    )
    if query.instant:
        places, times = _draw_events(stored, streams)
        return BoundQueries(query, count, places[:, None], times, times + 1)
    devices = None
    if size:
        devices = stored.devices(streams.choose(stored.device_count, size))
    elif isinstance(query.devices, tuple):
        names = np.array([name.encode() for name in query.devices])
        devices = np.broadcast_to(names, (count, len(names)))
    if query.window is None:
        return BoundQueries(query, count, devices)
    starts, span = _draw_starts(query, stored, streams, count)
    return BoundQueries(query, count, devices, starts, starts + span)


_TRIES = 30
"""How many events are drawn at most until one is within the time that is to be asked about."""


def _draw_events(stored: Stored, streams: Streams) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
    """Device and time of an event each. Where a few are late, one of them may be too new to be asked about:
    then another is drawn."""
    _, end = stored.span_ms
    last = stored.event_count - 1
    devices, times = stored.events(streams.integers(0, last))
    for _ in range(_TRIES - 1):
        late = np.flatnonzero(times >= end)
        if not len(late):
            break
        devices[late], times[late] = stored.events(streams.integers(0, last, late))
    return devices, times


def _draw_starts(
    query: Query, stored: Stored, streams: Streams, count: int
) -> tuple[NDArray[np.int64], int]:
    """Where each window of time begins, and how long all are."""
    assert query.window is not None
    span = query.window.span
    if query.window.at is At.FIRST:
        return np.full(count, stored.epoch_ms), span
    first, end = stored.span_ms
    if span >= end - first:
        return np.full(count, first), end - first
    if query.window.at is At.DRAWN:
        return streams.integers(first, end - span), span
    return np.full(count, end - span), span


def find_row_count(query: Query, stored: Stored) -> int | None:
    """How many rows each right answer has; None if that isn't certain without computing it."""
    rows: int | None = None
    if query.instant and query.where is None and stored.instants_are_distinct:
        rows = 1
    elif query.newest and stored.devices_are_certain:
        if isinstance(query.devices, int):
            rows = min(query.devices, stored.device_count)
        elif query.devices == "all" and not stored.is_growing:
            rows = stored.device_count
    return None if rows is None or rows > (query.limit or rows) else rows
