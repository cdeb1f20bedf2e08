"""Errors as the user sees them: one or two lines, and an exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from simulator.errors import list_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.contract import Mark, Report, SkippedFault

T = TypeVar("T")
P = ParamSpec("P")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LIMIT = 3
"""A limit was missed or undecided."""


class CliError(click.ClickException):
    """An error shown as `error: TEXT` without a traceback."""


class ConfigError(CliError):
    """Wrong usage or configuration: nothing was started."""

    exit_code = EXIT_USAGE

    def __init__(self, *problems: str) -> None:
        """`problems`: everything that is wrong."""
        super().__init__(list_problems(problems))
        self.problems = problems


class Problems:
    """Collects the problems of a file, so that all are reported at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def collect(self, check: Callable[P, T], *args: P.args, **more: P.kwargs) -> T | None:
        """The call's result; None if it raises a ConfigError, whose problems are collected."""
        try:
            return check(*args, **more)
        except ConfigError as error:
            self._found += error.problems
            return None

    def refuse(self) -> None:
        """Raise a ConfigError with all problems, if any."""
        if self._found:
            raise ConfigError(*self._found)


class RunFailed(CliError):
    """A run ended without a figure, or its result could not be stored."""

    exit_code = EXIT_FAILED
    marks: Sequence[Mark] = ()
    undone: Sequence[SkippedFault] = ()
    """The disturbances of the run: done, and planned but not done."""


class NotStarted(RunFailed):
    """A run was refused before anything was started."""


class RunGivenUp(RunFailed):
    """A run ended early, with what had been measured by then."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report
