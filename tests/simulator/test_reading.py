"""Readers whose run is ended by the clock: whose turn it is, what is measured, what fails."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from simulator.contract import Arrivals, LatencyMs, Load, Role, WorkerResult
from simulator.errors import Retryable, SimulatorError
from simulator.modules.sending import (
    Asker,
    BlockingChannel,
    Completion,
    Received,
    Request,
    Rows,
)
from simulator.worker.measure import Recorder
from simulator.worker.reading import QueryLoop, QueryStats, take_turns
from simulator.worker.schedule import OpenLoop, Schedule, make_schedule


def test_each_takes_its_turn_as_often_as_its_weight_says_and_evenly_spread() -> None:
    turns = list(islice(take_turns({"a": 3, "b": 1, "c": 0}), 40))
    assert Counter(turns) == {"a": 30, "b": 10}
    for start in range(0, 40, 4):
        assert Counter(turns[start : start + 4]) == {"a": 3, "b": 1}


class Answers(Asker, BlockingChannel):
    """A fake database, and the questions to it: a request is the query's name."""

    def __init__(self, *answers: float | Exception, in_flight: int = 1) -> None:
        """Each query takes so many seconds, or fails; the last goes for all that follow."""
        BlockingChannel.__init__(self)
        self.max_in_flight = in_flight
        self.names = ["one", "two"]
        self.answers = list(answers)
        self.asked: list[str] = []
        self.connected = 1
        self.right_rows: int | None = None
        self.under_way = 0
        self.most_under_way = 0
        self._lock = threading.Lock()

    def make(self, name: str) -> str:
        return name

    def make_ahead(self, until: float) -> bool:
        return False

    def find_shortfall(self, name: str, rows: int) -> str | None:
        return None if self.right_rows in (None, rows) else f"{rows} rows"

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        self.end_threads()

    def encode_statement(self, statement: Any) -> Any:
        return statement

    def decode(self, received: Received) -> Rows:
        rows: Rows = received.data
        return rows

    def recover(self, request: Request) -> bool:
        self.connected += 1
        return False

    def send(self, request: Request) -> Received:
        self.asked.append(request.data)
        rows = len(self.asked)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        with self._lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(answer)
        with self._lock:
            self.under_way -= 1
        return Received(rows, 10 * rows, [(1,)] * rows)


def make_loop(database: Answers, recorder: Recorder, schedule: Schedule, **more: Any) -> QueryLoop:
    questions: Any = database
    return QueryLoop(questions, database, recorder, schedule, **more)


def test_each_query_is_asked_so_often_and_every_execution_is_kept() -> None:
    """With those that failed, which are in the window, too."""
    database = Answers(
        0.01, SimulatorError("no such column"), 0.01, 0.01, SimulatorError("gone"), 0.3
    )
    schedule = make_schedule(Load(role=Role.READ, runs=3), 0, 0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    turns = iter(["one", "two"] * 3)
    loop = make_loop(database, recorder, schedule, worker=7)
    loop.ask(turns)
    recorder.end()
    figures = recorder.result(queries=loop.results())
    first, second = figures.queries
    assert [
        (execution.run, execution.worker, execution.rows, execution.error)
        for execution in (*first.each, *second.each)
    ] == [
        (1, 7, 1, None), (2, 7, 3, None), (3, 7, None, "gone"),
        (1, 7, None, "no such column"), (2, 7, 4, None), (3, 7, 6, None),
    ]  # fmt: skip
    # Its own time, without the three others'.
    duration_s = second.each[2].duration_s
    assert duration_s is not None
    assert 0.3 <= duration_s <= figures.end_s - figures.start_s - 3 * 0.01
    assert (figures.count, figures.measured, first.executions, second.error) == (
        4,
        4,
        2,
        "no such column",
    )
    assert figures.end_s - figures.start_s >= 0.33
    assert WorkerResult(worker=7, node="n", elapsed_s=1.0, figures=figures).done == 6


class InHalves(Answers):
    """Tells a question's going out from its answer's coming, and keeps the order of what happens."""

    def __init__(self, *answers: float | Exception) -> None:
        super().__init__(*answers)
        self.order: list[str] = []
        self.begun: list[Request] = []

    def make(self, name: str) -> str:
        self.order.append("make")
        return name

    def submit(self, request: Request) -> None:
        self.begun.append(request)
        self.order.append(f"ask {len(self.asked)}")

    def poll(self, timeout_s: float) -> Sequence[Completion]:
        while self.begun:
            super().submit(self.begun.pop())
        return super().poll(timeout_s)

    def note(self, name: str, execution: int, received: Received) -> None:
        self.order.append(f"note {received.rows - 1}")


@pytest.mark.parametrize("is_open", [False, True])
def test_an_answer_is_noted_while_the_next_question_is_under_way(is_open: bool) -> None:
    """In a closed loop, where the time between the two is a part of the rate. The last one is noted, too."""
    database = InHalves(0.001, SimulatorError("gone"), 0.001)
    load = Load(role=Role.READ, runs=2)
    schedule = OpenLoop(0.2) if is_open else make_schedule(load, 0, 0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    turns = iter(["one", "two", "one", "two"])
    loop = make_loop(database, recorder, schedule, keep=database.note)
    loop.ask(turns)
    recorder.end()
    closed = "make ask 0 make ask 1 make note 0 ask 2 make ask 3 note 2 note 3"
    opened = "make ask 0 make note 0 ask 1 make ask 2 make note 2 ask 3 note 3"
    assert " ".join(database.order) == (opened if is_open else closed)
    assert (recorder.events, loop.failed) == (3, 1)


@pytest.mark.parametrize(("takes_s", "count", "often"), [(0.0002, 1000, 3), (0.005, 100, 1)])
def test_recorders_do_what_takes_long_between_two_questions(
    takes_s: float, count: int, often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never while one is under way, whose time it would add to; after many, or after half a second."""
    database, under_way = InHalves(takes_s), []
    settle = QueryStats.settle

    def note_when(stats: QueryStats, measured_from: float) -> None:
        under_way.append(bool(database.begun))
        settle(stats, measured_from)

    monkeypatch.setattr(QueryStats, "settle", note_when)
    schedule = make_schedule(Load(role=Role.READ, runs=1), 0, 0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    turns = iter(["one"] * count)
    loop = make_loop(database, recorder, schedule)
    loop.ask(turns)
    recorder.end()
    assert recorder.result().histogram.count == count
    assert often <= len(under_way) <= count // 10
    assert not any(under_way)


def ask(
    database: Answers, schedule: Schedule, most: int | None = None
) -> tuple[QueryLoop, Recorder]:
    """Ask until the schedule is over, or so many questions."""
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    turns: Iterator[str] = islice(take_turns({"one": 1, "two": 1}), most)
    loop = make_loop(database, recorder, schedule)
    with closing(database):
        loop.ask(turns)
    recorder.end()
    return loop, recorder


def test_a_closed_loop_asks_one_after_the_other_until_the_time_is_over() -> None:
    database = Answers(0.01)
    asker, recorder = ask(database, make_schedule(Load(role=Role.READ, duration_s=0.6), 0, 0))
    reads = recorder.result(queries=asker.results())
    assert 4 <= len(database.asked) <= 60
    assert database.asked[:4] == ["one", "two", "one", "two"]
    query = reads.queries[0]
    assert query.executions == database.asked.count("one")
    assert len(query.warm_s) == 1 and 0.01 <= query.warm_s[0] < 0.6
    assert query.cold_s is not None and 0.01 <= query.cold_s < 0.6
    # The answers' lengths, which grow here, as its data do in a mixed run.
    assert (query.rows_min, query.rows_max) == (
        1,
        len(database.asked) - (len(database.asked) + 1) % 2,
    )
    assert reads.end_s == pytest.approx(0.6)
    assert reads.measured in (len(database.asked), len(database.asked) - 1)


def test_a_query_that_outlasts_the_run_counts_with_its_time_but_not_in_the_rate() -> None:
    # A busy machine begins in time.
    asker, recorder = ask(Answers(0.5), OpenLoop(0.1, duration_s=0.45))
    reads = recorder.result(queries=asker.results())
    assert reads.measured == 0
    assert [query.executions for query in reads.queries] == [1, 0]
    latency = LatencyMs.of(reads.histogram)
    assert latency is not None
    assert latency.max >= 500
    # Those that were due meanwhile have waited, and none of them is skipped.
    assert reads.offered is not None
    assert (reads.offered.due, reads.offered.unsent) == (5, 4)
    assert reads.histogram.count == 5


def test_a_query_that_fails_keeps_no_other_from_being_asked() -> None:
    database = Answers(SimulatorError("no such column"), 0.001)
    asker, recorder = ask(database, OpenLoop(0.01), 10)
    first, second = asker.stats.values()
    offer = recorder.result().offered
    assert (first.errors, first.error) == (1, "no such column")
    assert (second.errors, second.error) == (0, None)
    assert offer is not None and (offer.due, offer.unsent, offer.failed) == (10, 0, 1)
    assert database.asked == ["one", "two"] * 5
    assert database.connected == 1


def test_a_reader_that_lost_its_connection_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.worker.reading._RECONNECT_S", 0.01)
    database = Answers(Retryable("connection_lost", "gone"), 0.001)
    asker, recorder = ask(database, OpenLoop(0.01), 10)
    first, second = asker.stats.values()
    offer = recorder.result().offered
    assert database.connected == 2
    assert first.errors + second.errors == 1
    assert offer is not None and (offer.due, offer.unsent, offer.failed) == (10, 0, 1)
    assert database.asked == ["one", "two"] * 5


def test_an_answer_of_the_wrong_length_is_an_error() -> None:
    database = Answers(0.0)
    database.right_rows = 2
    schedule = make_schedule(Load(role=Role.READ, runs=2), 0, 0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    turns = iter(["one", "two"] * 2)
    loop = make_loop(database, recorder, schedule)
    loop.ask(turns)
    first, second = loop.stats.values()
    assert (first.executions, first.errors, first.error) == (0, 2, "1 rows")
    assert (second.executions, second.errors, second.rows, second.bytes) == (1, 1, 2, 20)


def test_several_are_in_flight_and_each_has_its_own_time() -> None:
    database = Answers(0.02, in_flight=4)
    asker, recorder = ask(database, make_schedule(Load(role=Role.READ, duration_s=0.5), 0, 0))
    recorder.end()
    assert database.most_under_way == 4
    latency = LatencyMs.of(recorder.result().histogram)
    # Of each by itself: four one after the other would take four times as long.
    assert latency is not None and latency.p50 >= 20
    assert sum(stats.executions for stats in asker.stats.values()) == len(database.asked)


def test_several_in_flight_keep_to_a_schedule_and_fail_apart() -> None:
    database = Answers(SimulatorError("no such column"), 0.03, in_flight=3)
    asker, recorder = ask(database, OpenLoop(0.02, 0, Arrivals.EVEN, duration_s=0.399))
    offer = recorder.result().offered
    assert offer is not None and (offer.due, offer.failed) == (20, 1)
    assert sum(stats.errors for stats in asker.stats.values()) == 1
    assert 1 < database.most_under_way <= 3


def test_the_time_between_an_answer_and_the_next_question_is_the_clients() -> None:
    class Slow(Answers):
        def make(self, name: str) -> str:
            time.sleep(0.03)
            return name

    database = Slow(0.01)
    asker, _ = ask(database, make_schedule(Load(role=Role.READ, duration_s=0.5), 0, 0))
    count = len(database.asked)
    # The first question is made before the start.
    assert 0.03 * (count - 1) <= asker.pause_s <= 0.5
    at_leisure, _ = ask(Slow(0.01), OpenLoop(0.1, 0, Arrivals.EVEN, duration_s=0.3))
    assert at_leisure.pause_s == 0


def test_a_question_that_is_held_up_while_it_is_sent_takes_nothing_from_the_clients_time() -> None:
    class HeldUp(Answers):
        def submit(self, request: Request) -> None:
            super().submit(request)
            time.sleep(0.05)

        def poll(self, timeout_s: float) -> Sequence[Completion]:
            # Of a channel that doesn't tell when a question was really sent.
            return [done._replace(sent_s=None) for done in super().poll(timeout_s)]

    schedule = make_schedule(Load(role=Role.READ, runs=4), 0, 0)
    loop, _ = ask(HeldUp(0.01, in_flight=2), schedule, 4)
    assert 0 <= loop.pause_s <= 0.05
