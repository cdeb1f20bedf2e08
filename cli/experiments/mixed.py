"""The work of `mixed`: runs with writers and readers, their result, their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.contract import InsertRun, ReadRun, Report
from simulator.units import format_count

from ..errors import RunFailed, RunGivenUp
from ..output import print_prose, say, terminal_width
from ..plan import (
    Arm,
    Mix,
    PlannedMix,
    Sweep,
    check_capabilities,
    check_query,
    plan_mix,
    share_devices,
)
from ..render.answers import describe_answers
from ..render.notes import summarize_notes
from ..render.progress import Display
from ..render.stored import tabulate_figures, tabulate_readers
from ..results.model import Baseline, Result
from ..results.reads import summarize_reads
from ..results.statistics import summarize_inserts
from ..signals import Interrupts
from .context import RunContext, describe_failure, new_token
from .experiment import Experiment, run_experiment
from .insert import join_environments
from .query import choose_queries
from .session import CommonOptions, Session, open_session


def run_mixed(mix: Mix, request: CommonOptions, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    data = session.complete(mix.data, existing=not mix.data.clean)
    data = share_devices(data, mix.writers.workers)
    mix = replace(mix, data=data, readers=choose_queries(mix.readers, session))
    plan = plan_mix(mix)
    sweep = Sweep(mix.writers, data, [mix.writers.workers], given=mix.given)
    check_capabilities(sweep, session.module, session.options)
    check_query(mix.readers, data, session.module, session.options)
    # Of each run one load, since both groups go on for as long.
    lengths = [planned.loads[0] for planned in plan]
    return run_experiment(
        _MixedExperiment(mix, plan, session), "mixed", session, lengths, interrupts
    )


class _MixedExperiment(Experiment):
    """The runs made so far, by what was at work."""

    def __init__(self, mix: Mix, plan: Sequence[PlannedMix], session: Session) -> None:
        self._mix = mix
        self.prefill = mix.data.prefill
        self._plan = plan
        self._session = session
        self._runs: dict[Arm, list[InsertRun]] = {arm: [] for arm in Arm}
        self._reads: dict[Arm, list[ReadRun]] = {arm: [] for arm in Arm}
        self._environment: dict[str, Any] = {}

    @property
    def count(self) -> int:
        runs = sum(len(runs) for runs in self._runs.values())
        return runs + sum(len(reads) for reads in self._reads.values())

    def make(self, context: RunContext, display: Display) -> None:
        mix, plan = self._mix, self._plan
        context.executor.check_capacity([mix.workers])
        token = new_token()
        settings = [
            context.make_settings(mix.data, *one.loads, token=token, loads_by_prefill=True)
            for one in plan
        ]
        display.begin(_label(plan[0], mix))
        with context.series("mixed", settings) as series:
            for planned, one in zip(plan, settings, strict=True):
                display.begin(_label(planned, mix))
                try:
                    report = context.run(series, one, display.update)
                except RunFailed as error:
                    display.end("failed")
                    if isinstance(error, RunGivenUp):
                        self._keep(planned, error.report)
                    else:
                        self._keep_failure(planned, error)
                    raise
                display.end(self._keep(planned, report))

    def _keep(self, planned: PlannedMix, report: Report) -> str:
        """Keep a run; its outcome in a few words."""
        self._environment = join_environments(self._environment, report.environment)
        said = []
        if (run := report.insert) is not None:
            run.run, run.phases_s = planned.run, report.phases_s
            self._runs[planned.arm].append(run)
            said.append(f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure")
        if (read := report.read) is not None:
            read.run, read.phases_s = planned.run, report.phases_s
            self._reads[planned.arm].append(read)
            said.append(
                f"{read.queries_per_s:,.1f} queries/s" if read.queries_per_s else "no figure"
            )
        outcome = " beside ".join(said)
        reasons = "; ".join(report.invalid_reasons)
        return f"invalid ({reasons}): {outcome}" if reasons else outcome

    def _keep_failure(self, planned: PlannedMix, error: RunFailed) -> None:
        """Keep that a run gave no figures, and why."""
        failed = {"run": planned.run, **describe_failure(error)}
        writers, readers = planned.loads
        if planned.arm is not Arm.READERS:
            self._runs[planned.arm].append(
                InsertRun.model_validate({**failed, "workers": writers.workers, "fill_level": 0})
            )
            failed |= {"marks": [], "undone": []}
        if planned.arm is not Arm.WRITERS:
            self._reads[planned.arm].append(
                ReadRun.model_validate({**failed, "workers": readers.workers})
            )

    def result(self, context: RunContext, complete: bool) -> Result:
        mix, session = self._mix, self._session
        runs, reads = self._runs[Arm.MIXED], self._reads[Arm.MIXED]
        baseline = Baseline(runs=self._runs[Arm.WRITERS], reads=self._reads[Arm.READERS])
        return context.make_result(
            "mixed",
            session,
            {
                **mix.public(),
                "insert_mode": session.options and session.options.mode(mix.writers.batch),
            },
            self._environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=runs,
            reads=reads,
            baseline=baseline if mix.baseline else None,
            summary=summarize_inserts(runs, by_fill_level=False),
            query_summary_beside=summarize_reads(reads),
        )

    def show(self, result: Result) -> None:
        terminal = sys.stdout.isatty()
        if any(run.inserts_per_s is not None for run in result.insert_runs):
            say(
                f"Inserts per second\n{tabulate_figures(result, terminal).text(width=terminal_width())}"
            )
        for title, table in tabulate_readers(result, terminal).items():
            if table.rows:
                say(f"\n{title}\n{table.text(width=terminal_width())}")
        say("")
        for line in summarize_notes(result, terminal, describe_answers(result)):
            print_prose(line)


def _label(planned: PlannedMix, mix: Mix) -> str:
    writers, readers = planned.loads
    who = {
        Arm.MIXED: f"{format_count(writers.workers, 'writer')} and"
        f" {format_count(readers.workers, 'reader')}",
        Arm.WRITERS: f"{format_count(writers.workers, 'writer')} alone",
        Arm.READERS: f"{format_count(readers.workers, 'reader')} alone",
    }
    return f"{who[planned.arm]}, run {planned.run} of {mix.runs}"
