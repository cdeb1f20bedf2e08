"""A search makes the runs that it needs, one like the other but for the rate, and keeps them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from cli.config import ExecutorName, Target
from cli.errors import RunFailed
from cli.executors.base import Executor, Series, Watch
from cli.experiments.capacity.answer import find_answer
from cli.experiments.capacity.limits import parse_limit
from cli.experiments.capacity.state import CapacityRequest, SearchState
from cli.experiments.capacity.steps import derive_seed, find_capacity
from cli.experiments.context import RunContext
from cli.experiments.session import CommonOptions
from cli.faults.injector import FaultInjector
from cli.render.progress import PlainDisplay
from cli.results.store import ResultFolder
from cli.signals import Interrupts
from simulator.contract import (
    Carried,
    DataSet,
    LatencyMs,
    Load,
    Offered,
    ReadRun,
    Report,
    Role,
    RunSettings,
)

from ....helpers import insert_run

WRITERS = Load(workers=2, batch=10, duration_s=30.0, warm_up_s=6.0)


class SimulatedDatabase(Executor):
    """Its p99 is 1 ms up to a rate and 200 ms above it; it breaks down from another on. Without a rate it
    does 10,000 events/s."""

    def __init__(self, capacity: float = 5_000, breaks_at: float = 1e9) -> None:
        self.capacity, self.breaks_at = capacity, breaks_at
        self.asked: list[RunSettings] = []

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        yield _Series(self)


class _Series(Series):
    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        database = self._database
        database.asked.append(settings)
        rate = settings.groups[0].load.rate_per_s
        if rate is not None and rate >= database.breaks_at:
            raise RunFailed("worker 0: the server closed the connection")
        p99 = 1.0 if rate is None or rate <= database.capacity else 200.0
        offered = rate and Offered(
            rate_per_s=rate,
            due=1000,
            achieved=1000,
            backlog_max=1,
            backlog_growth=0,
            saturated=False,
        )
        run = insert_run(
            workers=2, inserts_per_s=rate or 10_000.0, offered=offered or None,
            latency_ms=LatencyMs(p50=p99, p90=p99, p99=p99, p99_9=p99, max=p99),
        )  # fmt: skip
        read = ReadRun(workers=1, run=1, valid=True, invalid_reasons=[])
        return Report(
            insert=run, read=read if len(settings.groups) > 1 else None, phases_s={"run": 30.0},
            environment={}, carried=Carried(next_event=0, stored=0),
        )  # fmt: skip


def search(database: SimulatedDatabase, state: SearchState, place: Path) -> None:
    request = CommonOptions("x", Path("c.yaml"), [], None, 0.0, place, None)
    target = Target("x", "postgres", ExecutorName.LOCAL, {})
    folder = ResultFolder(place, datetime.now(UTC), "capacity", "x")
    disturb = partial(FaultInjector, [], {}, Interrupts())
    running = RunContext(target, database, folder, {}, "now", request, disturb, False, "capacity")
    find_capacity(state, running, PlainDisplay(state.wanted.loads))


def make_course(readers: Load | None = None) -> SearchState:
    data = DataSet(seed=7, prefill=500)
    return SearchState(CapacityRequest(WRITERS, data, [parse_limit("p99=100ms")], readers))


def test_all_steps_are_alike_but_for_rate_and_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = Load(role=Role.READ, rate_per_s=5, duration_s=30.0, warm_up_s=6.0)
    state, database = make_course(readers=readers), SimulatedDatabase()
    search(database, state, tmp_path)
    first, *others = database.asked
    loads = [group.load for group in first.groups]
    assert [load.duration_s for load in loads] == [10.0, 10.0]
    assert [load.warm_up_s for load in loads] == [2.0, 2.0]
    assert [load.rate_per_s for load in loads] == [None, 5]
    for number, one in enumerate(others, 2):
        seed = derive_seed(7, "x", None, "", number)
        assert one.data == DataSet(seed=seed, prefill=500)
        assert one.data.clean
        writers, asking = (group.load for group in one.groups)
        assert writers == WRITERS.model_copy(update={"rate_per_s": writers.rate_per_s})
        assert asking == readers
    answer = find_answer(state)
    assert answer.sure
    assert answer.events_per_s is not None
    assert answer.events_per_s <= 5000 < (answer.above_per_s or 0)
    assert [run.run for run in state.runs] == list(range(1, len(database.asked) + 1))
    assert [read.run for read in state.reads] == [run.run for run in state.runs]
    assert [step.run for step in answer.steps] == [run.run for run in state.runs]
    assert [step.seed for step in answer.steps[1:]] == [one.data.seed for one in others]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "closed loop: 10,000 inserts/s"
    assert told[1] == "step 1 of at most 24, 7,000 events/s: doesn't hold: p99 200 ms"


def test_each_search_begins_with_a_seed_of_its_own() -> None:
    """The same search is the same again; a campaign's repetitions, which have labels, are not."""
    seeds = [
        derive_seed(7, *search, number)
        for search in (("x", "x capacity 1", ""), ("x", "x capacity 2", ""), ("y", None, ""),
                       ("x", None, "trial 1"), ("x", None, "trial 2"))
        for number in range(1, 25)
    ]  # fmt: skip
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**48
    assert derive_seed(7, "y", None, "", 3) == seeds[2 * 24 + 2]


def test_steps_with_too_few_requests_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """10,000 events/s in batches of 5,000 are 34 requests in the 24 s of the first step."""
    state = SearchState(CapacityRequest(WRITERS.model_copy(update={"batch": 5_000}), DataSet()))
    database = SimulatedDatabase()
    with pytest.raises(RunFailed) as refused:
        search(database, state, tmp_path)
    said = str(refused.value)
    assert "at 7,000 events/s, the first rate to try, a step measures 34 requests in 24 s" in said
    assert "Give --step-duration 233s or longer, a smaller --batch (now 5,000), or more" in said
    assert len(database.asked) == 1
    assert not state.tried


def test_a_rate_that_breaks_the_database_does_not_hold(tmp_path: Path) -> None:
    state = make_course()
    search(SimulatedDatabase(capacity=5_000, breaks_at=6_900), state, tmp_path)
    answer = find_answer(state)
    assert answer.sure
    assert (answer.events_per_s or 0) <= 5_000
    broken = answer.steps[1]
    assert (broken.holds, broken.rate_per_s) == (False, 7_000)
    assert broken.reasons == ["worker 0: the server closed the connection"]


def test_two_failures_in_a_row_end_the_search_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    state = make_course()
    with pytest.raises(RunFailed, match="closed the connection"):
        search(SimulatedDatabase(breaks_at=0), state, tmp_path)
    assert [run.valid for run in state.runs] == [True, False, False]
    answer = find_answer(state)
    assert (answer.sure, answer.events_per_s, answer.above_per_s) == (False, None, 3_500)


def test_a_closed_loop_without_a_rate_says_why(tmp_path: Path) -> None:
    class Empty(SimulatedDatabase):
        """Nothing is acknowledged."""

        @contextmanager
        def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
            with super().open_series(settings, logs) as series:
                yield _Nothing(series)

    class _Nothing(Series):
        def __init__(self, series: Series) -> None:
            self._series = series

        def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
            report = self._series.run(settings, timeout_s, watch)
            assert report.insert is not None
            report.insert.inserts_per_s = None
            report.insert.invalid_reasons = ["all was lost"]
            return report

    state = make_course()
    with pytest.raises(RunFailed, match="gave no rate to go by: all was lost"):
        search(Empty(), state, tmp_path)
    assert len(state.runs) == 1
    assert find_answer(state).unsure_because == "no rate was tried"
