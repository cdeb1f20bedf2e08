"""A workload as data: the typed model of a YAML definition.

`yaml_source.py` reads one, `defined.py` makes events of it. How to write one:
docs/how-to/own-workload.md.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from ..documents import Problem, refuse
from ..errors import did_you_mean
from .base import MAX_DEVICES
from .noise import Points, device_words, make_salt, pick, pick_table, uniform_integers
from .own_schema import find_schema_problems
from .queries import WRITTEN, Part, Query
from .schema import FIRST_TIMESTAMP_MS, FLOATS, NUMBERS, Column, ColumnType, Schema
from .signals import (
    SIGNALS,
    Choice,
    Constant,
    DurationMs,
    DurationOrNoneMs,
    Follows,
    Hold,
    Numbers,
    Share,
    Signal,
    Uniform,
)

MAX_COLUMNS = 2000

NOW: Literal["now"] = "now"
"""The epoch of a workload that begins when it is inserted."""

_LAST_EPOCH_MS = 4_102_444_800_000
"""2100-01-01."""
_YEAR_MS = 366 * 86_400_000
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The character that databases can't have in a text, as JSON writes it."""
_UNFIT = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,57}")
_TAKEN = ("id", "time")
"""`id` is the key that a worker or a database makes; InfluxDB has a `time` of its own."""

_NUMERIC = (*NUMBERS, ColumnType.TIMESTAMP_MS)
_RANGES: dict[ColumnType, tuple[float, float]] = {
    ColumnType.INT32: (-(2**31), 2**31 - 1),
    # As far as float64, in which signals are computed, holds each whole number.
    ColumnType.INT64: (-(2**53), 2**53),
    ColumnType.TIMESTAMP_MS: (0, 253_402_300_799_999),
    ColumnType.FLOAT32: (-3e38, 3e38),
    ColumnType.FLOAT64: (-1e300, 1e300),
}


_DTYPES: dict[ColumnType, type[np.generic]] = {
    ColumnType.TIMESTAMP_MS: np.int64,
    ColumnType.INT64: np.int64,
    ColumnType.INT32: np.int32,
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
}

Maker = Callable[[Points], NDArray[Any]]
"""Computes the values of a column."""


def read_name(value: object) -> str:
    """A name that every database takes; ValueError if it's none."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a valid name in all databases: use lowercase letters a to z, digits"
            " and _, at most 58, beginning with a letter"
        )
    if value in _TAKEN:
        raise ValueError(f"{value!r} is a name that a database uses itself: use another")
    return value


def read_epoch(value: object) -> int | Literal["now"]:
    """Milliseconds since 1970 of a date or time, UTC unless it says otherwise; ValueError if it's none."""
    if value == NOW:
        return NOW
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError("write a time as 2024-01-01T00:00:00Z, or now")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    epoch_ms = round(moment.timestamp() * 1000)
    if not 0 <= epoch_ms <= _LAST_EPOCH_MS:
        raise ValueError("the epoch must be from 1970 to 2100")
    return epoch_ms


Name = Annotated[str, BeforeValidator(read_name)]
Epoch = Annotated[int | Literal["now"], BeforeValidator(read_epoch, json_schema_input_type=str)]


class ColumnDefinition(Part):
    """A column, or `repeat` of them, numbered from NAME_000."""

    name: Name
    """Small letters, digits and `_`, a letter first, 58 characters at most. Reserved words are allowed;
    `id` and `time` are not."""
    type: ColumnType
    """`timestamp_ms`, `int64`, `int32`, `float32`, `float64`, `bool`, `text` or `json`."""
    signal: Annotated[Signal, Field(discriminator="kind")] | None = None
    """What its values are made of, of the kind that its key `kind` names. Time and device have none;
    every other column needs one."""
    decimals: int | None = Field(None, ge=0, le=15)
    """Floats are rounded to so many decimals; if left out, they are not rounded."""
    missing: Share = 0
    """The share of events without a value, such as 2%. A tag is never missing."""
    missing_lasts: DurationMs | None = Field(None, ge=1000)
    """How long a value is missing at a time, such as 10m; for single events if left out."""
    tag: bool = False
    """Whether it describes the device. A tag follows from the device's name alone, whatever the seed; its
    signal is `choice`, `follows` or `constant`."""
    repeat: int | None = Field(None, ge=1, le=MAX_COLUMNS)
    """Makes so many columns of it, each with values of its own."""

    @property
    def names(self) -> list[str]:
        """The names of the columns that it stands for."""
        if self.repeat is None:
            return [self.name]
        return [f"{self.name}_{number:03d}" for number in range(self.repeat)]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts that it takes, documents as they are stored."""
        if self.signal is None or isinstance(self.signal, Numbers):
            return ()
        values = self.signal.values
        if self.type is ColumnType.JSON:
            return tuple(orjson.dumps(value).decode() for value in values)
        return tuple(values) if self.type is ColumnType.TEXT else ()

    @property
    def least(self) -> float | None:
        """The lowest number that it takes; None if it takes none."""
        if self.signal is None or self.type not in NUMBERS:
            return None
        return self.reach[0] if isinstance(self.signal, Numbers) else min(self.signal.values)

    @property
    def reach(self) -> tuple[float, float]:
        """The lowest and the highest number of its signal's span that it can store, rounded."""
        assert isinstance(self.signal, Numbers)
        decimals = self.decimals if self.type in FLOATS else 0
        if decimals is None:
            return self.signal.span
        # Exactly: 0.29 * 100 is less than 29 in floats.
        low, high = (Fraction(str(end)) * 10**decimals for end in self.signal.span)
        return math.ceil(low) / 10**decimals, math.floor(high) / 10**decimals

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.decimals is not None and self.type not in FLOATS:
            raise ValueError(f"decimals apply to float32 and float64, not to {self.type}")
        if self.tag and self.missing:
            raise ValueError("a tag is never missing: it follows from the device's name")
        signal = self.signal
        if self.missing_lasts and not self.missing:
            raise ValueError("missing_lasts needs missing: the share of events without a value")
        if self.tag and not isinstance(signal, Choice | Follows | Constant | None):
            raise ValueError(
                "a tag follows from the device's name: its signal can be choice, follows or"
                f" constant, not {signal.kind}"
            )
        if isinstance(signal, Numbers):
            self._check_span(signal, signal.kind)
        elif signal is not None:
            for value in signal.values:
                self._check_value(value)
        return self

    def _check_span(self, signal: Numbers, kind: str) -> None:
        if self.type not in _NUMERIC:
            raise ValueError(
                f"signal {kind} makes numbers: for type {self.type} use choice, hold or constant"
            )
        (low, high), (least, most) = signal.span, _RANGES[self.type]
        if low < least or high > most:
            raise ValueError(
                f"its values from {low:g} to {high:g} don't fit into type {self.type}"
                f" ({least:g} to {most:g})"
            )
        if operator.gt(*self.reach):
            what = f"number with {self.decimals} decimals" if self.decimals else "whole number"
            raise ValueError(f"there is no {what} from {low:g} to {high:g}, which it could store")

    def _check_value(self, value: Any) -> None:
        kind = self.type
        if kind in _NUMERIC:
            is_number = isinstance(value, int | float if kind in FLOATS else int)
            least, most = _RANGES[kind]
            # Not of NaN either.
            fits = is_number and not isinstance(value, bool) and least <= value <= most
        elif kind is ColumnType.TEXT:
            # Half of a surrogate pair can't be written as UTF-8.
            fits = isinstance(value, str) and not _UNFIT.search(value)
        elif kind is ColumnType.BOOL:
            fits = isinstance(value, bool)
        else:
            try:
                fits = isinstance(value, dict) and not _NUL.search(orjson.dumps(value))
            except TypeError:
                fits = False
        if not fits:
            unquoted = kind is ColumnType.TEXT and not isinstance(value, str)
            hint = ": put it in quotes" if unquoted else ""
            raise ValueError(f"{value!r} is not a value of type {kind}{hint}")

    # --- values ---------------------------------------------------------------------------------

    def make_maker(
        self, name: str, epoch_ms: int, followed: ColumnDefinition | None = None
    ) -> Maker:
        """What computes the values of the column of this name, for events from this time on. `followed`:
        the column that one of kind `follows` goes with."""
        signal, salt = self.signal, make_salt(name)
        if isinstance(signal, Follows):
            assert followed and isinstance(followed.signal, Choice | Hold)
            drawn = followed.signal.model_copy(update={"values": signal.values})
            return self._make_picker(make_salt(followed.name), drawn)
        if isinstance(signal, Choice | Hold | Constant):
            return self._make_picker(salt, signal)
        assert signal is not None
        low, high = self.reach
        if self.type not in FLOATS and isinstance(signal, Uniform) and high - low < 2**32 - 1:
            least, most, dtype = int(low), int(high), _DTYPES[self.type]
            return lambda at: uniform_integers(at, salt, least, most).astype(dtype, copy=False)
        # Float32 holds whole numbers to 2**24: as far as that, rounding to decimals is right in it.
        largest = max(abs(low), abs(high)) * 10 ** (self.decimals or 0)
        exact = self.type is not ColumnType.FLOAT32 or largest >= 2**23
        if (low, high) == signal.span:
            return lambda at: self._finish(signal.make(at, salt, exact, epoch_ms))
        # What is rounded may leave the span.
        return lambda at: self._finish(signal.make(at, salt, exact, epoch_ms).clip(low, high))

    def _finish(self, values: NDArray[Any]) -> NDArray[Any]:
        """The numbers as the column's type has them."""
        if self.type not in FLOATS:
            np.rint(values, out=values)
        elif self.decimals is not None:
            values = round_decimals(values, self.decimals)
        return values.astype(_DTYPES[self.type], copy=False)

    def _make_picker(self, salt: int, signal: Choice | Hold | Constant) -> Maker:
        values: NDArray[Any]
        if self.type in FLOATS:
            values = self._finish(np.array(signal.values, dtype=np.float64))
        elif self.type in _DTYPES:
            values = np.array(signal.values, dtype=_DTYPES[self.type])
        else:
            values = np.array([text.encode() for text in self.texts])
        if isinstance(signal, Constant) or len(values) == 1:
            return lambda at: np.full(len(at.times_ms), values[0], dtype=values.dtype)
        table = pick_table(signal.weights or [1.0] * len(values))
        draw = device_words if self.tag else signal.draw
        return lambda at: values[pick(draw(at, salt), table)]


def round_decimals(values: NDArray[Any], decimals: int) -> NDArray[Any]:
    """Numbers to so many digits, without a negative zero. The largest, which overflow, have no digits."""
    factor = values.dtype.type(10**decimals)
    with np.errstate(over="ignore"):
        units: NDArray[Any] = values * factor
    np.rint(units, out=units)
    units += units.dtype.type(0)  # which makes a 0 of -0: texts would differ
    units /= factor
    np.copyto(units, values, where=np.isinf(units))
    return units


def read_statements(value: object) -> object:
    """The statements of each module; ValueError if they are something else."""
    if not isinstance(value, Mapping) or not all(
        isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        for texts in value.values()
    ):
        raise ValueError(
            "write a list of statements for each module, as in {postgres: [CREATE TABLE :table (…)]}"
        )
    return value


class Devices(Part):
    """How many there are: `in_all`, shared out over the workers, or `per_worker`."""

    in_all: int | None = Field(None, ge=1, le=MAX_DEVICES)
    """Devices in all. A number instead of this mapping means the same."""
    per_worker: int | None = Field(None, ge=1, le=MAX_DEVICES)
    """Devices of each worker."""

    @model_validator(mode="after")
    def _check_exclusive(self) -> Self:
        if (self.in_all is None) == (self.per_worker is None):
            raise ValueError("set either in_all or per_worker")
        return self


class Delay(StrEnum):
    """How delays of late events are spread."""

    UNIFORM = "uniform"
    EXPONENTIAL = "exponential"


class Late(Part):
    """A share of events is sent later than the others of their time, by up to `most`."""

    share: Share
    """The share of events that are sent late, such as 2%."""
    most: DurationMs
    """The longest delay, such as 5m."""
    delay: Delay = Delay.UNIFORM
    """How delays are spread: `uniform`, or `exponential` with a `mean`."""
    mean: DurationMs | None = None
    """The mean delay, such as 30s, with `delay: exponential`."""

    @model_validator(mode="after")
    def _a_mean_is_exponential(self) -> Self:
        if (self.delay is Delay.EXPONENTIAL) != (self.mean is not None):
            raise ValueError("delay: exponential needs a mean, and only it can have one")
        return self


class Gaps(Part):
    """Times in which no device sends anything, again and again."""

    every: DurationMs = Field(ge=1)
    """From the beginning of one to that of the next, such as 1d."""
    lasts: DurationMs = Field(ge=1)
    """How long each is, such as 2h."""


class Definition(Part):
    """A workload. Times are kept in milliseconds."""

    name: Name
    """The name that `--workload` takes. Left out in config.yaml, where it is the key."""
    about: str = Field(min_length=1)
    """What the workload is, in a line."""
    table: Name
    """The table's name."""
    time: Name
    """The column that holds the time, of type `timestamp_ms`."""
    device: Name
    """The column that names the device, of type `text`."""
    devices: Annotated[
        Devices,
        BeforeValidator(lambda value: value if isinstance(value, Mapping) else {"in_all": value}),
    ]
    """How many devices there are: a number in all, or `{per_worker: 100}`."""
    interval: DurationMs = Field(ge=1, le=_YEAR_MS)
    """Time between two events of a device, such as 10s."""
    jitter: DurationOrNoneMs = 0
    """By how much later each event may be, such as 500ms; less than the interval."""
    late: Late | None = None
    """Events that are sent late; none if left out."""
    gaps: Gaps | None = None
    """Times in which no device sends; none if left out."""
    epoch: Epoch = Field("2024-01-01T00:00:00Z", validate_default=True)
    """The time of the first event, such as 2024-01-01T00:00:00Z, or `now`: the time of the command that
    inserts."""
    columns: tuple[ColumnDefinition, ...] = Field(min_length=3)
    """The columns, time and device among them: 2,000 at most, repeated ones counted one by one."""
    queries: tuple[Query, ...] = ()
    """What is asked beside the queries that all workloads with numbers have."""
    # pydantic's models have a `schema` of their own.
    statements: Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(read_statements)] = Field(
        default_factory=dict, alias="schema"
    )
    """For each module, the statements that make the workload's table instead of the module's own."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """The definition of a document as YAML or JSON has it; pydantic's ValidationError if it's wrong."""
        return cls.model_validate(document, context=WRITTEN)

    @property
    def epoch_ms(self) -> int:
        """The first timestamp. One that is `now` stands at the default until a command says which."""
        return FIRST_TIMESTAMP_MS if self.epoch == NOW else self.epoch

    @property
    def ticks_between_gaps(self) -> int:
        """How many events each device has from one gap to the next; 0: there are no gaps."""
        return int((self.gaps.every - self.gaps.lasts) // self.interval) if self.gaps else 0

    def each_column(self) -> Iterator[tuple[str, ColumnDefinition]]:
        """Name and definition of each column, repeated ones one by one."""
        for column in self.columns:
            for name in column.names:
                yield name, column

    def make_makers(self, epoch_ms: int, tags: bool = False) -> dict[str, Maker]:
        """What computes all columns with a signal, for events from this time on: those that are `tags`, or
        those that are none."""
        return {
            name: column.make_maker(name, epoch_ms, self._find_followed(column))
            for name, column in self.each_column()
            if column.signal and column.tag is tags
        }

    def _find_followed(self, column: ColumnDefinition) -> ColumnDefinition | None:
        """The column that one goes with, if it follows another."""
        name = column.signal.column if isinstance(column.signal, Follows) else None
        return next((other for other in self.columns if other.name == name), None)

    def make_schema(self) -> Schema:
        """The table, without queries."""
        return Schema(
            table=self.table,
            columns=tuple(
                Column(
                    name,
                    column.type,
                    column.decimals,
                    nullable=column.missing > 0,
                    tag=column.tag,
                    texts=column.texts,
                    least=column.least,
                )
                for name, column in self.each_column()
            ),
            time=self.time,
            device=self.device,
            key=(self.device, self.time),
            devices_per_worker=self.devices.in_all or self.devices.per_worker or 1,
            epoch_ms=self.epoch_ms,
            statements=self.statements,
        )

    @model_validator(mode="after")
    def _name_what_is_there(self) -> Self:
        refuse(self._find_problems())
        # The schema needs columns that are right.
        refuse(find_query_problems(self.queries, self.statements, self.make_schema()))
        return self

    def _find_problems(self) -> Iterator[Problem]:
        columns: dict[str, ColumnDefinition] = {}
        for number, column in enumerate(self.columns):
            for name in column.names:
                if name in columns:
                    yield ("columns", number), f"there are two columns {name!r}: rename one"
                columns.setdefault(name, column)
        if len(columns) > MAX_COLUMNS:
            yield ("columns",), f"{len(columns)} columns are too many: {MAX_COLUMNS} at most"
        keys = [
            *self._find_key_problems("time", columns, ColumnType.TIMESTAMP_MS),
            *self._find_key_problems("device", columns, ColumnType.TEXT),
        ]
        yield from keys
        for number, column in enumerate(() if keys else self.columns):
            if column.signal is None and column.name not in (self.time, self.device):
                problem = f"column {column.name!r} needs a signal: one of {', '.join(SIGNALS)}"
                yield ("columns", number), problem
            elif isinstance(column.signal, Follows):
                for problem in self._find_follow_problems(column, column.signal):
                    yield ("columns", number, "signal"), problem
        yield from self._find_time_problems()

    def _find_time_problems(self) -> Iterator[Problem]:
        for key in ("interval", "jitter"):
            if getattr(self, key) % 1:
                yield (key,), "must be whole milliseconds"
        if self.gaps is not None:
            for key in ("every", "lasts"):
                if getattr(self.gaps, key) % 1:
                    yield ("gaps", key), "must be whole milliseconds"
            if not self.ticks_between_gaps > 0:
                yield ("gaps", "lasts"), "leaves no interval between one gap and the next"
        if self.jitter >= self.interval:
            problem = (
                f"jitter ({self.jitter:g} ms) must be below the interval ({self.interval:g} ms), so"
                " that a device's events are in order"
            )
            yield ("jitter",), problem

    def _find_follow_problems(self, column: ColumnDefinition, signal: Follows) -> Iterator[str]:
        """Why a column can't follow another."""
        other = self._find_followed(column)
        if other is None:
            known = [other.name for other in self.columns]
            yield f"there is no column {signal.column!r}{did_you_mean(signal.column, known)}"
        elif not isinstance(other.signal, Choice | Hold) or other.repeat or column.repeat:
            yield f"{other.name} must be a single column whose signal is choice or hold"
        elif other.tag is not column.tag:
            yield f"{column.name} and {other.name} must both be tags, or neither"
        elif len(other.signal.values) != len(signal.values):
            theirs = len(other.signal.values)
            yield f"{len(signal.values)} values can't go with the {theirs} of {other.name}"

    def _find_key_problems(
        self, key: str, columns: Mapping[str, ColumnDefinition], kind: ColumnType
    ) -> Iterator[Problem]:
        name = getattr(self, key)
        if name not in columns:
            problem = f"{key} names a column {name!r} that is not defined"
            yield (key,), problem + did_you_mean(name, columns)
            return
        column = columns[name]
        number = self.columns.index(column)
        if column.type is not kind:
            problem = f"column {name!r} must be of type {kind}, as it is the {key}"
            yield ("columns", number, "type"), problem
        elif column.signal or column.missing or column.tag:
            problem = f"column {name!r} is the {key}: it can't have signal, missing or tag"
            yield ("columns", number), problem


def find_query_problems(
    queries: Sequence[Query], statements: Mapping[str, Sequence[str]], schema: Schema
) -> Iterator[Problem]:
    """All that is wrong with a definition's queries, and with the statements that make its table."""
    names = set()
    for number, query in enumerate(queries):
        if query.name in names:
            yield ("queries", number), f"there are two queries {query.name!r}: rename one"
        names.add(query.name)
        for way, problem in schema.find_query_problems(query):
            yield ("queries", number, *way), problem
    for module, texts in statements.items():
        for place, problem in find_schema_problems(texts, schema):
            yield ("schema", module, *place), problem
