"""What was used over time, and how much of it within the window of a run. Pure.

All probes give steps: what was used between two looks, whatever it is and whoever looked. What happened
meanwhile is shared out evenly over that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from simulator.contract import RunResult

MIN_COVERED = 0.5
"""Share of a window of which steps must tell."""
NAMED, NAMED_SHARE = 5, 0.01
"""So many of those who took most of a machine's CPU are named, from this share on."""


@dataclass(frozen=True)
class Window:
    """From when to when something was measured, by the wall clock as seconds since 1970."""

    began: float
    ended: float
    origin: float
    """The common start: from there on the load was the same."""
    events: int | None = None
    """Acknowledged within."""

    @property
    def length_s(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Step:
    """What was used between two instants: amounts of whatever the keys say."""

    began: float
    ended: float
    amounts: Mapping[Hashable, float]

    @property
    def length_s(self) -> float:
        return self.ended - self.began

    def within_s(self, began: float, ended: float) -> float:
        """Seconds of it between two instants."""
        return max(0.0, min(self.ended, ended) - max(self.began, began))

    def rate(self, key: Hashable) -> float:
        """How much of this in a second."""
        return self.amounts[key] / self.length_s


def merge_steps(earlier: Step, later: Step) -> Step | None:
    """Both as one; None if there is a time between them."""
    if later.began != earlier.ended:
        return None
    amounts = dict(earlier.amounts)
    for key, amount in later.amounts.items():
        amounts[key] = amounts.get(key, 0.0) + amount
    return Step(earlier.began, later.ended, amounts)


def add_up(steps: Iterable[Step], window: Window) -> dict[Hashable, float] | None:
    """What was used in a window; None if the steps tell of less than half of it. What lies outside of all
    steps is taken to be like the rest."""
    amounts: dict[Hashable, float] = defaultdict(float)
    covered_s = 0.0
    for step in steps:
        within_s = step.within_s(window.began, window.ended)
        if within_s > 0:
            covered_s += within_s
            for key, amount in step.amounts.items():
                amounts[key] += amount * within_s / step.length_s
    if covered_s <= 0 or covered_s < MIN_COVERED * window.length_s:
        return None
    return {key: amount * window.length_s / covered_s for key, amount in amounts.items()}


def name_most(shares: Mapping[str, float]) -> dict[str, float]:
    """Of who took these shares of a machine's CPU those that are worth a name, the largest first."""
    most = sorted(shares.items(), key=lambda pair: -pair[1])[:NAMED]
    return {name: share for name, share in most if share >= NAMED_SHARE}


def find_window(run: RunResult) -> Window | None:
    """What of a run is measured; None if nothing was."""
    if run.began_at is None or run.ended_at is None:
        return None
    began, ended = (
        datetime.fromisoformat(text).timestamp() for text in (run.began_at, run.ended_at)
    )
    events = run.writers.count if run.writers else None
    return Window(began, ended, began - run.groups[0].warm_up_s, events)
