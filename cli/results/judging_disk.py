"""Judges disk space, and the price, which depends on it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.contract import ANY_ALLOCATION, GroupResult, measure_growth
from simulator.units import format_bytes

from ..plan.target import Price
from .decision import MOST_TIMES, Cell, Evidence, Requirement, Sample, Scale, Unit, decide
from .loads import (
    Measured,
    Question,
    Repetition,
    cite,
    collect,
    find_loads,
    join,
    make_sample,
    stay_silent,
)
from .requirements import COST, DISK
from .scaling import find_growth, find_interval, limit_cell
from .summaries import EventSize, weigh_together

HOURS_PER_MONTH = 730.0
GB = 1e9


def decide_disk(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """Bytes stored at full retention: bytes per event × rate × retention. `row` None: only the figure."""
    row = row or Requirement(key=DISK, heading="disk", unit=Unit.BYTES, bound=1.0)
    cell = decide(row, collect(measured, lambda repetition: _judge_disk(question, row, repetition)))
    return _scale_disk(question, row, cell, measured)


def _scale_disk(question: Question, row: Requirement, cell: Cell, measured: Measured) -> Cell:
    """The cell of a figure derived from the disk's."""
    weights = [weigh_repetition(question, repetition) for repetition in measured.repetitions]
    known = [weight for weight in weights if weight is not None and weight.size.bytes_per_event]
    if question.kept is None or not known:
        return cell
    exponents = [1 + weight.rise for weight in known if weight.rise is not None]
    events = min(weight.events for weight in known)
    scale = Scale(events=events, kept=question.kept, exponent=find_interval(exponents))
    return limit_cell(row, cell, scale)


@dataclass(frozen=True)
class _Weight:
    """Bytes per event in a repetition."""

    size: EventSize
    events: int
    """The runs that show it."""
    evidence: list[Evidence]
    rise: float | None = None
    """The power of the number of events by which total bytes ÷ total events grow; None: measured at one fill
    level."""


def weigh_repetition(question: Question, repetition: Repetition) -> _Weight | None:
    """Bytes per event: from the two fill levels of the load if these show growth, or else from the result
    with the most events in a run, preferably after compaction. None if nothing was inserted."""
    weights = []
    for stored in repetition.stored:
        groups = [group_run.group for group_run in stored.result.writers]
        # Each run begins on new tables, or continues with those of the previous run.
        events = max((group.count or 0 for group in groups), default=0)
        if events and not any(run.retention for run in stored.result.runs):
            size = weigh_together(stored.result.writers)
            compaction, level = _find_compaction(groups), _find_most_stored(groups) or events
            rank = size.bytes_per_event is not None, compaction is not None, events
            weights.append((rank, compaction, _Weight(size, level, [cite(stored)])))
    if not weights:
        return None
    best = max(weights, key=lambda weight: weight[0])[2]
    between = _weigh_levels(question, repetition)
    if between is None:
        return best
    compactions = [
        (compaction, weight) for _, compaction, weight in weights if compaction is not None
    ]
    if compactions:
        share, compacted = max(compactions, key=lambda pair: pair[1].events)
        size = EventSize(share * (between.size.bytes_per_event or 0.0))
        evidence = [*between.evidence, *compacted.evidence]
        return replace(between, size=size, evidence=evidence)
    return between


def _weigh_levels(question: Question, repetition: Repetition) -> _Weight | None:
    """Bytes per event between the two fill levels of the load; None if they don't show it."""
    loads = find_loads(question, repetition)
    pairs = [(load, load.writers.storage) for load in [*loads.smaller[:1], *loads.runs[-1:]]]
    levels = [(load, storage.find_level(), storage) for load, storage in pairs if storage]
    if len(levels) < 2 or any(storage.shared for _, _, storage in levels):
        return None
    (_, low, _), (load, high, storage) = levels
    if low is None or high is None or not low.events:
        return None
    size = measure_growth([low, high], storage.allocation or ANY_ALLOCATION)
    if size is None:
        return None
    growth = find_growth(
        repetition.number, (low.events, low.size_bytes / low.events),
        (high.events, high.size_bytes / high.events),
    )  # fmt: skip
    evidence = [cite(load.stored, load.run) for load, _, _ in levels]
    return _Weight(EventSize(size), load.events, evidence, growth.exponent if growth else None)


def _find_compaction(groups: Sequence[GroupResult]) -> float | None:
    """The share of bytes left after compaction, for the group with the most events; None without
    compaction."""
    shares = [
        (group.storage.events or 0, group.storage_compacted.total_bytes / group.storage.total_bytes)
        for group in groups
        if group.storage and group.storage.total_bytes
        and group.storage_compacted and group.storage_compacted.total_bytes
    ]  # fmt: skip
    return max(shares)[1] if shares else None


def _find_most_stored(groups: Sequence[GroupResult]) -> int:
    return max((group.storage.events or 0 for group in groups if group.storage), default=0)


def _judge_disk(question: Question, row: Requirement, repetition: Repetition) -> Sample:
    """Judge by bytes per event. If total bytes ÷ total events rise with the fill level, they are assumed to
    keep rising; if they fall, as fixed costs are shared by more events, growth already accounts for it."""
    if question.kept is None:
        return Sample(repetition=repetition.number, keeps=None, why="no `retention` is required")
    weight = weigh_repetition(question, repetition)
    if weight is None:
        why = repetition.failed[0] if repetition.failed else "nothing was inserted"
        return stay_silent(repetition, why)
    if weight.size.bytes_per_event is None:
        why = weight.size.reason or "the database reports no size"
        return join(repetition, [make_sample(None, None, why, weight.evidence)])
    times = max(1.0, min(question.kept / weight.events, MOST_TIMES))
    value = weight.size.bytes_per_event * question.kept * times ** max(0.0, weight.rise or 0.0)
    return join(repetition, [make_sample(value <= row.bound, value, None, weight.evidence)])


def decide_cost(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """Cost per month: its hours, and storage at full retention. `row` None: only the figure."""
    row = row or Requirement(key=COST, heading="cost per month", unit=Unit.MONEY, bound=1.0)
    samples = collect(measured, lambda repetition: _judge_cost(question, row, measured, repetition))
    cell = decide(row, samples)
    if measured.price.gb_month is None:
        return cell
    return _scale_disk(question, row, cell, measured)


def _judge_cost(
    question: Question, row: Requirement, measured: Measured, repetition: Repetition
) -> Sample:
    """Judge the cost of a month's hours and storage. If no part needs a measurement, it is known without."""
    price, hourly = measured.price, measured.price.hour
    evidence: list[Evidence] = []
    if hourly is None and price.cpu_hour is not None:
        shown = (
            (run.resources.cpus, [cite(stored, run)])
            for stored in repetition.stored
            for run in stored.result.runs
            if run.resources is not None and run.resources.cpus
        )
        cpus, evidence = next(shown, (None, []))
        if cpus is None:
            return stay_silent(repetition, "the database's CPUs are unknown: give cost_per_hour")
        hourly = cpus * price.cpu_hour
    if hourly is None and price.gb_month is None:
        why = "no price is known: give `price:` in the campaign, or the target's cost_per_hour"
        return stay_silent(repetition, why)
    value = (hourly or 0.0) * HOURS_PER_MONTH
    if price.gb_month is not None:
        disk = _judge_disk(question, row, repetition)
        if disk.value is None:
            return disk.model_copy(update={"keeps": None, "why": f"disk: {disk.why}"})
        value += disk.value / GB * price.gb_month
        evidence = [*evidence, *disk.evidence]
    keeps = value <= row.bound
    return join(repetition, [make_sample(keeps, value, None, evidence, final=not evidence)])


def describe_price(price: Price, disk_bytes: float | None) -> str | None:
    """As in `1.2 an hour, 0.05 per CPU and hour, 1.83 TB at 0.1 per GB and month`."""
    parts = []
    if price.hour is not None:
        parts.append(f"{price.hour:g} an hour")
    elif price.cpu_hour is not None:
        parts.append(f"{price.cpu_hour:g} per CPU and hour")
    if price.gb_month is not None:
        disk = "disk" if disk_bytes is None else format_bytes(disk_bytes)
        parts.append(f"{disk} at {price.gb_month:g} per GB and month")
    return ", ".join(parts) or None
