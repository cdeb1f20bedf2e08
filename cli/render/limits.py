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
        for limit_verdict in verdict.limits:
            by_name.setdefault(str(limit_verdict.limit), []).append(limit_verdict)
    parts = [_describe_limit(name, verdicts) for name, verdicts in by_name.items()]
    saturated = [
        verdict
        for verdict in result.verdicts
        if _is_missed_otherwise(verdict.outcome, verdict.limits)
    ]
    if saturated:
        parts.append(f"{_count(len(saturated), len(result.verdicts))}: {saturated[0].reasons[0]}")
    outcome = sum_up([verdict.outcome for verdict in result.verdicts])
    return f"Limits {outcome}: {'; '.join(parts)}."


def _is_missed_otherwise(outcome: Outcome, verdicts: Sequence[LimitVerdict]) -> bool:
    """Whether a run keeps each limit but is judged to miss them all the same: it is saturated."""
    return outcome is Outcome.MISSED and all(
        verdict.outcome is Outcome.KEPT for verdict in verdicts
    )


def _describe_limit(name: str, verdicts: Sequence[LimitVerdict]) -> str:
    outcome = sum_up([verdict.outcome for verdict in verdicts])
    decisive = [verdict for verdict in verdicts if verdict.outcome is outcome]
    figures = [verdict.figure for verdict in decisive if verdict.figure is not None]
    why = next((verdict.reason for verdict in decisive if verdict.reason), None)
    if figures and why is None:
        highest = decisive[0].limit.show(max(figures))
        why = highest if len(figures) == 1 else f"up to {highest}"
    often = "" if len(decisive) == len(verdicts) else f" {_count(len(decisive), len(verdicts))}"
    return f"{name} {outcome}{often}" + (f" ({why})" if why else "")


def _count(runs: int, of: int) -> str:
    return f"in {runs:,} of {format_count(of, 'run')}"


def tabulate_limits(result: Result) -> Table:
    """Each limit in each run."""
    rows = []
    for run, verdict in result.judged:
        place = [] if result.command == "query" else locate(GroupRun(run, run.groups[0]))
        reasons = "; ".join(verdict.reasons)
        for limit_verdict in verdict.limits:
            figure = (
                "-"
                if limit_verdict.figure is None
                else limit_verdict.limit.show(limit_verdict.figure)
            )
            why = limit_verdict.reason or (
                reasons if limit_verdict.outcome is Outcome.UNDECIDED else ""
            )
            rows.append(
                [*place, str(limit_verdict.limit), figure, limit_verdict.outcome, why or "-"]
            )
    places = [] if result.command == "query" else ["Workers", "Run", "Level"]
    return Table([*places, "Limit", "Measured", "Outcome", "Why"], rows, left=("Limit", "Why"))
