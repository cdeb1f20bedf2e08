"""Experiments without processes: a target that needs none, and an executor that makes up what runs give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from cli.plan.request import Request
from cli.results.store import ResultFolder, now
from cli.run.executors import Executor, Series, Watch
from cli.run.experiments.context import RunContext
from cli.run.experiments.experiment import AnyExperiment, Runner
from cli.run.experiments.session import Session, open_session
from cli.show.progress import PlainDisplay
from cli.system.processes import Interrupts
from simulator.contract import Report, RunResult, RunSettings

from ....helpers import make_report


def open_blackhole(place: Path) -> Session:
    """Of a target `x` that stores nothing, with results below this folder."""
    file = place / "config.yaml"
    file.write_text("targets:\n  x: {module: blackhole, executor: local}\n")
    return open_session(Request(target="x", config_file=file, output=place / "results"))


class FakeExecutor(Executor, Series):
    """Its runs give what `measure` says, and are kept with their settings and the folder of their logs."""

    def __init__(self) -> None:
        self.asked: list[RunSettings] = []
        self.logs: list[str] = []

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        self.logs.append(logs.name)
        yield self

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        self.asked.append(settings)
        return make_report(self.measure(settings))

    def measure(self, settings: RunSettings) -> RunResult:
        """RunFailed if it gives nothing."""
        raise NotImplementedError


def make_context(
    session: Session, command: str, executor: Executor, server: Any = None
) -> RunContext:
    folder = ResultFolder(session.request.output, now(), command, session.target.name)
    context = RunContext(session, command, executor, folder, Interrupts(), now().isoformat())
    if server is not None:
        context.describe_end = server.describe_end
    return context


def make_runs(experiment: AnyExperiment, executor: FakeExecutor) -> Runner:
    """All its runs; raises the RunFailed with which the command would end."""
    context = make_context(experiment.session, experiment.command, cast(Executor, executor))
    runner = Runner(experiment, context, PlainDisplay(experiment.lengths))
    runner.make_all()
    return runner
