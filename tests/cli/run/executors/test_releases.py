"""Which release makes which run, and what of its start and end their phases have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.run.cluster import Place
from cli.run.executors.kubernetes import KubernetesExecutor, _Releases
from cli.system.processes import Interrupts
from simulator.contract import DataSet, Group, Load, Phase, Report, RunSettings

from ....helpers import insert_run, make_report


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Installed:
    """An executor that installs in 3 s and removes in 4; each run takes 10 s."""

    def __init__(self, clock: Clock, deaf_after: int | None) -> None:
        """`deaf_after`: the run after which the collector can't be told that the next may begin."""
        self.clock = clock
        self.deaf_after = deaf_after
        self.made: list[tuple[int, str]] = []
        self.runs = 0
        self.there = 0

    def begin_start(self) -> float:
        return self.clock()

    def warn_of_ignored(self, report: Report) -> None:
        pass

    @contextmanager
    def install(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[object]:
        self.made.append((len(settings), logs.name))
        self.clock.now_s += 3
        self.there += 1
        assert self.there == 1
        own = 0

        def goes_on_with(_: object) -> bool:
            if own:
                self.clock.now_s += 0.25
            return not own or self.deaf_after is None or self.runs < self.deaf_after

        def run(*_: object) -> Report:
            nonlocal own
            own += 1
            self.runs += 1
            self.clock.now_s += 10
            phases = {Phase.START: 1.0, Phase.RUN: 10.0, Phase.CLEAN_UP: 0.5}
            return make_report(insert_run(phases_s=phases))

        yield SimpleNamespace(goes_on_with=goes_on_with, run=run)
        self.there -= 1
        self.clock.now_s += 4


def settings_of(number: int) -> RunSettings:
    groups = [Group(first=0, load=Load())]
    return RunSettings(
        run_id=f"{number:08x}", token="t", target="x", module="blackhole", options={},
        data=DataSet(), groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("deaf_after", "made", "start", "clean_up"),
    [
        (None, [(3, "logs")], [4, 1.25, 1.25], [0.5, 0.5, 4.5]),
        (1, [(3, "logs"), (2, "run-02"), (1, "run-03")], [4, 4, 4], [4.5, 4.5, 4.5]),
        (2, [(3, "logs"), (1, "run-03")], [4, 1.25, 4], [0.5, 4.5, 4.5]),
    ],
    ids=["kept", "never", "lost"],
)
def test_a_release_is_kept_for_as_long_as_its_collector_can_be_told_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    deaf_after: int | None,
    made: list[Any],
    start: list[float],
    clean_up: list[float],
) -> None:
    """And all that it takes to install and remove them is in a phase of one of the runs."""
    clock = Clock()
    monkeypatch.setattr("cli.run.executors.kubernetes.time", SimpleNamespace(monotonic=clock))
    executor = Installed(clock, deaf_after)
    logs = tmp_path / "logs"
    logs.mkdir()
    settings = [settings_of(number) for number in range(3)]
    with _Releases(cast(KubernetesExecutor, executor), settings, logs) as series:
        reports = [series.run(run_settings, 0.0, lambda _: None) for run_settings in settings]
    assert executor.made == made
    assert executor.there == 0
    assert [report.run.phases_s[Phase.START] for report in reports] == start
    assert [report.run.phases_s[Phase.CLEAN_UP] for report in reports] == clean_up


def test_the_first_runs_start_begins_with_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for helm's version and the namespace, which takes time."""
    clock = Clock()
    client = SimpleNamespace(make_client=lambda: None, namespace="bench")

    def ask(*_: object) -> None:
        clock.now_s += 2

    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("cli.run.executors.kubernetes.time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("cli.run.executors.kubernetes.Helm.find_version", ask)
    monkeypatch.setattr("cli.run.executors.kubernetes.check_namespace", ask)
    executor = KubernetesExecutor(Interrupts(), cast(Place, client), {})
    executor.__enter__()
    clock.now_s += 1
    assert clock() - executor.begin_start() == 5
    assert clock() - executor.begin_start() == 0
