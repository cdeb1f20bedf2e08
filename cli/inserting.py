"""The work of `insert`: make the planned runs, keep the result, print the table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.contract import InsertRun, Report, RunSettings

from .errors import EXIT_FAILED, RunFailed
from .output import say
from .plan import InsertOptions, PlannedRun, check_capabilities, insert_settings, plan_inserts
from .results import Result, summarize_inserts
from .session import Request, Running, Session, open_session, tool_environment
from .show.progress import Display, make_display
from .show.tables import insert_notes, insert_table, steps_table
from .signals import Interrupted, Interrupts


def run_inserts(options: InsertOptions, request: Request, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    plan = plan_inserts(options)
    session = open_session(request)
    check_capabilities(options, session.module, session.options)
    made = _Made(options, session)
    stopped: RunFailed | Interrupted | None = None
    with session.running("insert", interrupts) as running, make_display("events") as display:
        try:
            for planned in plan:
                made.run(planned, running, display)
        except (RunFailed, Interrupted) as error:
            stopped = error
        with interrupts.shielded():
            result = made.result(running, complete=stopped is None)
            unwritten = _written(running, result, request) if result.runs else None
    if result.runs:
        _print(result, options)
        if unwritten is None:
            say(f"\nResult: {running.folder.path}")
    if isinstance(stopped, Interrupted):
        raise stopped
    if unwritten:
        raise unwritten
    if stopped:
        raise stopped
    return 0 if all(run.valid for run in made.runs) else EXIT_FAILED


def _written(running: Running, result: Result, request: Request) -> RunFailed | None:
    """Write the result; the error if that failed (the table is shown all the same)."""
    try:
        running.folder.write(result, request.json_file)
    except RunFailed as error:
        return error
    return None


class _Made:
    """The runs made so far, and what the next one needs to know of the last."""

    def __init__(self, options: InsertOptions, session: Session) -> None:
        self._options = options
        self._session = session
        self.runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}
        self._last: Report | None = None

    def run(self, planned: PlannedRun, running: Running, display: Display) -> None:
        """One run. RunFailed if it gave no figures; it is in `runs` all the same."""
        display.begin(_label(planned, self._options))

        def settings(run_id: str, token: str, values: Mapping[str, Any]) -> RunSettings:
            before = self._last if planned.continues else None
            return insert_settings(
                planned,
                self._options,
                self._session.target,
                values,
                run_id,
                token,
                first_event=before.next_event if before else None,
                baseline=before.stored if before else None,
            )

        try:
            report = running.run(_log_name(planned), settings, display.update)
        except RunFailed as error:
            display.end(f"failed: {error.message}")
            self.runs.append(
                InsertRun(
                    workers=planned.workers,
                    run=planned.run,
                    fill_level=(self._last.stored or 0) if self._last and planned.continues else 0,
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
        self._environment = report.environment
        rate = f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure"
        display.end(rate if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {rate}")

    def result(self, running: Running, complete: bool) -> Result:
        """All runs so far."""
        options, session = self._options, self._session
        return Result(
            command="insert",
            target=session.target.name,
            module=session.target.module,
            executor=session.executor,
            started_at=running.started_at,
            complete=complete,
            options={
                "workers": list(options.workers),
                "runs": options.runs,
                "primary_key": options.primary_key,
                "tables": options.tables,
                "num_inserts": options.num_inserts,
                "prefill": options.prefill,
                "batch": options.batch,
                "clean": options.clean,
                "steps": options.steps,
                "timestamps": options.timestamps,
                "workload": options.workload,
                "seed": options.seed,
                "timeout_s": running.request.timeout_s,
                "module": session.public_options(),
            },
            environment={"tool": tool_environment(), **self._environment, "kubernetes": None},
            runs=self.runs,
            summary=summarize_inserts(self.runs, by_fill_level=options.steps > 0),
        )


def _label(planned: PlannedRun, options: InsertOptions) -> str:
    workers = f"{planned.workers} worker{'s' if planned.workers > 1 else ''}"
    if options.steps:
        return f"{workers}, step {planned.run} of {options.steps}"
    return f"{workers}, run {planned.run} of {options.runs}"


def _log_name(planned: PlannedRun) -> str:
    return f"workers-{planned.workers:02d}-run-{planned.run:02d}"


def _print(result: Result, options: InsertOptions) -> None:
    terminal = sys.stdout.isatty()
    runs: Sequence[InsertRun] = [run for run in result.runs if isinstance(run, InsertRun)]
    summary = summarize_inserts(runs, by_fill_level=options.steps > 0)
    if options.steps:
        say(steps_table(runs, options.workers[0] * options.num_inserts, terminal))
    else:
        say(insert_table(runs, summary, terminal))
    for note in insert_notes(runs, summary, options.steps > 0, terminal):
        say(note)
