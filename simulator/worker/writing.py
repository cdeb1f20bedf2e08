"""A worker that inserts events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..contract import Arrivals, Load, Progress, Role, Stage, Timestamps, WorkerResult
from ..errors import GaveUp, Retryable, SimulatorError
from ..modules.base import AnyModule, connect
from ..modules.sending import Writer
from ..workloads.base import Workload
from ..workloads.schema import EventBlock, Tags
from .base import (
    EARLY_S,
    RunOver,
    Worker,
    garbage_collection_paused,
    read_progress,
    reporting,
)
from .feed import Feed
from .loop import InsertLoop, choose_backoff_s
from .measure import Recorder
from .schedule import Schedule, make_schedule, sharpen_sleep

if TYPE_CHECKING:
    from .schedule import FindDue

# Rows of a worker's devices in the tags' table, stored before anything is measured.


def store_devices(
    module: AnyModule, workload: Workload, worker: int, abort: Callable[[], object] = lambda: None
) -> None:
    """Store the rows of a worker's devices. They are the same in each run, so all of them are retried
    together.

    `abort` is called before each retry. SimulatorError after the target's `max_retries`.
    """
    most = module.options.max_retries
    for attempt in count():
        try:
            with connect(module):
                module.store_devices(workload.device_rows(worker))
        except Retryable as error:
            if attempt >= most:
                raise SimulatorError(
                    f"gave up after {most} retries ({error.kind}): {error}"
                ) from error
            time.sleep(choose_backoff_s(error, attempt))
            abort()
        else:
            return


def count_left(workload: Workload, worker: int, first: int) -> int | None:
    """How many events a worker has from number `first` on; None: as many as requested. SimulatorError if it
    has none."""
    if not workload.ends:
        return None
    in_all = workload.turn(worker)
    if first >= in_all:
        raise SimulatorError(
            f"the recording is over: all {in_all:,} events of a worker are stored: leave --no-clean out, or"
            " set recorded.repeat to true"
        )
    return in_all - first


def make_recorded(workload: Workload, worker: int, load: Load, first: int) -> FindDue:
    """When the requests from event `first` on are due: each when its last event is, at the load's rate
    instead of the recording's own; never, if there is no such event."""
    own_per_s, size = workload.own_rate_per_s, load.events_per_request
    assert own_per_s is not None
    assert load.rate_per_s is not None
    per_ms = own_per_s / load.rate_per_s / 1000
    begin_ms = int(workload.find_due_ms(worker, np.array([first]))[0]) if first else 0
    stop = workload.turn(worker) if workload.ends else None

    def find_due_s(request: int, count: int) -> NDArray[np.floating[Any]]:
        begins = first + size * np.arange(request, request + count)
        ends = begins + size - 1
        due_ms = workload.find_due_ms(worker, ends if stop is None else ends.clip(max=stop - 1))
        due_s: NDArray[np.floating[Any]] = (due_ms - begin_ms) * per_ms
        return due_s if stop is None else np.where(begins < stop, due_s, np.inf)

    return find_due_s


class WritingWorker(Worker):
    """Inserts events: a prefill before the common start, the load's own after it."""

    def run(self) -> WorkerResult:
        load = self._load
        go = self._client.ready(Stage.PREPARED)
        first, prefill = go.first_event, go.prefill
        # With `restart` this run's first event gets the first timestamp again.
        time_origin = first if self._data.timestamps is Timestamps.RESTART else 0

        def generate(start: int, count: int) -> EventBlock:
            return self._workload.block(self._number, start, count, time_origin)

        if self._workload.schema.tags is Tags.TABLE:
            self._store_devices()
        lacking = self._prefill(generate, first, prefill) if prefill else Counter()
        if load.role is Role.FILL:
            elapsed_s = time.perf_counter() - self._await_start(prefill)
            return self._result(elapsed_s, lacking=lacking)
        schedule = make_schedule(
            load,
            self._number - self._group.first,
            self._chance,
            # A copy of its own: the feed may use the other one in its thread.
            make_recorded(self._workload.remake(), self._number, load, first + prefill)
            if load.arrivals is Arrivals.RECORDED
            else None,
        )
        left = count_left(self._workload, self._number, first + prefill)
        events = left if load.duration_s is not None else min(load.events, left or load.events)
        with connect(self._module.writer()) as writer:
            feed = Feed(generate, writer.encoder, first + prefill, events, schedule.is_open)
            feed.prime()
            recorder = Recorder(schedule, feed.forget_costs, self._by_second)
            with garbage_collection_paused():
                if schedule.is_open:
                    sharpen_sleep()
                recorder.begin(self._await_start(prefill, EARLY_S))
                progress = self._progress("run", recorder, events)
                with reporting(self._client, progress, recorder.end_early):
                    failure = self._insert_all(feed, writer, recorder, schedule)
                    if failure is None:
                        if recorder.events == left:
                            recorder.end_early(time.perf_counter())
                        recorder.end()
                    else:
                        recorder.give_up(load.events_per_request, events)
        figures = recorder.result(
            generate_s=feed.generate_s,
            encode_s=feed.encode_s,
            ceiling_per_s=feed.ceiling_per_s(),
            in_flight=writer.max_in_flight,
        )
        chunk = feed.find_chunk(recorder.events)
        lacking += feed.count_lacking(recorder.events)
        return self._result(
            recorder.elapsed_s(),
            figures,
            failure=failure,
            chunk=chunk and (chunk.first, chunk.count),
            lacking=lacking,
        )

    def _insert_all(
        self, feed: Feed, writer: Writer, recorder: Recorder, schedule: Schedule
    ) -> str | None:
        """Insert all events. If patience ended, here or in another worker, and there is something to hand in,
        returns the reason."""
        try:
            self._insert(feed, writer, recorder, schedule)
        except (GaveUp, RunOver) as error:
            if not recorder.events:
                raise
            return str(error)
        return None

    def _store_devices(self) -> None:
        recorder = Recorder()
        recorder.begin(time.perf_counter())
        with reporting(self._client, self._progress("prefill", recorder), stage="prefill"):
            store_devices(self._module, self._workload, self._number, self._check_on)

    def _prefill(
        self, generate: Callable[[int, int], EventBlock], first: int, count: int
    ) -> Counter[str]:
        """Returns `Feed.count_lacking` after the prefill."""
        with connect(self._module.for_prefill().writer()) as writer:
            feed = Feed(generate, writer.encoder, first, count)
            recorder = Recorder()
            recorder.begin(time.perf_counter())
            with reporting(self._client, self._progress("prefill", recorder), stage="prefill"):
                self._insert(feed, writer, recorder)
        return feed.count_lacking(count)

    def _insert(
        self, feed: Feed, writer: Writer, recorder: Recorder, schedule: Schedule | None = None
    ) -> None:
        most = self._module.options.max_retries
        patience_s = self._load.patience_s
        InsertLoop(writer, recorder, most, self._check_on, schedule, patience_s).run(feed)

    def _progress(
        self, stage: Literal["prefill", "run"], recorder: Recorder, most: int | None = None
    ) -> Callable[[], Progress]:
        size = self._load.events_per_request
        return lambda: read_progress(self._number, stage, recorder, size, most)
