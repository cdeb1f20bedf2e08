"""What is up while a command's runs are made, and what its result has in common with others."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.contract import DataSet, Load, Report, RunSettings, Status, make_groups

from ..config import Target
from ..errors import RunFailed, RunGivenUp
from ..executors.base import Executor, Series, Watch
from ..faults.injector import FaultInjector
from ..installation import PACKAGES, program
from ..results.faults import find_outages
from ..results.model import Result
from ..results.rules import DURATION_OPTIONS
from ..results.store import ResultFolder

if TYPE_CHECKING:
    from .session import CommonOptions, Session


def show_nothing() -> None:
    """Of a server that others have started."""


@dataclass
class RunContext:
    """What is up while a command's runs are made."""

    target: Target
    executor: Executor
    folder: ResultFolder
    values: dict[str, Any]
    started_at: str
    request: CommonOptions
    disturb: Callable[[], FaultInjector]
    look_up: bool
    """Whether each event is looked up after a run."""
    command: str = "insert"
    describe_end: Callable[[], str | None] = show_nothing
    """What a server that the tool has started said when it ended by itself."""

    def run(self, series: Series, settings: RunSettings, watch: Watch) -> Report:
        """A run of the series, with what is done to the database meanwhile; see `Series.run`.

        RunGivenUp if it ended early and something was measured.
        """
        injector = self.disturb()

        def follow(status: Status) -> None:
            injector.follow(status)
            watch(status.model_copy(update={"marks": injector.list_marks()}))

        try:
            with injector:
                report = series.run(settings, self.request.timeout_s, follow)
        except RunFailed as error:
            failed = RunFailed(self._explain(error.message))
            failed.marks, failed.undone = injector.marks, injector.undone
            raise failed from error
        disturbed = report.insert or report.read
        if disturbed is not None:
            disturbed.marks, disturbed.undone = injector.marks, injector.undone
        if report.insert is not None:
            report.insert.outages = find_outages(report.insert)
        failure = None if report.failure is None else self._explain(report.failure)
        for part in (report.insert, report.read):
            if part is not None:
                reasons = [
                    failure if failure and one == report.failure else one
                    for one in part.invalid_reasons
                ]
                part.invalid_reasons = name_durations(reasons, self.command)
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
        loads_by_prefill: bool = False,
    ) -> RunSettings:
        """What collector and workers are told of a run: a group of workers for each load.

        Runs that one collector makes one after the other share its `token`. `loads_by_prefill`: see there.
        """
        name, module = self.target.name, self.target.module
        settings = make_settings(name, module, self.values, data, *loads, token=token)
        own = {"look_up": self.look_up, "loads_by_prefill": loads_by_prefill}
        return settings.model_copy(update=own)

    def make_result(
        self,
        command: str,
        session: Session,
        options: Mapping[str, Any],
        environment: Mapping[str, Any],
        **measured: Any,
    ) -> Result:
        """A command's result: what all have in common, and `measured`, the fields of its own."""
        return Result.model_validate(
            {
                "command": command,
                "target": self.target.name,
                "module": self.target.module,
                "executor": session.executor,
                "started_at": self.started_at,
                "label": self.request.label,
                "tags": dict(self.request.tags),
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
            self.folder.write(result, self.request.json_file)
        except RunFailed as error:
            return error
        return None

    def series(self, name: str, settings: Sequence[RunSettings]) -> AbstractContextManager[Series]:
        """Ready for these runs; their logs go to a folder `name`."""
        return self.executor.open_series(settings, self.folder.logs(name))


def describe_failure(error: RunFailed) -> dict[str, Any]:
    """The fields of a run without figures: why there are none, and what was done to the database."""
    return {
        "valid": False,
        "invalid_reasons": [error.message],
        "marks": list(error.marks),
        "undone": list(error.undone),
    }


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
