"""Whether each event is stored, and stored once: by its device and time, not by the number of all."""

from __future__ import annotations

import math
from collections import Counter

from ..contract import Lookup, Role, RunSettings, Timestamps
from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule
from ..oracle.answers import answer, describe_answer
from ..oracle.comparing import Malformed, normalize
from ..workloads.base import Workload
from ..workloads.drawing import bind
from ..workloads.queries import Aggregate, At, Every, Function, Query, Window
from ..workloads.stored import Stored, StoredPart
from .barrier import Barrier
from .database import Preparation, ask, open_tables

MOST_ROWS = 200_000
"""The most rows that the database is asked for: of more events, some are counted together."""


def look_up_events(settings: RunSettings, prepared: Preparation, barrier: Barrier) -> Lookup:
    """Look up all that writers have stored, if it is known what must be there; of a history, which may be a
    billion events, only what came after it."""
    if settings.data.retention_s is not None:
        return Lookup(reason="events were being deleted during the run")
    begin = prepared.begin
    if prepared.baseline and not (begin.has_history and begin.is_certain):
        return Lookup(reason="the events stored before the run are unknown")
    if settings.data.timestamps is Timestamps.RESTART and begin.first_event:
        return Lookup(reason="with --timestamps restart, events repeat the times of earlier ones")
    by_clock = any(group.load.duration_s is not None for group in settings.groups_of(Role.WRITE))
    if by_clock and not prepared.module.keeps_order():
        return Lookup(
            reason="writers sort events into requests, so which of them were due by the end is"
            " unknown; all were counted"
        )
    if begin.has_history:
        results = barrier.results.items()
        counts = {worker: result.figures.count for worker, result in results if result.figures}
        until = begin.find_next({worker: counts.get(worker, 0) for worker in begin.writers})
        parts = [StoredPart(worker, 0, count) for worker, count in sorted(until.items())]
    else:
        parts = [
            StoredPart(
                worker,
                begin.first_event,
                barrier.ready[worker].prefilled + (result.figures.count if result.figures else 0),
            )
            for group in settings.groups_of(Role.WRITE)
            for worker in range(group.first, group.end)
            if (result := barrier.results.get(worker)) is not None
        ]
    since_ms = begin.find_frontier() if begin.has_history else None
    try:
        return ask(lambda: look_up(prepared.module, prepared.workload, parts, since_ms), settings)
    except (SimulatorError, Retryable, Malformed) as error:
        return Lookup(reason=str(error))


def look_up(
    module: AnyModule, workload: Workload, parts: list[StoredPart], since_ms: int | None = None
) -> Lookup:
    """How many of these events are missing, and how many are there too often, in all tables together;
    `since_ms`: only events of this time or newer count.

    They are counted for each device and time. A device's events are as far apart as the workload has
    them, so that each is alone in its place unless there are more than `MOST_ROWS`: then an event that is
    missing and one beside it that is stored twice cancel each other out.
    """
    schema = workload.schema
    if not any(part.count for part in parts):
        return Lookup(reason="nothing was stored")
    stored = Stored(workload, parts)
    window = None
    if since_ms is not None:
        window = Window(span=max(1, stored.span_ms[1] - since_ms), at=At.FIRST)
    events = sum(
        event_range.stop - event_range.start for event_range in stored.find_between(since_ms, None)
    )
    per_group = math.ceil(events / MOST_ROWS)
    apart_ms = max(1, int(workload.device_interval_ms)) * per_group
    query = Query(
        name="look-up",
        window=window,
        compute=(Aggregate(function=Function.COUNT),),
        per=(schema.device, Every(every=apart_ms)),
    )
    lacking = query.shapes(schema) - frozenset(module.CAPABILITIES.shapes)
    if lacking:
        names = ", ".join(sorted(lacking))
        return Lookup(reason=f"module {module.name} compiles no queries with {names}")
    bound = bind(query, schema.epoch_ms if since_ms is None else since_ms)
    kinds = [kind for _, kind in describe_answer(query, schema)]
    actual: Counter[tuple[object, object]] = Counter()
    for part in open_tables(module):
        actual += _count(normalize(kinds, part.fetch(part.compile(bound))))
    expected = _count(normalize(kinds, answer(bound, stored).rows))
    return Lookup(
        events=expected.total(),
        missing=(expected - actual).total(),
        doubled=(actual - expected).total(),
        per_group=per_group,
    )


def describe_wrong(lookup: Lookup) -> list[str]:
    """What makes a run invalid by its look-up."""
    texts = [
        f"{count:,} {problem}"
        for count, problem in (
            (lookup.missing, "acknowledged events missing"),
            (lookup.doubled, "events stored twice"),
        )
        if count
    ]
    return [f"a look-up of each event found {' and '.join(texts)}"] if texts else []


def _count(columns: list[list[object]]) -> Counter[tuple[object, object]]:
    """Events by device and time."""
    counts: Counter[tuple[object, object]] = Counter()
    for device, begin, count in zip(*columns, strict=True):
        assert isinstance(count, int)
        counts[device, begin] += count
    return counts
