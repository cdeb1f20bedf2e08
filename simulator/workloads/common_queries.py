"""The queries that every workload with numbers has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .queries import HOUR_MS, Aggregate, Every, Function, Order, Query, Where, Window

if TYPE_CHECKING:
    from .schema import Schema

MOST_FIELDS = 10
"""How many fields a common query asks for at most."""


def name_queries(queries: Sequence[Query]) -> tuple[str, ...]:
    """The queries' names, in order."""
    return tuple(query.name for query in queries)


def describe_queries(
    own: Sequence[Query],
    schema: Schema,
    device_interval_ms: float,
    high: tuple[str, float] | None = None,
) -> tuple[Query, ...]:
    """All queries of a workload: its own, and the common ones whose names it hasn't given to others.

    An hour and a day stand for as many events as a device with an event a minute has in them, if the
    workload's devices (an event each in `device_interval_ms`) are slower. `high`: a field and a value
    that few of its values exceed.
    """
    names = name_queries(own)
    common = _describe_common(schema, device_interval_ms, high) if schema.fields else ()
    return (*own, *(query for query in common if query.name not in names))


def _describe_common(
    schema: Schema, device_interval_ms: float, high: tuple[str, float] | None
) -> Iterator[Query]:
    # Whole hours, so that buckets are those that users would take.
    hour = HOUR_MS * max(1, round(60 * device_interval_ms / HOUR_MS))
    day = 24 * hour
    fields = tuple(schema.fields[:MOST_FIELDS])
    first = high[0] if high else fields[0]
    event = (schema.time, *fields)
    mean = (Aggregate(function=Function.AVG, column=first),)
    statistics = tuple(
        Aggregate(function=function, column=first)
        for function in (Function.MIN, Function.AVG, Function.MAX)
    )
    above = Where(column=high[0], above=high[1]) if high else None
    hours, days = _format_hours(hour), _format_hours(day)
    in_hour, in_day = Window(span=hour), Window(span=day)
    yield Query(
        name="point", about="one device, one instant", devices=1, instant=True, events=event
    )
    yield Query(
        name="range", about=f"a device's events of {hours}", devices=1, window=in_hour, events=event
    )
    if above:
        yield Query(
            name="range-filter",
            about=f"of a device's events of {days}, those with {first} above {above.above:g}",
            devices=1,
            window=in_day,
            where=above,
            events=event,
        )
    yield Query(
        name="aggregate",
        about=f"count; min, avg, max of {first} of a device in {days}",
        devices=1,
        window=in_day,
        compute=(Aggregate(function=Function.COUNT), *statistics),
    )
    yield Query(
        name="downsample",
        about=f"means of {first} of ten devices in {days}, for each {hours}",
        devices=10,
        window=in_day,
        compute=mean,
        per=(schema.device, Every(every=hour)),
    )
    yield Query(
        name="fleet-downsample",
        about=f"means of {first} of all devices in {days}, for each {hours}",
        window=in_day,
        compute=mean,
        per=(Every(every=hour),),
    )
    newest = "the newest event of"
    yield Query(name="last-values", about=f"{newest} each device", newest=True, events=event)
    yield Query(
        name="last-value", about=f"{newest} one device", devices=1, newest=True, events=event
    )
    if above:
        yield Query(
            name="threshold",
            about=f"all events of {hours} with {first} above {above.above:g}",
            window=in_hour,
            where=above,
            events=(schema.device, *event),
        )
    yield Query(
        name="top-devices",
        about=f"the ten devices with the highest means of {first} in {days}",
        window=in_day,
        compute=mean,
        per=(schema.device,),
        order=Order(by=1, descending=True),
        limit=10,
    )


def _format_hours(span_ms: int) -> str:
    """`1 h`, `3 days`."""
    hours = span_ms // HOUR_MS
    return f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
