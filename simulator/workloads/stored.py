"""Which events of a workload are in the database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .base import EventBlock, Workload

BLOCK_VALUES = 655_360
"""How many values a block has, more or less: of ten columns, 65,536 events."""


@dataclass(frozen=True)
class StoredPart:
    """Events of one worker, numbered from `first` on."""

    worker: int
    first: int
    count: int


class Stored:
    """Parts of a workload's events: what queries are drawn for and asked of."""

    def __init__(self, workload: Workload, parts: Sequence[StoredPart]) -> None:
        """ValueError if there are no events."""
        self.workload = workload
        self.parts = [part for part in parts if part.count]
        if not self.parts:
            raise ValueError("no events are stored")
        self._events_until = list(accumulate(part.count for part in self.parts))
        self._devices = [self._find_devices(part) for part in self.parts]
        self._devices_until = list(accumulate(len(found) for found in self._devices))

    def _find_devices(self, part: StoredPart) -> NDArray[np.bytes_]:
        all_devices = self.workload.devices(part.worker)
        if part.count >= len(all_devices):
            return all_devices
        block = self.workload.block(part.worker, part.first, part.count)
        return np.unique(block.devices)

    @property
    def seed(self) -> int:
        """The workload's."""
        return self.workload.seed

    @property
    def epoch_ms(self) -> int:
        """The workload's first timestamp."""
        return self.workload.schema.epoch_ms

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """From the first event to just behind the last."""
        time = self.workload.schema.time
        first, last = [], []
        for part in self.parts:
            edge = min(self.workload.disorder, part.count)
            behind = StoredPart(part.worker, part.first + part.count - edge, edge)
            before = StoredPart(part.worker, part.first, edge)
            first += [block.columns[time].min() for block in self._generate(before)]
            last += [block.columns[time].max() for block in self._generate(behind)]
        return int(min(first)), int(max(last)) + 1

    @property
    def device_count(self) -> int:
        """Devices that have events."""
        return self._devices_until[-1]

    def device(self, number: int) -> str:
        """The name of one of them, numbered from 0 on."""
        place = bisect_right(self._devices_until, number)
        # A negative number counts from the end.
        return bytes(self._devices[place][number - self._devices_until[place]]).decode()

    @property
    def event_count(self) -> int:
        """All parts together."""
        return self._events_until[-1]

    def event(self, number: int) -> tuple[str, int]:
        """Device and time of an event, numbered from 0 on."""
        place = bisect_right(self._events_until, number)
        part = self.parts[place]
        within = number - self._events_until[place] + part.count
        block = self.workload.block(part.worker, part.first + within, 1)
        time = block.columns[self.workload.schema.time][0]
        return bytes(block.devices[0]).decode(), int(time)

    def blocks(self) -> Iterator[EventBlock]:
        """All events, in blocks of a size that memory doesn't notice."""
        for part in self.parts:
            yield from self._generate(part)

    def _generate(self, part: StoredPart) -> Iterator[EventBlock]:
        most = -(-BLOCK_VALUES // len(self.workload.schema.columns))
        for start in range(0, part.count, most):
            count = min(most, part.count - start)
            yield self.workload.block(part.worker, part.first + start, count)
