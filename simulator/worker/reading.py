"""A worker that asks queries: each so often, or for so long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Protocol

from ..contract import Execution, Progress, QueryProgress, Stage, WorkerQuery, WorkerResult
from ..errors import Retryable, SimulatorError
from ..histograms import LatencyRecorder, encode_histogram
from ..logs import redact
from ..modules.base import Query
from .base import EARLY_S, ProgressReporter, Worker, read_progress
from .measure import Recorder
from .questions import FirstAnswers, Questions
from .schedule import Schedule, make_schedule, sharpen_sleep

_log = logging.getLogger(__name__)

_RECONNECT_S = 0.5
"""How long a reader waits before it tries to connect again: a database that restarts is away for seconds."""


Note = Callable[[str, int, Sequence[tuple[Any, ...]]], object]
"""Takes a query's name, the number of an execution from 0 on, and its answer."""


def _ignore(name: str, execution: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Keep nothing of an answer."""


class ReadingWorker(Worker):
    """Asks queries."""

    def run(self) -> WorkerResult:
        go = self._client.ready(Stage.PREPARED)
        self._module.open()
        number = self._number - self._group.first
        self._questions = Questions(self._module, self._workload, go, number, self._load.redraw)
        self._answers = FirstAnswers(self._load.check)
        try:
            return self._run_queries(number)
        finally:
            self._module.close()

    def _run_queries(self, number: int) -> WorkerResult:
        """Ask until the schedule is over, or each query `load.runs` times; `number`: within the group."""
        load, names = self._load, self._questions.names
        by_number = load.duration_s is None
        turns: Iterator[str]
        if by_number:
            turns = chain.from_iterable(repeat(names, load.runs))
        else:
            weights = {name: load.weights.get(name, 1.0) for name in names}
            # Readers that all began with the same query would ask it in step.
            turns = islice(take_turns(weights), number, None)
        schedule = make_schedule(load, number, self._data.seed)
        recorder = Recorder(schedule)
        own = self._number if by_number else None
        runner = QueryRunner(
            self._questions, turns, recorder, schedule, self._check_on, self._answers.note, own
        )
        if schedule.is_open:
            sharpen_sleep()

        def progress() -> Progress:
            failed = runner.failed
            made = read_progress(self._number, "run", recorder, failed=failed)
            # A query that failed is one less to be asked.
            told = {"queries": runner.tell_queries()} if self._abortable else {}
            return made.model_copy(
                update=told | ({"done": made.done + failed} if by_number else {})
            )

        recorder.begin(self._await_start(early_s=EARLY_S))
        with ProgressReporter(self._client, progress, recorder.end_early):
            runner.run_queries()
            recorder.end()
        figures = recorder.result(queries=runner.results())
        return self._result(recorder.elapsed_s(), figures, answers_follow=load.check)

    def finish(self) -> None:
        """Hand in the first answers, as soon as no other worker is measuring any more."""
        if self._load.check:
            self._client.ready(Stage.CHECK)
            schema = self._module.job.schema
            self._client.answers(self._answers.hand_in(self._number, self._questions, schema))


class Asked(Protocol):
    """What is asked, and over which connection: `Questions`."""

    names: list[str]

    def make(self, name: str, execution: int) -> Query:
        """A query with the parameters of an execution, to be asked over the connection that there is."""

    def connect_again(self) -> None:
        """Disconnect and connect; Retryable or SimulatorError if that fails."""


@dataclass
class QueryStats:
    """What one reader measured of one query."""

    query: str
    worker: int | None = None
    """Whose executions are kept one by one; None: they aren't."""
    begun: int = 0
    """Executions, whether or not they were answered, or in the window."""
    executions: int = 0
    errors: int = 0
    error: str | None = None
    rows: set[int] = field(default_factory=set)
    """The fewest and the most of an answer."""
    cold_s: float | None = None
    warm_s: float = 0.0
    warm: int = 0
    latency: LatencyRecorder = field(default_factory=LatencyRecorder)
    service: LatencyRecorder = field(default_factory=LatencyRecorder)
    each: list[Execution] = field(default_factory=list)

    def note_answer(
        self, due: float, sent: float, answered: float, rows: int, counts: bool
    ) -> None:
        """Note an execution and the length of its answer; `counts`: it was due in the window."""
        self.rows = {min({rows, *self.rows}), max({rows, *self.rows})}
        if self.cold_s is None:
            self.cold_s = answered - due
        elif counts:
            self.warm_s += answered - due
            self.warm += 1
        if counts:
            self.executions += 1
            self.latency.record(answered - due)
            self.service.record(answered - sent)
        self._keep(duration_s=answered - due, rows=rows)

    def note_error(self, error: Exception) -> None:
        """Note an execution that failed: that a database can't answer it is a result, too. What the first
        said goes into the result and the table."""
        self.errors += 1
        said = redact(str(error))
        if self.error is None:
            _log.error("query %s failed: %s", self.query, error)
            self.error = said
        self._keep(duration_s=None, rows=None, error=said)

    def _keep(self, **figures: Any) -> None:
        if self.worker is not None:
            self.each.append(Execution(run=self.begun, worker=self.worker, **figures))

    def result(self, is_open: bool) -> WorkerQuery:
        """What was measured, for the collector."""
        return WorkerQuery(
            query=self.query,
            executions=self.executions,
            errors=self.errors,
            error=self.error,
            rows_min=min(self.rows, default=None),
            rows_max=max(self.rows, default=None),
            cold_s=self.cold_s,
            warm_s=self.warm_s,
            warm=self.warm,
            histogram=encode_histogram(self.latency.finish()),
            service=encode_histogram(self.service.finish()) if is_open else None,
            each=self.each,
        )


class QueryRunner:
    """Asks one query after the other, each when it is due, until the schedule or the turns are over."""

    def __init__(
        self,
        questions: Asked,
        turns: Iterator[str],
        recorder: Recorder,
        schedule: Schedule,
        abort: Callable[[], None] = lambda: None,
        note: Note = _ignore,
        worker: int | None = None,
    ) -> None:
        """`abort` is called before each query, and raises if the run is over; `note` is told each answer;
        `worker`: keep every execution, under this reader's number."""
        self._questions = questions
        self._abort = abort
        self._note = note
        self._turns = turns
        self._recorder = recorder
        self._schedule = schedule
        self._connected = True
        self.asked = {name: QueryStats(name, worker) for name in questions.names}

    @property
    def failed(self) -> int:
        """Queries that failed, which are not in the recorder."""
        return sum(asked.errors for asked in self.asked.values())

    def tell_queries(self) -> dict[str, QueryProgress]:
        """What was asked so far. Called in another thread."""
        return {
            name: QueryProgress(latency=asked.latency.coarsen(), failed=asked.errors)
            for name, asked in self.asked.items()
        }

    def results(self) -> list[WorkerQuery]:
        """What was measured of each query, for the collector."""
        return [one.result(self._schedule.is_open) for one in self.asked.values()]

    def run_queries(self) -> None:
        """Ask until all is over; a query that fails keeps no other from being asked."""
        schedule, clock = self._schedule, time.perf_counter
        free = clock()
        for name in self._turns:
            self._abort()
            asked = self.asked[name]
            # Before the query is due, so that drawing and compiling aren't in its time.
            query = self._questions.make(name, asked.begun)
            asked.begun += 1
            sent = clock()
            due = schedule.next_due(sent)
            if sent < due < schedule.ends:
                schedule.await_due(due)
                sent = clock()
            if sent >= schedule.ends or due >= schedule.ends:
                if schedule.is_open and due < schedule.ends:
                    self._recorder.leave_unsent(due, 1)
                return
            self._ask(asked, query, due if schedule.is_open else sent, sent, free)
            free = clock()

    def _ask(self, asked: QueryStats, query: Query, due: float, sent: float, free: float) -> None:
        try:
            if not self._connected:
                self._questions.connect_again()
                query = self._questions.make(asked.query, asked.begun - 1)
                self._connected = True
            rows = query()
        except Retryable as error:
            self._note_failure(asked, error, due)
            self._connected = False
            # Nothing tells when the database is back.
            time.sleep(max(0.0, min(_RECONNECT_S, self._schedule.ends - time.perf_counter())))
            return
        except SimulatorError as error:
            self._note_failure(asked, error, due)
            return
        answered = time.perf_counter()
        self._note(asked.query, asked.begun - 1, rows)
        asked.note_answer(due, sent, answered, len(rows), due >= self._schedule.measured_from)
        if self._schedule.is_open:
            self._recorder.record_due(due, free, sent, answered, 1)
        else:
            self._recorder.record(sent, answered, 1)

    def _note_failure(self, asked: QueryStats, error: Exception, due: float) -> None:
        self._recorder.record_failed(due, time.perf_counter())
        asked.note_error(error)


def take_turns(weights: Mapping[str, float]) -> Iterator[str]:
    """Names in turn without end, each as often as its weight says and spread as evenly as can be."""
    credit = dict.fromkeys(weights, 0.0)
    total = sum(weights.values())
    while True:
        for name, weight in weights.items():
            credit[name] += weight
        chosen = max(credit, key=credit.__getitem__)
        credit[chosen] -= total
        yield chosen
