"""What a workload's time has to do with its events' numbers: a history before the measured data, and how much
time a run passes, which a retention goes by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import DataSet, Load, Retention, find_step_ms
from ..errors import OptionError
from ..units import format_duration
from .base import Workload
from .schema import EventBlock, join_blocks

PASSES = 2
"""How many times the events of a run and of its prefill pass a retention: in the first half, or by the
prefill, the database fills up, and from then on as much goes as comes."""

MOST_PASSES = 50
"""How many times at most: with the steps of more passes, databases would do little else."""


def find_time_ms(workload: Workload, worker: int, number: int) -> int:
    """The time of an event."""
    return int(workload.block(worker, number, 1).columns[workload.schema.time][0])


def count_own(load: Load) -> int | None:
    """How many events all writers of a load will have inserted in the end; None if that depends on how fast
    the database is."""
    if load.duration_s is None:
        return load.workers * load.events
    return None if load.rate_per_s is None else round(load.count_due(0.0, load.duration_s))


def find_span_ms(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """How much of event time a data set passes in a run of `own` events, with its prefill; 1 ms at least."""
    last = max(1, -(-(data.prefill + own) // load.workers) - 1)
    return max(1, find_time_ms(workload, 0, last) - workload.schema.epoch_ms)


def find_clock_factor(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """The least factor by which a data set with a retention passes it `PASSES` times in a run of `own`
    events. `workload`: without a factor."""
    assert data.retention_s is not None
    span_ms = find_span_ms(workload, data, load, own)
    return max(1, ceil(PASSES * data.retention_s * 1000 / span_ms))


def make_retention(workload: Workload, data: DataSet, load: Load) -> Retention | None:
    """The retention by which a run with this data set and load deletes; None: it deletes nothing."""
    if data.retention_s is None:
        return None
    period_ms, own = round(data.retention_s * 1000), count_own(load)
    until_ms = None
    if own is not None:
        until_ms = find_time_ms(workload, 0, -(-(data.prefill + own) // load.workers))
    return Retention(period_ms=period_ms, step_ms=find_step_ms(period_ms), until_ms=until_ms)


@dataclass(frozen=True)
class History:
    """One event of each device every so often, `count` times, until the measured data begin."""

    every_ms: int
    count: int
    interval_ms: float
    """The time from one event of a device to the next in the measured data."""

    @classmethod
    def of(cls, span_s: float, every_s: float, interval_ms: float) -> History:
        """The history of such options. OptionError, with the remedy, if there is none."""
        every_ms, span_ms = round(1000 * every_s), round(1000 * span_s)
        if every_ms < interval_ms:
            raise OptionError(
                f"--prefill-every {format_duration(every_s)} is shorter than the"
                f" {format_duration(interval_ms / 1000)} from one event of a device to the next:"
                " use a longer one, or --prefill with a number of events instead of a history"
            )
        if span_ms < every_ms:
            raise OptionError(
                f"--prefill-span {format_duration(span_s)} is shorter than --prefill-every"
                f" {format_duration(every_s)}, so there would be no events: use a span of at least"
                " that"
            )
        return cls(every_ms, span_ms // every_ms, interval_ms)

    @property
    def span_ms(self) -> int:
        """How long before the measured data it begins."""
        return self.every_ms * self.count

    def find_ticks(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tick of the workload at each step of all devices: those of the history, and then one by one."""
        interval: float = self.interval_ms
        if interval == int(interval):
            interval = int(interval)  # so that it is exact
        before = np.minimum(steps, self.count)
        return (before * self.every_ms // interval).astype(np.int64) + steps - before

    @property
    def ticks(self) -> int:
        """The tick with which the measured data begin."""
        return int(self.find_ticks(np.array([self.count], dtype=np.int64))[0])


class WithHistory(Workload):
    """A workload whose worker's first numbers are a history. Devices take turns, so event i of a worker with
    D devices is of device i modulo D, at step i // D: `History.find_ticks` says at which of the workload's
    ticks. Nothing of the history comes late."""

    def __init__(self, base: Workload, history: History) -> None:
        self.kit = base
        self.history = history
        self._ticks = history.ticks
        base.order_until(self._ticks)
        self.seed = base.seed
        self.options = base.options
        self.schema = base.schema
        self.device_spread = base.device_spread
        self.clock_factor = base.clock_factor
        self.disorder = base.disorder

    def remake(self, **changes: Any) -> Workload:
        return WithHistory(self.kit.remake(**changes), self.history)

    def count_history(self, worker: int) -> int:
        """How many of the worker's events are the history."""
        return self.history.count * self.kit.device_count(worker)

    @property
    def late_share(self) -> float:
        return self.kit.late_share

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        return self.kit.find_late_share(worker, first + self._ahead(worker), count)

    @property
    def device_interval_ms(self) -> float:
        return self.kit.device_interval_ms

    @property
    def instants_are_distinct(self) -> bool:
        return self.kit.instants_are_distinct

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        return self.kit.devices(worker)

    def device_count(self, worker: int) -> int:
        return self.kit.device_count(worker)

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        return self.kit.device_rows(worker)

    def _ahead(self, worker: int) -> int:
        """By how much the workload's numbers exceed those of the same events behind the history."""
        return (self._ticks - self.history.count) * self.kit.device_count(worker)

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        stop = first + count
        border = min(max(first, self.count_history(worker)), stop)
        parts = []
        if first < border:
            own = self.kit.device_count(worker)
            steps, devices = np.divmod(np.arange(first, border, dtype=np.int64), own)
            numbers = self.history.find_ticks(steps) * own + devices
            parts.append(self.kit.pick(worker, numbers))
        if border < stop or not parts:
            ahead = self._ahead(worker)
            parts.append(self.kit.block(worker, border + ahead, stop - border, time_origin))
        return replace(join_blocks(parts), first=first)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        distinct, places = np.unique(workers, return_inverse=True)
        counts = np.array([self.kit.device_count(int(worker)) for worker in distinct])[places]
        steps, devices = np.divmod(numbers, counts)
        return self.kit.locate(workers, self.history.find_ticks(steps) * counts + devices)


def add_history(workload: Workload, data: DataSet) -> Workload:
    """The workload with the history of a data set that has one. OptionError if such a history can't be."""
    if data.prefill_span_s is None or data.prefill_every_s is None:
        return workload
    interval_ms = workload.device_interval_ms
    return WithHistory(workload, History.of(data.prefill_span_s, data.prefill_every_s, interval_ms))
