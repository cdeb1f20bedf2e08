"""Readers whose run is ended by the clock: whose turn it is, what is measured, what fails."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice

import pytest

from simulator.contract import Arrivals, Load, Role, WorkerResult
from simulator.errors import Retryable, SimulatorError
from simulator.histograms import latency_ms, merge_histograms
from simulator.modules.base import Query
from simulator.worker.measure import Recorder
from simulator.worker.reading import QueryRunner, take_turns
from simulator.worker.schedule import OpenLoop, Schedule, make_schedule


def test_each_takes_its_turn_as_often_as_its_weight_says_and_evenly_spread() -> None:
    turns = list(islice(take_turns({"a": 3, "b": 1, "c": 0}), 40))
    assert Counter(turns) == {"a": 30, "b": 10}
    for start in range(0, 40, 4):
        assert Counter(turns[start : start + 4]) == {"a": 3, "b": 1}


class Answers:
    """A database of the test's making."""

    def __init__(self, *answers: float | Exception) -> None:
        """Each query takes so many seconds, or fails; the last goes for all that follow."""
        self.names = ["one", "two"]
        self.answers = list(answers)
        self.asked: list[str] = []
        self.executions: list[tuple[str, int]] = []
        self.connected = 1

    def make(self, name: str, execution: int) -> Query:
        self.executions.append((name, execution))
        return partial(self._answer, name)

    def connect_again(self) -> None:
        self.connected += 1

    def _answer(self, name: str) -> Sequence[tuple[int]]:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        time.sleep(answer)
        return [(1,)] * len(self.asked)


def test_each_query_is_asked_so_often_and_every_execution_is_kept() -> None:
    """With those that failed, which are in the window, too."""
    database = Answers(
        0.01, SimulatorError("no such column"), 0.01, 0.01, SimulatorError("gone"), 0.3
    )
    schedule = make_schedule(Load(role=Role.READ, runs=3), 0, 0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    runner = QueryRunner(database, iter(["one", "two"] * 3), recorder, schedule, worker=7)
    runner.run_queries()
    recorder.end()
    figures = recorder.result(queries=runner.results())
    one, two = figures.queries
    assert [(each.run, each.worker, each.rows, each.error) for each in (*one.each, *two.each)] == [
        (1, 7, 1, None), (2, 7, 3, None), (3, 7, None, "gone"),
        (1, 7, None, "no such column"), (2, 7, 4, None), (3, 7, 6, None),
    ]  # fmt: skip
    assert two.each[2].duration_s == pytest.approx(0.3, abs=0.1)
    assert (figures.count, figures.measured, one.executions, two.error) == (
        4,
        4,
        2,
        "no such column",
    )
    assert figures.end_s - figures.start_s >= 0.33
    assert WorkerResult(worker=7, node="n", elapsed_s=1.0, figures=figures).done == 6


def ask(database: Answers, schedule: Schedule) -> tuple[QueryRunner, Recorder]:
    """Ask until the schedule is over."""
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    asker = QueryRunner(database, take_turns({"one": 1, "two": 1}), recorder, schedule)
    asker.run_queries()
    recorder.end()
    return asker, recorder


def test_a_closed_loop_asks_one_after_the_other_until_the_time_is_over() -> None:
    database = Answers(0.01)
    asker, recorder = ask(database, make_schedule(Load(role=Role.READ, duration_s=0.6), 0, 0))
    reads = recorder.result(queries=asker.results())
    assert 4 <= len(database.asked) <= 60
    assert database.asked[:4] == ["one", "two", "one", "two"]
    assert database.executions[:4] == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
    one = reads.queries[0]
    assert one.executions == database.asked.count("one")
    assert one.warm == one.executions - 1
    assert one.cold_s is not None and 0.01 <= one.cold_s < 0.6
    # The answers' lengths, which grow here, as its data do in a mixed run.
    assert (one.rows_min, one.rows_max) == (1, len(database.asked) - (len(database.asked) + 1) % 2)
    assert reads.end_s == pytest.approx(0.6)
    assert reads.measured in (len(database.asked), len(database.asked) - 1)


def test_a_query_that_outlasts_the_run_counts_with_its_time_but_not_in_the_rate() -> None:
    asker, recorder = ask(Answers(0.3), OpenLoop(0.02, duration_s=0.09))
    reads = recorder.result(queries=asker.results())
    assert reads.measured == 0
    assert [one.executions for one in reads.queries] == [1, 0]
    found = latency_ms(merge_histograms([reads.histogram]))
    assert found is not None
    assert found.max >= 300
    # Those that were due meanwhile have waited, and none of them is skipped.
    assert reads.offer is not None
    assert (reads.offer.due, reads.offer.unsent) == (5, 4)
    assert merge_histograms([reads.histogram]).get_total_count() == 5


def test_a_query_that_fails_keeps_no_other_from_being_asked() -> None:
    database = Answers(SimulatorError("no such column"), 0.001)
    asker, recorder = ask(database, OpenLoop(0.01, 0, Arrivals.EVEN, duration_s=0.099))
    one, two = asker.asked.values()
    offer = recorder.result().offer
    assert (one.errors, one.error) == (1, "no such column")
    assert (two.errors, two.error) == (0, None)
    # On a machine that is late the last ones may be left when the time is over.
    assert offer is not None and len(database.asked) + offer.unsent == 10
    assert (offer.due, offer.failed) == (10, 1)
    assert len(database.asked) > 2
    assert database.connected == 1


def test_a_reader_that_lost_its_connection_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.worker.reading._RECONNECT_S", 0.01)
    database = Answers(Retryable("connection_lost", "gone"), 0.001)
    asker, recorder = ask(database, OpenLoop(0.01, 0, Arrivals.EVEN, duration_s=0.099))
    one, two = asker.asked.values()
    offer = recorder.result().offer
    assert database.connected == 2
    assert one.errors + two.errors == 1
    # On a machine that is late the last ones may be left when the time is over.
    assert offer is not None and len(database.asked) + offer.unsent == 10
    assert len(database.asked) > 2
