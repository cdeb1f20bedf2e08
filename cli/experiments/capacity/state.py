"""What a search is asked for, and what it has measured so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.contract import DataSet, InsertRun, Load, ReadRun

from ...results.capacity import CapacityLimit, CapacityStep
from .limits import count_needed
from .search import Goal, RateTrial, find_lowest

CLOSED_LOOP_SHARE = 3
"""The closed loop at the beginning takes a third of a step: it only says where to look."""


@dataclass(frozen=True)
class CapacityRequest:
    """What capacity is searched for."""

    writers: Load
    """Of each step, but for its rate: with a duration."""
    data: DataSet
    limits: Sequence[CapacityLimit] = ()
    readers: Load | None = None
    """Who asks beside them in each step."""
    precision: float = 0.05
    max_steps: int = 24

    @property
    def loads(self) -> list[Load]:
        """Of all runs that may be needed, the load that says how long they go on."""
        return [self.closed_loop] + [self.writers] * self.max_steps

    @property
    def closed_loop(self) -> Load:
        """The writers' load of the first run."""
        assert self.writers.duration_s is not None
        return self.writers.model_copy(
            update={
                "rate_per_s": None,
                "duration_s": round(self.writers.duration_s / CLOSED_LOOP_SHARE, 2),
                "warm_up_s": round(self.writers.warm_up_s / CLOSED_LOOP_SHARE, 2),
            }
        )

    @property
    def workers(self) -> int:
        """Of both groups."""
        return self.writers.workers + (self.readers.workers if self.readers else 0)


@dataclass
class SearchState:
    """What a search has measured so far. Whoever holds it has it even if the search is interrupted."""

    wanted: CapacityRequest
    runs: list[InsertRun] = field(default_factory=list)
    reads: list[ReadRun] = field(default_factory=list)
    steps: list[CapacityStep] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def tried(self) -> list[RateTrial]:
        """The verdicts so far."""
        return [
            RateTrial(step.rate_per_s, step.holds)
            for step in self.steps
            if step.rate_per_s is not None and step.holds is not None
        ]

    @property
    def offered(self) -> list[CapacityStep]:
        """The steps at a rate, with a verdict or without."""
        return [step for step in self.steps if step.rate_per_s is not None]

    @property
    def goal(self) -> Goal | None:
        """What is searched for; None before the closed loop has shown where."""
        reached = self.runs[0].inserts_per_s if self.runs else None
        if not reached:
            return None
        wanted, load = self.wanted, self.wanted.writers
        assert load.duration_s is not None
        window_s = load.duration_s - load.warm_up_s
        needed = count_needed(wanted.limits)
        lowest = find_lowest(reached, load.events_per_request, window_s, needed)
        return Goal(reached, lowest, wanted.precision, wanted.max_steps)
