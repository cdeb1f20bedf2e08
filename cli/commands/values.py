"""What may be written after an option: amounts, times past, labels, pairs, limits, rates and their stages."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from simulator.contract import Load, RunLimit, find_mean_rate, parse_stages, sum_durations_s
from simulator.errors import OptionError
from simulator.units import parse_amount, parse_share

Function = TypeVar("Function", bound=Callable[..., Any])

_HINT = "write a number as in 50000, 50k, 1M or 1e6"


class Folder(click.Path):
    """A folder, or the address of one: s3://bucket/folder."""

    def __init__(self, local: str = "", file_okay: bool = True) -> None:
        """`local`: why it can't be an address."""
        super().__init__(file_okay=file_okay, path_type=Path)
        self._local = local

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..results.address import Address, is_address

        if not isinstance(value, str) or not is_address(value):
            return value if isinstance(value, Address) else super().convert(value, param, ctx)
        try:
            found = Address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._local:
            self.fail(f"{value!r} is an address: {self._local}", param, ctx)
        return found


class Amount(click.IntRange):
    """A whole number within limits, written as people write large ones."""

    name = "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        amount = parse_amount(str(value))
        if amount is None:
            self.fail(f"{value!r} is no number: {_HINT}", param, ctx)
        if amount != int(amount):
            self.fail(f"{value!r} is no whole number", param, ctx)
        found: int = super().convert(int(amount), param, ctx)
        return found


class Rate(click.FloatRange):
    """A number within limits, written as people write large ones."""

    name = "NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        amount = parse_amount(str(value))
        if amount is None:
            self.fail(f"{value!r} is no number: {_HINT}", param, ctx)
        found: float = super().convert(float(amount), param, ctx)
        return found


class StagedRate(Rate):
    """The same, or stages: `2m:1000,10m:5000`."""

    name = "NUMBER|TIME:NUMBER,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, list) or ":" not in str(value):
            return value if isinstance(value, list) else super().convert(value, param, ctx)
        try:
            return parse_stages(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """`KEY=VALUE`."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = (part.strip() for part in str(value).partition("="))
        if not (key and equals and text and value.isprintable()):
            self.fail(f"{value!r}: write a key and a value, as in build=42", param, ctx)
        return key, text


class Label(click.ParamType[str]):
    """What a user calls a result."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or not text.isprintable() or len(text) > _LONGEST_LABEL:
            self.fail(f"write one line of 1 to {_LONGEST_LABEL} characters", param, ctx)
        from ..results.store import LATEST

        if text == LATEST:
            self.fail(f"{LATEST!r} names the newest result: choose another label", param, ctx)
        return text


_LONGEST_LABEL = 80


class Since(click.ParamType[datetime]):
    """`2h`, `3d`, `2w`: so long ago; or a day or an instant in UTC: `2026-11-20`, `2026-11-20T08:30`."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        ago = re.fullmatch(r"(\d{1,5}(?:\.\d+)?)\s*([mhdw])", str(value).strip())
        if ago:
            units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
            return datetime.now(UTC) - timedelta(**{units[ago[2]]: float(ago[1])})
        try:
            found = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r}: write a time as in 2h, 3d or 2026-11-20", param, ctx)
        return found if found.tzinfo else found.replace(tzinfo=UTC)


class Share(click.ParamType[float]):
    """`5%` or `0.05` -> 0.05."""

    name = "SHARE"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        share = parse_share(str(value))
        if share is None or not self._least <= share <= self._most:
            self.fail(
                f"{value!r}: write a share from {self._least:.0%} to {self._most:.0%}, as in 5%",
                param,
                ctx,
            )
        return share


class Limit(click.ParamType[RunLimit]):
    """`p99=100ms`."""

    name = "MEASURE=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> RunLimit:
        from ..experiments.limits import parse_limit

        if isinstance(value, RunLimit):
            return value
        try:
            return parse_limit(str(value))
        except OptionError as error:
            self.fail(str(error), param, ctx)


def on_command_line(ctx: click.Context) -> frozenset[str]:
    """Names of the options that were given, not left at their defaults."""
    given = click.core.ParameterSource.COMMANDLINE
    names = [parameter.name for parameter in ctx.command.params if parameter.name]
    return frozenset(name for name in names if ctx.get_parameter_source(name) is given)


# --- rates ------------------------------------------------------------------------------------------

RATE = Load.model_fields["rate_per_s"].description
STAGES = "A rate that changes is written in stages, which say how long it takes: 2m:1000,10m:5000."


def query_rate_option(kind: click.ParamType[Any], more: str = "") -> Callable[[Function], Function]:
    """What readers beside writers are to ask."""
    return click.option(
        "--query-rate", type=kind,
        help=f"Queries per second of all readers together; without it: at once. {more}".rstrip(),
    )  # fmt: skip


def take_stages(ctx: click.Context, given: dict[str, Any]) -> None:
    """Of rates that are stages, fill in the stages, their mean rate, and how long they take. UsageError if
    something else was said of that."""
    flags = {"rate_per_s": "--rate", "query_rate": "--query-rate"}
    staged = {name: given[name] for name in flags if isinstance(given.get(name), list)}
    if not staged:
        return
    lengths = {flags[name]: sum_durations_s(stages) for name, stages in staged.items()}
    given_now = on_command_line(ctx)
    if "duration_s" in given_now:
        lengths["--duration"] = given["duration_s"]
    if len(set(lengths.values())) > 1:
        told = " and ".join(f"{flag} {length:g} s" for flag, length in lengths.items())
        raise click.UsageError(
            f"the stages of a rate say how long a run takes: {told} differ; let them add up to the same, or"
            " leave --duration out"
        )
    for name, flag in (("events", "--num-inserts"), ("runs", "--runs")):
        if name in given_now and (name == "events" or ctx.info_name == "query"):
            raise click.UsageError(
                f"{flag} and the stages of a rate both say when a run ends: give one of them"
            )
    given["duration_s"] = next(iter(lengths.values()))
    for name, stages in staged.items():
        given["stages" if name == "rate_per_s" else "query_stages"] = stages
        given[name] = find_mean_rate(stages)
