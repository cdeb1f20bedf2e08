"""What an event takes on disk, told from how the tables grow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.contract import (
    ANY_ALLOCATION,
    Allocation,
    InsertRun,
    Level,
    Storage,
    estimate_events,
    measure_growth,
)

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


def list_event_sizes(runs: Sequence[InsertRun]) -> list[EventSize]:
    """For each run what its events take: by the growth from amid the run, or from the end of the run whose
    data it goes on with, to its own end."""
    befores = [None, *runs[:-1]] if runs else []
    return [_weigh(run, before) for before, run in zip(befores, runs, strict=True)]


def weigh_each(runs: Sequence[InsertRun]) -> EventSize:
    """The mean of what an event takes in the runs that show it; else why none does: in that with the most
    events."""
    weights = list_event_sizes(runs)
    found = [one.lasting_bytes for one in weights if one.lasting_bytes is not None]
    if found:
        return EventSize(sum(found) / len(found))
    reasons = [
        (run.events or 0, one.reason) for one, run in zip(weights, runs, strict=True) if one.reason
    ]
    return EventSize(reason=max(reasons)[1] if reasons else None)


def weigh_together(runs: Sequence[InsertRun]) -> EventSize:
    """What an event takes in runs of one kind, each on new tables: as in each of them; where none shows
    enough growth, by what lies between those with fewer and those with more events."""
    each = weigh_each(runs)
    if each.bytes_per_event is not None:
        return each
    sizes = [run.storage for run in runs if run.storage and not run.storage.shared]
    allocation = max((_find_allocation(one) for one in sizes), key=_get_unit, default=None)
    if allocation is None:
        return each
    size = measure_growth(_list_levels(sizes), allocation)
    return each if size is None else EventSize(size)


def find_bytes_per_day(
    runs: Sequence[InsertRun], at_answer: Iterable[int], rate_per_s: float
) -> float | None:
    """What a rate takes in a day: by the steps at it, or by all where those show too little growth."""
    numbers = set(at_answer)
    own = weigh_together([run for run in runs if run.run in numbers]).bytes_per_event
    size = weigh_together(runs).bytes_per_event if own is None else own
    return None if size is None else size * rate_per_s * DAY_S


def _weigh(run: InsertRun, before: InsertRun | None) -> EventSize:
    storage = run.storage
    if storage is None or storage.reason or storage.find_level() is None:
        return EventSize()
    sizes = [run.storage_during, storage]
    if before is not None and before.storage and run.fill_level == before.storage.events:
        sizes.append(before.storage)
    levels = _list_levels(sizes)
    size = measure_growth(levels, _find_allocation(storage))
    if size is None:
        return EventSize(reason=_explain(run, storage, levels))
    return EventSize(
        size,
        index_bytes=_share(size, storage.index_bytes, storage),
        compacted_bytes=_share(
            size, run.storage_compacted.total_bytes if run.storage_compacted else None, storage
        ),
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


def _explain(run: InsertRun, storage: Storage, levels: Sequence[Level]) -> str:
    """Why growth tells nothing, and how much more does."""
    allocation = _find_allocation(storage)
    if len(levels) < 2 and run.storage_during is not None and run.storage_during.reason:
        return (
            f"not known from one fill level: {run.storage_during.reason}; --steps gives more levels"
        )
    events = estimate_events(storage, allocation) or 0
    if len(levels) < 2 and (storage.events or 0) >= events:
        return (
            "not known from one fill level: no size was taken during the run (too short a run, or an older"
            " version); --steps gives more levels"
        )
    # The estimate was too low if so many didn't do.
    wanted = max(events, 2 * (storage.events or 0))
    return f"not known below about {float(f'{wanted:.2g}'):,.0f} events: {allocation.cause}"
