"""The work of `insert`: make the planned runs, keep the result, print the table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from simulator.contract import InsertRun, Report, RunSettings
from simulator.units import format_count

from ..errors import RunFailed, RunGivenUp
from ..executors.base import Series
from ..output import print_prose, say, terminal_width
from ..plan import PlannedRun, Sweep, by_workers, check_capabilities, plan_inserts
from ..render.notes import list_outages, summarize_notes
from ..render.progress import Display
from ..render.stored import tabulate_figures
from ..render.tables import describe_load
from ..results.model import Result
from ..results.statistics import summarize_inserts
from ..signals import Interrupts
from .context import RunContext, describe_failure, new_token
from .experiment import Experiment, run_experiment
from .session import CommonOptions, Session, open_session


def run_inserts(sweep: Sweep, request: CommonOptions, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    sweep = replace(sweep, data=session.complete(sweep.data, existing=not sweep.data.clean))
    plan = plan_inserts(sweep)
    check_capabilities(sweep, session.module, session.options)
    lengths = [planned.load for planned in plan]
    return run_experiment(
        _InsertExperiment(sweep, plan, session), "insert", session, lengths, interrupts
    )


class _InsertExperiment(Experiment):
    """The runs made so far, and what the next one needs to know of the last."""

    def __init__(self, sweep: Sweep, plan: Sequence[PlannedRun], session: Session) -> None:
        self._sweep = sweep
        self.prefill = sweep.data.prefill
        self._plan = plan
        self._session = session
        self._runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}
        self._last: Report | None = None

    @property
    def count(self) -> int:
        return len(self._runs)

    def make(self, context: RunContext, display: Display) -> None:
        context.executor.check_capacity([planned.workers for planned in self._plan])
        for name, series in by_workers(self._plan):
            self._make_series(name, series, context, display)

    def _make_series(
        self, name: str, series: Sequence[PlannedRun], context: RunContext, display: Display
    ) -> None:
        """The runs of one worker count."""
        token = new_token()
        settings = [
            context.make_settings(planned.data, planned.load, token=token) for planned in series
        ]
        settings[0] = self._follow_last(settings[0])
        display.begin(_label(series[0], self._sweep))
        with context.series(name, settings) as runs:
            for planned, one in zip(series, settings, strict=True):
                self._run(planned, self._follow_last(one), runs, context, display)

    def _follow_last(self, settings: RunSettings) -> RunSettings:
        """The settings, with what the last run left."""
        carried = self._last.carried if self._last else None
        return settings.model_copy(update={"after": carried})

    def _run(
        self,
        planned: PlannedRun,
        settings: RunSettings,
        series: Series,
        context: RunContext,
        display: Display,
    ) -> None:
        display.begin(_label(planned, self._sweep))
        try:
            report = context.run(series, settings, display.update)
        except RunFailed as error:
            display.end("failed")
            if isinstance(error, RunGivenUp):
                self._keep(planned, error.report)
            else:
                failed = InsertRun(
                    workers=planned.workers,
                    run=planned.run,
                    fill_level=(settings.after and settings.after.stored) or 0,
                    **describe_failure(error),
                )
                self._runs.append(failed)
            raise
        run = self._keep(planned, report)
        self._last = report
        rate = f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure"
        display.end(rate if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {rate}")

    def _keep(self, planned: PlannedRun, report: Report) -> InsertRun:
        run = report.insert
        assert run is not None
        run.run, run.phases_s = planned.run, report.phases_s
        self._runs.append(run)
        self._environment = join_environments(self._environment, report.environment)
        return run

    def result(self, context: RunContext, complete: bool) -> Result:
        sweep, session = self._sweep, self._session
        return context.make_result(
            "insert",
            session,
            {
                **sweep.public(),
                "insert_mode": session.options and session.options.mode(sweep.load.batch),
            },
            self._environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=self._runs,
            summary=summarize_inserts(self._runs, by_fill_level=sweep.steps > 0),
        )

    def show(self, result: Result) -> None:
        if all(run.inserts_per_s is None for run in self._runs):
            for text in list_outages(result):
                print_prose(text)
            return
        sweep = self._sweep
        terminal = sys.stdout.isatty()
        if sweep.steps and sweep.load.duration_s is None:
            say(f"Stepsize: {sweep.workers[0] * sweep.load.events:,}")
        if not result.by_fill_level:
            say("Inserts per second")
        say(tabulate_figures(result, terminal).text(width=terminal_width()))
        for line in summarize_notes(result, terminal, describe_load(sweep.load)):
            print_prose(line)


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
    workers = format_count(planned.workers, "worker")
    if sweep.steps:
        return f"{workers}, step {planned.run} of {sweep.steps}"
    return f"{workers}, run {planned.run} of {sweep.runs}"
