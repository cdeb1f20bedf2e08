"""The work of `insert`: make the planned runs, keep the result, print the table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from simulator.contract import InsertRun, Report, RunSettings

from .errors import EXIT_FAILED, RunFailed
from .executors.base import Series
from .output import say
from .plan import (
    PlannedRun,
    Sweep,
    by_workers,
    check_capabilities,
    plan_inserts,
)
from .results.model import Result
from .results.place import format_workers
from .results.statistics import summarize_inserts
from .session import (
    Request,
    Running,
    Session,
    new_token,
    open_session,
)
from .show.notes import list_notes
from .show.progress import Display, make_display
from .show.stored import tabulate_figures
from .show.tables import describe_load
from .signals import Interrupted, Interrupts


def run_inserts(sweep: Sweep, request: Request, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    options = {"workload_options": session.workload_options}
    sweep = replace(sweep, data=sweep.data.model_copy(update=options))
    plan = plan_inserts(sweep)
    check_capabilities(sweep, session.module, session.options)
    made = _Made(sweep, session)
    stopped: RunFailed | Interrupted | None = None
    loads = [planned.load for planned in plan]
    with session.start("insert", interrupts) as running, make_display(loads) as display:
        try:
            running.executor.check_capacity([planned.workers for planned in plan])
            for name, series in by_workers(plan):
                made.run_series(name, series, running, display)
        except (RunFailed, Interrupted) as error:
            stopped = error
        with interrupts.shield():
            result = made.result(running, complete=stopped is None)
            unwritten = running.write(result) if result.runs else None
    if result.runs:
        if any(run.inserts_per_s is not None for run in made.runs):
            _print(result, sweep)
        if unwritten is None:
            say(f"\nResult: {running.folder.path}")
    if isinstance(stopped, Interrupted):
        raise stopped
    if unwritten:
        raise unwritten
    if stopped:
        raise stopped
    return 0 if all(run.valid for run in made.runs) else EXIT_FAILED


class _Made:
    """The runs made so far, and what the next one needs to know of the last."""

    def __init__(self, sweep: Sweep, session: Session) -> None:
        self._sweep = sweep
        self._session = session
        self.runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}
        self._last: Report | None = None

    def run_series(
        self, name: str, series: Sequence[PlannedRun], running: Running, display: Display
    ) -> None:
        """The runs of one worker count. RunFailed if one gave no figures; it is in `runs` all the
        same."""
        token = new_token()
        settings = [
            running.make_settings(planned.data, planned.load, token=token) for planned in series
        ]
        settings[0] = self._follow_last(settings[0])
        display.begin(_label(series[0], self._sweep))
        with running.series(name, settings) as runs:
            for planned, one in zip(series, settings, strict=True):
                self._run(planned, self._follow_last(one), runs, running, display)

    def _follow_last(self, settings: RunSettings) -> RunSettings:
        """The settings, with what the last run left."""
        carried = self._last.carried if self._last else None
        return settings.model_copy(update={"after": carried})

    def _run(
        self,
        planned: PlannedRun,
        settings: RunSettings,
        series: Series,
        running: Running,
        display: Display,
    ) -> None:
        display.begin(_label(planned, self._sweep))
        try:
            report = series.run(settings, running.request.timeout_s, display.update)
        except RunFailed as error:
            display.end("failed")
            self.runs.append(
                InsertRun(
                    workers=planned.workers,
                    run=planned.run,
                    fill_level=(settings.after and settings.after.stored) or 0,
                    valid=False,
                    invalid_reasons=[error.message],
                )
            )
            raise
        assert report.insert is not None
        run = report.insert
        run.run, run.phases_s = planned.run, report.phases_s
        self.runs.append(run)
        self._last = report
        self._environment = join_environments(self._environment, report.environment)
        rate = f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure"
        display.end(rate if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {rate}")

    def result(self, running: Running, complete: bool) -> Result:
        """All runs so far."""
        sweep, session = self._sweep, self._session
        return running.make_result(
            "insert",
            session,
            {
                **sweep.public(),
                "insert_mode": session.options and session.options.mode(sweep.load.batch),
            },
            self._environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=self.runs,
            summary=summarize_inserts(self.runs, by_fill_level=sweep.steps > 0),
        )


def join_environments(earlier: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of all runs so far: the latest's, with the pods, nodes and images of all."""
    cluster, before = latest.get("kubernetes"), earlier.get("kubernetes")
    if not cluster or not before:
        return dict(latest)
    both = {
        "placement": before["placement"] | cluster["placement"],
        "nodes": before["nodes"] | cluster["nodes"],
        "images": sorted({*before["images"], *cluster["images"]}),
    }
    return {**latest, "kubernetes": {**cluster, **both}}


def _label(planned: PlannedRun, sweep: Sweep) -> str:
    workers = format_workers(planned.workers)
    if sweep.steps:
        return f"{workers}, step {planned.run} of {sweep.steps}"
    return f"{workers}, run {planned.run} of {sweep.runs}"


def _print(result: Result, sweep: Sweep) -> None:
    terminal = sys.stdout.isatty()
    if sweep.steps and sweep.load.duration_s is None:
        say(f"Stepsize: {sweep.workers[0] * sweep.load.events:,}")
    say(tabulate_figures(result, terminal).text())
    said = describe_load(sweep.load)
    if said:
        say(said)
    for note in list_notes(result, terminal):
        say(note)
