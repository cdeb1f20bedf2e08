"""What is up while the runs of a command are made: result folder, live page, server, executor."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.contract import DataSet, Load, Report, RunSettings, Status, make_groups

from ..embedded import EmbeddedPostgres
from ..errors import RunFailed, RunGivenUp
from ..exclusion import claim_databases, list_claims
from ..executors import make_executor
from ..executors.base import Executor, Series, Watch
from ..faults.injector import Action, Doer, FaultInjector
from ..installation import PACKAGES, program
from ..live.serving import serve_live
from ..results.faults import find_outages
from ..results.model import Result
from ..results.rules import DURATION_OPTIONS
from ..results.store import ResultFolder, now
from ..signals import Interrupts

if TYPE_CHECKING:
    from .session import Session


def show_nothing() -> None:
    """Of a server that others have started."""


@dataclass
class RunContext:
    """What is up while a command's runs are made."""

    session: Session
    command: str
    executor: Executor
    folder: ResultFolder
    interrupts: Interrupts
    started_at: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)
    """The module's options by which a server that the tool has started is reached."""
    doers: Mapping[Action, Doer] = field(default_factory=dict)
    describe_end: Callable[[], str | None] = show_nothing
    """What that server said when it ended by itself."""

    def run(self, series: Series, settings: RunSettings, watch: Watch) -> Report:
        """A run of the series, with what is done to the database meanwhile; see `Series.run`.

        RunGivenUp if it ended early and something was measured.
        """
        session = self.session
        injector = FaultInjector(session.disturbances, self.doers, self.interrupts)

        def follow(status: Status) -> None:
            injector.follow(status)
            watch(status.model_copy(update={"marks": injector.list_marks()}))

        try:
            with injector:
                report = series.run(settings, session.request.timeout_s, follow)
        except RunFailed as error:
            failed = RunFailed(self._explain(error.message))
            failed.marks, failed.undone = injector.marks, injector.undone
            raise failed from error
        run = report.run
        run.marks, run.undone = injector.marks, injector.undone
        if run.writers is not None:
            run.writers.outages = find_outages(run)
        failure = None if report.failure is None else self._explain(report.failure)
        for group in run.groups:
            reasons = [
                failure if failure and one == report.failure else one
                for one in group.invalid_reasons
            ]
            group.invalid_reasons = name_durations(reasons, self.command)
        if failure is not None:
            raise RunGivenUp(failure, report)
        return report

    def _explain(self, failure: str) -> str:
        """A failure, with the end of the server that may be behind it."""
        end = self.describe_end()
        return f"{failure}; {end}" if end else failure

    def make_settings(
        self,
        data: DataSet,
        *loads: Load,
        token: str | None = None,
        options: Mapping[str, Any] | None = None,
        loads_by_prefill: bool = False,
    ) -> RunSettings:
        """What collector and workers are told of a run: a group of workers for each load.

        Runs that one collector makes one after the other share its `token`. `options`: the module's, if
        they aren't those of the session; `loads_by_prefill`: see there.
        """
        target = self.session.target
        values = {**(self.session.values if options is None else options), **self.server}
        settings = make_settings(target.name, target.module, values, data, *loads, token=token)
        # Each event is looked up after a run in which something was done to the database.
        own = {
            "look_up": bool(self.session.disturbances),
            "loads_by_prefill": loads_by_prefill,
        }
        return settings.model_copy(update=own)

    def make_result(
        self, options: Mapping[str, Any], environment: Mapping[str, Any], **measured: Any
    ) -> Result:
        """A command's result: what all have in common, and `measured`, the fields of its own."""
        session = self.session
        return Result.model_validate(
            {
                "command": self.command,
                "target": session.target.name,
                "module": session.target.module,
                "executor": session.executor,
                "started_at": self.started_at,
                "label": session.request.label,
                "tags": dict(session.request.tags),
                "cost_per_hour": session.target.cost_per_hour,
                "options": session.result_options(options),
                "environment": {"tool": tool_environment(), "kubernetes": None, **environment},
                **measured,
            }
        )

    def keep(self, result: Result) -> None:
        """Write an unfinished result into the folder, as far as that can be done now."""
        with suppress(RunFailed):
            self.folder.write(result, None)

    def write(self, result: Result) -> RunFailed | None:
        """Write the result; the error if that failed: its figures are shown all the same."""
        try:
            self.folder.write(result, self.session.request.json_file)
        except RunFailed as error:
            return error
        return None

    def open_series(
        self, name: str, settings: Sequence[RunSettings]
    ) -> AbstractContextManager[Series]:
        """Ready for these runs; their logs go to a folder `name`."""
        return self.executor.open_series(settings, self.folder.logs(name))


@contextmanager
def open_context(session: Session, command: str, interrupts: Interrupts) -> Iterator[RunContext]:
    """Everything up: result folder, live page, the target's server if the tool starts it, executor. The
    database is this command's alone, unless it is `doctor`, which changes nothing."""
    started, target, request = now(), session.target, session.request
    folder = ResultFolder(request.output, started, command, target.name)
    with ExitStack() as stack:
        stack.callback(folder.close)
        stack.enter_context(serve_live(request.live, command, target.name, interrupts))
        executor = stack.enter_context(
            make_executor(
                session.executor,
                interrupts,
                session.place,
                target.kubernetes,
                target.database_pids,
            )
        )
        executor.check_disturbances(session.disturbances)
        if command != "doctor":
            who = f"{command} (process {os.getpid()})"
            stack.enter_context(claim_databases(list_claims([session]), who))
        context = RunContext(
            session,
            command,
            executor,
            folder,
            interrupts,
            started.isoformat(timespec="seconds"),
            doers=executor.find_doers(),
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
        yield context


def make_settings(
    target: str,
    module: str,
    options: Mapping[str, Any],
    data: DataSet,
    *loads: Load,
    token: str | None = None,
) -> RunSettings:
    """A run of its own, with an ID of eight hexadecimal digits; see `RunContext.make_settings`."""
    return RunSettings(
        run_id=secrets.token_hex(4),
        token=token or new_token(),
        target=target,
        program=program(),
        module=module,
        options=dict(options),
        data=data,
        groups=make_groups(*loads),
    )


def name_durations(reasons: Sequence[str], command: str) -> list[str]:
    """What the collector says of a run, with the option by which this command makes its runs longer."""
    option = DURATION_OPTIONS.get(command, "--duration")
    return [re.sub(r"(?<=longer )--duration\b", option, text) for text in reasons]


def new_token() -> str:
    """What shows a collector that a request comes from its own run."""
    return secrets.token_urlsafe(24)


def tool_environment() -> dict[str, Any]:
    """Version and, in a git checkout, commit of this tool."""
    commit = None
    if (PACKAGES / ".git").exists():
        described = subprocess.run(
            ["git", "-C", str(PACKAGES), "describe", "--always", "--abbrev=40", "--dirty"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        commit = described.stdout.strip() or None
    return {"version": __version__, "commit": commit}
