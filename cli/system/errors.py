"""Errors as the user sees them: one or two lines, and an exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.contract import Mark, Report, SkippedFault

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LIMIT = 3
"""A limit was missed, or could not be decided."""


class CliError(click.ClickException):
    """An error shown as `error: TEXT` without a traceback."""


class ConfigError(CliError):
    """Wrong usage or configuration: nothing was started."""

    exit_code = EXIT_USAGE


class RunFailed(CliError):
    """A run ended without a figure, or the result could not be kept."""

    exit_code = EXIT_FAILED
    marks: Sequence[Mark] = ()
    undone: Sequence[SkippedFault] = ()
    """What was done to the database in the run, and what was to be done and wasn't."""


class NotStarted(RunFailed):
    """A run was refused before any of it was there."""


class RunGivenUp(RunFailed):
    """A run ended early, and what had been measured by then is known."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report
