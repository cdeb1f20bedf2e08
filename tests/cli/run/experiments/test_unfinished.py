"""A run of more than a minute is kept while it goes on, for a command that doesn't live to see its end."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from cli.plan.planning import PlannedRun
from cli.plan.requests import InsertRequest
from cli.results.store import read_result
from cli.run.executors import Watch
from cli.run.experiments.experiment import run_experiment
from cli.run.experiments.long_runs import UnfinishedRun
from cli.run.experiments.measuring import InsertExperiment
from cli.system.errors import RunFailed
from cli.system.processes import Interrupted, Interrupts
from simulator.contract import (
    DataSet,
    GroupStatus,
    Load,
    MinuteLatency,
    Phase,
    Report,
    Role,
    RunSettings,
    Status,
)
from simulator.histograms import COARSE, Histogram

from ...made import ask_for
from .running import FakeExecutor, open_blackhole

LOAD = Load(workers=2, batch=10, duration_s=86_400, warm_up_s=5)


def make_status(elapsed_s: float, done: int, minute: MinuteLatency | None = None) -> Status:
    group = GroupStatus(role=Role.WRITE, done=done, minute=minute)
    return Status(phase=Phase.RUN, age_s=0, elapsed_s=elapsed_s, warm_up_s=5, groups=[group])


def follow(run: UnfinishedRun, length_s: int) -> list[int]:
    """The seconds in which a run with 100 events in each was to be kept."""
    return [second for second in range(length_s) if run.follow(make_status(second, 100 * second))]


def test_run_is_kept_once_a_minute() -> None:
    run = UnfinishedRun(PlannedRun("run 1", 1, DataSet(), (LOAD,)))
    assert follow(run, 60) == []
    assert run.make_run() is None
    assert follow(run, 185) == [60, 120, 180]


def test_kept_run_has_figures_and_says_what_it_is() -> None:
    run = UnfinishedRun(PlannedRun("run 1", 1, DataSet(), (LOAD,)))
    minute = MinuteLatency(begins_s=0, requests=1, histogram=Histogram.of([0.005], COARSE))
    follow(run, 70)
    run.follow(make_status(125, 12_500, minute))
    run.follow(make_status(126, 12_600, minute))
    run_result = run.make_run()
    assert run_result is not None
    (group,) = run_result.groups
    assert (group.count, group.rate_per_s, group.window_s) == (12_600, 100, 121)
    assert (run_result.step_s, group.timeline) == (60, [(0, 6_000), (60, 6_500)])
    assert group.minutes == [minute]
    assert run_result.invalid_reasons == [
        "saved during the run: the figures are those of its first 126 s"
    ]


class _LongRun(FakeExecutor):
    """Ends after so many seconds, as told, and looks at what was kept by then."""

    def __init__(self, place: Path, ends: BaseException) -> None:
        super().__init__()
        self._place, self._ends = place, ends
        self.kept: list[dict[str, Any]] = []

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        for second in range(130):
            watch(make_status(second, 100 * second))
        file = next((self._place / "results").iterdir()) / "result.json"
        self.kept.append(json.loads(file.read_text()))
        raise self._ends


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Interrupted(signal.SIGTERM), "SIGTERM"),
        (RunFailed("no word from worker 0"), "no word from worker 0"),
    ],
)
def test_long_run_that_is_ended_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str
) -> None:
    database = _LongRun(tmp_path, error)
    monkeypatch.setattr("cli.run.experiments.context.make_executor", lambda *_: database)
    request = ask_for(InsertRequest, LOAD, DataSet(), workers=(2,), runs=1)
    with pytest.raises(type(error)):
        run_experiment(InsertExperiment(request, open_blackhole(tmp_path)), Interrupts())
    # A command that is killed has it, too.
    ((killed,),) = [content["runs"] for content in database.kept]
    assert database.kept[0]["complete"] is False
    assert killed["groups"][0]["count"] == 12_000
    folder = next((tmp_path / "results").iterdir())
    result = read_result(folder / "result.json")
    assert (len(result.runs), result.complete) == (1, False)
    assert result.runs[0].groups[0].count == 12_900
    assert result.runs[0].invalid_reasons == [reason]
