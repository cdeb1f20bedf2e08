"""What exists while a command makes its runs: result folder, live page, server, executor."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.contract import DataSet, Load, Report, RunSettings, Status, make_groups

from ...plan.disturbances import Action
from ...plan.planning import PlannedRun
from ...results.faults import find_outages
from ...results.model import Result
from ...results.rules import DURATION_OPTIONS
from ...results.store import ResultFolder, now
from ...system.errors import ConfigError, RunFailed, RunGivenUp
from ...system.installation import PACKAGES, program
from ...system.processes import Interrupts
from ..embedded import EmbeddedPostgres
from ..exclusion import claim_databases
from ..executors import Executor, Series, Watch, make_executor
from ..faults import Doer, FaultInjector
from ..live import choose_live, serve_live
from .long_runs import coarsen_run

if TYPE_CHECKING:
    from .session import Session


def show_nothing() -> None:
    """Nothing is known of a server that the tool didn't start."""


@dataclass
class RunContext:
    """What exists while a command makes its runs."""

    session: Session
    command: str
    executor: Executor
    folder: ResultFolder
    interrupts: Interrupts
    started_at: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)
    """The module's options for a server that the tool has started."""
    doers: Mapping[Action, Doer] = field(default_factory=dict)
    describe_end: Callable[[], str | None] = show_nothing
    """The last words of that server if it ended by itself."""

    def run(self, series: Series, settings: RunSettings, watch: Watch) -> Report:
        """Make a run of the series, with its disturbances; see `Series.run`.

        RunGivenUp if it ended early and something was measured.
        """
        try:
            if self.session.disturbances:
                report = self._run_disturbed(series, settings, watch)
            else:
                report = series.run(settings, self.session.request.timeout_s, watch)
        except RunFailed as error:
            failed = RunFailed(self._explain(error.message))
            failed.marks, failed.undone = error.marks, error.undone
            raise failed from error
        run = report.run
        coarsen_run(run)
        failure = None if report.failure is None else self._explain(report.failure)
        for group in run.groups:
            group.invalid_reasons = [
                failure if failure and reason == report.failure else reason
                for reason in group.invalid_reasons
            ]
        if failure is not None:
            raise RunGivenUp(failure, report)
        return report

    def _run_disturbed(self, series: Series, settings: RunSettings, watch: Watch) -> Report:
        injector = FaultInjector(
            self.session.disturbances,
            self.doers,
            self.interrupts,
            self.session.request.disturb_grace_s,
        )

        def follow(status: Status) -> None:
            injector.follow(status)
            watch(status.model_copy(update={"marks": injector.list_marks()}))

        try:
            with injector:
                report = series.run(settings, self.session.request.timeout_s, follow)
        except RunFailed as error:
            error.marks, error.undone = injector.marks, injector.undone
            raise
        run = report.run
        run.marks, run.undone = injector.marks, injector.undone
        if run.writers is not None:
            run.writers.outages = find_outages(run)
        return report

    def _explain(self, failure: str) -> str:
        """A failure, with the last words of the server that may be its cause."""
        end = self.describe_end()
        return f"{failure}; {end}" if end else failure

    def make_settings(self, planned: PlannedRun, token: str | None = None) -> RunSettings:
        """What collector and workers are told about a run. Runs that one collector makes share a `token`."""
        target, options = self.session.target, planned.options
        values = {**(self.session.values if options is None else options), **self.server}
        return make_settings(
            target.name,
            target.module,
            values,
            planned.data,
            *planned.loads,
            token=token or new_token(),
            duration_option=DURATION_OPTIONS.get(self.command, "--duration"),
            # After a run with disturbances.
            look_up=bool(self.session.disturbances),
            loads_by_prefill=planned.loads_by_prefill,
            is_level=planned.is_level,
            abort_limits=list(planned.abort_limits),
            chance=planned.chance,
        )

    def make_result(
        self, options: Mapping[str, Any], environment: Mapping[str, Any], **measured: Any
    ) -> Result:
        """A command's result: what all results have, and `measured`, its own fields."""
        session = self.session
        return Result.model_validate(
            {
                "command": self.command,
                "target": session.target.name,
                "module": session.target.module,
                "executor": session.executor,
                "started_at": self.started_at,
                "label": session.request.label,
                **(session.request.job._asdict() if session.request.job else {}),
                "tags": dict(session.request.tags),
                "cost_per_hour": session.target.cost_per_hour,
                "options": session.result_options(options),
                "environment": {"tool": tool_environment(), "kubernetes": None, **environment},
                **measured,
            }
        )

    def write(self, result: Result, finished: bool) -> RunFailed | None:
        """Write the result, and its copy once it is finished. Returns the error if that failed: the figures
        are shown anyway."""
        try:
            self.folder.write(result, self.session.request.json_file if finished else None)
        except RunFailed as error:
            return error
        return None


@contextmanager
def open_context(session: Session, command: str, interrupts: Interrupts) -> Iterator[RunContext]:
    """Start everything: result folder, live page, the target's server if the tool starts it, executor. The
    database belongs to this command alone, unless it is `doctor`, which changes nothing."""
    started = now()
    folder = ResultFolder(session.request.output, started, command, session.target.name)
    with ExitStack() as stack:
        stack.callback(folder.close)
        try:
            target, request = session.target, session.request
            live = choose_live(request.live, request.open_live, request.prometheus_file)
            if live is not None:
                stack.enter_context(serve_live(live, command, target.name, interrupts))
            place, pids = session.place, target.database_pids
            executor = stack.enter_context(
                make_executor(session.executor, interrupts, place, target.kubernetes, pids)
            )
            if session.disturbances:
                executor.check_disturbances(session.disturbances)
            if command != "doctor":
                holder = f"{command} (process {os.getpid()})"
                stack.enter_context(claim_databases(session.list_claims(), holder))
            context = RunContext(
                session,
                command,
                executor,
                folder,
                interrupts,
                started.isoformat(timespec="seconds"),
                doers=executor.find_doers() if session.disturbances else {},
            )
            if target.start_server:
                assert target.data_dir is not None
                server = stack.enter_context(EmbeddedPostgres(target.data_dir, interrupts))
                context.server = {"connection_string": server.connection_string}
                context.describe_end = server.describe_end
                context.doers = {
                    **context.doers,
                    Action.RESTART_SERVER: lambda _: server.restart(kill=False),
                    Action.KILL_SERVER: lambda _: server.restart(kill=True),
                }
        except RunFailed as error:
            # Nothing has been started.
            raise ConfigError(error.message) from error
        yield context


def make_settings(
    target: str,
    module: str,
    options: Mapping[str, Any],
    data: DataSet,
    *loads: Load,
    **more: Any,
) -> RunSettings:
    """The settings of a run with a group of workers for each load, and an ID of eight hexadecimal digits.
    `more`: further fields of the settings. Without a `token` the run gets its own."""
    own = {"token": new_token(), "program": program()} | more
    return RunSettings(
        run_id=secrets.token_hex(4),
        target=target,
        module=module,
        options=dict(options),
        data=data,
        groups=make_groups(*loads),
        **own,
    )


def new_token() -> str:
    """A secret that proves to a collector that a request comes from its own run."""
    return secrets.token_urlsafe(24)


def tool_environment(folder: Path = PACKAGES) -> dict[str, Any]:
    """Version of this tool and, in a git checkout, its commit, with `-dirty` if it was changed since. Results
    don't count as changes: a campaign may continue in a folder inside the repository."""
    commit = None
    if (folder / ".git").exists():
        commit = _run_git(folder, "describe", "--always", "--abbrev=40").stdout.strip() or None
        changed = _run_git(folder, "diff", "--quiet", "HEAD", "--", ".", ":!comparison/results")
        if commit is not None and changed.returncode:
            commit += "-dirty"
    return {"version": __version__, "commit": commit}


def _run_git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
