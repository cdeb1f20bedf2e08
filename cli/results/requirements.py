"""The user's requirements: `requirements:` of a campaign's file, and as rows of the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    field_validator,
    model_validator,
)

from simulator.conditions import Written
from simulator.contract import Measure, RunLimit
from simulator.documents import Problem, refuse
from simulator.errors import one_line
from simulator.units import (
    format_count,
    format_duration,
    parse_amount,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_share,
)

from ..plan.disturbances import parse_disturbance
from ..system.errors import ConfigError
from .decision import Requirement, Unit


def _read(
    parse: Callable[[str], float | Decimal | None],
    advice: str,
    *,
    plain: bool = False,
    least: float = 5e-324,
    most: float = inf,
) -> BeforeValidator:
    """Parses a value from the file. `plain`: accept a number without a unit."""

    def read(value: object) -> float:
        is_number = plain and isinstance(value, int | float) and not isinstance(value, bool)
        number = parse(str(value)) if is_number or isinstance(value, str) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"{_quote(value)}: write {advice}")
        return float(number)

    return BeforeValidator(read)


def _quote(value: object) -> str:
    return one_line(repr(value), 60)


def _read_count(value: float) -> int:
    if not value.is_integer():
        raise ValueError(f"{value:g}: write a whole number above 0")
    return int(value)


_number = _read(parse_amount, "a number above 0, as in 8000 or 8k", plain=True, most=1e15)
Milliseconds = Annotated[
    float, _read(parse_duration_ms, "a time above 0 with its unit, as in 250ms or 2s")
]
Seconds = Annotated[
    float, _read(parse_duration_s, "a time above 0 with its unit, as in 60s or 90d")
]
Share = Annotated[
    float, _read(parse_share, "a share, as in 0.1% or 0.001", plain=True, least=0, most=1)
]
Part = Annotated[float, _read(parse_share, "a share above 0, as in 3% or 0.03", plain=True, most=1)]
Bytes = Annotated[float, _read(parse_bytes, "a size with its unit, as in 500GB or 2TB")]
Number = Annotated[float, _number]
Count = Annotated[int, BeforeValidator(_read_count), _number]


class RequiredPart(Written, BaseModel):
    """A part of a file that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_value(cls, value: object) -> object:
        """Every key that is present needs a value."""
        if value is None:
            raise ValueError("no value here: give one, or leave the key out")
        return value


class Limits(RequiredPart):
    """Limits on response times and errors, as for `--limit`."""

    p50: Milliseconds | None = None
    """The median of the response times, as in 20ms."""
    p90: Milliseconds | None = None
    """The 90th percentile."""
    p99: Milliseconds | None = None
    """The 99th percentile."""
    p99_9: Milliseconds | None = None
    """The 99.9th percentile."""
    service_p99: Milliseconds | None = None
    """The 99th percentile counted from sending a request, without any delay before it."""
    error_share: Share | None = None
    """The share of requests that failed, as in 0.1%."""

    def list_limits(self, query: str | None = None) -> list[RunLimit]:
        """The given limits, for this query or for the inserts."""
        bounds = [(measure, getattr(self, measure)) for measure in Measure]
        return [
            RunLimit(measure=measure, query=query, at_most=value)
            for measure, value in bounds
            if value is not None
        ]


class InsertLimits(Limits):
    """Requirements on inserts."""

    batch: Count | None = None
    """Events per request. None: as in the campaign's options."""


class QueryLimits(Limits):
    """How often a query runs, and its limits."""

    rate: Number
    """Executions per second, during the inserts."""

    @model_validator(mode="after")
    def _has_limit(self) -> QueryLimits:
        if not self.list_limits():
            raise ValueError("give a limit, as in p99: 1s")
        return self


class History(RequiredPart):
    """What is stored before anything is measured: a tenth of it first, then all."""

    events: Count | None = None
    """This many events, as in 10M."""
    share: Part | None = None
    """This share of full retention, as in 3%."""
    time: Seconds | None = None
    """As many as a candidate loads in this time, as in 20m."""
    span: Seconds | None = None
    """How far it goes back before the measured data, as in 30d."""
    every: Seconds | None = None
    """The interval between a device's events in it; None: as in the measured data."""

    @model_validator(mode="after")
    def _is_one(self) -> History:
        ways = (self.events, self.share, self.time, self.span)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give one of share (3%), events (10M), time (20m) and span (30d)")
        if self.every is not None and self.span is None:
            raise ValueError("`every` goes with a span, as in {span: 30d, every: 10m}")
        if self.every is not None and self.span is not None and self.span < self.every:
            raise ValueError(
                f"a span of {format_duration(self.span)} has no event every"
                f" {format_duration(self.every)}: give a longer one"
            )
        return self

    def count_events(self, rate_per_s: float, kept: int | None) -> int:
        """Its number of events at the required rate, given `kept` events at full retention; 0 if `every` or
        `time` decides it."""
        if self.every is not None or self.time is not None:
            return 0
        return self.events or round(
            (self.share or 0.0) * (kept or 0) + (self.span or 0.0) * rate_per_s
        )


DEFAULT_HISTORY = {"time": "10m"}
"""With a retention: enough to see figures grow without running overnight."""


class RequiredDurability(RequiredPart):
    """The required durability of acknowledged events."""

    acknowledged: Literal["on-disk"]
    """`on-disk`: an event is on disk before it is acknowledged."""


class Requirements(RequiredPart):
    """The requirements; anything not named isn't required."""

    devices: Count | None = None
    """Number of devices; each sends an event per interval of the workload."""
    events_per_s: Number | None = None
    """The load, instead of devices."""
    insert: InsertLimits = InsertLimits()
    """Requirements on inserts."""
    queries: dict[str, QueryLimits] = {}
    """Query -> how often it runs, and its limits."""
    history: History | None = None
    """What is stored before measuring; default with a retention: what loads in ten minutes."""
    retention: Seconds | None = None
    """How long events are kept; with the load it decides how many are stored at full retention."""
    memory: Bytes | None = None
    """The database's memory, if the tool can't observe it, to tell whether the history fits."""
    disk: Bytes | None = None
    """The most disk space at full retention, as in 1TB; needs `retention`."""
    cost_per_month: Number | None = None
    """The most that machines and disk may cost per month."""
    durability: RequiredDurability | None = None
    """The required durability, as in {acknowledged: on-disk}."""
    faults: dict[str, Seconds] = {}
    """A fault, as for `--disturb` but without a time -> the longest allowed outage; for `pause-fleet`, the
    longest allowed time to clear the backlog. Nothing may be lost."""

    @model_validator(mode="before")
    @classmethod
    def _add_history(cls, value: object) -> object:
        if isinstance(value, dict) and "retention" in value:
            return {"history": DEFAULT_HISTORY, **value}
        return value

    @field_validator("faults")
    @classmethod
    def _read_faults(cls, faults: dict[str, float]) -> dict[str, float]:
        read: dict[str, float] = {}
        problems: list[Problem] = []
        for text, outage_s in faults.items():
            try:
                read[_read_fault(text)] = outage_s
            except ValueError as error:
                problems.append(((text,), str(error)))
        refuse(problems)
        return read

    @model_validator(mode="after")
    def _check_load(self) -> Requirements:
        if (self.devices is None) == (self.events_per_s is None):
            raise ValueError("give either devices or events_per_s: the load")
        if self.disk is not None and self.retention is None:
            raise ValueError("disk needs `retention`, as in 90d: how long events are kept")
        if self.history is not None and self.history.share is not None and self.retention is None:
            raise ValueError("history.share needs `retention`, as in 90d: how long events are kept")
        return self

    def list_limits(self) -> list[RunLimit]:
        """The limits on response times and errors: of inserts, then of queries."""
        of_queries = [limits.list_limits(name) for name, limits in self.queries.items()]
        return [*self.insert.list_limits(), *(limit for limits in of_queries for limit in limits)]

    @property
    def query_rate_per_s(self) -> float:
        """Executions per second of all queries together."""
        return sum(limits.rate for limits in self.queries.values())


def _read_fault(text: str) -> str:
    """A fault such as `kill-server`, in the form that marks use."""
    try:
        return str(parse_disturbance(f"1s {text}")).partition(" ")[2]
    except ConfigError as error:
        raise ValueError(error.message.replace("'1s ", "'")) from error


def find_pause_s(fault: str) -> float:
    """How long a fault cuts the fleet off; 0 for other faults."""
    pause = parse_disturbance(f"1s {fault}").pause
    return pause.length_s if pause is not None else 0.0


# --- what was changed -----------------------------------------------------------------------------


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between two requirements as plain values: `insert p99 250 ms → 500 ms`."""
    old, new = dict(_flatten(before)), dict(_flatten(now))
    changes = []
    for way in dict.fromkeys([*old, *new]):
        name = " ".join(way)
        if way not in old:
            changes.append(f"{name} {_show(way, new[way])} is new")
        elif way not in new:
            changes.append(f"{name} {_show(way, old[way])} is gone")
        elif old[way] != new[way]:
            changes.append(f"{name} {_show(way, old[way])} → {_show(way, new[way])}")
    return changes


def _flatten(
    part: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in part.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, (*above, key))
        else:
            yield (*above, key), value


_TIMES = ("retention", "span", "every", "time")


def _show(way: Sequence[str], value: Any) -> str:
    """A value with its unit, which follows from its key."""
    key = way[-1]
    if not isinstance(value, int | float):
        return str(value)
    if way[0] == "faults" or key in _TIMES:
        return format_duration(value)
    if key in list(Measure):
        return (Unit.MS if Measure(key).is_time else Unit.SHARE).show(value)
    return Unit.BYTES.show(value) if key == "disk" else f"{value:,.10g}"


# --- as rows of the verdict -----------------------------------------------------------------------

RATE, DISK, COST, DURABILITY = "events_per_s", "disk", "cost_per_month", "durability"


def list_rows(needed: Requirements, rate_per_s: float) -> list[Requirement]:
    """The rows of the verdict, in the file's order. `rate_per_s`: of all devices together."""

    def row(key: str, heading: str, unit: Unit, bound: float) -> Requirement:
        return Requirement(
            key=key, heading=heading, unit=unit, bound=bound, at_least=unit is Unit.EVENTS_PER_S
        )

    devices = f" ({format_count(needed.devices, 'device')})" if needed.devices else ""
    rows = [row(RATE, f"load{devices}", Unit.EVENTS_PER_S, rate_per_s)]
    for limit in needed.list_limits():
        unit = Unit.MS if limit.measure.is_time else Unit.SHARE
        rows.append(row(name_limit(limit), limit.heading, unit, limit.at_most))
    if needed.disk is not None:
        rows.append(row(DISK, "disk", Unit.BYTES, needed.disk))
    if needed.cost_per_month is not None:
        rows.append(row(COST, "cost per month", Unit.MONEY, needed.cost_per_month))
    if needed.durability is not None:
        rows.append(
            Requirement(
                key=DURABILITY, heading="acknowledged", unit=Unit.NONE, bound=1, words="on disk"
            )
        )
    for fault, outage_s in needed.faults.items():
        heading = f"{'catching up after' if find_pause_s(fault) else 'outage by'} {fault}"
        rows.append(row(name_fault(fault), heading, Unit.S, outage_s))
    return rows


def name_limit(limit: RunLimit) -> str:
    """The row's key: `insert.p99`, `queries.NAME.p99`."""
    return f"queries.{limit.query}.{limit.measure}" if limit.query else f"insert.{limit.measure}"


def name_fault(fault: str) -> str:
    """The row's key."""
    return f"faults.{fault}"
