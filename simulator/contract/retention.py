"""Events that are deleted when they have become too old: what a run is asked for, and what that cost it."""

from __future__ import annotations

from .message import Count, Instant, Message, Seconds

STEPS = 20
"""All events of a retention go in this many steps, or a few more."""

_SECOND_MS = 1000
_UNITS_MS = (86_400_000, 3_600_000, 60_000, _SECOND_MS)
"""Days, hours, minutes, seconds: what partitions are cut by."""

SHORTEST_S = STEPS
"""The shortest retention: its steps are of a second."""


class Retention(Message):
    """How long events are kept, by the time that they have. Limits are multiples of the step since 1970."""

    period_ms: int
    step_ms: int
    """How much of event time is deleted at once: an event is kept for the period, and a step more at most."""
    until_ms: int | None = None
    """About where the run's events end; None: that depends on how fast the database is."""

    def find_limit(self, clock_ms: int) -> int:
        """What is older than that is too old, when events of this time are being inserted."""
        return (clock_ms - self.period_ms) // self.step_ms * self.step_ms


def find_step_ms(period_ms: int) -> int:
    """The step of a retention: a twentieth of it or a little less, in whole days if that has one."""
    most = period_ms / STEPS
    unit = next((unit for unit in _UNITS_MS if unit <= most), _SECOND_MS)
    return max(1, int(most // unit)) * unit


class Deletion(Message):
    """One deletion while writers were at work. Times count from the common start."""

    before_ms: int
    """Of the events that it was about, the time that the youngest lies before, in ms since 1970."""
    began_s: Instant
    ended_s: Instant
    """When the database said that they are gone."""

    @property
    def took_s(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


class IntervalFigures(Message):
    """What a group did in some whole seconds of its window."""

    seconds: Count
    rate_per_s: float | None = None
    """Events acknowledged, or queries answered; None without such seconds."""
    p99_ms: float | None = None
    """Of the requests that were due in them (in a closed loop: sent); at most 1 % off."""


class DeletionCost(Message):
    """What a group did before the first deletion began, while one ran, and between them."""

    before: IntervalFigures
    during: IntervalFigures
    between: IntervalFigures


class RetentionResult(Message):
    """What was deleted in a run, and whether it is what should have been."""

    period_s: Seconds
    step_s: Seconds
    way: str = ""
    """How the database deletes, in words."""
    clock_factor: Count = 1
    """The workload's option: how many times as fast as by itself events' time passed."""
    deletions: list[Deletion]
    """Those while writers were at work."""
    kept_from_ms: int | None = None
    """After the run's last deletion nothing older should be there; None: nothing became too old."""
    deleted: Count = 0
    """Events that were acknowledged and should be gone."""
    remaining: Count | None = None
    """Events that should be gone and are there; None: that can't be asked."""
