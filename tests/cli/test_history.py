"""A history on the command line: what is refused, what is planned, how long it takes, what is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from cli.main import commands
from cli.plan.planning import derive_seed
from cli.plan.target import ExecutorName
from cli.plan.workloads import (
    check_history,
    choose_workload,
    complete_data,
    count_history,
    read_options,
)
from cli.run.campaign.timing import FILL_PER_S, model_job
from cli.run.experiments.experiment import AnyExperiment
from cli.show.notes import list_notes
from cli.show.status import Forecast
from cli.system.errors import CliError, ConfigError
from cli.system.processes import Interrupts
from simulator.contract import (
    DataSet,
    GroupStatus,
    Load,
    Phase,
    Role,
    RunResult,
    RunSettings,
    Status,
    Timestamps,
)
from simulator.modules import build
from simulator.units import format_duration
from simulator.workloads.numbering import WithHistory

from ..helpers import insert_run, settings
from .made import inserts
from .run.experiments.running import FakeExecutor, make_runs

SPAN = "--prefill-span 30d --prefill-every 10m"
MACHINES = "--workload machines --workload-option devices=10"


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[AnyExperiment]:
    """What the commands would do."""
    experiments: list[AnyExperiment] = []

    def note(experiment: AnyExperiment, _: Interrupts) -> int:
        experiments.append(experiment)
        return 0

    monkeypatch.setattr("cli.run.experiments.run_experiment", note)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "targets:\n  x: {module: blackhole, executor: local}\n"
        "  pg: {module: postgres, executor: local, connection_string: host=127.0.0.1 dbname=x}\n"
    )
    return experiments


def call(command: str, arguments: str, target: str = "x") -> None:
    words = [command, "--target", target, *arguments.split()]
    commands.main(words, standalone_mode=False, obj=Interrupts())


def data_of(**changes: Any) -> DataSet:
    chosen = choose_workload("machines", None)
    options = read_options(chosen.kind, {}, ["devices=10", "sharing_workers=2"])
    values = {"prefill_span_s": 86_400.0, "prefill_every_s": 600.0} | changes
    return complete_data(DataSet(**values), chosen, options, existing=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--prefill-span 30d", "go together"),
        ("--prefill-every 10m", "as in --prefill-span 30d --prefill-every 10m"),
        (f"{SPAN} --steps 2 --runs 1 -w 1", "--steps and --prefill can't be used together"),
        (f"{SPAN} --retention 5d --num-inserts 5k", "leave --prefill-span out"),
        (f"{SPAN} --timestamps restart --no-clean", "leave one of them out"),
        (
            f"{MACHINES} --prefill-span 1h --prefill-every 5s",
            "is shorter than the 10s from one event",
        ),
        (f"{MACHINES} --prefill-span 5m --prefill-every 10m", "use a span of at least that"),
        ("--prefill-span 30 --prefill-every 0s", "longer than 0"),
    ],
)
def test_what_is_no_history_is_refused_in_a_line(
    caught: list[AnyExperiment], arguments: str, said: str
) -> None:
    with pytest.raises((CliError, click.ClickException)) as refused:
        call("insert", arguments)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not caught


def test_a_search_keeps_tables_only_for_a_history(caught: list[AnyExperiment]) -> None:
    with pytest.raises(ConfigError, match="--no-clean keeps a history, and there is none"):
        call("capacity", "--no-clean")
    call("capacity", f"--no-clean {SPAN}")
    assert caught[0].prefills == [0] * 25
    with pytest.raises(ConfigError, match="give one of them"):
        call("capacity", f"--fill 5 {SPAN}")


def test_events_are_those_of_all_devices_whoever_shares_them() -> None:
    assert count_history(data_of(), 2) == 10 * 144
    assert count_history(data_of(prefill_every_s=601.0), 1) == 5 * 143
    with pytest.raises(ConfigError, match="goes with --prefill-span"):
        check_history(DataSet(prefill_every_s=5))
    check_history(DataSet(timestamps=Timestamps.RESTART))


def test_each_run_on_new_tables_loads_it_and_none_that_keeps_them(
    caught: list[AnyExperiment],
) -> None:
    call("insert", f"{SPAN} {MACHINES} -w 1,2 --runs 2")
    call("insert", f"{SPAN} {MACHINES} -w 2 --runs 2 --no-clean")
    call("mixed", f"{SPAN} {MACHINES} -w 2 --runs 2", "pg")
    call("capacity", f"{SPAN} {MACHINES} -w 2")
    call("query", f"{SPAN} {MACHINES}", "pg")
    assert [list(experiment.prefills)[:4] for experiment in caught] == [
        [43_200] * 4, [0, 0], [43_200] * 2, [43_200, 0, 0, 0], [0],
    ]  # fmt: skip
    assert [experiment.keeps_history for experiment in caught] == [False, True, False, True, False]
    assert "43,200 events before the first" in (caught[3].describe_length() or "")
    options = caught[4].list_options()
    assert (options["prefill_span_s"], options["prefill_every_s"]) == (2_592_000, 600)


def test_results_without_one_have_no_such_keys(caught: list[AnyExperiment]) -> None:
    call("insert", "-w 1")
    call("insert", f"-w 1 {SPAN}")
    plain, other = (experiment.list_options() for experiment in caught)
    assert other.keys() - plain.keys() == {"prefill_span_s", "prefill_every_s"}


def test_due_times_differ_by_run_and_label(caught: list[AnyExperiment]) -> None:
    call("mixed", "-w 1 --rate 100 --duration 5s --runs 2 --baseline --seed 7", "pg")
    call("insert", "-w 1 --rate 100 --duration 5s --runs 1 --label a")
    call("insert", "-w 1 --duration 5s --runs 2 --label a")
    mixed, labelled, closed = (
        [run.chance for series in experiment.plan() for run in series.runs] for experiment in caught
    )
    second = derive_seed(7, None, 2)
    assert mixed == [None, None, None, second, second, second]
    assert labelled == [derive_seed(0, "a", 1)]
    assert closed == [None, None]


class _Steady(FakeExecutor):
    """Takes 5,000 events/s."""

    def measure(self, settings: RunSettings) -> RunResult:
        rate = settings.groups[0].load.rate_per_s
        return insert_run(workers=2, rate_per_s=min(5000.0, rate or 5000.0))


def test_steps_of_a_search_go_on_with_one_history_and_differ_by_chance(
    caught: list[AnyExperiment],
) -> None:
    call("capacity", f"{SPAN} {MACHINES} -w 2 --seed 7 --max-steps 3 --limit p99=1m")
    executor = _Steady()
    make_runs(caught[0], executor)
    assert [run_settings.data.clean for run_settings in executor.asked] == [True, *[False] * 3]
    assert {run_settings.data.seed for run_settings in executor.asked} == {7}
    chances = [run_settings.chance for run_settings in executor.asked]
    assert chances == [derive_seed(7, "x", None, "", number) for number in range(1, 5)]


def test_a_workload_that_begins_now_has_its_history_before_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cli.plan.workloads.time.time", lambda: 1_800_000_000.0)
    chosen = choose_workload("machines", None)
    options = read_options(chosen.kind, {}, ["epoch=now", "device_spread=1", "late=0"])
    incomplete = DataSet(prefill_span_s=1500, prefill_every_s=600)
    data = complete_data(incomplete, chosen, options, existing=False)
    workload, _ = build(settings(module="blackhole", data=data))
    assert isinstance(workload, WithHistory)
    times = workload.block(0, 0, 3).columns[workload.schema.time] // 10_000 * 10
    assert times.tolist() == [1_800_000_000 - 1200, 1_800_000_000 - 600, 1_800_000_000]


# --- time -----------------------------------------------------------------------------------------


def test_the_time_of_a_job_counts_the_load_once() -> None:
    loads = [Load(duration_s=10)] * 3
    plain, once = (
        model_job(loads, prefills, ExecutorName.LOCAL).known_s
        for prefills in ([0, 0, 0], [10 * FILL_PER_S, 0, 0])
    )
    assert once - plain == pytest.approx(10)


def test_runs_to_come_take_no_time_for_a_history_that_is_kept() -> None:
    forecast = Forecast([Load(duration_s=60)] * 3, fills_once=True)
    forecast.begin(0)
    group = GroupStatus(role=Role.FILL, done=500, total=1000, rate_per_s=5)
    filling = Status(phase=Phase.PREFILL, age_s=0, groups=[group], duration_s=60)
    forecast.follow(filling, 100)
    assert forecast.seconds_left(filling, 100) == 100 + 60 + 2 * 60
    running = Status(phase=Phase.RUN, age_s=0, elapsed_s=0, duration_s=60)
    forecast.follow(filling, 200)
    forecast.follow(running, 203)
    assert forecast.seconds_left(running, 203) == 60 + 2 * 63


@pytest.mark.parametrize(
    ("seconds", "text"), [(2_592_000, "30d"), (5400, "90m"), (61, "61s"), (0.45, "450ms")]
)
def test_durations_are_written_as_options_have_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# --- what is said ---------------------------------------------------------------------------------


def describe(*runs: Mapping[str, Any]) -> list[str]:
    result = inserts({2: [500.0] * len(runs)})
    options = {**result.options, "prefill_span_s": 2_592_000, "prefill_every_s": 600}
    result = result.model_copy(update={"options": options})
    result.runs = [
        run.model_copy(update=dict(more)) for run, more in zip(result.runs, runs, strict=True)
    ]
    return [line for line in list_notes(result, False) if line.startswith("history")]


def test_time_and_rate_of_the_load_are_said() -> None:
    loaded = {"prefilled": 43_200_000, "phases_s": {"prefill": 120.0}}
    every = "history: one event per device every 10m for 30d"
    rate = "43,200,000 events in 120 s (360,000/s)"
    assert describe(loaded, {}) == [f"{every}, loaded before the window: {rate}"]
    assert describe(*[loaded] * 5) == [
        f"{every}, loaded before the window: {rate}, {rate}, {rate} and 2 times more"
    ]
    assert describe({}) == [f"{every}, kept from an earlier run"]
