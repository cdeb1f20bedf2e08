"""A worker that runs queries: each a number of times, or all for a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, cycle, islice, repeat
from typing import Any

import numpy as np

from ..contract import Execution, Progress, QueryProgress, QueryResult, Stage, WorkerResult
from ..errors import Retryable, SimulatorError, redact
from ..histograms import LatencyRecorder
from ..modules.base import connect
from ..modules.sending import Asker, Completion, Received, Request
from .base import EARLY_S, Worker, garbage_collection_paused, read_progress, reporting
from .loop import Loop
from .measure import Recorder
from .questions import FirstAnswers, Questions
from .schedule import Schedule, make_schedule, sharpen_sleep

_log = logging.getLogger(__name__)

_RECONNECT_S = 0.5
"""How long a reader waits before it reconnects: a database that restarts is away for seconds."""


class ReadingWorker(Worker):
    """Runs queries."""

    def run(self) -> WorkerResult:
        go = self._client.ready(Stage.PREPARED)
        load, number = self._load, self._number - self._group.first
        with (
            connect(self._module) as module,
            closing(module.asker(load.in_flight or 1)) as asker,
        ):
            questions = Questions(
                module, asker, self._workload, go, number, load.redraw, self._settings.chance
            )
            self._answers = FirstAnswers(questions, load.check)
            return self._run_queries(questions, asker, number)

    def _run_queries(self, questions: Questions, asker: Asker, number: int) -> WorkerResult:
        """Query until the schedule is over, or each query has run `load.runs` times. `number`: within the
        group."""
        load, names = self._load, questions.names
        by_number = load.duration_s is None
        turns: Iterator[str]
        if by_number:
            turns = chain.from_iterable(repeat(names, load.runs))
        else:
            weights = {name: load.weights.get(name, 1.0) for name in names}
            # If all readers began with the same query, they would run it in step.
            turns = islice(take_turns(weights), number, None)
        schedule = make_schedule(load, number, self._chance)
        recorder = Recorder(schedule, questions.forget_costs, self._by_second)
        own = self._number if by_number else None
        asking = QueryLoop(
            questions, asker, recorder, schedule, self._check_on, self._answers.note, own
        )

        def progress() -> Progress:
            failed = asking.failed
            report = read_progress(self._number, "run", recorder, failed=failed)
            changes: dict[str, Any] = asking.read_size()
            if self._settings.abort_limits:
                changes["queries"] = asking.read_queries()
            if by_number:
                # A failed query leaves one fewer to run.
                changes["done"] = report.done + failed
            return report.model_copy(update=changes)

        with questions.feed(schedule.is_open), garbage_collection_paused():
            asker.open()
            if schedule.is_open:
                sharpen_sleep()
            recorder.begin(self._await_start(early_s=EARLY_S))
            with reporting(self._client, progress, recorder.end_early):
                asking.ask(turns)
                recorder.end()
        figures = recorder.result(
            queries=asking.results(),
            in_flight=asker.max_in_flight,
            pause_s=asking.pause_s,
            generate_s=questions.generate_s,
            encode_s=questions.encode_s,
        )
        return self._result(recorder.elapsed_s(), figures, answers_follow=load.check)

    def finish(self) -> None:
        """Hand in the first answers once no other worker is measuring."""
        if self._load.check:
            self._client.ready(Stage.CHECK)
            self._client.answers(self._answers.hand_in(self._number, self._module.job.schema))


Noted = tuple[int, float, float, float, float, int, int]
"""An answer: number of the execution from 0; when it had a place in flight, was due, was sent and was
answered; rows and bytes."""


@dataclass
class QueryStats:
    """What one reader measured of one query."""

    query: str
    is_open: bool = False
    """Whether executions are due by the clock: then service time is a figure of its own."""
    worker: int | None = None
    """The reader whose executions are kept one by one; None: they aren't kept."""
    executions: int = 0
    errors: int = 0
    error: str | None = None
    rows: int = 0
    bytes: int = 0
    """Total over the answers in the window, like `rows`."""
    rows_min: int | None = None
    rows_max: int = 0
    """The fewest and the most rows of an answer."""
    cold_s: float | None = None
    warm_s: float = 0.0
    warm: int = 0
    pause_s: float = 0.0
    """How long places in flight were free within the window before these executions were sent, in total."""
    latency: LatencyRecorder = field(default_factory=LatencyRecorder)
    service: LatencyRecorder = field(default_factory=LatencyRecorder)
    each: list[Execution] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    """Answers that aren't counted yet."""

    def settle(self, measured_from: float) -> None:
        """Count stored answers, many at once. `measured_from`: when the window opens."""
        if not self.noted:
            return
        execution, free, due, sent, answered, rows, sizes = map(
            np.array, zip(*self.noted, strict=True)
        )
        lowest = int(rows.min())
        self.rows_min = lowest if self.rows_min is None else min(self.rows_min, lowest)
        self.rows_max = max(self.rows_max, int(rows.max()))
        durations, counts = answered - due, due >= measured_from
        warm = counts.copy()
        if self.cold_s is None:
            self.cold_s = float(durations[0])
            warm[0] = False
        self.warm_s += float(durations[warm].sum())
        self.warm += int(warm.sum())
        self.pause_s += float((sent - np.maximum(free, measured_from))[sent >= measured_from].sum())
        self.executions += int(counts.sum())
        self.rows += int(rows[counts].sum())
        self.bytes += int(sizes[counts].sum())
        self.latency.record_many(durations[counts])
        if self.is_open:
            self.service.record_many((answered - sent)[counts])
        if self.worker is not None:
            for number, duration_s, row_count, size in zip(
                *(column.tolist() for column in (execution, durations, rows, sizes)), strict=True
            ):
                self._keep(number, duration_s=duration_s, rows=row_count, bytes=size)
        self.noted = []

    def note_error(self, execution: int, error: Exception) -> None:
        """Record a failed execution: that a database can't answer a query is a result, too. The first error's
        message goes into the result and the table."""
        self.errors += 1
        message = redact(str(error))
        if self.error is None:
            _log.error("query %s failed: %s", self.query, error)
            self.error = message
        if self.worker is not None:
            self._keep(execution, duration_s=None, rows=None, error=message)

    def _keep(self, execution: int, **figures: Any) -> None:
        assert self.worker is not None
        self.each.append(Execution(run=execution + 1, worker=self.worker, **figures))

    def result(self) -> QueryResult:
        """What was measured, for the collector."""
        return QueryResult(
            query=self.query,
            executions=self.executions,
            errors=self.errors,
            error=self.error,
            rows=self.rows,
            # Every answer has some bytes; 0 means not measured.
            bytes=self.bytes if self.bytes or not self.executions else None,
            rows_min=self.rows_min,
            rows_max=None if self.rows_min is None else self.rows_max,
            cold_s=self.cold_s,
            warm_s=[self.warm_s / self.warm] if self.warm else [],
            histogram=self.latency.finish(),
            service_histogram=self.service.finish() if self.is_open else None,
            each=sorted(self.each, key=lambda execution: execution.run),
        )


class QueryLoop(Loop):
    """Runs queries one at a time or several in flight. One that fails doesn't stop the others."""

    def __init__(
        self,
        questions: Questions,
        asker: Asker,
        recorder: Recorder,
        schedule: Schedule,
        abort: Callable[[], object] = lambda: None,
        keep: Callable[[str, int, Received], object] = lambda name, execution, received: None,
        worker: int | None = None,
    ) -> None:
        """`abort` is called now and then. `keep` takes a query's name, the number of an execution from 0, and
        its answer. `worker`: keep the figures of every execution under this reader's number."""
        super().__init__(asker, recorder, schedule, abort)
        self._questions = questions
        self._keep = keep
        self._is_connected = True
        self.stats = {name: QueryStats(name, self._is_open, worker) for name in questions.names}

    @property
    def failed(self) -> int:
        """Queries that failed; the recorder doesn't have them."""
        return sum(stats.errors for stats in self.stats.values())

    def read_queries(self) -> dict[str, QueryProgress]:
        """What was queried so far. Called in another thread."""
        return {
            name: QueryProgress(latency=stats.latency.coarsen(), failed=stats.errors)
            for name, stats in self.stats.items()
        }

    def read_size(self) -> dict[str, int]:
        """Rows and bytes of the window's answers so far. Called in another thread."""
        queries = self.stats.values()
        noted = [answer for stats in queries for answer in list(stats.noted)]
        counted = [answer for answer in noted if answer[2] >= self._schedule.measured_from]
        return {
            "rows": sum(stats.rows for stats in queries) + sum(answer[5] for answer in counted),
            "bytes": sum(stats.bytes for stats in queries) + sum(answer[6] for answer in counted),
        }

    def results(self) -> list[QueryResult]:
        """What was measured of each query, for the collector."""
        return [stats.result() for stats in self.stats.values()]

    def ask(self, turns: Iterable[str]) -> None:
        """Run these queries in turn, each when it is due, until the schedule or the turns end."""
        self.run(self._make_requests(turns))
        self.settle()

    def _make_requests(self, turns: Iterable[str]) -> Iterator[Request]:
        make, begun = self._questions.make, dict.fromkeys(self.stats, 0)
        for name in turns:
            number = begun[name]
            begun[name] = number + 1
            yield Request(make(name), 1, None, 0, name, number)

    @property
    def pause_s(self) -> float:
        """How long places in flight were free within a closed loop's window, in total: from an answer to the
        next query."""
        return 0.0 if self._is_open else sum(stats.pause_s for stats in self.stats.values())

    def make_ahead(self, until: float) -> bool:
        return self._questions.make_ahead(until)

    def settle(self) -> None:
        self._abort()
        super().settle()
        for stats in self.stats.values():
            stats.settle(self._schedule.measured_from)

    def begin(self, request: Request) -> bool:
        if self._is_connected:
            return True
        try:
            self._channel.recover(request)
        except (Retryable, SimulatorError) as error:
            now = time.perf_counter()
            self._note_error(request, error, now)
            self._reconnect_after(now)
            return False
        self._is_connected = True
        if not self._is_open:
            # This time was the database's, not the client's.
            self._held_up_until = time.perf_counter()
        return True

    def note(self, completion: Completion) -> None:
        request, rows, arrived_s, _, received, _ = completion
        assert received is not None
        query, execution, sent_s = request.query, request.execution, request.sent_s
        if problem := self._questions.find_shortfall(query, rows):
            self._note_error(request, SimulatorError(problem), arrived_s)
            return
        self._keep(query, execution, received)
        free_s = request.free_s
        due_s = request.due_s if self._is_open else sent_s
        # A plain tuple: this is in the hot path.
        self.stats[query].noted.append(
            (execution, free_s, due_s, sent_s, arrived_s, rows, received.bytes)
        )
        if self._is_open:
            self._recorder.record_due(due_s, free_s, sent_s, arrived_s, 1)
        else:
            self._recorder.record(sent_s, arrived_s, 1)

    def fail(self, completion: Completion) -> None:
        request, ended_s, error = completion.request, completion.arrived_s, completion.error
        if not isinstance(error, Retryable | SimulatorError):
            assert error is not None
            raise error
        self.release(ended_s)
        if isinstance(error, Retryable):
            self._is_connected = False
            self._reconnect_after(ended_s)
        self._note_error(request, error, ended_s)

    def _reconnect_after(self, failed_s: float) -> None:
        # Nothing signals that the database is back.
        self._not_before = failed_s + _RECONNECT_S

    def _note_error(self, request: Request, error: Exception, ended_s: float) -> None:
        due_s = request.due_s if self._is_open else request.sent_s or ended_s
        self._recorder.record_failed(due_s, ended_s)
        self.stats[request.query].note_error(request.execution, error)


def take_turns(weights: Mapping[str, float]) -> Iterator[str]:
    """Names in turn without end, each as often as its weight says, and spread as evenly as possible."""
    if len(set(weights.values())) == 1:
        yield from cycle(weights)
    credit = dict.fromkeys(weights, 0.0)
    total = sum(weights.values())
    while True:
        for name, weight in weights.items():
            credit[name] += weight
        chosen = max(credit, key=credit.__getitem__)
        credit[chosen] -= total
        yield chosen
