"""What results say about the disk at the retention, and about the price. Pure."""

from __future__ import annotations

from simulator.units import format_bytes

from ..target import Price
from .decision import Cell, Evidence, Requirement, Sample, Unit, decide
from .evidence import Measured, Question, Repetition, cite, collect, join, make_sample, stay_silent
from .requirements import COST, DISK
from .retention import describe_cost
from .store import StoredResult
from .summaries import weigh_together

HOURS_PER_MONTH = 730.0
GB = 1e9


def decide_disk(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """What is stored at the retention: bytes per event × rate × retention. `row` None: only the figure."""
    row = row or Requirement(key=DISK, heading="disk", unit=Unit.BYTES, bound=1.0)
    return decide(row, collect(measured, lambda repetition: _judge_disk(question, row, repetition)))


def _judge_disk(question: Question, row: Requirement, repetition: Repetition) -> Sample:
    """Judge by the result that shows what an event takes: of several by one after compaction, with the most
    events in a run."""
    retention_s = question.needed.retention
    if retention_s is None:
        return Sample(repetition=repetition.number, keeps=None, why="no `retention` is required")
    weighed = [
        (_count_events(stored), stored, weigh_together(stored.result.writers))
        for stored in repetition.stored
        if not any(run.retention for run in stored.result.runs)
    ]
    weighed = [weighing for weighing in weighed if weighing[0]]
    if not weighed:
        why = repetition.failed[0] if repetition.failed else "nothing was inserted"
        return stay_silent(repetition, why)
    _, stored, size = max(
        weighed,
        key=lambda weighing: (
            weighing[2].bytes_per_event is not None,
            _is_compacted(weighing[1]),
            weighing[0],
        ),
    )
    evidence = [cite(stored)]
    if size.bytes_per_event is None:
        why = size.reason or "the database reports no size"
        return join(repetition, [make_sample(None, None, why, evidence)])
    value = size.bytes_per_event * question.rate_per_s * retention_s
    return join(repetition, [make_sample(value <= row.bound, value, None, evidence)])


def _count_events(stored: StoredResult) -> int:
    """The most events of a run: each begins on tables of its own, or goes on with those of the one before."""
    return max((group_run.group.count or 0 for group_run in stored.result.writers), default=0)


def _is_compacted(stored: StoredResult) -> bool:
    return any(
        group_run.group.storage_compacted is not None
        and group_run.group.storage_compacted.total_bytes
        for group_run in stored.result.writers
    )


def describe_retention(measured: Measured) -> str | None:
    """What inserts lose while events that are too old are deleted, in the run that lost most; None if that
    wasn't measured."""
    runs = [
        group_run
        for repetition in measured.repetitions
        for stored in repetition.stored
        for group_run in stored.result.writers
        if group_run.run.retention is not None
    ]
    if not runs:
        return None
    wrong = [text for group_run in runs for text in group_run.group.invalid_reasons]
    if wrong:
        return f"{measured.candidate}, retention: {wrong[0]}."
    return f"{measured.candidate}, retention: {describe_cost(runs, 'inserts')}."


def decide_cost(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """What a month costs: its hours, and what is stored at the retention. `row` None: only the figure."""
    row = row or Requirement(key=COST, heading="cost per month", unit=Unit.MONEY, bound=1.0)
    return decide(
        row, collect(measured, lambda repetition: _judge_cost(question, row, measured, repetition))
    )


def _judge_cost(
    question: Question, row: Requirement, measured: Measured, repetition: Repetition
) -> Sample:
    """Judge the cost of a month's hours, and of what is stored. If no part of it is measured, it is known
    without."""
    price, hourly = measured.price, measured.price.hour
    evidence: list[Evidence] = []
    if hourly is None and price.cpu_hour is not None:
        cpus, evidence = _find_cpus(repetition)
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


def _find_cpus(repetition: Repetition) -> tuple[float | None, list[Evidence]]:
    """The CPUs that the database might use, from the first run that shows it."""
    for stored in repetition.stored:
        for run in stored.result.runs:
            if run.resources is not None and run.resources.cpus:
                return run.resources.cpus, [cite(stored, run)]
    return None, []


def describe_price(price: Price, disk_bytes: float | None) -> str | None:
    """`1.2 an hour, 0.05 a CPU and hour, 1.83 TB at 0.1 a GB and month`."""
    parts = []
    if price.hour is not None:
        parts.append(f"{price.hour:g} an hour")
    elif price.cpu_hour is not None:
        parts.append(f"{price.cpu_hour:g} per CPU and hour")
    if price.gb_month is not None:
        disk = "disk" if disk_bytes is None else format_bytes(disk_bytes)
        parts.append(f"{disk} at {price.gb_month:g} per GB and month")
    return ", ".join(parts) or None
