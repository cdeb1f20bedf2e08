"""Checks that each event is stored once: by its device and time, not by the number of all events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..contract import Lookup, Role, RunSettings, StoredPart, Timestamps
from ..encoding.columns import bounds
from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule
from ..modules.sending import Rows, find_unsent
from ..oracle.answers import Malformed, answer, answer_blocks, describe_answer, normalize
from ..workloads.base import Workload
from ..workloads.drawing import BoundQuery, Stored, bind
from ..workloads.queries import At, Every, Query, Window
from ..workloads.schema import EventBlock, Schema
from .barrier import Barrier
from .database import EVENTS, Preparation, ask, count_of, list_counted, open_tables

MOST_ROWS = 200_000
"""The most rows requested from the database: with more events, some are counted together."""

_MOST_VALUES, _MOST_ASKED = 4_000_000, 1_000_000
"""The most values requested where each column is counted, in all and by one query: both sides take some
seconds for a million."""


def look_up_events(settings: RunSettings, prepared: Preparation, barrier: Barrier) -> Lookup:
    """Look up all that writers have stored, if it is known what must be there. Of a history, which may have a
    billion events, only what came after it."""
    if settings.data.retention_s is not None:
        return Lookup(reason="events were being deleted during the run")
    begin = prepared.begin
    if prepared.baseline and not (begin.has_history and begin.is_certain):
        return Lookup(reason="the events stored before the run are unknown")
    if settings.data.timestamps is Timestamps.RESTART and begin.first_event:
        return Lookup(reason="with --timestamps restart, events repeat the times of earlier ones")
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
    module, workload = prepared.module, prepared.workload
    parts, unsent = _complete_chunks(module, workload, parts, barrier)
    try:
        return ask(lambda: look_up(module, workload, parts, since_ms, unsent), settings)
    except (SimulatorError, Retryable, Malformed) as error:
        return Lookup(reason=str(error))


def _complete_chunks(
    module: AnyModule, workload: Workload, parts: Sequence[StoredPart], barrier: Barrier
) -> tuple[list[StoredPart], list[EventBlock]]:
    """The parts up to the end of the chunk that each writer was sending last, and the events of these chunks
    that were not sent: within a chunk, the order of sending may differ from that of event numbers."""
    complete, unsent = [], []
    for part in parts:
        result, end = barrier.results.get(part.worker), part.first + part.count
        if result is not None and result.chunk is not None and end < sum(result.chunk):
            first, count = result.chunk
            block = find_unsent(
                module.writer().encoder, workload.block(part.worker, first, count), end - first
            )
            unsent += [] if block is None else [block]
            end = first + count
        complete.append(StoredPart(part.worker, part.first, end - part.first))
    return complete, unsent


_Place = tuple[object, object]
"""A device, and the start of a time bucket."""


def look_up(
    module: AnyModule,
    workload: Workload,
    parts: list[StoredPart],
    since_ms: int | None = None,
    unsent: Sequence[EventBlock] = (),
) -> Lookup:
    """How many of these events are missing, and how many are stored too often, over all tables. An event
    without one of its values is missing. `since_ms`: only events from this time on count. `unsent`: events of
    the parts that don't count.

    Events are counted by device and time. A device's events are far enough apart that each is alone in its
    bucket, unless there are more than `MOST_ROWS`: then a missing event and a neighbour that is stored twice
    cancel out.
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
    names = list_counted(module)
    most_rows = min(MOST_ROWS, _MOST_VALUES // len(names))
    per_group = math.ceil(events / most_rows)
    apart_ms = max(1, int(workload.device_interval_ms)) * per_group

    def ask_for(asked: Sequence[str]) -> BoundQuery:
        query = Query(
            name="look-up",
            window=window,
            compute=tuple(map(count_of, asked)),
            per=(schema.device, Every(every=apart_ms)),
        )
        return bind(query, schema.epoch_ms if since_ms is None else since_ms)

    lacking = schema.shapes_of(ask_for(names).query) - frozenset(module.CAPABILITIES.shapes)
    if lacking:
        text = ", ".join(sorted(lacking))
        return Lookup(reason=f"module {module.name} supports no queries with {text}")
    # A column that every event has is counted as often as events.
    varying = [EVENTS, *(name for name in names[1:] if schema.column(name).nullable)]
    bound = ask_for(varying)
    due = _count(bound, schema, varying, answer(bound, stored).rows)
    if unsent:
        rows = answer_blocks(bound, schema, unsent).rows
        for name, counts in _count(bound, schema, varying, rows).items():
            due[name].subtract(counts)
    # How many values of each column are missing, at most and at least; negative if there are too many.
    most: dict[_Place, int] = {}
    least: dict[_Place, int] = {}
    at_once = max(1, _MOST_ASKED // most_rows)
    for start, stop in bounds(len(names), at_once):
        asked = names[start:stop]
        actual: dict[str, Counter[_Place]] = {name: Counter() for name in asked}
        bound = ask_for(asked)
        for part in open_tables(module):
            found = part.fetch(part.compile(bound))
            for name, counts in _count(bound, schema, asked, found).items():
                actual[name].update(counts)
        for name, counts in actual.items():
            expected = due.get(name, due[EVENTS])
            for place in expected.keys() | counts.keys():
                short = expected[place] - counts[place]
                most[place] = max(short, most.get(place, short))
                least[place] = min(short, least.get(place, short))
    missing = sum(max(0, short) for short in most.values())
    return Lookup(
        events=due[EVENTS].total(),
        missing=missing,
        incomplete=missing - sum(max(0, short) for short in least.values()),
        doubled=sum(max(0, -short) for short in least.values()),
        per_group=per_group,
    )


def describe_wrong(lookup: Lookup) -> list[str]:
    """The reasons why the look-up makes a run invalid."""
    missing = "acknowledged events missing"
    if lookup.incomplete:
        missing += f" ({lookup.incomplete:,} of them incomplete: other values of theirs are there)"
    texts = [
        f"{count:,} {problem}"
        for count, problem in ((lookup.missing, missing), (lookup.doubled, "events stored twice"))
        if count
    ]
    return [f"a look-up of each event found {' and '.join(texts)}"] if texts else []


def _count(
    bound: BoundQuery, schema: Schema, names: Sequence[str], rows: Rows
) -> dict[str, Counter[_Place]]:
    """How many events and values an answer has in each bucket."""
    kinds = [kind for _, kind in describe_answer(bound.query, schema)]
    counts: dict[str, Counter[_Place]] = {name: Counter() for name in names}
    devices, begins, *columns = normalize(kinds, rows)
    for name, column in zip(names, columns, strict=True):
        for device, begin, count in zip(devices, begins, column, strict=True):
            assert isinstance(count, int)
            counts[name][device, begin] += count
    return counts
