"""What became of a result's limits, in a line and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.units import format_count

from ..results.limits import LimitVerdict, Outcome, sum_up
from ..results.model import GroupRun, Result
from .tables import Table, locate


def describe_limits(result: Result) -> str | None:
    """What became of each limit over all runs, and what else keeps a run from keeping them; None without
    limits."""
    if not result.verdicts:
        return None
    by_name: dict[str, list[LimitVerdict]] = {}
    for verdict in result.verdicts:
        for one in verdict.limits:
            by_name.setdefault(str(one.limit), []).append(one)
    told = [_describe_limit(name, own) for name, own in by_name.items()]
    others = [one for one in result.verdicts if _is_missed_otherwise(one.outcome, one.limits)]
    if others:
        told.append(f"{_count(len(others), len(result.verdicts))}: {others[0].reasons[0]}")
    outcome = sum_up([one.outcome for one in result.verdicts])
    return f"Limits {outcome}: {'; '.join(told)}."


def _is_missed_otherwise(outcome: Outcome, limits: Sequence[LimitVerdict]) -> bool:
    """Whether a run keeps each limit and misses them all the same: it is saturated."""
    return outcome is Outcome.MISSED and all(one.outcome is Outcome.KEPT for one in limits)


def _describe_limit(name: str, verdicts: Sequence[LimitVerdict]) -> str:
    outcome = sum_up([one.outcome for one in verdicts])
    own = [one for one in verdicts if one.outcome is outcome]
    figures = [one.figure for one in own if one.figure is not None]
    why = next((one.reason for one in own if one.reason), None)
    if figures and why is None:
        highest = own[0].limit.show(max(figures))
        why = highest if len(figures) == 1 else f"up to {highest}"
    often = "" if len(own) == len(verdicts) else f" {_count(len(own), len(verdicts))}"
    return f"{name} {outcome}{often}" + (f" ({why})" if why else "")


def _count(runs: int, of: int) -> str:
    return f"in {runs:,} of {format_count(of, 'run')}"


def tabulate_limits(result: Result) -> Table:
    """Each limit in each run."""
    rows = []
    for run, verdict in result.judged:
        place = [] if result.command == "query" else locate(GroupRun(run, run.groups[0]))
        reasons = "; ".join(verdict.reasons)
        for one in verdict.limits:
            figure = "-" if one.figure is None else one.limit.show(one.figure)
            why = one.reason or (reasons if one.outcome is Outcome.UNDECIDED else "")
            rows.append([*place, str(one.limit), figure, one.outcome, why or "-"])
    places = [] if result.command == "query" else ["Workers", "Run", "Level"]
    return Table([*places, "Limit", "Measured", "Outcome", "Why"], rows, left=("Limit", "Why"))
