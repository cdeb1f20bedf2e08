"""Caveats: what to know before using figures, of which kind, and where in a result. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from simulator.contract import Role
from simulator.units import format_count

from .model import GroupRun, Result


@dataclass(frozen=True)
class Place:
    """A worker count, fill level or query of a result, or one run of it."""

    workers: int | None = None
    level: int | None = None
    """Events in the database before the run."""
    query: str | None = None
    figure: str | None = None
    """Key of the figure if it isn't inserts per second or the query's time: a response time of an open loop,
    or the answer of a search or a tuning."""
    run: int | None = None
    group: str = "worker"
    """What the workers are called; in a mixed command, writers or readers."""

    @property
    def key(self) -> str:
        """Key of the figure at this place."""
        return self.figure or ("query_mean_s" if self.query is not None else "inserts_per_s")

    @property
    def response(self) -> str | None:
        """The percentile of an open loop's response times, such as `p99`."""
        name = self.figure or ""
        return name[len("latency_") : -len("_ms")] if name.startswith("latency_") else None

    @property
    def capacity(self) -> bool:
        """Whether it is the answer of a search for the capacity."""
        return self.figure == "capacity_per_s"

    @property
    def tuned(self) -> bool:
        """Whether it is the best settings of a tuning."""
        return self.figure == "tuned_per_s"

    @property
    def has_times(self) -> bool:
        """Whether the figures there are times, where lower is better."""
        return self.query is not None or self.response is not None

    @property
    def of_all_runs(self) -> Place:
        """The same place without the run."""
        return replace(self, run=None)

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


def find_place(result: Result, group_run: GroupRun) -> Place:
    """The place at which figures compare with those of other runs: a worker count or, on growing data, a
    level."""
    if group_run.group.role is Role.READ:
        return Place(workers=group_run.group.workers, group="reader")
    if result.by_fill_level:
        return Place(level=group_run.run.fill_level)
    return Place(workers=group_run.group.workers)


def locate_writers(result: Result, group_run: GroupRun) -> Place:
    """The place of one run of writers; a fill level has only one."""
    place = find_place(result, group_run)
    return place if result.by_fill_level else replace(place, run=group_run.run.run)


def locate_group(group_run: GroupRun) -> Place:
    """The place of one run of writers or readers, with the other group active or alone."""
    word = "reader" if group_run.group.role is Role.READ else "writer"
    group = f"{word} alone" if group_run.alone else word
    return Place(workers=group_run.group.workers, run=group_run.run.run, group=group)


def locate_run(result: Result, group_run: GroupRun) -> Place:
    """The place of a run of any kind."""
    if group_run.group.role is Role.WRITE and not result.baseline:
        return locate_writers(result, group_run)
    return locate_group(group_run)


class Kind(StrEnum):
    """Reasons to doubt a figure. The value is what is printed."""

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

    @property
    def weight(self) -> Weight:
        """Its effect on the figures."""
        return _WEIGHTS[self]


class Weight(StrEnum):
    """The effect of a kind of caveat on the figures it concerns."""

    WHOLE = "the result can't be compared"
    FIGURE = "a figure can't be used"
    CHANGED = "the figures might be others"
    SURENESS = "says how sure the figures are, or what is not known"

    @property
    def is_grave(self) -> bool:
        """Whether it is printed before what held the database back."""
        return self in (Weight.WHOLE, Weight.FIGURE)


_WEIGHTS = dict.fromkeys(Kind, Weight.SURENESS) | {
    Kind.NOT_MEASURED: Weight.WHOLE,
    Kind.INCOMPLETE: Weight.WHOLE,
    Kind.DISTURBANCE: Weight.WHOLE,
    Kind.INVALID: Weight.FIGURE,
    Kind.CLIENT_BOUND: Weight.FIGURE,
    Kind.SATURATED: Weight.FIGURE,
    Kind.NOT_AS_ASKED: Weight.FIGURE,
    Kind.BUSY: Weight.CHANGED,
    Kind.SHORT: Weight.CHANGED,
    Kind.UNSTABLE: Weight.CHANGED,
}


@dataclass(frozen=True)
class Caveat:
    """Something to know before using the figures."""

    kind: Kind
    text: str
    where: Place | None = None
    """None: it concerns the whole result."""
    rate: float | None = None
    """The inserts per second that it invalidates."""
    cv: float | None = None
    """Coefficient of variation of what is unstable."""
    brief: str = field(default="", compare=False)
    """A short form of its text; empty: its kind is enough."""
    extent: float = field(default=0.0, compare=False)
    """Its severity among caveats of the same kind; higher is worse."""
