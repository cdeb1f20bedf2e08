"""Options of the command line, made from the fields of requests, and those that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..plan.fields import Group, Option, describe_problem, find_options
from ..plan.request import Request
from ..plan.requests import REQUESTS
from ..plan.values import Choice, File, Flag, Folder, Kind, Number, Whole

if TYPE_CHECKING:
    from ..results.address import Address

Function = TypeVar("Function", bound=Callable[..., Any])
AnyRequest = TypeVar("AnyRequest", bound=Request)


# --- types of values ------------------------------------------------------------------------------


class Parsed(click.ParamType[Any]):
    """A value parsed by a parser from `plan.values`."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, self.kind.made) and not isinstance(value, str):
            return value
        try:
            return self.kind.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class NumberType(Parsed, click.IntRange):
    """One whose range click shows in the help."""

    def __init__(self, kind: Number) -> None:
        click.IntRange.__init__(
            self,
            cast("int | None", kind.least),
            cast("int | None", kind.most),
            min_open=kind.above,
        )
        Parsed.__init__(self, kind)


class FolderType(click.Path):
    """A folder, or the address of one: s3://bucket/folder."""

    def __init__(self, local: str = "", file_okay: bool = True) -> None:
        """`local`: why it can't be a remote address."""
        super().__init__(file_okay=file_okay, path_type=Path)
        self._local = local

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..results.address import Address, is_address

        if not isinstance(value, str) or not is_address(value):
            return value if isinstance(value, Address) else super().convert(value, param, ctx)
        try:
            address = Address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._local:
            self.fail(f"{value!r} is an address: {self._local}", param, ctx)
        return address


def whole(least: int, most: int | None = None) -> click.ParamType[Any]:
    """A whole number in a range."""
    return NumberType(Whole(least, most))


class Since(Kind):
    """A time before now (`2h`, `3d`, `2w`), or a day or time in UTC: `2026-11-20`, `2026-11-20T08:30`."""

    name = "TIME"
    made = datetime

    def parse(self, text: str) -> datetime:
        ago = re.fullmatch(r"(\d{1,5}(?:\.\d+)?)\s*([mhdw])", text.strip())
        if ago:
            units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
            return datetime.now(UTC) - timedelta(**{units[ago[2]]: float(ago[1])})
        try:
            instant = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(f"{text!r}: write a time as in 2h, 3d or 2026-11-20") from None
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _make_type(kind: Kind) -> click.ParamType[Any]:
    if isinstance(kind, Folder):
        return FolderType()
    if isinstance(kind, File):
        return click.Path(path_type=Path, dir_okay=kind.dir_okay)
    if isinstance(kind, Choice):
        return click.Choice(kind.names, case_sensitive=kind.case_sensitive)
    if isinstance(kind, Number):
        return NumberType(kind)
    return click.STRING if type(kind) is Kind else Parsed(kind)


# --- options of requests --------------------------------------------------------------------------


def combine(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options as one decorator, in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


class MeasuringCommand(click.Command):
    """A command that makes a request: its help groups the options."""

    def list_groups(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Heading -> its options with their help."""
        declared = find_options(REQUESTS[self.name or ""])
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in Group}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                own = declared.get(parameter.name or "")  # all but --help have one
                groups[own[1].group if own else Group.OUTPUT].append(record)
        return {title: records for title, records in groups.items() if records}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, records in self.list_groups(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)


def options_of(kind: type[Request], *names: str, **changes: Any) -> Callable[[Function], Function]:
    """Options of a request: those with these names, or all. `changes`: overrides for a single one."""
    declared = find_options(kind)
    return combine(*(_make_option(name, *declared[name], changes) for name in names or declared))


def _make_option(
    name: str, field: FieldInfo, own: Option, changes: dict[str, Any]
) -> Callable[[Function], Function]:
    how: dict[str, Any] = {"help": field.description, "show_default": own.shown}
    if field.default is PydanticUndefined:
        how["required"] = True
    elif own.written is not None:
        how["default"] = own.written
    elif not own.multiple:
        how["default"] = str(field.default) if isinstance(field.default, StrEnum) else field.default
    if isinstance(own.kind, Flag):
        how["is_flag"] = True
    else:
        how |= {"type": _make_type(own.kind), "multiple": own.multiple, "metavar": own.metavar}
    if own.alone is not None:
        how |= {"is_flag": False, "flag_value": own.alone}
    return click.option(*own.flags, name, **how | changes)


config_option = options_of(Request, "config_file")
"""The file that names the targets."""
place_options = options_of(Request, "kubeconfig", "context", "namespace")
"""Which cluster and namespace; the same for helm and for this tool."""
live_options = options_of(Request, "live", "open_live", "prometheus_file")
"""The live page: every command that runs something has it."""
debug_option = options_of(Request, "debug")
"""Every command has it."""


def find_given(ctx: click.Context) -> dict[str, Any]:
    """The values of options that were given explicitly."""
    command_line = click.core.ParameterSource.COMMANDLINE
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is command_line
    }


def make_request(ctx: click.Context, kind: type[AnyRequest], **more: Any) -> AnyRequest:
    """The request of a command, from the options that are its fields. UsageError if they conflict."""
    own = {name: value for name, value in find_given(ctx).items() if name in kind.model_fields}
    try:
        return kind.model_validate(more | own)
    except ValidationError as error:
        raise click.UsageError(describe_problem(error)[1]) from error


def run(ctx: click.Context) -> None:
    """Run the experiment of a command, and exit with its status."""
    from ..run.experiments import EXPERIMENTS, run_experiment

    request = make_request(ctx, REQUESTS[ctx.command.name or ""])
    ctx.exit(run_experiment(EXPERIMENTS[request.command].open(request), ctx.obj))


# --- options of commands that read results --------------------------------------------------------


def results_option(function: Function) -> Function:
    """Where results are stored: every command that reads them has it."""

    @wraps(function)
    def call(*args: Any, results_folder: Path | Address, **values: Any) -> Any:
        # Fetched when the command runs, not while parsing: an address takes a while.
        if not isinstance(results_folder, Path):
            results_folder = results_folder.fetch()
        elif results_folder.is_file():
            from ..results.kept import find_results

            results_folder = find_results(results_folder)
        return function(*args, results_folder=results_folder, **values)

    return click.option(
        "--results", "results_folder", default="results", show_default=True, type=FolderType(),
        metavar="FOLDER|URL",
        help="Folder with the stored results, its address, or a file made by `results pack`.",
    )(cast(Function, call))  # fmt: skip


def output_option(default: str | None, text: str) -> Callable[[Function], Function]:
    """The file to write."""
    return click.option(
        "--output", default=default, show_default=default is not None,
        type=click.Path(path_type=Path, dir_okay=False), help=text,
    )  # fmt: skip
