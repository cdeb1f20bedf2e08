"""A search makes the runs that it needs, one like the other but for the rate, and keeps them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.plan.planning import derive_seed
from cli.plan.requests import CapacityRequest
from cli.run.experiments.capacity import (
    CapacityExperiment,
    CapacitySearch,
    find_answer,
)
from cli.system.errors import RunFailed
from simulator.contract import (
    DataSet,
    GroupResult,
    LatencyMs,
    Load,
    Offered,
    Role,
    RunResult,
    RunSettings,
)

from ....helpers import insert_run
from ...made import ask_for
from .running import FakeExecutor, make_runs, open_blackhole

WRITERS = Load(workers=2, batch=10, duration_s=30.0, warm_up_s=6.0)


class SimulatedDatabase(FakeExecutor):
    """Its p99 is 1 ms up to a rate and 200 ms above it; it breaks down from another on. Without a rate it
    does 10,000 events/s."""

    def __init__(self, capacity: float = 5_000, breaks_at: float = 1e9) -> None:
        super().__init__()
        self.capacity, self.breaks_at = capacity, breaks_at

    def measure(self, settings: RunSettings) -> RunResult:
        rate = settings.groups[0].load.rate_per_s
        if rate is not None and rate >= self.breaks_at:
            raise RunFailed("worker 0: the server closed the connection")
        p99 = 1.0 if rate is None or rate <= self.capacity else 200.0
        offered = rate and Offered(
            rate_per_s=rate,
            due=1000,
            achieved=1000,
            backlog_max=1,
            backlog_growth=0,
            saturated=False,
        )
        run = insert_run(
            workers=2, rate_per_s=rate or 10_000.0, offered=offered or None,
            latency_ms=LatencyMs(p50=p99, p90=p99, p99=p99, p99_9=p99, max=p99),
        )  # fmt: skip
        if len(settings.groups) > 1:
            run.groups.append(GroupResult(role=Role.READ, workers=1))
        return run


class Search(CapacityExperiment):
    """Of a database that can be asked, unlike the target's."""

    def __init__(self, database: SimulatedDatabase, place: Path, request: CapacityRequest) -> None:
        self.session, self.request, self.runs = open_blackhole(place), request, []
        self.search = self._search = CapacitySearch(request, of=("x", None))
        self._database = database

    def make(self) -> None:
        make_runs(self, self._database)


def make_request(readers: Load | None = None) -> CapacityRequest:
    data = DataSet(seed=7, prefill=500)
    return ask_for(CapacityRequest, WRITERS, data, readers, limits=("p99=100ms",))


def test_all_steps_are_alike_but_for_rate_and_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = Load(role=Role.READ, rate_per_s=5, duration_s=30.0, warm_up_s=6.0)
    database = SimulatedDatabase()
    experiment = Search(database, tmp_path, make_request(readers))
    experiment.make()
    state = experiment.search
    first, *others = database.asked
    assert first.duration_option == "--step-duration"
    loads = [group.load for group in first.groups]
    assert [load.duration_s for load in loads] == [10.0, 10.0]
    assert [load.warm_up_s for load in loads] == [2.0, 2.0]
    assert [load.rate_per_s for load in loads] == [None, 5]
    for number, settings in enumerate(others, 2):
        seed = derive_seed(7, "x", None, "", number)
        assert settings.data == DataSet(seed=seed, prefill=500)
        assert settings.data.clean
        writers, asking = (group.load for group in settings.groups)
        assert writers == WRITERS.model_copy(update={"rate_per_s": writers.rate_per_s})
        assert asking == readers
    answer = find_answer(state)
    assert answer.sure
    assert answer.events_per_s is not None
    assert answer.events_per_s <= 5000 < (answer.above_per_s or 0)
    assert [run.run for run in state.runs] == list(range(1, len(database.asked) + 1))
    assert all(run.readers for run in state.runs)
    assert [step.run for step in answer.steps] == [run.run for run in state.runs]
    assert [step.seed for step in answer.steps[1:]] == [settings.data.seed for settings in others]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(
        "a closed loop and at most 24 steps of 30 s: 12 min at most, plus the time"
    )
    assert lines[1] == "closed loop: 10,000 inserts/s"
    assert lines[2] == "step 1 of at most 24, 7,000 events/s: doesn't hold: p99 200 ms"


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
    load = WRITERS.model_copy(update={"batch": 5_000})
    database = SimulatedDatabase()
    experiment = Search(database, tmp_path, ask_for(CapacityRequest, load, DataSet()))
    with pytest.raises(RunFailed) as refused:
        experiment.make()
    message = str(refused.value)
    assert (
        "at 7,000 events/s, the first rate to try, a step measures 34 requests in 24 s" in message
    )
    assert "Give --step-duration 233s or longer, a smaller --batch (now 5,000), or more" in message
    assert len(database.asked) == 1
    assert not experiment.search.tried


def test_a_rate_that_breaks_the_database_does_not_hold(tmp_path: Path) -> None:
    experiment = Search(
        SimulatedDatabase(capacity=5_000, breaks_at=6_900), tmp_path, make_request()
    )
    experiment.make()
    answer = find_answer(experiment.search)
    assert answer.sure
    assert (answer.events_per_s or 0) <= 5_000
    broken = answer.steps[1]
    assert (broken.holds, broken.rate_per_s) == (False, 7_000)
    assert broken.reasons == ["worker 0: the server closed the connection"]


def test_two_failures_in_a_row_end_the_search_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    experiment = Search(SimulatedDatabase(breaks_at=0), tmp_path, make_request())
    with pytest.raises(RunFailed, match="closed the connection"):
        experiment.make()
    assert [run.valid for run in experiment.runs] == [True, False, False]
    assert [run.fill_level for run in experiment.runs] == [0, 500, 500]
    answer = find_answer(experiment.search)
    assert (answer.sure, answer.events_per_s, answer.above_per_s) == (False, None, 3_500)


def test_a_closed_loop_without_a_rate_says_why(tmp_path: Path) -> None:
    class Empty(SimulatedDatabase):
        """Nothing is acknowledged."""

        def measure(self, settings: RunSettings) -> RunResult:
            run = super().measure(settings)
            run.groups[0].rate_per_s = None
            run.groups[0].invalid_reasons = ["all was lost"]
            return run

    experiment = Search(Empty(), tmp_path, make_request())
    with pytest.raises(RunFailed, match="gave no rate to start from: all was lost"):
        experiment.make()
    assert len(experiment.runs) == 1
    assert find_answer(experiment.search).unsure_because == "no rate was tried"
