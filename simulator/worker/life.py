"""A worker's life: connect, prefill, wait for the common start, write or read, report."""

from __future__ import annotations

import gc
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from ..build import build
from ..contract import (
    Progress,
    QueryRun,
    Role,
    RunSettings,
    Stage,
    Timestamps,
    WorkerInsert,
    WorkerQueries,
    WorkerResult,
)
from ..environment import node_name
from ..errors import Retryable, SimulatorError
from ..logs import redact
from ..modules.base import Writer
from ..workloads.base import EventBlock
from .client import CollectorClient, ProgressReporter, RunOver
from .feed import Feed
from .loop import insert_all
from .measure import Recorder
from .schedule import Schedule, make_schedule, sharpen_sleep

_log = logging.getLogger(__name__)

PREFILL_BATCH = 1000
"""Smallest batch of a prefill."""


def run_worker(settings: RunSettings, number: int, collector_url: str) -> int:
    """A worker's whole life; its exit status: 0 done, 1 failed (the collector was told why)."""
    client = CollectorClient(collector_url, settings, number)
    try:
        roles: dict[Role, type[WritingWorker | ReadingWorker | CheckingWorker]] = {
            Role.WRITE: WritingWorker,
            Role.FILL: WritingWorker,
            Role.READ: ReadingWorker,
            Role.CHECK: CheckingWorker,
        }
        worker = roles[settings.group_of(number).load.role](settings, number, client)
        client.result(worker.run())
    except RunOver as error:
        _log.error("the run is over: %s", error)
        return 1
    except (SimulatorError, Retryable) as error:
        _log.error("failed: %s", error)
        client.fail(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the collector must be told
        _log.exception("failed unexpectedly")
        client.fail(f"unexpected {type(error).__name__}: {error} (see the worker's log)")
        return 1
    finally:
        client.close()
    return 0


def share(total: int, workers: int, worker: int) -> int:
    """A worker's share of `total`, which all shares add up to."""
    return total // workers + (worker < total % workers)


class Worker(ABC):
    """One worker of a run; its group's role says which kind."""

    def __init__(self, settings: RunSettings, number: int, client: CollectorClient) -> None:
        self._data = settings.data
        self._group = settings.group_of(number)
        self._load = self._group.load
        self._number = number
        self._client = client
        self._workload, self._module = build(settings)
        self._late_at_most_s: float | None = None

    @abstractmethod
    def run(self) -> WorkerResult:
        """Do the work, together with all others; what was measured.

        Raises RunOver if the collector gave the run up, SimulatorError or Retryable if this worker did.
        """

    def _await_start(self, prefilled: int = 0) -> float:
        """Wait for the common start; its instant on this process's `perf_counter`.

        Asked twice: the first answer was held until all were ready, so how long it took says nothing
        of its way. Of the second, the round trip is known, and nothing can be later than by that.
        """
        go = self._client.ready(Stage.RUN, prefilled)
        origin = time.perf_counter() + go.start_in_s
        asked = time.perf_counter()
        again = self._client.ready(Stage.RUN, prefilled)
        answered = time.perf_counter()
        if again.start_in_s > 0:
            origin = min(origin, answered + again.start_in_s)
            self._late_at_most_s = answered - asked
        time.sleep(max(0.0, origin - time.perf_counter()))
        return origin

    def _result(
        self,
        elapsed_s: float,
        insert: WorkerInsert | None = None,
        queries: WorkerQueries | None = None,
    ) -> WorkerResult:
        return WorkerResult(
            worker=self._number,
            node=node_name(),
            elapsed_s=elapsed_s,
            late_at_most_s=self._late_at_most_s,
            insert=insert,
            queries=queries,
        )

    def _check_on(self) -> None:
        """RunOver if the collector has given the run up."""
        if self._client.failure:
            raise RunOver(self._client.failure)


class WritingWorker(Worker):
    """Inserts events: a prefill before the common start, the load's own after it."""

    def run(self) -> WorkerResult:
        load = self._load
        first = self._client.ready(Stage.PREPARED).first_event
        # With `restart` this run's first event gets the first timestamp again.
        time_origin = first if self._data.timestamps is Timestamps.RESTART else 0

        def generate(start: int, count: int) -> EventBlock:
            return self._workload.block(self._number, start, count, time_origin)

        prefill = share(self._data.prefill, load.workers, self._number - self._group.first)
        if prefill:
            self._prefill(generate, first, prefill)
        if load.role is Role.FILL:
            return self._result(time.perf_counter() - self._await_start(prefill))
        schedule = make_schedule(load, self._number - self._group.first, self._data.seed)
        events = load.events if load.duration_s is None else None
        with connect(self._module.writer(load.batch)) as writer:
            feed = Feed(generate, writer.encoder, first + prefill, events, load.batch)
            feed.prime()
            recorder = Recorder(schedule, feed.forget_costs)
            with garbage_collection_paused():
                if schedule.is_open:
                    sharpen_sleep()
                recorder.begin(self._await_start(prefill))
                with ProgressReporter(self._client, self._progress("run", recorder)):
                    self._insert(feed, writer, recorder, schedule)
                    recorder.end()
        measured = recorder.result(
            feed.generate_s, feed.encode_s, feed.ceiling_per_s(), writer.max_in_flight
        )
        return self._result(recorder.elapsed_s(), insert=measured)

    def _prefill(self, generate: Callable[[int, int], EventBlock], first: int, count: int) -> None:
        batch = max(PREFILL_BATCH, self._load.batch)
        with connect(self._module.writer(batch, prefill=True)) as writer:
            feed = Feed(generate, writer.encoder, first, count, batch)
            recorder = Recorder()
            recorder.begin(time.perf_counter())
            with ProgressReporter(self._client, self._progress("prefill", recorder)):
                self._insert(feed, writer, recorder)

    def _insert(
        self, feed: Feed, writer: Writer, recorder: Recorder, schedule: Schedule | None = None
    ) -> None:
        most = self._module.options.max_retries
        insert_all(feed, writer, recorder, most, self._check_on, schedule)

    def _progress(
        self, stage: Literal["prefill", "run"], recorder: Recorder
    ) -> Callable[[], Progress]:
        def read() -> Progress:
            return Progress(
                worker=self._number,
                stage=stage,
                elapsed_s=recorder.elapsed_s(),
                done=recorder.events,
                retries=recorder.retries,
            )

        return read


class ReadingWorker(Worker):
    """Asks queries."""

    def run(self) -> WorkerResult:
        self._client.ready(Stage.PREPARED)
        self._module.open()
        try:
            queries = self._module.queries()
            executions: list[QueryRun] = []
            origin = self._await_start()

            def progress() -> Progress:
                return Progress(
                    worker=self._number,
                    stage="run",
                    elapsed_s=time.perf_counter() - origin,
                    done=len(executions),
                )

            begin = time.perf_counter()
            with ProgressReporter(self._client, progress):
                for run in range(1, self._load.runs + 1):
                    for name, ask in queries.items():
                        self._check_on()
                        executions.append(execute(name, run, self._number, ask))
            end = time.perf_counter()
        finally:
            self._module.close()
        asked = WorkerQueries(start_s=begin - origin, end_s=end - origin, executions=executions)
        return self._result(time.perf_counter() - origin, queries=asked)


class CheckingWorker(Worker):
    """Connects to the database from where a worker runs, and changes nothing."""

    def run(self) -> WorkerResult:
        self._client.ready(Stage.PREPARED)
        self._module.open()
        try:
            self._module.server_info()
            origin = self._await_start()
        finally:
            self._module.close()
        return self._result(time.perf_counter() - origin)


def execute(name: str, run: int, worker: int, ask: Callable[[], Sequence[object]]) -> QueryRun:
    """One query, timed until all rows are fetched. One that fails doesn't keep the others from
    being asked: that a database can't answer it is a result, too."""
    begin = time.perf_counter()
    try:
        rows = len(ask())
    except (Retryable, SimulatorError) as error:
        _log.error("query %s failed: %s", name, error)
        # It goes into the result and the table.
        said = redact(str(error))
        return QueryRun(query=name, run=run, worker=worker, duration_s=None, rows=None, error=said)
    duration = time.perf_counter() - begin
    return QueryRun(query=name, run=run, worker=worker, duration_s=duration, rows=rows)


@contextmanager
def connect(writer: Writer) -> Iterator[Writer]:
    """The writer, connected."""
    try:
        writer.open()
        yield writer
    finally:
        writer.close()


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: its pauses would be charged to the database.

    The loop makes no reference cycles, so memory stays flat (benchmarks/memory.py).
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
