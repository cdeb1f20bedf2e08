"""What an event takes on disk, told from how the tables grow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.contract import (
    ANY_ALLOCATION,
    Allocation,
    Level,
    Role,
    RunResult,
    Storage,
    estimate_events,
    measure_growth,
)

from .model import GroupRun, list_groups

DAY_S = 86_400


@dataclass(frozen=True)
class EventSize:
    """What an event takes on disk, all copies together, or why that isn't known."""

    bytes_per_event: float | None = None
    index_bytes: float | None = None
    """Of it, where indexes are kept apart."""
    compacted_bytes: float | None = None
    """What is left of it by compaction, where that was asked for."""
    reason: str | None = None
    """None, too, if the database tells no size, which has a reason of its own."""

    @property
    def lasting_bytes(self) -> float | None:
        """What counts for days: what compaction leaves, if that is known."""
        return self.bytes_per_event if self.compacted_bytes is None else self.compacted_bytes


def list_event_sizes(runs: Sequence[GroupRun]) -> list[EventSize]:
    """For each run what its events take: by the growth from amid the run, or from the end of the run whose
    data it goes on with, to its own end."""
    befores = [None, *runs[:-1]] if runs else []
    return [_weigh(one, before) for before, one in zip(befores, runs, strict=True)]


def weigh_valid(runs: Sequence[GroupRun]) -> list[EventSize]:
    """What an event takes on disk in the valid ones, as far as that is known."""
    weights = zip(runs, list_event_sizes(runs), strict=True)
    return [size for one, size in weights if one.group.valid and size.bytes_per_event is not None]


def weigh_each(runs: Sequence[GroupRun]) -> EventSize:
    """The mean of what an event takes in the runs that show it; else why none does: in that with the most
    events."""
    weights = list_event_sizes(runs)
    found = [one.lasting_bytes for one in weights if one.lasting_bytes is not None]
    if found:
        return EventSize(sum(found) / len(found))
    reasons = [
        (one.group.count or 0, weight.reason)
        for weight, one in zip(weights, runs, strict=True)
        if weight.reason
    ]
    return EventSize(reason=max(reasons)[1] if reasons else None)


def weigh_together(runs: Sequence[GroupRun]) -> EventSize:
    """What an event takes in runs of one kind, each on new tables: as in each of them; where none shows
    enough growth, by what lies between those with fewer and those with more events."""
    each = weigh_each(runs)
    if each.bytes_per_event is not None:
        return each
    sizes = [
        one.group.storage for one in runs if one.group.storage and not one.group.storage.shared
    ]
    allocation = max((_find_allocation(one) for one in sizes), key=_get_unit, default=None)
    if allocation is None:
        return each
    size = measure_growth(_list_levels(sizes), allocation)
    return each if size is None else EventSize(size)


def find_bytes_per_day(
    runs: Sequence[RunResult], at_answer: Iterable[int], rate_per_s: float
) -> float | None:
    """What a rate takes in a day: by the steps at it, or by all where those show too little growth."""
    numbers = set(at_answer)
    writers = list_groups(runs, Role.WRITE)
    size = weigh_together([one for one in writers if one.run.run in numbers]).bytes_per_event
    if size is None:
        size = weigh_together(writers).bytes_per_event
    return None if size is None else size * rate_per_s * DAY_S


def _weigh(one: GroupRun, before: GroupRun | None) -> EventSize:
    storage, compacted = one.group.storage, one.group.storage_compacted
    if storage is None or storage.reason or storage.find_level() is None:
        return EventSize()
    sizes = [one.group.storage_during, storage]
    earlier = before.group.storage if before else None
    if earlier is not None and one.run.fill_level == earlier.events:
        sizes.append(earlier)
    levels = _list_levels(sizes)
    size = measure_growth(levels, _find_allocation(storage))
    if size is None:
        return EventSize(reason=_explain(one.group.storage_during, storage, levels))
    return EventSize(
        size,
        index_bytes=_share(size, storage.index_bytes, storage),
        compacted_bytes=_share(size, compacted.total_bytes if compacted else None, storage),
    )


def _share(size: float, part: int | None, storage: Storage) -> float | None:
    return None if part is None or not storage.total_bytes else size * part / storage.total_bytes


def _list_levels(sizes: Iterable[Storage | None]) -> list[Level]:
    found = [one.find_level() for one in sizes if one is not None]
    return [level for level in found if level is not None]


def _find_allocation(storage: Storage) -> Allocation:
    return storage.allocation or ANY_ALLOCATION


def _get_unit(allocation: Allocation) -> int:
    return allocation.unit_bytes


def _explain(during: Storage | None, storage: Storage, levels: Sequence[Level]) -> str:
    """Why growth tells nothing, and how much more does."""
    allocation = _find_allocation(storage)
    if len(levels) < 2 and during is not None and during.reason:
        return f"not known from one fill level: {during.reason}; --steps gives more levels"
    events = estimate_events(storage, allocation) or 0
    if len(levels) < 2 and (storage.events or 0) >= events:
        return (
            "not known from one fill level: no size was taken during the run (too short a run, or an older"
            " version); --steps gives more levels"
        )
    # The estimate was too low if so many didn't do.
    wanted = max(events, 2 * (storage.events or 0))
    return f"not known below about {float(f'{wanted:.2g}'):,.0f} events: {allocation.cause}"
