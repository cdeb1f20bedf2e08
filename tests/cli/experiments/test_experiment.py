"""The runs of a command: what its result says of an end before the last of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.errors import RunFailed
from cli.experiments.context import RunContext
from cli.experiments.experiment import Experiment, run_experiment
from cli.experiments.session import Session
from cli.render.progress import Display
from cli.results.model import Result
from cli.results.store import ResultFolder, now, read_result
from cli.signals import Interrupted, Interrupts
from simulator.contract import Load, Role

from ..made import inserts


class _OneRun(Experiment):
    """A run of two that is made before something `happens`."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens
        self.shown: list[Result] = []

    @property
    def count(self) -> int:
        return 1

    def make(self, running: RunContext, display: Display) -> None:
        self._happens()

    def result(self, running: RunContext, complete: bool) -> Result:
        return inserts({1: [100.0]}, complete=complete)

    def show(self, result: Result) -> None:
        self.shown.append(result)


def _raise(error: BaseException) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


def _session(output: Path) -> Session:
    """All that the runs need of one."""

    @contextmanager
    def start(command: str, _: Interrupts) -> Iterator[RunContext]:
        folder = ResultFolder(output, now(), command, "t")
        request = SimpleNamespace(json_file=None)
        parts: Any = (None, None, folder, {}, "", request, None, False)
        yield RunContext(*parts)

    return cast(Session, SimpleNamespace(request=SimpleNamespace(disturb=()), start=start))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Interrupted(signal.SIGTERM), "SIGTERM"),
        (RunFailed("no word from worker 0"), "a run that failed"),
    ],
)
def test_a_result_says_what_ended_its_command(
    tmp_path: Path, error: BaseException, told: str
) -> None:
    making = _OneRun(_raise(error))
    load = Load(role=Role.WRITE)
    with pytest.raises(type(error)):
        run_experiment(making, "insert", _session(tmp_path), [load], Interrupts())
    (folder,) = tmp_path.iterdir()
    assert (made := read_result(folder)) == making.shown[0]
    assert (made.complete, made.ended_by) == (False, told)


def test_a_command_that_made_all_its_runs_was_ended_by_nothing(tmp_path: Path) -> None:
    making = _OneRun(lambda: None)
    assert (
        run_experiment(making, "insert", _session(tmp_path), [Load(role=Role.WRITE)], Interrupts())
        == 0
    )
    assert (making.shown[0].complete, making.shown[0].ended_by) == (True, None)
