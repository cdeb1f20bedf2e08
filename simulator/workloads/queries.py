"""Queries as data: what is asked of the stored events, in no database's language. Modules compile it.

An answer's rows are tuples: the values of `per` in order (a bucket of time is its start in ms since
1970), then what is computed, or the events' columns. A row of `newest` begins with the device, and a
document that names the device stands for its name. Rows come in any order unless the query gives one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from ..errors import OptionError, did_you_mean, list_names
from ..units import read_duration_ms
from ..written import Written
from . import statements

if TYPE_CHECKING:
    from .schema import Schema

Problem = tuple[tuple[str | int, ...], str]
"""The way to what is wrong with a query, and what that is."""

HOUR_MS = 3_600_000

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

WRITTEN = "written"
"""The validation context of a query that people have written: durations have units."""


def _read_span(value: object, info: ValidationInfo) -> object:
    """Milliseconds. In code, a number is that already."""
    if isinstance(value, str) or info.context == WRITTEN:
        return read_duration_ms(value)
    return value


DurationMs = Annotated[int, BeforeValidator(_read_span), Field(ge=1)]


class Part(Written):
    """Part of a description of queries or events: unknown keys are refused, and so is NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class Function(StrEnum):
    """What is computed. A missing value enters none but COUNT and LAST."""

    COUNT = "count"
    """Of events. In code also of a column's values, which queries that people write can't ask for: they would
    be those of the events."""
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    SUM = "sum"
    LAST = "last"
    """Of a device's newest event."""


class Aggregate(Part):
    """One value computed of many events."""

    function: Function
    """`count` (of events), `min`, `max`, `avg`, `sum`, or `last` (of a device's newest event). A missing
    value enters none but `count` and `last`."""
    column: str | None = None
    """What it is computed of; `count` has none."""

    @model_validator(mode="after")
    def _check(self) -> Aggregate:
        if self.function is not Function.COUNT and self.column is None:
            raise ValueError("count has no column, all other functions have one")
        return self


class At(StrEnum):
    """Where a window of event time lies."""

    FIRST = "first"
    """From the workload's first timestamp on."""
    DRAWN = "drawn"
    """Anywhere in the time of the stored events, drawn anew for each execution."""
    NEWEST = "newest"
    """Up to the newest event."""


class Window(Part):
    """A span of event time, its end excluded."""

    span: DurationMs
    """How long it is, such as 1h."""
    at: At = At.DRAWN
    """`drawn` anew for each execution, `newest` (up to the newest event) or `first` (from the workload's
    first time on)."""


class Where(Part):
    """A condition on a numeric column, in the column's own precision. A missing value fulfils none."""

    column: str
    """The column that is compared."""
    above: float | None = None
    """Values must be higher than this."""
    below: float | None = None
    """Values must be lower than this."""

    @model_validator(mode="after")
    def _check(self) -> Where:
        if (self.above is None) == (self.below is None):
            raise ValueError("set one of above and below")
        return self

    @property
    def comparison(self) -> tuple[str, float]:
        """The sign between a value and its limit, and the limit."""
        if self.above is not None:
            return ">", self.above
        assert self.below is not None
        return "<", self.below


class Every(Part):
    """Buckets of event time, counted from 1970."""

    every: DurationMs
    """How long each bucket is, such as 1h."""


class Order(Part):
    """Rows in the order of one of their values, equal ones in the order of `per`; nothing comes last."""

    by: int = Field(ge=0)
    """Place of the value in a row, from 0 on."""
    descending: bool = False
    """Whether the highest come first."""


class Shape(StrEnum):
    """What a query is made of. Modules declare by it which queries they can compile."""

    DEVICES = "some devices"
    WINDOW = "a window of time"
    WHERE = "a condition on a value"
    COMPUTE = "computed values"
    LAST = "the last value of a group"
    EVENTS = "events"
    PER_DEVICE = "a row per device"
    PER_TAG = "a row per tag"
    PER_TIME = "a row per bucket of time"
    NEWEST = "newest events"
    ORDER = "an order of the rows"


def _read_name(value: object) -> object:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a valid query name: use lowercase letters and digits, with hyphens"
            " between them"
        )
    return value


def _read_devices(value: object) -> object:
    if value != "all" and (isinstance(value, bool) or not isinstance(value, int | list | tuple)):
        raise ValueError("write all, the number to draw (1), or a list of names")
    return value


def _read_statements(value: object) -> object:
    if not isinstance(value, Mapping):
        raise ValueError(
            "write a statement for each module that is to ask otherwise, as in {postgres: SELECT ...}"
        )
    return value


def _read_statement(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ValueError("a statement must be text")
    return value or ""


class Query(Part):
    """What is asked, before the parameters of an execution are drawn."""

    name: Annotated[str, BeforeValidator(_read_name)]
    """Small letters, digits and hyphens. A name of one of the common queries takes that one's place."""
    about: str = ""
    """What is asked, in a few words."""
    devices: Annotated[
        Literal["all"] | Annotated[int, Field(ge=1)] | tuple[str, ...],
        BeforeValidator(_read_devices),
    ] = "all"
    """`all`, how many are drawn anew for each execution, or a list of their names."""
    window: Window | None = None
    """A span of event time; all time if left out."""
    instant: bool = False
    """One device's event at one time: both are those of a stored event that is drawn. With
    `devices: 1` and `events`."""
    where: Where | None = None
    """A condition that events must fulfil."""
    compute: tuple[Aggregate, ...] = ()
    """What is computed of the events, one value each."""
    events: tuple[str, ...] = ()
    """Columns of the events themselves, instead of something computed."""
    per: tuple[str | Every, ...] = ()
    """What there is a row for each of: the device's column, tags, or buckets of time (`{every: 1h}`)."""
    newest: bool = False
    """Each device's newest event only; with `events`, without `window` and `where`."""
    order: Order | None = None
    """The order of the rows; any if left out."""
    limit: int | None = Field(None, ge=1)
    """How many rows at most; needs an order."""
    statement: Annotated[
        Mapping[str, Annotated[str, BeforeValidator(_read_statement)]],
        BeforeValidator(_read_statements),
    ] = Field(default_factory=dict)
    """For each module, the workload's own statement, which is sent instead of what the module makes of the
    description. Parameters and right answers stay those of the description."""

    def __hash__(self) -> int:
        # A mapping has none. A workload's queries have different names.
        return hash(self.name)

    @model_validator(mode="after")
    def _check(self) -> Query:
        if bool(self.compute) == bool(self.events):
            raise ValueError("set one of compute and events")
        if self.events and self.per:
            raise ValueError("per needs compute, not events")
        if self.newest and (self.window or self.where or not self.events):
            raise ValueError("newest needs events, without window and where")
        if self.instant and (self.devices != 1 or self.window or not self.events or self.newest):
            raise ValueError("instant needs events, devices: 1 and no window")
        if self.limit and not self.order:
            raise ValueError("a limit needs an order, or its answer would be undefined")
        if self.order and self.order.by >= self.width:
            raise ValueError(f"order: a row has the values 0 to {self.width - 1}")
        if self.devices == ():
            raise ValueError("devices: name at least one")
        if len({repr(part) for part in self.per}) < len(self.per):
            raise ValueError("per names something twice")
        return self

    @property
    def width(self) -> int:
        """How many values a row has."""
        return len(self.per) + len(self.compute) + len(self.events) + self.newest

    @property
    def keys(self) -> int:
        """How many of a row's first values tell it from all other rows; 0: events are not told apart."""
        return len(self.per) + self.newest

    def orders_texts(self, schema: Schema) -> bool:
        """Whether rows are in the order of a text."""
        if self.order is None:
            return False
        device = (schema.device,) if self.newest else ()
        value = (*self.per, *device, *self.compute, *self.events)[self.order.by]
        return isinstance(value, str) and schema.column(value).type in ("text", "json")

    @property
    def is_drawn(self) -> bool:
        """Whether each execution has parameters of its own, or depends on what is stored."""
        at_stored = self.window is not None and self.window.at is not At.FIRST
        return isinstance(self.devices, int) or at_stored or self.instant

    @property
    def parameters(self) -> list[str]:
        """The parameters that a statement of the workload's own may have."""
        named = 0 if self.devices == "all" else self.devices
        count = named if isinstance(named, int) else len(named)
        in_time = self.window is not None or self.instant
        where = self.where
        parameters = {
            statements.TABLE: True,
            statements.DEVICE: count == 1,
            statements.DEVICES: count > 0,
            statements.START: in_time,
            statements.END: in_time,
            statements.EVERY: any(isinstance(part, Every) for part in self.per),
            statements.ABOVE: where is not None and where.above is not None,
            statements.BELOW: where is not None and where.below is not None,
            statements.LIMIT: self.limit is not None,
        }
        return [name for name, applies in parameters.items() if applies]

    def shapes(self, schema: Schema) -> frozenset[Shape]:
        """The shapes that the query is made of."""
        shapes = {
            Shape.DEVICES: self.devices != "all",
            Shape.WINDOW: self.window is not None or self.instant,
            Shape.WHERE: self.where is not None,
            Shape.COMPUTE: bool(self.compute),
            Shape.LAST: any(aggregate.function is Function.LAST for aggregate in self.compute),
            Shape.EVENTS: bool(self.events) and not self.newest,
            Shape.PER_DEVICE: schema.device in self.per,
            Shape.PER_TAG: any(isinstance(p, str) and p != schema.device for p in self.per),
            Shape.PER_TIME: any(isinstance(part, Every) for part in self.per),
            Shape.NEWEST: self.newest,
            Shape.ORDER: self.order is not None,
        }
        return frozenset(shape for shape, applies in shapes.items() if applies)

    def check(self, schema: Schema) -> None:
        """OptionError, which names what is wrong, if it can't be asked of such events."""
        for way, problem in self.find_problems(schema):
            raise OptionError(f"query {self.name}: {way[0]}: {problem}")

    def find_problems(self, schema: Schema) -> Iterator[Problem]:
        """All that keeps it from being asked of such events."""
        if self.where:
            yield from self._require_number(schema, self.where.column, "where", "column")
        for number, aggregate in enumerate(self.compute):
            yield from self._check_aggregate(schema, aggregate, number)
        for number, name in enumerate(self.events):
            yield from _require_column(schema, name, "events", number)
            column = next((column for column in schema.columns if column.name == name), None)
            if column and name != schema.device and column.type == "json":
                yield ("events", number), f"{name} is a document, not a value"
        for number, part in enumerate(self.per):
            if isinstance(part, Every) or part == schema.device:
                continue
            yield from _require_column(schema, part, "per", number)
            if not any(column.name == part and column.tag for column in schema.columns):
                yield (
                    ("per", number),
                    f"{part} is neither the device ({schema.device}) nor a tag",
                )
        for module, text in self.statement.items():
            for problem in statements.find_problems(text, self.parameters):
                yield ("statement", module), problem

    def _check_aggregate(
        self, schema: Schema, aggregate: Aggregate, number: int
    ) -> Iterator[Problem]:
        if aggregate.column is None:
            return
        if aggregate.function is Function.COUNT:
            yield ("compute", number), "count has no column"
            return
        if aggregate.function in (Function.MIN, Function.MAX) and aggregate.column == schema.time:
            return
        for way, problem in self._require_number(
            schema, aggregate.column, "compute", number, "column"
        ):
            yield way, f"{aggregate.function}: {problem}"
        alone = schema.device in self.per or self.devices == 1
        if aggregate.function is Function.LAST and not alone:
            problem = (
                f"last needs per: [{schema.device}] or devices: 1, since several devices may have"
                " an event at the newest time"
            )
            yield ("compute", number), problem

    @staticmethod
    def _require_number(schema: Schema, name: str, *way: str | int) -> Iterator[Problem]:
        yield from _require_column(schema, name, *way)
        for column in schema.columns:
            if column.name == name and not column.is_number:
                yield way, f"{name} is of type {column.type}, not a number"


def _require_column(schema: Schema, name: str, *way: str | int) -> Iterator[Problem]:
    names = [column.name for column in schema.columns]
    if name not in names:
        hint = f"{did_you_mean(name, names)} (known: {list_names(names)})"
        yield way, f"there is no column {name!r}{hint}"
