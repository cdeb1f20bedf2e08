"""The verdict: candidates × requirements, each met, missed or undecided. The model and the rule. Pure. The
rule: a repetition is one sample. A requirement is met if every repetition keeps it, none failed, and the
bound of their geometric mean keeps it, too: a one-sided 95 % bound by Student's t on the logarithms, since
figures vary in proportion. It is missed if every repetition with a figure breaks it, and so does the bound.

Everything else is undecided, including a single repetition, which doesn't show the spread. What must never
happen (a lost event) is missed by a single repetition. A repetition on a busy machine decides nothing that
depends on the load: the others alone must show met or missed, or else it is undecided. So of two equal
candidates exactly at the limit, one is called met and the other missed in at most 2 × 5 % × 5 % of campaigns;

far from the limit both are decided alike, with few repetitions if these vary little.
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
"""The confidence of a bound."""
MOST_TIMES = 30
"""A figure is extrapolated to at most this many times the events it was measured on."""
MOST_REPETITIONS = 30
"""If more were needed, finding the cause of the spread would be better."""


class Status(StrEnum):
    """Whether a candidate meets a requirement."""

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
    """Not a figure: something that is true or false."""

    def show(self, value: float) -> str:
        """A figure as text: `1,600 events/s`, `112 ms`, `48 s`, `0.1%`, `1.83 TB`, `812`."""
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
    """A mean over repetitions with its bounds, each one-sided at 95 %."""

    mean: float
    low: float
    high: float


class Requirement(_Part):
    """A row of the verdict: one requirement."""

    key: str
    """As in the file, as a path: `events_per_s`, `insert.p99`, `queries.NAME.p99`, `disk`,
    `cost_per_month`, `faults.kill-server`."""
    heading: str
    """A few words: `inserts p99`."""
    unit: Unit
    bound: float
    """In that unit."""
    at_least: bool = False
    """Whether the bound is a minimum; otherwise it is a maximum."""
    words: str | None = None
    """What is required if it isn't a figure: `on disk`."""

    @property
    def limit(self) -> str:
        """`≥ 1,600 events/s`, `≤ 250 ms`, `on disk`."""
        if self.words is not None:
            return self.words
        return f"{'≥' if self.at_least else '≤'} {self.unit.show(self.bound)}"

    def find_headroom(self, value: float) -> float:
        """How many times better than required: figure ÷ bound for a minimum, bound ÷ figure for a maximum,
        which is infinite for a figure of 0."""
        if self.at_least:
            return value / self.bound
        return self.bound / value if value > 0 else inf

    def find_headrooms(self, values: Sequence[float]) -> tuple[float, float] | None:
        """The lowest and highest headroom of several; None if there is none, or if one is of a figure of
        0."""
        headrooms = [self.find_headroom(value) for value in values]
        return (min(headrooms), max(headrooms)) if headrooms and inf not in headrooms else None


class Evidence(_Part):
    """A result that a cell rests on."""

    result: str
    """Its ID: the name of its folder in the campaign's `results/`."""
    label: str | None = None
    """The job's name: `postgresql load 2`."""
    runs: list[int] = []
    """Numbers of its runs; none: all of them together."""


class Sample(_Part):
    """What one repetition shows about a requirement."""

    repetition: int
    keeps: bool | None
    """None: it gave no figure."""
    value: float | None = None
    """In the requirement's unit."""
    why: str | None = None
    """Why it gave no figure, or what else breaks the requirement; a few words."""
    shown: str | None = None
    """What overrides any figure: `50 events lost`."""
    final: bool = False
    """Whether it decides alone: what it shows must never happen, or it isn't a measurement."""
    failed: bool = False
    """Whether the job failed."""
    busy: str | None = None
    """The load of other programs meanwhile, if enough to affect the figure."""
    evidence: list[Evidence] = []


class Scale(_Part):
    """How many events a cell was measured on, and what follows for full retention."""

    events: int
    """Stored at the time of measurement."""
    kept: int
    """Stored at full retention: load × retention."""
    in_memory: bool | None = None
    """Whether the events it was measured on fit into the database's memory; None: unknown."""
    exponent: Interval | None = None
    """The power of the number of events by which the figure grows, from two fill levels: 0 is flat."""
    extrapolated: Interval | None = None
    """The figure predicted for `extrapolated_to` events."""
    extrapolated_to: int | None = None
    """`kept`, or the most that extrapolation allows."""

    @property
    def share(self) -> float:
        """The share of full retention it was measured on."""
        return self.events / self.kept

    @property
    def reach(self) -> int:
        """The most events it may be extrapolated to."""
        return min(self.kept, MOST_TIMES * self.events)


class Cell(_Part):
    """One candidate and one requirement."""

    requirement: str
    """The requirement's key."""
    status: Status
    value: float | None = None
    """The geometric mean over the repetitions, in the requirement's unit."""
    lowest: float | None = None
    highest: float | None = None
    """Over the repetitions."""
    at_least: bool = False
    """Whether the figure is a lower bound: a search was client-bound."""
    headroom: float | None = None
    """How many times better than required, for the extrapolated figure if that is worse; below 1 it isn't
    met. None without a figure, or for a figure of 0."""
    headrooms: tuple[float, float] | None = None
    """The lowest and highest of the repetitions; None if one is unknown."""
    reason: str | None = None
    """If undecided: why, and what would decide it; if missed: why, unless its figure says it."""
    shown: str
    """The figure in words; `-` without one."""
    scale: Scale | None = None
    """None: it doesn't depend on the stored events, or their final number is unknown."""
    samples: list[Sample] = []
    """One for each repetition, with its results."""

    @property
    def evidence(self) -> list[Evidence]:
        """The results behind it, each once, in the order of the repetitions."""
        by_result: dict[str, Evidence] = {}
        for sample in self.samples:
            for evidence in sample.evidence:
                by_result.setdefault(evidence.result, evidence)
        return list(by_result.values())


class Acknowledgement(_Part):
    """The durability of an acknowledged event."""

    on_disk: bool | None
    """Whether an event is on disk by then; None: unknown."""
    when: str
    """When it is on disk, or why that is unknown."""
    places: int | None
    """How many copies exist by then; None: unknown."""
    client: str
    """The client that sent events: the option `client`."""
    advice: str = ""
    """Settings that would put events on disk by then; empty if they are, or if none would."""

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
    """How far figures can be trusted, by the caveats that would change them."""

    level: Literal["good", "low"]
    reasons: list[str] = []
    """The worst caveat of each kind, in a few words."""

    def __str__(self) -> str:
        """`Trust: low (other programs used 79% of the CPU; windows of 8.0 s)`."""
        why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return f"Trust: {self.level}{why}"


class CandidateVerdict(_Part):
    """A column of the verdict."""

    candidate: str
    acknowledgement: Acknowledgement | None = None
    """None: unknown, since the module doesn't declare it, or nothing was inserted."""
    trust: Trust | None = None
    """None: nothing was measured."""
    cells: list[Cell]
    """One per requirement, in their order."""
    narrowest: str | None = None
    """The key of the requirement with the least headroom, missed ones first; None if no headroom is known."""
    disk_bytes: float | None = None
    """Bytes stored at full retention."""
    cost_per_month: float | None = None
    price: str | None = None
    """Its parts: `1.20 an hour and 1.83 TB at 0.10 a GB`."""

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
    """Requirements that were changed when results already existed."""

    at: datetime
    results: int
    """How many existed."""
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
    """In the figures of all candidates; None: nothing was measured."""
    jobs_left: int = 0
    """Jobs of the campaign that aren't done: it was interrupted or is still running."""
    requirement_changes: list[RequirementChange] = []
    """In the order they were made."""
    notes: list[str] = []
    """Notes on the whole verdict, a sentence each: how things were measured, and what wasn't."""


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
            " run more, or find out what differed"
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
    """The requirement with the least headroom; one missed without a figure comes before all."""
    missed = [cell for cell in cells if cell.status is Status.MISSED and cell.headroom is None]
    if missed:
        return missed[0].requirement
    with_headroom = [cell for cell in cells if cell.headroom is not None]
    narrowest = min(with_headroom, key=lambda cell: cell.headroom or 0.0, default=None)
    return narrowest.requirement if narrowest else None
