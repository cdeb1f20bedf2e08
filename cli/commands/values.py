"""What may be written after an option: amounts, times, labels, pairs, limits, rates and their stages."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from simulator.contract import Load, RunLimit, find_mean_rate, parse_stages, sum_durations_s
from simulator.errors import OptionError
from simulator.units import parse_amount, parse_share, read_duration_s

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")

_HINT = "write a number as in 50000, 50k, 1M or 1e6"


class Parsed(click.ParamType[Value]):
    """A value that is made of a text."""

    made: type | tuple[type, ...] = ()
    """The value's type, by which one that is made already is recognized: click converts defaults, too."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """The value; ValueError or OptionError, which says what is wrong, if there is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        if isinstance(value, self.made):
            return cast(Value, value)
        try:
            return self.parse(str(value))
        except (ValueError, OptionError) as error:
            self.fail(str(error), param, ctx)


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
            address = Address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._local:
            self.fail(f"{value!r} is an address: {self._local}", param, ctx)
        return address


class Amount(click.IntRange):
    """A whole number within limits, written as people write large ones."""

    name = "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        amount = parse_amount(str(value))
        if amount is None:
            self.fail(f"{value!r} is not a number: {_HINT}", param, ctx)
        if amount != int(amount):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        number: int = super().convert(int(amount), param, ctx)
        return number


class Rate(click.FloatRange):
    """A number within limits, written as people write large ones."""

    name = "NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        amount = parse_amount(str(value))
        if amount is None:
            self.fail(f"{value!r} is not a number: {_HINT}", param, ctx)
        number: float = super().convert(float(amount), param, ctx)
        return number


class StagedRate(Rate):
    """The same, or stages: `2m:1000,10m:5000`."""

    name = "NUMBER|TIME:NUMBER,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, list) or ":" not in str(value):
            return value if isinstance(value, list) else super().convert(value, param, ctx)
        try:
            return parse_stages(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pair(Parsed[tuple[str, str]]):
    """`KEY=VALUE`."""

    name = "KEY=VALUE"
    made = tuple

    def parse(self, text: str) -> tuple[str, str]:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value and text.isprintable()):
            raise ValueError(f"{text!r}: write a key and a value, as in build=42")
        return key, value


class Label(Parsed[str]):
    """What a user calls a result."""

    name = "TEXT"

    def parse(self, text: str) -> str:
        label = text.strip()
        if not label or not label.isprintable() or len(label) > _LONGEST_LABEL:
            raise ValueError(f"write one line of 1 to {_LONGEST_LABEL} printable characters")
        from ..results.store import LATEST

        if label == LATEST:
            raise ValueError(f"{LATEST!r} names the newest result: choose another label")
        return label


_LONGEST_LABEL = 80


class Since(Parsed[datetime]):
    """`2h`, `3d`, `2w`: so long ago; or a day or an instant in UTC: `2026-11-20`, `2026-11-20T08:30`."""

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


class Share(Parsed[float]):
    """`5%` or `0.05` -> 0.05."""

    name = "SHARE"
    made = float

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def parse(self, text: str) -> float:
        share = parse_share(text)
        if share is None or not self._least <= share <= self._most:
            raise ValueError(
                f"{text!r}: write a share from {self._least:.0%} to {self._most:.0%}, as in 5%"
            )
        return share


class Limit(Parsed[RunLimit]):
    """`p99=100ms`."""

    name = "MEASURE=VALUE"
    made = RunLimit

    def parse(self, text: str) -> RunLimit:
        from ..run.experiments.limits import parse_limit

        return parse_limit(text)


class WorkerCounts(Parsed[tuple[int, ...]]):
    """`1,4,8` -> (1, 4, 8)."""

    name = "N[,N...]"
    made = tuple

    def __init__(self, most: int = 10**9) -> None:
        self._most = most

    def parse(self, text: str) -> tuple[int, ...]:
        parts = text.split(",")
        numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
        if len(numbers) < len(parts) or min(numbers) < 1 or max(numbers) > self._most:
            raise ValueError(
                f"{text!r}: write numbers from 1 to {self._most}, separated by commas, as in 1,4,8"
            )
        if twice := [number for number in numbers if numbers.count(number) > 1]:
            raise ValueError(
                f"{text!r} names {twice[0]} more than once: for more runs of each count use --runs"
            )
        return tuple(numbers)


class WeightedQueries(Parsed[dict[str, float]]):
    """`newest-per-device=3,count-events` -> name -> weight."""

    name = "NAME[=WEIGHT],..."
    made = dict

    def parse(self, text: str) -> dict[str, float]:
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, equals, weight = (word.strip() for word in part.partition("="))
            if not re.fullmatch(r"\d+(\.\d+)?", weight or "1") or (equals and not weight):
                raise ValueError(f"{part!r}: write a weight as in count-events=3")
            if not name or name in weights:
                raise ValueError(f"{text!r}: write each query once, as in count-events=3,raw-range")
            weights[name] = float(weight or 1)
        if not any(weights.values()):
            raise ValueError(f"{text!r}: at least one weight must be above 0")
        return weights


class Duration(Parsed[float]):
    """`90`, `90s`, `1.5m`, `1h` -> seconds."""

    name = "DURATION"
    made = float

    def __init__(self, least_s: float = 0.0, above: bool = False) -> None:
        """`above`: the least itself is not enough."""
        self._least_s, self._above = least_s, above

    def parse(self, text: str) -> float:
        seconds = read_duration_s(text)
        if seconds < self._least_s or (self._above and seconds == self._least_s):
            raise ValueError(f"{text!r}: the time must be longer than {self._least_s:g} s")
        return seconds


def on_command_line(ctx: click.Context) -> frozenset[str]:
    """Names of the options that were given, not left at their defaults."""
    command_line = click.core.ParameterSource.COMMANDLINE
    names = [parameter.name for parameter in ctx.command.params if parameter.name]
    return frozenset(name for name in names if ctx.get_parameter_source(name) is command_line)


# --- rates ------------------------------------------------------------------------------------------

RATE = Load.model_fields["rate_per_s"].description
STAGES = "A rate may change in stages, whose times add up to the run's: 2m:1000,10m:5000."


def query_rate_option(kind: click.ParamType[Any], more: str = "") -> Callable[[Function], Function]:
    """The rate at which readers beside writers ask."""
    return click.option(
        "--query-rate", type=kind,
        help=f"Queries per second of all readers together; default: as fast as possible. {more}".rstrip(),
    )  # fmt: skip


def take_stages(ctx: click.Context, given: dict[str, Any]) -> None:
    """For rates that are given as stages, fill in the stages, their mean rate, and how long they take.
    UsageError if another option says something else."""
    flags = {"rate_per_s": "--rate", "query_rate": "--query-rate"}
    staged = {name: given[name] for name in flags if isinstance(given.get(name), list)}
    if not staged:
        return
    lengths = {flags[name]: sum_durations_s(stages) for name, stages in staged.items()}
    given_now = on_command_line(ctx)
    if "duration_s" in given_now:
        lengths["--duration"] = given["duration_s"]
    if len(set(lengths.values())) > 1:
        spans = " and ".join(f"{flag} {length:g} s" for flag, length in lengths.items())
        raise click.UsageError(
            f"the stages of a rate set the length of a run: {spans} differ; let them add up to the same, or"
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
