"""The runner of all experiments: what it keeps, hands on and says, whatever becomes of a run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from cli.plan.planning import PlannedRun, PlannedSeries
from cli.plan.requests import InsertRequest
from cli.results.address import Address
from cli.results.caveats import Kind
from cli.results.model import Result
from cli.results.store import read_result
from cli.results.verdicts import find_caveats
from cli.run.executors import Series, Watch
from cli.run.experiments.experiment import (
    Experiment,
    Plan,
    describe_outcome,
    join_environments,
    run_experiment,
)
from cli.system.errors import ConfigError, NotStarted, RunFailed, RunGivenUp
from cli.system.processes import Interrupted, Interrupts
from simulator.contract import (
    CarriedState,
    DataSet,
    GroupResult,
    Load,
    Mark,
    Report,
    Role,
    RunResult,
    RunSettings,
)

from ....helpers import insert_run, make_report
from ...made import ask_for
from .running import FakeExecutor, make_runs, open_blackhole

LOAD, DATA = Load(), DataSet(clean=False, prefill=5)


class _TwoRuns(Experiment[InsertRequest]):
    """Two runs of a series, and one of another; nothing happens after one that failed."""

    def __init__(self, place: Path) -> None:
        super().__init__(ask_for(InsertRequest, LOAD, DATA), open_blackhole(place))
        self.shown: list[Result] = []

    @cached_property
    def lengths(self) -> Sequence[Load]:
        return [LOAD] * 3

    def plan(self) -> Plan:
        runs = [PlannedRun(f"run {number}", number, DATA, (LOAD,)) for number in (1, 2, 3)]
        yield PlannedSeries("first", runs[:2])
        yield PlannedSeries("second", runs[2:])

    def summarize(self) -> dict[str, Any]:
        return {}

    def show(self, result: Result) -> None:
        self.shown.append(result)


class _Database(FakeExecutor):
    """Something `happens` in the second run."""

    def __init__(self, happens: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._happens = happens

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        report = super().run(settings, timeout_s, watch)
        stored = 100 * len(self.asked)
        return report.model_copy(update={"carried": CarriedState(next_event=stored, stored=stored)})

    def measure(self, settings: RunSettings) -> RunResult:
        if len(self.asked) == 2:
            self._happens()
        return insert_run()


def _raise(error: BaseException) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


def _run(
    place: Path, database: _Database, monkeypatch: pytest.MonkeyPatch
) -> tuple[_TwoRuns, Callable[[], int]]:
    monkeypatch.setattr("cli.run.experiments.context.make_executor", lambda *_: database)
    experiment = _TwoRuns(place)
    return experiment, lambda: run_experiment(experiment, Interrupts())


def _find_result(place: Path) -> Path:
    (folder,) = (place / "results").iterdir()
    return folder


@pytest.mark.parametrize(
    ("error", "told", "valid"),
    [
        (Interrupted(signal.SIGTERM), "SIGTERM", [True]),
        (RunFailed("no word from worker 0"), "a run that failed", [True, False]),
    ],
)
def test_a_result_says_what_ended_its_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: str,
    valid: list[bool],
) -> None:
    experiment, run = _run(tmp_path, _Database(_raise(error)), monkeypatch)
    with pytest.raises(type(error)):
        run()
    assert (result := read_result(_find_result(tmp_path))) == experiment.shown[0]
    assert (result.complete, result.ended_by) == (False, told)
    assert [run_result.valid for run_result in result.runs] == valid


@pytest.mark.parametrize(
    "error", [Interrupted(signal.SIGINT), RunFailed("release iotb-1 is left in the cluster")]
)
@pytest.mark.parametrize(("removal", "complete"), [(2, False), (3, True)])
def test_what_ends_a_command_once_its_runs_are_made_leaves_the_result_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    removal: int,
    complete: bool,
) -> None:
    """As Ctrl-C does while the last release is uninstalled. Before the next one, runs are missing."""

    class Removed(_Database):
        @contextmanager
        def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
            yield self
            if len(self.asked) == removal:
                raise error

    _, run = _run(tmp_path, Removed(), monkeypatch)
    with pytest.raises(type(error)):
        run()
    result = read_result(_find_result(tmp_path))
    assert len(result.runs) == removal
    assert (result.complete, result.ended_by is None) == (complete, complete)
    assert (Kind.INCOMPLETE not in {caveat.kind for caveat in find_caveats(result)}) == complete


def test_a_command_that_made_all_its_runs_was_ended_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, run = _run(tmp_path, _Database(), monkeypatch)
    assert run() == 0
    assert (experiment.shown[0].complete, experiment.shown[0].ended_by) == (True, None)


def _send_to(experiment: _TwoRuns, address: Address) -> None:
    session = experiment.session
    session.request = session.request.model_copy(update={"output": address})


def test_a_result_is_copied_to_its_address_when_the_tables_were_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment, run = _run(tmp_path, _Database(), monkeypatch)
    _send_to(experiment, Address((tmp_path / "there").as_uri()))
    assert run() == 0
    folder = _find_result(tmp_path)
    assert read_result(tmp_path / "there" / folder.name) == experiment.shown[0]
    assert f"Copied to: {(tmp_path / 'there').as_uri()}/{folder.name}\n" in capsys.readouterr().out


def test_what_was_made_before_the_end_is_copied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment, run = _run(tmp_path, _Database(_raise(Interrupted(signal.SIGTERM))), monkeypatch)
    _send_to(experiment, Address((tmp_path / "there").as_uri()))
    with pytest.raises(Interrupted):
        run()
    copied = read_result(tmp_path / "there" / _find_result(tmp_path).name)
    assert copied.ended_by == "SIGTERM"


@pytest.mark.parametrize("ends", [None, RunFailed("no word from worker 0")])
def test_a_copy_that_fails_is_said_and_keeps_the_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ends: RunFailed | None,
) -> None:
    """As the error if there is no other."""
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "there"

    def happens() -> None:
        for path in there.iterdir():
            path.unlink()
        there.rmdir()
        there.write_text("a file now")
        if ends:
            raise ends

    experiment, run = _run(tmp_path, _Database(happens), monkeypatch)
    _send_to(experiment, Address(there.as_uri()))
    with pytest.raises(RunFailed) as raised:
        run()
    assert read_result(_find_result(tmp_path)) == experiment.shown[0]
    message = f"the result is in results/{_find_result(tmp_path).name}, but could not be copied"
    if ends:
        assert raised.value.message == ends.message
        assert f"warning: {message}" in capsys.readouterr().err
    else:
        assert message in raised.value.message


def test_what_was_made_so_far_is_kept_while_the_next_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is killed has it."""
    results: list[Any] = []

    def look() -> None:
        results.append(json.loads((_find_result(tmp_path) / "result.json").read_text()))

    _, run = _run(tmp_path, _Database(look), monkeypatch)
    run()
    assert (len(results[0]["runs"]), results[0]["complete"]) == (1, False)


def test_runs_of_a_series_share_a_token_and_each_follows_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = _Database()
    make_runs(_TwoRuns(tmp_path), database)
    first, second, third = database.asked
    assert first.token == second.token != third.token
    assert database.logs == ["first", "second"]
    stored = [settings.after and settings.after.stored for settings in database.asked]
    assert stored == [None, 100, 200]
    assert capsys.readouterr().err.splitlines() == [
        f"run {number}: 500 inserts/s" for number in (1, 2, 3)
    ]


def test_a_run_without_figures_is_kept_with_the_reason_in_its_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = RunFailed("gone")
    failure.marks = [Mark(at_s=1, action="1s kill-server")]
    experiment, database = _TwoRuns(tmp_path), _Database(_raise(failure))
    with pytest.raises(RunFailed, match="gone"):
        make_runs(experiment, database)
    assert len(database.asked) == 2
    (group,) = experiment.runs[1].groups
    assert (group.role, group.workers, group.invalid_reasons) == (Role.WRITE, 1, ["gone"])
    # What was there, and what was to be inserted before the run.
    assert experiment.runs[1].fill_level == 105
    assert capsys.readouterr().err.splitlines()[-1] == "run 2: failed"


def test_a_run_that_was_given_up_keeps_what_was_measured(tmp_path: Path) -> None:
    class GivenUp(_Database):
        def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
            return make_report(insert_run(invalid_reasons=["given up"]), failure="given up")

    experiment = _TwoRuns(tmp_path)
    with pytest.raises(RunGivenUp, match="given up"):
        make_runs(experiment, GivenUp())
    (run,) = experiment.runs
    assert run.writers and run.writers.rate_per_s == 500
    assert run.invalid_reasons == ["given up"]


def test_a_series_that_can_not_be_opened_is_a_run_that_failed(tmp_path: Path) -> None:
    class Closed(_Database):
        def open_series(self, *_: object) -> Any:
            raise RunFailed("no room for pods")

    experiment = _TwoRuns(tmp_path)
    with pytest.raises(RunFailed, match="no room"):
        make_runs(experiment, Closed())
    assert [run.invalid_reasons for run in experiment.runs] == [["no room for pods"]]


@pytest.mark.parametrize("opened", [0, 1])
def test_what_was_refused_before_any_run_is_no_result(tmp_path: Path, opened: int) -> None:
    class Refused(_Database):
        def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Any:
            if len(self.logs) == opened:
                raise NotStarted("exceeded quota")
            return super().open_series(settings, logs)

    experiment = _TwoRuns(tmp_path)
    with pytest.raises(RunFailed if opened else ConfigError, match="exceeded quota"):
        make_runs(experiment, Refused())
    assert [run.valid for run in experiment.runs] == ([True, True, False] if opened else [])


def test_an_outcome_says_what_both_groups_gave() -> None:
    run = insert_run()
    run.groups.append(GroupResult(role=Role.READ, workers=1, rate_per_s=1234.56))
    assert describe_outcome(run) == "500 inserts/s beside 1,234.6 queries/s"
    run.groups[1].invalid_reasons = ["wrong answers"]
    run.groups[0].rate_per_s = None
    assert describe_outcome(run) == "invalid (wrong answers): no figure beside 1,234.6 queries/s"


def test_environments_are_joined() -> None:
    def made(number: int) -> dict[str, Any]:
        own = {"placement": {f"w{number}": "n"}, "nodes": {"n": {}}, "images": [f"i{number}"]}
        return {"client": {"cpus": number, "packages": {f"p{number}": "1"}}, "kubernetes": own}

    joined = join_environments(join_environments({}, made(1)), made(2))
    assert joined["client"] == {"cpus": 2, "packages": {"p1": "1", "p2": "1"}}
    assert joined["kubernetes"]["placement"] == {"w1": "n", "w2": "n"}
    assert joined["kubernetes"]["images"] == ["i1", "i2"]
    assert join_environments(joined, {"kubernetes": None}) == {"kubernetes": None}
