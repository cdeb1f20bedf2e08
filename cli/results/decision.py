"""The verdict: candidates × requirements, each met, missed or undecided. The model, and the rule. Pure.

The rule: a repetition is one sample. A requirement is met if every repetition keeps it, none failed, and the
bound of their geometric mean keeps it, too: a one-sided 95 % bound by Student's t on the logarithms, since
figures vary by a share of themselves. It is missed if every repetition that gave a figure breaks it, and the
bound does. All else is undecided, a single repetition included: it doesn't show how far the next would be
from it. What must never happen (a lost event) is missed by a single repetition.

A repetition on a busy machine decides nothing that depends on the load: what is met or missed is so by the
others alone, too, or else it is undecided.

So of two equal candidates at the limit itself one is called met and the other missed in at most
2 × 5 % × 5 % of campaigns; far from it both are decided alike, by few repetitions where they vary little.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from math import inf, log, sqrt
from statistics import fmean, stdev
from typing import Literal

from pydantic import BaseModel, ConfigDict

from simulator.contract import Bounded
from simulator.units import format_bytes, format_count, format_digits, format_span

from .statistics import find_mean, t_quantile

CERTAINTY = 0.95
"""How often the bound lies on the right side of the truth."""
MOST_TIMES = 30
"""Up to so many times the events that it was measured on, a figure is extrapolated."""
MOST_REPETITIONS = 30
"""If more were needed, it would be better to find out why they vary so much."""


class Status(StrEnum):
    """What is known of a candidate and a requirement."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Unit(StrEnum):
    """The unit of a figure."""

    EVENTS_PER_S = "events/s"
    MS = "ms"
    S = "s"
    SHARE = "share"
    BYTES = "bytes"
    MONEY = "money"
    """In the currency of the prices."""
    NONE = "none"
    """It is no figure: what is so, or isn't."""

    def show(self, value: float) -> str:
        """A figure as it is read: `1,600 events/s`, `112 ms`, `48 s`, `0.1%`, `1.83 TB`, `812`."""
        if self is Unit.EVENTS_PER_S:
            return f"{value:,.0f} events/s" if value >= 10 else f"{value:.3g} events/s"
        if self is Unit.MS:
            return f"{format_digits(value)} ms"
        if self is Unit.S:
            return f"{value:.3g} s" if value < 300 else format_span(value)
        if self is Unit.SHARE:
            return f"{100 * value:.3g}%"
        if self is Unit.BYTES:
            return format_bytes(value)
        return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}".removesuffix(".00")


class _Part(Bounded, BaseModel):
    model_config = ConfigDict(frozen=True)


class Interval(_Part):
    """A mean over repetitions with its bounds, each of which holds at 95 %."""

    mean: float
    low: float
    high: float


class Requirement(_Part):
    """A row of the verdict: one thing that is required."""

    key: str
    """As in the file, as a path: `events_per_s`, `insert.p99`, `queries.NAME.p99`, `disk`,
    `cost_per_month`, `faults.kill-server`."""
    heading: str
    """A few words: `inserts p99`."""
    unit: Unit
    bound: float
    """In that unit."""
    at_least: bool = False
    """Whether figures must not be below the bound; else they must not be above it."""
    words: str | None = None
    """What is required, if it is no figure: `on disk`."""

    @property
    def limit(self) -> str:
        """`≥ 1,600 events/s`, `≤ 250 ms`, `on disk`."""
        if self.words is not None:
            return self.words
        return f"{'≥' if self.at_least else '≤'} {self.unit.show(self.bound)}"

    def find_headroom(self, value: float) -> float:
        """How many times as good as it must be: figure ÷ bound of what must be high, bound ÷ figure of what
        must be low, which is infinite for a figure of 0."""
        if self.at_least:
            return value / self.bound
        return self.bound / value if value > 0 else inf

    def find_headrooms(self, values: Sequence[float]) -> tuple[float, float] | None:
        """The least and the most headroom of several; None if there is none, or one of a figure of 0."""
        headrooms = [self.find_headroom(value) for value in values]
        return (min(headrooms), max(headrooms)) if headrooms and inf not in headrooms else None


class Evidence(_Part):
    """A result that a cell rests on."""

    result: str
    """Its ID: the name of its folder in the campaign's `results/`."""
    label: str | None = None
    """The job's name: `postgresql load 2`."""
    runs: list[int] = []
    """Numbers of the runs in it; none: all of them together."""


class Sample(_Part):
    """What one repetition says about a requirement."""

    repetition: int
    keeps: bool | None
    """None: it gave no figure."""
    value: float | None = None
    """In the requirement's unit."""
    why: str | None = None
    """Why it gave no figure, or breaks the requirement by something else than it; a few words."""
    shown: str | None = None
    """What counts instead of any figure: `50 events lost`."""
    final: bool = False
    """Whether it decides alone: it breaks what must never happen, or isn't measured at all."""
    failed: bool = False
    """Whether the job failed."""
    busy: str | None = None
    """What others did to the machine meanwhile, if that is enough to change the figure."""
    evidence: list[Evidence] = []


class Scale(_Part):
    """On how many events a cell was measured, and what follows for those that are stored in the end."""

    events: int
    """Stored when it was measured."""
    kept: int
    """Stored in the end: the load × the retention."""
    in_memory: bool | None = None
    """Whether the events that it was measured on fit into the database's memory; None: not known."""
    exponent: Interval | None = None
    """By which power of the number of events the figure grows, by two fill levels: 0 is flat."""
    extrapolated: Interval | None = None
    """The figure that follows for `extrapolated_to` events."""
    extrapolated_to: int | None = None
    """`kept`, or as many as may be extrapolated to."""

    @property
    def share(self) -> float:
        """Of the events that are stored in the end, those that it was measured on."""
        return self.events / self.kept

    @property
    def reach(self) -> int:
        """Up to how many events it may be extrapolated."""
        return min(self.kept, MOST_TIMES * self.events)


class Cell(_Part):
    """One candidate and one requirement."""

    requirement: str
    """Its key."""
    status: Status
    value: float | None = None
    """The geometric mean over the repetitions, in the requirement's unit."""
    lowest: float | None = None
    highest: float | None = None
    """Of the repetitions."""
    at_least: bool = False
    """Whether the figure is only known to be that high: the client was the limit of a search."""
    headroom: float | None = None
    """How many times as good as required, of the extrapolated figure if that is worse: below 1 it isn't. None
    without a figure, or of one that is 0."""
    headrooms: tuple[float, float] | None = None
    """The least and the most of a repetition; None if one isn't known."""
    reason: str | None = None
    """Of what is undecided why, and what would decide it; of what is missed why, if not by its figure."""
    shown: str
    """The figure in words; `-` without one."""
    scale: Scale | None = None
    """None: it doesn't depend on the events stored, or it isn't known how many there will be."""
    samples: list[Sample] = []
    """One for each repetition, with the results that it is from."""

    @property
    def evidence(self) -> list[Evidence]:
        """The results that it rests on, in the order of the repetitions, each once."""
        by_result: dict[str, Evidence] = {}
        for sample in self.samples:
            for evidence in sample.evidence:
                by_result.setdefault(evidence.result, evidence)
        return list(by_result.values())


class Acknowledgement(_Part):
    """What an acknowledgement is worth."""

    on_disk: bool | None
    """Whether an event is on disk by then; None: not known."""
    when: str
    """When it is on disk, after these words; where that isn't known, why not."""
    places: int | None
    """In how many places it is by then; None: not known."""
    client: str
    """By which client events were sent: the option `client`."""
    advice: str = ""
    """Settings that would have events on disk by then; empty if they are, or none would."""

    def __str__(self) -> str:
        """`an event is on disk in 1 place before it is acknowledged; lean client`."""
        places = "" if self.places is None else f" in {format_count(self.places, 'place')}"
        worth = {
            True: f"on disk{places} before it is acknowledged",
            False: f"acknowledged{places}, and on disk {self.when}",
            None: f"acknowledged{places}, on disk or not ({self.when})",
        }[self.on_disk]  # fmt: skip
        return f"an event is {worth}; {self.client} client"


class Trust(_Part):
    """How far figures can be believed, by the caveats that would change them."""

    level: Literal["good", "low"]
    reasons: list[str] = []
    """A few words each, of every kind of caveat the worst."""

    def __str__(self) -> str:
        """`Trust: low (other programs used 79% of the CPU; windows of 8.0 s)`."""
        why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return f"Trust: {self.level}{why}"


class CandidateVerdict(_Part):
    """A column of the verdict."""

    candidate: str
    acknowledgement: Acknowledgement | None = None
    """None: not known, as the module doesn't say, or nothing was inserted."""
    trust: Trust | None = None
    """None: nothing was measured."""
    cells: list[Cell]
    """One for each requirement, in their order."""
    narrowest: str | None = None
    """The key of the requirement with the least headroom; of what is missed first, None if no headroom is
    known."""
    disk_bytes: float | None = None
    """What is stored at the retention."""
    cost_per_month: float | None = None
    price: str | None = None
    """What that is made of: `1.20 an hour and 1.83 TB at 0.10 a GB`."""

    @property
    def status(self) -> Status:
        """Missed if one requirement is, met if all are."""
        statuses = {cell.status for cell in self.cells}
        if Status.MISSED in statuses:
            return Status.MISSED
        return Status.UNDECIDED if Status.UNDECIDED in statuses or not statuses else Status.MET

    def find(self, key: str) -> Cell:
        """The cell of a requirement; KeyError if there is none."""
        for cell in self.cells:
            if cell.requirement == key:
                return cell
        raise KeyError(key)


class RequirementChange(_Part):
    """Requirements that were changed when there were results already."""

    at: datetime
    results: int
    """How many there were."""
    changes: list[str]
    """`insert p99 250 ms → 500 ms`."""

    def __str__(self) -> str:
        """`Requirements changed at 2026-11-28 18:20 UTC after 3 results: insert p99 250 ms → 500 ms.`"""
        when = f"{self.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        after = format_count(self.results, "result")
        return f"Requirements changed at {when} after {after}: {', '.join(self.changes)}."


class VerdictMatrix(_Part):
    """Candidates × requirements: `verdict.json` in a campaign's folder."""

    title: str
    requirements: list[Requirement]
    candidates: list[CandidateVerdict]
    """In the order of the campaign's file."""
    repeats: int
    trust: Trust | None = None
    """In all candidates' figures together; None: nothing was measured."""
    jobs_left: int = 0
    """Jobs of the campaign that aren't done: it was interrupted, or goes on."""
    requirement_changes: list[RequirementChange] = []
    """In the order in which they were made."""
    notes: list[str] = []
    """What holds for all of it, a sentence each: what was measured in which way, what wasn't."""


# --- the rule -------------------------------------------------------------------------------------


def decide(requirement: Requirement, samples: Sequence[Sample], at_least: bool = False) -> Cell:
    """The cell of a requirement from its repetitions, by the rule in the module's docstring."""
    values = [sample.value for sample in samples if sample.value is not None]
    told = next((sample.shown for sample in samples if sample.shown), None)
    mean = find_mean(values) if values and not told else None
    headroom = None if mean is None else requirement.find_headroom(mean)
    status, reason = _judge(requirement, samples, at_least)
    quiet = [sample for sample in samples if sample.final or not sample.busy]
    if len(quiet) < len(samples) and _judge(requirement, quiet, at_least)[0] is not status:
        busy = next(sample.busy for sample in samples if sample.busy)
        reason = f"{busy}: an idle machine would decide (without that: {status})"
        status = Status.UNDECIDED
    least = "at least " if at_least else ""
    return Cell(
        requirement=requirement.key,
        status=status,
        value=mean,
        lowest=None if told else min(values, default=None),
        highest=None if told else max(values, default=None),
        at_least=at_least,
        headroom=None if headroom == inf else headroom,
        headrooms=None if told else requirement.find_headrooms(values),
        reason=reason,
        shown=told or ("-" if mean is None else least + requirement.unit.show(mean)),
        samples=list(samples),
    )


def _judge(
    requirement: Requirement, samples: Sequence[Sample], at_least: bool
) -> tuple[Status, str | None]:
    finals = [sample for sample in samples if sample.final]
    final = min(finals, key=lambda sample: bool(sample.keeps), default=None)
    if final is not None:
        return (Status.MET, None) if final.keeps else (Status.MISSED, final.why)
    keep = [sample for sample in samples if sample.keeps]
    broken = [sample for sample in samples if sample.keeps is False]
    silent = [sample for sample in samples if sample.keeps is None]
    if not keep and not broken:
        return Status.UNDECIDED, silent[0].why if silent else "not measured yet"
    if keep and broken:
        why = broken[0].why or requirement.unit.show(broken[0].value or 0.0)
        return Status.UNDECIDED, (
            f"repetitions disagree: {len(keep)} of {len(samples)} keep it, and one doesn't ({why});"
            " make more of them, or find out what differed"
        )
    if keep and silent:
        gave = "1 gave" if len(silent) == 1 else f"{len(silent)} gave"
        return Status.UNDECIDED, (
            f"{gave} no figure of {format_count(len(samples), 'repetition')}: {silent[0].why}"
        )
    if len(keep or broken) < 2:
        return Status.UNDECIDED, _add_why(
            broken,
            "one repetition doesn't show the spread: repeats: 3 would decide",
        )
    values = [sample.value for sample in keep or broken if sample.value is not None]
    if broken and at_least:
        return Status.UNDECIDED, "the client was the limit: more --workers would decide"
    if len(values) < 2 or _is_sure(requirement, values):
        return (Status.MET, None) if keep else (Status.MISSED, _find_why(broken))
    return Status.UNDECIDED, _describe_spread(requirement, values)


def _add_why(broken: Sequence[Sample], text: str) -> str:
    why = _find_why(broken)
    return f"{why}; {text}" if why else text


def _find_why(broken: Sequence[Sample]) -> str | None:
    return next((sample.why for sample in broken if sample.why), None)


def _is_sure(requirement: Requirement, values: Sequence[float]) -> bool:
    """Whether the bound of the mean is on the same side of the requirement as the mean."""
    margins = [requirement.find_headroom(value) for value in values]
    if inf in margins:
        return min(margins) > 1
    logs = [log(margin) for margin in margins]
    return abs(fmean(logs)) >= _find_half(len(logs), stdev(logs))


def _find_half(count: int, deviation: float) -> float:
    return t_quantile(CERTAINTY, count - 1) * deviation / sqrt(count)


def _describe_spread(requirement: Requirement, values: Sequence[float]) -> str:
    logs = [log(requirement.find_headroom(value)) for value in values]
    distance, deviation = abs(fmean(logs)), stdev(logs)
    needed = next(
        (
            count
            for count in range(len(logs) + 1, MOST_REPETITIONS + 1)
            if _find_half(count, deviation) <= distance
        ),
        None,
    )
    spread = (
        f"by a factor of {format_digits(max(values) / min(values))}"
        if min(values) > 0
        else "widely"
    )
    text = f"too close to call: {len(logs)} repetitions differ {spread}"
    if needed is None:
        return f"{text}: find out why they vary so much"
    return f"{text}: about repeats: {needed} would decide"


def find_narrowest(cells: Sequence[Cell]) -> str | None:
    """The requirement with the least headroom; one that is missed without a figure is narrower than all."""
    missed = [cell for cell in cells if cell.status is Status.MISSED and cell.headroom is None]
    if missed:
        return missed[0].requirement
    with_headroom = [cell for cell in cells if cell.headroom is not None]
    narrowest = min(with_headroom, key=lambda cell: cell.headroom or 0.0, default=None)
    return narrowest.requirement if narrowest else None
