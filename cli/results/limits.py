"""The models of what became of a run's limits, in result.json."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from simulator.contract import Bounded, RunLimit


class Outcome(StrEnum):
    """What became of a limit, or of all limits of a run."""

    KEPT = "kept"
    MISSED = "missed"
    UNDECIDED = "undecided"
    """The run has too few requests, or isn't valid: that is not kept."""


class LimitVerdict(Bounded, BaseModel):
    """One limit in one run."""

    limit: RunLimit
    outcome: Outcome
    figure: float | None = None
    """What the limit is about, in milliseconds or as a share; None if it isn't known."""
    reason: str | None = None
    """Why it can't be decided, or is missed though the figure isn't known."""


class RunVerdict(Bounded, BaseModel):
    """All limits in one run."""

    outcome: Outcome
    """`kept` if each is, and the run is valid and kept up with its rate."""
    reasons: list[str] = []
    """Why they aren't kept, or why that isn't known."""
    limits: list[LimitVerdict]

    @property
    def holds(self) -> bool | None:
        """Whether they are kept; None: undecided."""
        return None if self.outcome is Outcome.UNDECIDED else self.outcome is Outcome.KEPT

    @property
    def told(self) -> str:
        """`p99=100ms missed; error_share=0.1% kept`."""
        return "; ".join(f"{one.limit} {one.outcome}" for one in self.limits)


def sum_up(outcomes: list[Outcome]) -> Outcome:
    """That of several together: kept if all are, missed if one is."""
    worst = (Outcome.MISSED, Outcome.UNDECIDED)
    return next((one for one in worst if one in outcomes), Outcome.KEPT)
