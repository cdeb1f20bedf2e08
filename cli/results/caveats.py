"""Caveats: what to know before figures are used, its kind, and its place in a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.units import format_count


@dataclass(frozen=True)
class Place:
    """A worker count, fill level or query of a result, or one run of it."""

    workers: int | None = None
    level: int | None = None
    """Events that were in the database before."""
    query: str | None = None
    response: str | None = None
    """Percentile of the response times of an open loop."""
    run: int | None = None
    capacity: bool = False
    """Whether it is the answer of a search for the capacity."""
    tuned: bool = False
    """Whether it is the best settings of a tuning."""
    group: str = "worker"
    """What the workers are called; those of a mixed command are writers or readers."""

    @property
    def has_times(self) -> bool:
        """Whether the figures there are times, so that less is faster."""
        return self.query is not None or self.response is not None

    def __str__(self) -> str:
        """`4 workers`, `4 workers, run 2`, `4 workers, response p99`, `level 2,000`, `count-events`,
        `capacity`."""
        if self.query is not None:
            text = self.query
        elif self.capacity:
            text = "capacity"
        elif self.tuned:
            text = "best settings"
        elif self.level is not None:
            text = f"level {self.level:,}"
        else:
            word, _, alone = self.group.partition(" ")
            text = f"{format_count(self.workers or 0, word)} {alone}".rstrip()
            text = text if self.run is None else f"{text}, run {self.run}"
        return text if self.response is None else f"{text}, response {self.response}"


class Kind(StrEnum):
    """Why a figure is to be doubted. The value is how it is printed."""

    NOT_MEASURED = "not measured"
    INCOMPLETE = "incomplete"
    DISTURBANCE = "disturbance"
    INVALID = "invalid"
    CLIENT_BOUND = "client-bound"
    SATURATED = "saturated"
    NOT_AS_ASKED = "not as asked"
    CLIENTS_PART = "client's part"
    OWN_STATEMENTS = "own statements"
    BUSY = "busy"
    RETRIES = "retries"
    SHORT = "short"
    APART = "apart"
    UNSTABLE = "unstable"
    FEW_RUNS = "few runs"
    UNSURE = "not sure"
    NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Caveat:
    """Something to know before the figures are used."""

    kind: Kind
    text: str
    where: Place | None = None
    """None: it concerns the whole result."""
    rate: float | None = None
    """The inserts per second that don't count because of it."""
    cv: float | None = None
    """Coefficient of variation of what is unstable."""
