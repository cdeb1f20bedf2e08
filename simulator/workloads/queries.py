"""Queries as data, independent of any database's language. Modules compile them, or send the workload's own
statement.

An answer's rows are tuples: the values of `per` in order (a bucket of time is its start in ms since
1970), then what is computed, or the events' columns. A row of `newest` begins with the device, and a document
that names the device stands for its name. Rows come in any order unless the query specifies one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from ..conditions import Written
from ..errors import Redactor, did_you_mean
from ..units import read_duration_ms

HOUR_MS = 3_600_000

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

WRITTEN = "written"
"""The validation context of a query written by people: durations have units."""


def _read_span(value: object, info: ValidationInfo) -> object:
    """Milliseconds, as are plain numbers in code."""
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
    """What is computed. Missing values only enter COUNT and LAST. Percentiles are named `p` plus their
    percent."""

    COUNT = "count"
    """Of events. In code also of a column's values, which isn't available to user queries, where it would
    equal the events."""
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    SUM = "sum"
    LAST = "last"
    """Of a device's newest event."""
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    P99_9 = "p99.9"

    @property
    def percent(self) -> float | None:
        """The percentile, such as 99.9; None: it isn't one."""
        return float(self[1:]) if self[1:2].isdigit() else None


@dataclass(frozen=True)
class Percentiles:
    """How a database finds the p-th percentile of a group's n sorted values: exactly, at position (n - 1) * p
    / 100 from 0, interpolating linearly (SQL's `percentile_cont`); or by an estimate."""

    estimate: str = ""
    """The estimator, in a few words; empty: exact."""
    rank_error: float = 0
    """The maximum error of an estimate's position, as a share of n, plus one position."""
    relative_error: float = 0
    """The maximum additional relative error of an estimate."""

    def __str__(self) -> str:
        if not self.estimate:
            return "exact, interpolated between values"
        limits = {"values' ranks": self.rank_error, "the value": self.relative_error}
        within = " and ".join(
            f"{100 * error:g} % of {what}" for what, error in limits.items() if error
        )
        return f"estimated by {self.estimate}, within {within or 'one rank'}"


EXACT_PERCENTILES = Percentiles()


@dataclass(frozen=True)
class Exactness:
    """How exactly a database computes."""

    rounded: Collection[Function] = ()
    """What it computes from integers in 64-bit floats: rounding beyond 2**53 isn't a wrong answer."""
    percentiles: Percentiles = EXACT_PERCENTILES


class Aggregate(Part):
    """One value computed from many events."""

    function: Function
    """`count` (of events), `min`, `max`, `avg`, `sum`, `last` (of a device's newest event), or a percentile:
    `p50`, `p90`, `p95`, `p99`, `p99.9`. Missing values only enter `count` and `last`."""
    column: str | None = None
    """Its column; `count` has none. `payload.a.b` is the value at `a`, `b` in the documents of column
    `payload`."""

    @model_validator(mode="after")
    def _check(self) -> Aggregate:
        if self.function is not Function.COUNT and self.column is None:
            raise ValueError("count has no column, all other functions have one")
        return self


class At(StrEnum):
    """Where a window of event time lies."""

    FIRST = "first"
    """From the workload's first timestamp."""
    DRAWN = "drawn"
    """Anywhere in the time span of the stored events, redrawn for each execution."""
    NEWEST = "newest"
    """Up to the newest event."""


class Window(Part):
    """A span of event time, its end excluded."""

    span: DurationMs
    """How long it is, such as 1h."""
    at: At = At.DRAWN
    """`drawn` for each execution, `newest` (up to the newest event) or `first` (from the workload's first
    time)."""


def _read_texts(value: object) -> object:
    texts = value if isinstance(value, list | tuple) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{json.dumps(text, default=str)} is not a text: put it in quotes")
    if not texts:
        raise ValueError("name at least one text")
    return tuple(texts)


Texts = Annotated[
    tuple[str, ...], BeforeValidator(_read_texts, json_schema_input_type=str | list[str])
]


class Where(Part):
    """A condition on a number, in the column's own precision, or on a text. Missing values never match."""

    column: str
    """The column to compare, or a path into its documents, such as `payload.a.b`."""
    above: float | None = None
    """Numbers must be higher than this."""
    below: float | None = None
    """Numbers must be lower than this."""
    one_of: Texts | None = Field(None, alias="is")
    """Texts must be this, or one of these."""
    none_of: Texts | None = Field(None, alias="is_not")
    """Texts must be other than this, or than all of these."""

    @model_validator(mode="after")
    def _check(self) -> Where:
        conditions = (self.above, self.below, self.one_of, self.none_of)
        if sum(condition is not None for condition in conditions) != 1:
            raise ValueError("set one of above, below, is and is_not")
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts to match or exclude; empty: it is a condition on a number."""
        return self.one_of or self.none_of or ()

    @property
    def comparison(self) -> tuple[str, float]:
        """The sign between a number and its limit, and the limit."""
        if self.above is not None:
            return ">", self.above
        assert self.below is not None
        return "<", self.below


class Every(Part):
    """Buckets of event time, counted from 1970."""

    every: DurationMs
    """How long each bucket is, such as 1h."""


class Order(Part):
    """Rows sorted by one of their values, ties by `per`; missing values come last."""

    by: int = Field(ge=0)
    """Index of the value in a row, from 0."""
    descending: bool = False
    """Whether the highest come first."""


class Shape(StrEnum):
    """The parts of a query. Modules declare with them which queries they can compile."""

    DEVICES = "some devices"
    WINDOW = "a window of time"
    WHERE = "a condition on a value"
    WHERE_TEXT = "a text that a column is"
    WHERE_NOT = "a text that a column is not"
    PATH = "a path into documents"
    COMPUTE = "computed values"
    LAST = "the last value of a group"
    PERCENTILE = "a device's percentile"
    PERCENTILE_OF_ALL = "a percentile of several devices' values"
    PERCENTILE_BELOW_0 = "a percentile of numbers below 0"
    EVENTS = "events"
    PER_DEVICE = "a row per device"
    PER_TAG = "a row per tag"
    PER_TEXT = "a row per text of events"
    PER_TIME = "a row per bucket of time"
    NEWEST = "newest events"
    ORDER = "an order of the rows"


class Parameter(StrEnum):
    """The parameters of a workload's own statement, as in `:start`."""

    TABLE = "table"
    DEVICE = "device"
    DEVICES = "devices"
    START = "start"
    END = "end"
    EVERY = "every"
    ABOVE = "above"
    BELOW = "below"
    LIMIT = "limit"


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
            "write a statement for each module that needs its own, as in {postgres: SELECT ...}"
        )
    return value


def _read_statement(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ValueError("a statement must be text")
    return value or ""


class Query(Part):
    """A query before the parameters of an execution are drawn."""

    name: Annotated[str, BeforeValidator(_read_name)]
    """Lowercase letters, digits and hyphens. The name of a common query replaces that query."""
    about: str = ""
    """A short description."""
    devices: Annotated[
        Literal["all"] | Annotated[int, Field(ge=1)] | tuple[str, ...],
        BeforeValidator(_read_devices),
    ] = "all"
    """`all`, the number to draw for each execution, or a list of their names."""
    window: Window | None = None
    """A span of event time; default: all."""
    instant: bool = False
    """One device's event at one time, both from a randomly drawn stored event. Use with `devices: 1` and
    `events`."""
    where: Where | None = None
    """A condition on events."""
    compute: tuple[Aggregate, ...] = ()
    """Computed values."""
    events: tuple[str, ...] = ()
    """Columns of the events themselves, instead of computed values."""
    per: tuple[str | Every, ...] = ()
    """The grouping: the device's column, tags, columns of texts, paths to texts (`payload.a.b`), or buckets
    of time (`{every: 1h}`)."""
    newest: bool = False
    """Only each device's newest event; with `events`, without `window` and `where`."""
    order: Order | None = None
    """The order of the rows; default: any."""
    limit: int | None = Field(None, ge=1)
    """The maximum number of rows; needs an order."""
    statement: Annotated[
        Mapping[str, Annotated[str, BeforeValidator(_read_statement)]],
        BeforeValidator(_read_statements),
    ] = Field(default_factory=dict)
    """For each module, a statement to send instead of the one built from the description. Parameters and
    right answers still follow from the description."""

    def __hash__(self) -> int:
        # A mapping can't be hashed. A workload's queries have different names.
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
    def columns(self) -> list[str]:
        """The columns, and paths into documents, that it reads besides time and device."""
        where = [self.where.column] if self.where else []
        computed = [aggregate.column for aggregate in self.compute if aggregate.column is not None]
        return [*where, *computed, *self.events, *(p for p in self.per if isinstance(p, str))]

    @property
    def ranked(self) -> list[str]:
        """The columns whose percentiles it computes."""
        aggregates = (each for each in self.compute if each.function.percent is not None)
        return [aggregate.column for aggregate in aggregates if aggregate.column is not None]

    @property
    def keys(self) -> int:
        """How many of a row's first values identify it; 0: rows are events without identity."""
        return len(self.per) + self.newest

    @property
    def is_drawn(self) -> bool:
        """Whether each execution has its own parameters, or depends on what is stored."""
        at_stored = self.window is not None and self.window.at is not At.FIRST
        return isinstance(self.devices, int) or at_stored or self.instant

    @property
    def parameters(self) -> list[str]:
        """The parameters that a statement of the workload's own may have."""
        devices = () if self.devices == "all" else self.devices
        count = devices if isinstance(devices, int) else len(devices)
        in_time = self.window is not None or self.instant
        where = self.where
        parameters = {
            Parameter.TABLE: True,
            Parameter.DEVICE: count == 1,
            Parameter.DEVICES: count > 0,
            Parameter.START: in_time,
            Parameter.END: in_time,
            Parameter.EVERY: any(isinstance(part, Every) for part in self.per),
            Parameter.ABOVE: where is not None and where.above is not None,
            Parameter.BELOW: where is not None and where.below is not None,
            Parameter.LIMIT: self.limit is not None,
        }
        return [name for name, applies in parameters.items() if applies]


# --- a workload's own statements --------------------------------------------------------------------
#
# What differs by execution is a parameter, as in `:start`; a colon in quotes, in a comment or in a cast
# (`::real`) isn't one. Problems of a statement that show without a database are found here.

_TOKENS = re.compile(
    r"""
    (?P<quoted> (?<!\w)[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"\\]|\\.|"")*" | `[^`]*`
      | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag) )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<open> ['"`] | /\* )
    | ::
    | (?<![\w\])]) : (?P<name>[A-Za-z_]\w*)
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_CHANGING = re.compile(
    r"\b(alter|copy|create|delete|drop|grant|insert|merge|remove|replace(?!\s*\()|revoke|truncate|update"
    r"|upsert)\b",
    re.IGNORECASE,
)
"""Keywords of statements that do more than read."""
_PASSWORD = re.compile(r"\b(?:password|passwd|passphrase|pwd)\b(?:\s*=\s*\S|\s+')", re.IGNORECASE)


class Parsed(NamedTuple):
    """A statement split at its parameters."""

    parts: tuple[str, ...]
    """The text before, between and after them."""
    names: tuple[str, ...]
    """The parameter after each part except the last."""
    bare: str
    """The statement without quoted text and comments."""
    problem: str | None
    """Problems of its text."""

    def fill(self, values: Mapping[str, str]) -> str:
        """The statement with these for its parameters."""
        filled = (values[name] for name in self.names)
        return "".join(map(str.__add__, self.parts, [*filled, ""]))


@lru_cache(maxsize=64)
def parse_statement(text: str) -> Parsed:
    """Split a statement at its parameters, ignoring lookalikes."""
    parts, names, bare = [""], list[str](), list[str]()
    problem, at = None, 0
    text = text.strip()
    for match in _TOKENS.finditer(text):
        before, token = text[at : match.start()], match[0]
        at = match.end()
        parts[-1] += before
        bare.append(before)
        if match["open"]:
            problem = f"{token} is never closed (inside a text, double a quote)"
            parts[-1] += token
        elif match["end"]:
            rest = _TOKENS.sub(lambda more: "" if more["comment"] else more[0], text[at:])
            if rest.strip(" \n\t;"):
                problem = "it is more than one statement: leave out what follows the `;`"
            return Parsed(tuple(parts), tuple(names), "".join(bare), problem)
        elif match["name"]:
            names.append(match["name"])
            parts.append("")
            bare.append(token)
        else:
            parts[-1] += token
            bare.append("''" if match["quoted"] else " ")
    parts[-1] += text[at:]
    bare.append(text[at:])
    return Parsed(tuple(parts), tuple(names), "".join(bare), problem)


def find_text_problems(text: str, parameters: Collection[str], whose: str) -> Iterator[str]:
    """All problems of a text that should be one statement with these parameters; `whose`: their owner, in
    words."""
    parsed = parse_statement(text)
    if not parsed.bare.strip() and not parsed.problem:
        yield "the statement is empty: write one, or leave the key out"
    if parsed.problem:
        yield parsed.problem
    for name in dict.fromkeys(parsed.names):
        if name not in parameters:
            listed = ", ".join(f":{parameter}" for parameter in parameters)
            yield f"there is no parameter :{name}{did_you_mean(name, parameters)} ({whose} has {listed})"
    if _PASSWORD.search(text) or Redactor(())(text) != text:
        yield "it contains a password, which results would store: leave it out"


def find_problems(text: str, parameters: Collection[str]) -> Iterator[str]:
    """All problems of a query's statement, which may have these parameters."""
    yield from find_text_problems(text, parameters, "this query")
    if changing := _CHANGING.search(parse_statement(text).bare):
        yield (
            f"a query's statement may only read, but {changing[0].upper()} does more: leave it"
            " out, or put it in quotes if it is a name"
        )
