"""Executors that share a run's workers out: which has which, and what becomes of a run if one can't go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from cli.cluster import Place as ClusterPlace
from cli.errors import RunFailed
from cli.executors import share_workers
from cli.executors.base import Part, PartSeries, SingleExecutor, Watch
from cli.executors.kubernetes import KubernetesExecutor
from cli.executors.several import SeveralExecutors
from cli.signals import Interrupts
from cli.target import ExecutorName, NamedExecutor
from simulator.contract import (
    CarriedState,
    GroupResult,
    Phase,
    Report,
    Role,
    RunResult,
    RunSettings,
    Status,
)

from ...helpers import settings as run_settings

ADDRESS = "http://bench.example.com:5000"


class Place(SingleExecutor):
    """An executor that starts nothing, and notes what it is asked for."""

    def __init__(self, failure: str | None = None) -> None:
        self.failure = failure
        self.go_on = threading.Event()
        self.begun: Callable[[], None] = lambda: None
        self.entered = self.overs = 0
        self.capacities: list[Sequence[int]] = []
        self.parts: list[Part] = []
        self.folders: list[Path] = []

    def __enter__(self) -> Place:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.entered -= 1

    def check_capacity(self, worker_counts: Sequence[int], in_flight: int) -> None:
        assert in_flight == 8
        self.capacities.append(worker_counts)

    @contextmanager
    def open_part(
        self, settings: Sequence[RunSettings], logs: Path, part: Part
    ) -> Iterator[PartSeries]:
        self.parts.append(part)
        self.folders.append(logs)
        yield Work(self)


class Work(PartSeries):
    def __init__(self, place: Place) -> None:
        self._place = place

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        """Looks at the collector until all others have begun, or one of them can't go on."""
        watch(Status(phase=Phase.START, age_s=0))
        while not self._place.go_on.wait(0.01):
            watch(Status(phase=Phase.BARRIER, age_s=1))
        group = GroupResult(role=Role.WRITE, workers=settings.workers)
        run = RunResult(began_at="", ended_at="", groups=[group])
        return Report(run=run, environment={}, carried=CarriedState(next_event=0, stored=None))

    def assist(self, settings: RunSettings, over: threading.Event) -> Mapping[str, Any]:
        if self._place.failure is not None:
            raise RunFailed(self._place.failure)
        self._place.begun()
        assert over.wait(10)
        self._place.overs += 1
        return {"kubernetes": {"namespace": "west"}}


@pytest.mark.parametrize(("workers", "counts"), [(1, [1, 0, 0]), (2, [1, 1, 0]), (7, [3, 2, 2])])
def test_each_worker_is_in_one_part(workers: int, counts: list[int]) -> None:
    parts = [Part(number, 3, ADDRESS) for number in range(3)]
    shares = [list(part.list_workers(workers)) for part in parts]
    assert list(map(len, shares)) == counts
    assert sorted(chain(*shares)) == list(range(workers))
    assert [part.leads for part in parts] == [True, False, False]
    assert list(Part().list_workers(workers)) == list(range(workers))


def test_all_take_part_and_only_the_first_has_the_collector(tmp_path: Path) -> None:
    east, west = Place(), Place()
    west.begun = east.go_on.set
    settings = run_settings(workers=5)
    with SeveralExecutors({"east": east, "west": west}, ADDRESS) as several:
        assert east.entered == west.entered == 1
        several.check_capacity([1, 5], 8)
        with several.open_series([settings], tmp_path) as series:
            report = series.run(settings, 0, lambda _: None)
    assert east.entered == west.entered == 0
    assert (east.capacities, west.capacities) == ([[1, 3]], [[2]])
    assert (east.parts, west.parts) == ([Part(0, 2, ADDRESS)], [Part(1, 2, ADDRESS)])
    assert (east.folders, west.folders) == ([tmp_path], [tmp_path / "west"])
    assert (east.overs, west.overs) == (0, 1)
    assert report.environment["executors"] == {
        "east": {"workers": 3},
        "west": {"workers": 2, "kubernetes": {"namespace": "west"}},
    }


def test_who_has_no_worker_is_left_out(tmp_path: Path) -> None:
    east, west = Place(), Place("would fail")
    east.go_on.set()
    settings = run_settings(workers=1)
    with (
        SeveralExecutors({"east": east, "west": west}, ADDRESS) as several,
        several.open_series([settings], tmp_path) as series,
    ):
        report = series.run(settings, 0, lambda _: None)
    assert west.parts == []
    assert report.environment["executors"] == {"east": {"workers": 1}, "west": {"workers": 0}}


def test_a_run_ends_when_workers_of_another_executor_cannot_go_on(tmp_path: Path) -> None:
    """What the others have begun is ended all the same."""
    well, ill = Place(), Place("pod x was evicted")
    settings = run_settings(workers=3)
    names = {"east": Place(), "west": ill, "north": well}
    with (
        SeveralExecutors(names, ADDRESS) as several,
        several.open_series([settings], tmp_path) as series,
        pytest.raises(RunFailed, match="executor west: pod x was evicted"),
    ):
        series.run(settings, 0, lambda _: None)
    assert well.overs == 1


def test_each_is_in_its_own_context_and_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no context is in the kubeconfig's, wherever the first is."""
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    several = share_workers(
        [
            NamedExecutor("east", ExecutorName.KUBERNETES, "east", "bench"),
            NamedExecutor("home", ExecutorName.KUBERNETES, None, "mine"),
        ],
        ADDRESS,
        Interrupts(),
        ClusterPlace("bench", "some/kubeconfig", "east"),
    )
    assert isinstance(several, SeveralExecutors)
    places = [cast(KubernetesExecutor, executor)._place for executor in several._executors.values()]
    assert places == [
        ClusterPlace("bench", "some/kubeconfig", "east"),
        ClusterPlace("mine", "some/kubeconfig", None),
    ]
