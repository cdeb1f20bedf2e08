"""The cost of deleting by age, over the runs of a result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import DeletionCost, IntervalFigures, Role
from simulator.units import format_digits, format_in_unit

from .model import GroupRun, Result

ENOUGH_S = 3
"""The fewest seconds between deletions for a meaningful rate."""


@dataclass(frozen=True)
class Loss:
    """A group's figures while deletions ran and while none did."""

    during: IntervalFigures
    beside: IntervalFigures
    """Between deletions or, if those seconds are too few, before the first."""

    @property
    def share(self) -> float | None:
        """By what share the rate was lower; below 0 if it was higher. None if one of them is unknown."""
        if not self.during.rate_per_s or not self.beside.rate_per_s:
            return None
        return 1 - self.during.rate_per_s / self.beside.rate_per_s


def find_loss(cost: DeletionCost | None) -> Loss | None:
    """The cost of deleting to a group; None if no seconds show it."""
    if cost is None or not cost.during.seconds:
        return None
    beside = cost.between if cost.between.seconds >= ENOUGH_S else cost.before
    beside = beside if beside.seconds else cost.between
    return Loss(cost.during, beside) if beside.seconds else None


def find_deletions(group_run: GroupRun) -> tuple[int, float] | None:
    """The approximate number of events kept in a run with a retention, and the mean time of a deletion in ms;
    None if there was none."""
    retention, stored = group_run.run.retention, group_run.group.count or 0
    if retention is None or not retention.deletions:
        return None
    # With a prefill, a run begins with as many events as are kept.
    kept = max(group_run.run.fill_level or 0, stored - retention.deleted)
    times_ms = [1000 * deletion.took_s for deletion in retention.deletions]
    return kept, sum(times_ms) / len(times_ms)


def describe_deletions(result: Result) -> list[str]:
    """What was deleted in the runs with the most workers, and what it cost inserts and queries: at most a
    line each."""
    runs = [group_run for group_run in result.writers if group_run.run.retention is not None]
    if not runs:
        return []
    workers = max(group_run.group.workers for group_run in runs)
    runs = [group_run for group_run in runs if group_run.group.workers == workers]
    lines = [f"retention: {_describe_deleted(runs)}; {describe_cost(runs, 'inserts')}"]
    readers = [group_run for group_run in result.readers if group_run.run.retention is not None]
    if readers:
        lines.append(f"retention: {describe_cost(readers, 'questions')}")
    return lines


def _describe_deleted(runs: Sequence[GroupRun]) -> str:
    results = [group_run.run.retention for group_run in runs if group_run.run.retention is not None]
    times_ms = [1000 * deletion.took_s for result in results for deletion in result.deletions]
    first = results[0]
    deleted = sum(result.deleted for result in results)
    text = f"{format_in_unit(first.period_s)} kept, in steps of {format_in_unit(first.step_s)}"
    if first.clock_factor > 1:
        text += f", at {first.clock_factor:,} times the speed"
    if not times_ms:
        return f"{text}: nothing became too old while events came in; {deleted:,} events did afterwards"
    mean_ms, most_ms = sum(times_ms) / len(times_ms), max(times_ms)
    took = f"{format_digits(mean_ms)} ms each, {format_digits(most_ms)} ms at most"
    remaining = sum(result.remaining or 0 for result in results)
    left_over = f"{remaining:,} left over" if remaining else "none left over"
    return f"{text}: {len(times_ms):,} deletions, {took}; {deleted:,} events deleted, {left_over}"


def describe_cost(runs: Sequence[GroupRun], subject: str) -> str:
    """`inserts lost 3% while they ran (…)`, for the run that lost most."""
    losses = [
        loss for group_run in runs if (loss := find_loss(group_run.group.deletion_cost)) is not None
    ]
    if not losses:
        return f"the cost to {subject} is unknown: a deletion ran in each second, or in none"
    worst = max(losses, key=lambda loss: loss.share or 0.0)
    share, beside = worst.share or 0.0, worst.beside
    rates = f"{_show(worst.during)}, beside {_show(beside)}"
    if share <= 0:
        return f"deleting old data didn't slow {subject} ({rates})"
    return (
        f"{subject} lost {share:.0%} in the {worst.during.seconds:,} s in which one ran ({rates})"
    )


def _show(stretch: IntervalFigures) -> str:
    p99 = "" if stretch.p99_ms is None else f", p99 {format_digits(stretch.p99_ms)} ms"
    return f"{stretch.rate_per_s or 0:,.0f}/s{p99}"


def of_retention(name: str) -> Any:
    """Reads `count`, `mean_s` or `longest_s` of the deletions from an entry of writers, or a field of the
    result."""

    def read(entry: Any) -> Any:
        result = entry.group_run.run.retention
        if result is None or entry.group.role is not Role.WRITE:
            return None
        times_s = [deletion.took_s for deletion in result.deletions]
        if name == "count":
            return len(times_s)
        if name in ("mean_s", "longest_s"):
            if not times_s:
                return None
            return max(times_s) if name == "longest_s" else sum(times_s) / len(times_s)
        return getattr(result, name)

    return read
