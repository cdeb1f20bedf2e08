"""Which events are in the database, so that queries can be drawn for them."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import Role, RunSettings, StoredEvents, Timestamps, share
from ..errors import SimulatorError
from ..modules.base import AnyModule
from ..workloads.base import Workload
from ..workloads.queries import Aggregate, Function, Query, bind
from ..workloads.stored import Stored, StoredPart

Found = Mapping[bytes, tuple[int, int, int]]
"""Device -> number of its events, time of the first and of the last."""


def find_stored(
    settings: RunSettings, module: AnyModule, workload: Workload, first_event: int
) -> list[StoredEvents]:
    """The events that are there when readers begin: what the writers' prefill will have stored, or else
    what the database says. SimulatorError, which says why, if that isn't known."""
    if settings.groups_of(Role.WRITE, Role.FILL):
        return _expect_prefill(settings, first_event)
    schema = workload.schema
    times = (Aggregate(function=f, column=schema.time) for f in (Function.MIN, Function.MAX))
    count = Aggregate(function=Function.COUNT)
    survey = Query(name="survey", compute=(count, *times), per=(schema.device,))
    rows = module.compile(bind(survey, schema.epoch_ms))()
    found = {name.encode(): (count, first, last) for name, count, first, last in rows}
    return [
        StoredEvents(worker=part.worker, first=part.first, count=part.count)
        for part in recognize_events(workload, found)
    ]


def _expect_prefill(settings: RunSettings, first_event: int) -> list[StoredEvents]:
    if settings.data.timestamps is Timestamps.RESTART and first_event:
        raise _unknown("with --timestamps restart times are those of other events")
    found = [
        StoredEvents(worker=worker, first=first_event, count=count)
        for group in settings.groups_of(Role.WRITE, Role.FILL)
        for worker in range(group.first, group.end)
        if (count := share(settings.data.prefill, group.load.workers, worker - group.first))
    ]
    if not found:
        raise SimulatorError(
            "queries with drawn parameters ask for what the prefill has stored: set --prefill"
        )
    return found


def recognize_events(workload: Workload, found: Found) -> list[StoredPart]:
    """The workload's events that these must be: of each worker consecutive ones.

    SimulatorError if they are others. Of each worker the number of events and the times of the first and
    the last are looked at.
    """
    if not found:
        raise SimulatorError("there are no events to draw queries for: run insert first")
    parts: list[StoredPart] = []
    devices = 0
    while devices < len(found):
        worker = len(parts)
        names = [bytes(name) for name in workload.devices(worker).tolist()]
        there = [found[name] for name in names if name in found]
        if not there:
            stranger = next(name for name in found if not _is_of(name, workload, worker))
            raise _unknown(f"there are events of device {stranger.decode(errors='replace')!r}")
        count = sum(events for events, _, _ in there)
        first, last = min(time for _, time, _ in there), max(time for _, _, time in there)
        parts.append(_place_events(workload, worker, count, (first, last + 1)))
        devices += len(there)
    return parts


def _is_of(device: bytes, workload: Workload, workers: int) -> bool:
    """Whether it is a device of one of the first workers."""
    return any(device in workload.devices(worker) for worker in range(workers))


def _place_events(
    workload: Workload, worker: int, count: int, span_ms: tuple[int, int]
) -> StoredPart:
    """The consecutive events of a worker that are so many and take so long."""
    since, every = span_ms[0] - workload.schema.epoch_ms, workload.device_interval_ms
    devices = len(workload.devices(worker))
    # Devices take turns, or all have an event at each tick.
    guesses = (0, round(since / every * devices), int(since // every) * devices)
    for number in dict.fromkeys(max(0, guess) for guess in guesses):
        part = StoredPart(worker, number, count)
        if Stored(workload, [part]).span_ms == span_ms:
            return part
    raise _unknown(
        f"the {count:,} events of device {workload.devices(worker)[0].decode()} and its like have other"
        f" times than {count:,} events of seed {workload.seed} that follow each other"
    )


def _unknown(reason: str) -> SimulatorError:
    return SimulatorError(
        f"queries with drawn parameters need events that the same seed and workload options give: {reason}."
        " Give those of the insert (--seed, device_spread …), or insert anew"
    )
