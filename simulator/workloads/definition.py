"""A workload as data: the typed model of a YAML definition.

`yaml_source.py` reads one, `defined.py` makes events of it, docs/workloads.md says how one is written.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .base import FIRST_TIMESTAMP_MS, MAX_DEVICES, NUMBERS, ColumnType

MAX_COLUMNS = 1000
MAX_VALUES = 1000

_NAME = re.compile(r"[a-z][a-z0-9_]{0,57}")
_TAKEN = ("id", "time")
"""`id` is the key that a worker or a database makes; InfluxDB has a `time` of its own."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(-?\d+(?:\.\d+)?) ?(ms|s|m|h|d)")
_SHARE = re.compile(r"(-?\d+(?:\.\d+)?) ?%")

_FLOATS = (ColumnType.FLOAT32, ColumnType.FLOAT64)
_NUMERIC = (*NUMBERS, ColumnType.TIMESTAMP_MS)
_RANGES: dict[ColumnType, tuple[float, float]] = {
    ColumnType.INT32: (-(2**31), 2**31 - 1),
    # As far as float64, in which signals are computed, holds each whole number.
    ColumnType.INT64: (-(2**53), 2**53),
    ColumnType.TIMESTAMP_MS: (0, 253_402_300_799_999),
    ColumnType.FLOAT32: (-3e38, 3e38),
    ColumnType.FLOAT64: (-1e300, 1e300),
}


def _read_duration(value: object) -> object:
    """Milliseconds of a text such as 450ms, 10s or 1.5h."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("write a duration with its unit: 450ms, 10s, 5m, 1h or 1d")
    return float(found[1]) * _UNITS_MS[found[2]]


def _read_share(value: object) -> object:
    """A part of one: a number, or a text such as 2%."""
    found = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) / 100 if found else value


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is no name for all databases: take small letters a to z, digits and _, 58 at"
            " most, a letter first"
        )
    if value in _TAKEN:
        raise ValueError(f"{value!r} is a name that a database makes itself: take another")
    return value


def _read_epoch(value: object) -> object:
    """Milliseconds since 1970 of a date or time, UTC unless it says otherwise."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError("write a time as 2024-01-01T00:00:00Z") from error
    if isinstance(value, date):
        if not isinstance(value, datetime):
            value = datetime.combine(value, time())
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(value.timestamp() * 1000)
    raise ValueError("write a time as 2024-01-01T00:00:00Z")


def _read_devices(value: object) -> object:
    return {"in_all": value} if isinstance(value, int) else value


Name = Annotated[str, BeforeValidator(_read_name)]
DurationMs = Annotated[float, BeforeValidator(_read_duration), Field(gt=0)]
DurationOrNoneMs = Annotated[float, BeforeValidator(_read_duration), Field(ge=0)]
Share = Annotated[float, BeforeValidator(_read_share), Field(ge=0, le=1)]


class Part(BaseModel):
    """A part of a definition: whatever isn't known is an error, and so is NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# --- signals --------------------------------------------------------------------------------------


class Numbers(Part):
    """A signal of numbers."""

    @property
    @abstractmethod
    def span(self) -> tuple[float, float]:
        """The lowest and the highest value that it may take."""


class _Between(Numbers):
    low: float
    high: float

    @property
    def span(self) -> tuple[float, float]:
        return self.low, self.high

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        return self


class Uniform(_Between):
    """Evenly spread noise."""

    kind: Literal["uniform"]


class Normal(Numbers):
    """Normally distributed noise."""

    kind: Literal["normal"]
    mean: float
    deviation: float = Field(gt=0)

    @property
    def span(self) -> tuple[float, float]:
        # The smallest random number that is drawn gives 5.9 deviations.
        return self.mean - 6 * self.deviation, self.mean + 6 * self.deviation


class Wander(_Between):
    """Drifts up and down, as most sensors' values do; see `signals.wander`."""

    kind: Literal["wander"]
    period: DurationMs
    roughness: float = Field(0.5, ge=0, le=1)
    octaves: int = Field(4, ge=1, le=12)

    @model_validator(mode="after")
    def _periods_are_seconds(self) -> Self:
        shortest_ms = self.period / 2 ** (self.octaves - 1)
        if shortest_ms < 1000:
            raise ValueError(
                f"the shortest of its waves lasts period / 2**(octaves - 1) = {shortest_ms:g} ms: a"
                " second is the least, so take fewer octaves or a longer period"
            )
        return self


class Cycle(_Between):
    """A sine, lowest at the beginning of each period, plus noise."""

    kind: Literal["cycle"]
    period: DurationMs = Field(86_400_000.0, ge=1000)
    shift: Share = 0
    noise: float = Field(0, ge=0)

    @property
    def span(self) -> tuple[float, float]:
        return self.low - self.noise, self.high + self.noise


class Counter(Numbers):
    """Rises by `step` each `every`; devices begin up to `spread` above `start`."""

    kind: Literal["counter"]
    start: float = 0
    step: float = Field(1, gt=0)
    every: DurationMs
    spread: float = Field(0, ge=0)

    @property
    def span(self) -> tuple[float, float]:
        century_ms = 100 * 365.25 * 86_400_000
        return self.start, self.start + self.spread + self.step / self.every * century_ms


class _Several(Part):
    values: tuple[Any, ...] = Field(min_length=1, max_length=MAX_VALUES)
    weights: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _weigh_each(self) -> Self:
        weights = self.weights
        if weights is None:
            return self
        if len(weights) != len(self.values):
            raise ValueError(f"{len(self.values)} values need as many weights, not {len(weights)}")
        if min(weights) < 0 or not sum(weights):
            raise ValueError("weights must be 0 or more, and not all of them 0")
        return self

    @property
    def shares(self) -> Sequence[float]:
        """A weight for each value."""
        return self.weights or [1.0] * len(self.values)


class Choice(_Several):
    """One of several values; of a tag, the device's for good."""

    kind: Literal["choice"]


class Hold(_Several):
    """One of several values, drawn anew every `lasts`."""

    kind: Literal["hold"]
    lasts: DurationMs = Field(ge=1000)


class Constant(Part):
    """The same value in all events."""

    kind: Literal["constant"]
    value: Any

    @property
    def values(self) -> tuple[Any, ...]:
        """As those of `Choice`."""
        return (self.value,)

    @property
    def shares(self) -> Sequence[float]:
        """As those of `Choice`."""
        return (1.0,)


Picked = Choice | Hold | Constant
Signal = Uniform | Normal | Wander | Cycle | Counter | Choice | Hold | Constant
SIGNALS: dict[str, type[Part]] = {
    "uniform": Uniform, "normal": Normal, "wander": Wander, "cycle": Cycle, "choice": Choice,
    "hold": Hold, "counter": Counter, "constant": Constant,
}  # fmt: skip


# --- columns --------------------------------------------------------------------------------------


class ColumnDefinition(Part):
    """A column, or `repeat` of them, numbered from NAME_000."""

    name: Name
    type: ColumnType
    signal: Annotated[Signal, Field(discriminator="kind")] | None = None
    decimals: int | None = Field(None, ge=0, le=15)
    missing: Share = 0
    tag: bool = False
    repeat: int | None = Field(None, ge=1, le=MAX_COLUMNS)

    @property
    def names(self) -> list[str]:
        """Those of the columns that it stands for."""
        if self.repeat is None:
            return [self.name]
        return [f"{self.name}_{number:03d}" for number in range(self.repeat)]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.decimals is not None and self.type not in _FLOATS:
            raise ValueError(f"decimals are for float32 and float64, not for {self.type}")
        if self.tag and self.missing:
            raise ValueError("a tag is never missing: it follows from the device's name")
        signal = self.signal
        if self.tag and not isinstance(signal, Choice | Constant | None):
            raise ValueError(
                f"a tag follows from the device's name: its signal can be choice or constant, not"
                f" {signal.kind}"
            )
        if isinstance(signal, Numbers):
            self._check_span(signal)
        elif signal is not None:
            for value in signal.values:
                self._check_value(value)
        return self

    def _check_span(self, signal: Uniform | Normal | Wander | Cycle | Counter) -> None:
        if self.type not in _NUMERIC:
            raise ValueError(
                f"signal {signal.kind} makes numbers: for type {self.type} take choice, hold or"
                " constant"
            )
        (low, high), (least, most) = signal.span, _RANGES[self.type]
        if low < least or high > most:
            raise ValueError(
                f"its values from {low:g} to {high:g} don't fit into type {self.type}"
                f" ({least:g} to {most:g})"
            )

    def _check_value(self, value: Any) -> None:
        kind = self.type
        if kind in _NUMERIC:
            fits = not isinstance(value, bool) and isinstance(
                value, int | float if kind in _FLOATS else int
            )
            least, most = _RANGES[kind]
            fits = fits and math.isfinite(value) and least <= value <= most
        elif kind is ColumnType.TEXT:
            fits = isinstance(value, str) and "\0" not in value
        elif kind is ColumnType.BOOL:
            fits = isinstance(value, bool)
        else:
            fits = isinstance(value, dict)
            try:
                orjson.dumps(value)
            except TypeError:
                fits = False
        if not fits:
            hint = ""
            if kind is ColumnType.TEXT and not isinstance(value, str):
                hint = ": put it into quotes"
            raise ValueError(f"{value!r} is no value of type {kind}{hint}")


class Devices(Part):
    """How many there are: `in_all`, shared out over the workers, or `per_worker`."""

    in_all: int | None = Field(None, ge=1, le=MAX_DEVICES)
    per_worker: int | None = Field(None, ge=1, le=MAX_DEVICES)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.in_all is None) == (self.per_worker is None):
            raise ValueError("say either in_all or per_worker")
        return self


class Delay(StrEnum):
    """How delays of late events are spread."""

    UNIFORM = "uniform"
    EXPONENTIAL = "exponential"


class Late(Part):
    """A share of events is sent later than the others of their time, by up to `most`."""

    share: Share
    most: DurationMs
    delay: Delay = Delay.UNIFORM
    mean: DurationMs | None = None

    @model_validator(mode="after")
    def _a_mean_is_exponential(self) -> Self:
        if (self.delay is Delay.EXPONENTIAL) != (self.mean is not None):
            raise ValueError("a mean goes with delay: exponential, and that with a mean")
        return self


class Definition(Part):
    """A workload. Times are kept in milliseconds."""

    name: Name
    about: str = Field(min_length=1)
    table: Name
    time: Name
    device: Name
    devices: Annotated[Devices, BeforeValidator(_read_devices)]
    interval: DurationMs = Field(ge=1)
    jitter: DurationOrNoneMs = 0
    late: Late | None = None
    epoch: Annotated[int, BeforeValidator(_read_epoch), Field(ge=0, le=4_102_444_800_000)] = (
        FIRST_TIMESTAMP_MS
    )
    columns: tuple[ColumnDefinition, ...] = Field(min_length=3)

    def each_column(self) -> Iterator[tuple[str, ColumnDefinition]]:
        """Name and definition of each column, repeated ones one by one."""
        for column in self.columns:
            for name in column.names:
                yield name, column

    @model_validator(mode="after")
    def _name_what_is_there(self) -> Self:
        columns = dict(self.each_column())
        names = [name for name, _ in self.each_column()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"there are two columns {twice[0]!r}: give one another name")
        if len(names) > MAX_COLUMNS:
            raise ValueError(f"{len(names)} columns are too many: {MAX_COLUMNS} at most")
        for key, kind in (("time", ColumnType.TIMESTAMP_MS), ("device", ColumnType.TEXT)):
            self._check_key(key, columns.get(getattr(self, key)), kind)
        for name, column in columns.items():
            if column.signal is None and name not in (self.time, self.device):
                raise ValueError(f"column {name!r} needs a signal: one of {', '.join(SIGNALS)}")
        if self.interval % 1 or self.jitter % 1:
            raise ValueError("interval and jitter must be whole milliseconds")
        if self.jitter >= self.interval:
            raise ValueError(
                f"jitter ({self.jitter:g} ms) must be below the interval ({self.interval:g} ms), so"
                " that a device's events are in order"
            )
        return self

    def _check_key(self, key: str, column: ColumnDefinition | None, kind: ColumnType) -> None:
        name = getattr(self, key)
        if column is None:
            raise ValueError(f"{key} names a column {name!r} that isn't among the columns")
        if column.type is not kind:
            raise ValueError(f"column {name!r} must be of type {kind}, as it is the {key}")
        if column.signal or column.missing or column.tag:
            raise ValueError(
                f"column {name!r} is the {key}: no signal, missing or tag goes with it"
            )
