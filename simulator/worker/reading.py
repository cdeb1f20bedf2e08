"""A worker that asks queries: each a number of times, or all for a time."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from ..contract import Execution, Progress, QueryProgress, QueryResult, Stage, WorkerResult
from ..errors import Retryable, SimulatorError, redact
from ..histograms import LatencyRecorder
from ..modules.base import connect
from ..modules.sending import Asker, Received, SplitAsker
from ..modules.waiting import find_arrival, find_sending
from .base import EARLY_S, Worker, garbage_collection_paused, read_progress, reporting
from .measure import Recorder
from .questions import FirstAnswers, Questions
from .schedule import Schedule, make_schedule, sharpen_sleep

_log = logging.getLogger(__name__)

_RECONNECT_S = 0.5
"""How long a reader waits before it tries to connect again: a database that restarts is away for seconds."""


_SETTLED = 128
"""After how many questions recorders do what takes long: before the next one, not while it is under way."""


class ReadingWorker(Worker):
    """Asks queries."""

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
        """Ask until the schedule is over, or each query `load.runs` times; `number`: within the group."""
        load, names = self._load, questions.names
        by_number = load.duration_s is None
        turns: Iterator[str]
        if by_number:
            turns = chain.from_iterable(repeat(names, load.runs))
        else:
            weights = {name: load.weights.get(name, 1.0) for name in names}
            # Readers that all began with the same query would ask it in step.
            turns = islice(take_turns(weights), number, None)
        schedule = make_schedule(load, number, self._chance)
        recorder = Recorder(schedule, by_second=self._by_second)
        own = self._number if by_number else None
        runner = QueryRunner(
            questions, asker, turns, recorder, schedule, self._check_on, self._answers.note, own
        )

        def progress() -> Progress:
            failed = runner.failed
            report = read_progress(self._number, "run", recorder, failed=failed)
            changes: dict[str, Any] = runner.read_size()
            if self._settings.abort_limits:
                changes["queries"] = runner.read_queries()
            if by_number:
                # A query that failed is one less to be asked.
                changes["done"] = report.done + failed
            return report.model_copy(update=changes)

        with questions.feed(schedule.is_open), garbage_collection_paused():
            asker.open()
            if schedule.is_open:
                sharpen_sleep()
            recorder.begin(self._await_start(early_s=EARLY_S))
            with reporting(self._client, progress, recorder.end_early):
                runner.run_queries()
                recorder.end()
        figures = recorder.result(
            queries=runner.results(), in_flight=asker.max_in_flight, pause_s=runner.pause_s
        )
        return self._result(recorder.elapsed_s(), figures, answers_follow=load.check)

    def finish(self) -> None:
        """Hand in the first answers, as soon as no other worker is measuring any more."""
        if self._load.check:
            self._client.ready(Stage.CHECK)
            self._client.answers(self._answers.hand_in(self._number, self._module.job.schema))


@dataclass
class QueryStats:
    """What one reader measured of one query."""

    query: str
    is_open: bool = False
    """Whether executions are due by the clock: then the time since they were sent is a figure of its own."""
    worker: int | None = None
    """The reader whose executions are kept one by one; None: they aren't."""
    begun: int = 0
    """Executions, whether or not they were answered, or in the window."""
    executions: int = 0
    errors: int = 0
    error: str | None = None
    rows: int = 0
    bytes: int = 0
    """Total of the window's answers, like `rows`."""
    rows_min: int | None = None
    rows_max: int = 0
    """The fewest and the most rows of an answer."""
    cold_s: float | None = None
    warm_s: float = 0.0
    warm: int = 0
    latency: LatencyRecorder = field(default_factory=LatencyRecorder)
    service: LatencyRecorder = field(default_factory=LatencyRecorder)
    each: list[Execution] = field(default_factory=list)

    def note_answer(
        self,
        execution: int,
        due: float,
        sent: float,
        answered: float,
        received: Received,
        counts: bool,
    ) -> None:
        """Note an execution (numbered from 0 on) and the length of its answer; `counts`: it was due in the
        window. In the hot path: it costs some 2 µs."""
        rows, duration_s = received.rows, answered - due
        if self.rows_min is None or rows < self.rows_min:
            self.rows_min = rows
        self.rows_max = max(self.rows_max, rows)
        if self.cold_s is None:
            self.cold_s = duration_s
        elif counts:
            self.warm_s += duration_s
            self.warm += 1
        if counts:
            self.executions += 1
            self.rows += rows
            self.bytes += received.bytes
            self.latency.record(duration_s)
            if self.is_open:
                self.service.record(answered - sent)
        if self.worker is not None:
            self._keep(execution, duration_s=duration_s, rows=rows, bytes=received.bytes)

    def note_error(self, execution: int, error: Exception) -> None:
        """Note an execution that failed: that a database can't answer it is a result, too. The first error's
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
            # No answer is without any.
            bytes=self.bytes if self.bytes or not self.executions else None,
            rows_min=self.rows_min,
            rows_max=None if self.rows_min is None else self.rows_max,
            cold_s=self.cold_s,
            warm_s=[self.warm_s / self.warm] if self.warm else [],
            histogram=self.latency.finish(),
            service_histogram=self.service.finish() if self.is_open else None,
            each=sorted(self.each, key=lambda execution: execution.run),
        )


@dataclass(slots=True)
class _Question:
    """One execution that is under way."""

    stats: QueryStats
    execution: int
    due: float
    free: float
    """When there was a place in flight for it."""
    sent: float


class QueryRunner:
    """Asks one question after the other, or several in flight, each when it is due, until the schedule or the
    turns are over. A question that fails keeps no other from being asked."""

    def __init__(
        self,
        questions: Questions,
        asker: Asker,
        turns: Iterator[str],
        recorder: Recorder,
        schedule: Schedule,
        abort: Callable[[], None] = lambda: None,
        note: Callable[[str, int, Received], object] = lambda name, execution, received: None,
        worker: int | None = None,
    ) -> None:
        """`abort` is called before each question, and raises if the run is over; `note` is given a query's
        name, the number of an execution from 0 on, and its answer; `worker`: keep every execution, under this
        reader's number."""
        self._questions = questions
        self._asker = asker
        # To ask an abstract class each time takes longer than to remember its answer.
        self._split = asker if isinstance(asker, SplitAsker) else None
        self._is_open = schedule.is_open
        self._abort = abort
        self._note = note
        self._turns = turns
        self._recorder = recorder
        self._schedule = schedule
        self._is_connected = True
        self._resume = 0.0
        """When to ask again after a connection was lost."""
        self._places: deque[float] = deque()
        """Since when each free place in flight has been free."""
        self._under_way = 0
        self._latest: tuple[_Question, Received, float] | None = None
        """An answer that isn't noted yet, and when it came."""
        self.pause_s = 0.0
        """How long places in flight were free within the window of a closed loop, in total: the time from an
        answer to the next question."""
        self.stats = {name: QueryStats(name, schedule.is_open, worker) for name in questions.names}

    @property
    def failed(self) -> int:
        """Questions that failed, which are not in the recorder."""
        return sum(stats.errors for stats in self.stats.values())

    def read_queries(self) -> dict[str, QueryProgress]:
        """What was asked so far. Called in another thread."""
        return {
            name: QueryProgress(latency=stats.latency.coarsen(), failed=stats.errors)
            for name, stats in self.stats.items()
        }

    def read_size(self) -> dict[str, int]:
        """Rows and bytes of the answers of the window so far. Called in another thread."""
        queries = self.stats.values()
        return {
            "rows": sum(stats.rows for stats in queries),
            "bytes": sum(stats.bytes for stats in queries),
        }

    def results(self) -> list[QueryResult]:
        """What was measured of each query, for the collector."""
        return [stats.result() for stats in self.stats.values()]

    def run_queries(self) -> None:
        """Ask until all is over."""
        in_flight = self._asker.max_in_flight
        ask = self._submit if in_flight > 1 else self._ask
        self._places.extend([max(time.perf_counter(), self._schedule.begins)] * in_flight)
        try:
            for number, name in enumerate(self._turns):
                self._abort()
                stats = self.stats[name]
                # Before it is due, so that making it isn't in its time.
                request = self._questions.make(name)
                due = self._await_turn()
                if due is None:
                    break
                if not number % _SETTLED:
                    self._settle()
                question = _Question(stats, stats.begun, due, self._places.popleft(), 0.0)
                stats.begun += 1
                ask(question, request)
            while self._under_way:
                self._take_answers(None)
            self._note_latest()
        finally:
            if in_flight > 1:
                self._asker.stop_submitting()

    def _await_turn(self) -> float | None:
        """Wait until the next question is due and there is a place for it, and take answers meanwhile; when
        it was due, or None if the schedule is over."""
        schedule, clock = self._schedule, time.perf_counter
        now = clock()
        due = schedule.next_due(now)
        while now < schedule.ends and due < schedule.ends:
            wait_s = max(due, self._resume) - now
            if not self._places:
                self._take_answers(schedule.ends - now)
            elif wait_s <= 0:
                return due
            elif self._under_way:
                self._take_answers(min(wait_s, schedule.ends - now))
            else:
                schedule.await_due(now + wait_s)
            now = clock()
        if schedule.is_open and due < schedule.ends:
            self._recorder.leave_unsent(due, 1)
        return None

    def _begin(self, question: _Question) -> bool:
        """Begin a question that is to be sent now; returns whether it can be sent."""
        if not self._is_connected:
            try:
                self._asker.recover()
            except (Retryable, SimulatorError) as error:
                question.sent = time.perf_counter()
                self._note_failure(question, error, question.sent)
                return False
            self._is_connected = True
            if not self._is_open:
                # That was the database's time, and not the client's.
                question.free = time.perf_counter()
        sent = question.sent = time.perf_counter()
        if not self._is_open:
            question.due = sent
            if sent >= self._schedule.measured_from:
                self.pause_s += sent - max(question.free, self._schedule.measured_from)
        return True

    def _ask(self, question: _Question, request: Any) -> None:
        if self._split is None:
            self._note_latest()
        if not self._begin(question):
            return
        try:
            received = self._send(question, request)
        except (Retryable, SimulatorError) as error:
            self._note_latest()
            self._note_failure(question, error, time.perf_counter())
            return
        answered = time.perf_counter()
        if self._is_open:
            question.sent = find_sending(question.sent)
            answered = find_arrival(question.sent)
        self._places.append(answered)
        self._latest = question, received, answered
        if self._is_open:
            self._note_latest()

    def _send(self, question: _Question, request: Any) -> Received:
        """Send and wait. Where these are apart, the last answer is noted and the next question encoded while
        the database is at work: as little as possible is done between an answer and the next question."""
        asker = self._split
        if asker is None:
            return self._asker.send(request)
        asker.begin(request)
        self._note_latest()
        if not self._is_open:
            self._questions.encode_next(question.stats.query)
        return asker.finish()

    def _settle(self) -> None:
        self._recorder.settle()
        for stats in self.stats.values():
            stats.latency.settle()

    def _note_latest(self) -> None:
        if self._latest is not None:
            latest, self._latest = self._latest, None
            self._note_answer(*latest)

    def _submit(self, question: _Question, request: Any) -> None:
        if self._begin(question):
            self._under_way += 1
            self._asker.submit(request, question)

    def _take_answers(self, timeout_s: float | None) -> None:
        """Take the answers that have come; wait up to `timeout_s` for the first."""
        at_most_s = None if timeout_s is None or timeout_s == math.inf else timeout_s
        for outcome in self._asker.outcomes(at_most_s):
            self._under_way -= 1
            question: _Question = outcome.request
            if outcome.sent_s is not None and self._is_open:
                question.sent = outcome.sent_s
            result = outcome.result
            if isinstance(result, Received):
                self._places.append(outcome.answered_s)
                self._note_answer(question, result, outcome.answered_s)
            elif isinstance(result, Retryable | SimulatorError):
                self._note_failure(question, result, outcome.answered_s)
            else:
                raise result

    def _note_answer(self, question: _Question, received: Received, answered: float) -> None:
        stats, execution, due = question.stats, question.execution, question.due
        if problem := self._questions.find_shortfall(stats.query, received.rows):
            self._note_error(question, SimulatorError(problem), answered)
            return
        self._note(stats.query, execution, received)
        counts = due >= self._schedule.measured_from
        stats.note_answer(execution, due, question.sent, answered, received, counts)
        if self._is_open:
            self._recorder.record_due(due, question.free, question.sent, answered, 1)
        else:
            self._recorder.record(question.sent, answered, 1)

    def _note_failure(self, question: _Question, error: Exception, ended: float) -> None:
        self._places.append(ended)
        if isinstance(error, Retryable) or not self._is_connected:
            self._is_connected = False
            # Nothing tells when the database is back.
            self._resume = min(ended + _RECONNECT_S, self._schedule.ends)
        self._note_error(question, error, ended)

    def _note_error(self, question: _Question, error: Exception, ended: float) -> None:
        self._recorder.record_failed(question.due, ended)
        question.stats.note_error(question.execution, error)


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
