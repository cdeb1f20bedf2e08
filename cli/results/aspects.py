"""The aspects by which databases are judged, and what a candidate's repetitions show for each. Pure. An
aspect's samples are speeds (higher is better), so that all compare alike; times, bytes and CPU enter as
reciprocals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from statistics import fmean, geometric_mean

from simulator.units import format_count

from ..system.errors import ConfigError
from .caveats import Place, find_place
from .entries import Entry, list_entries
from .figures import FIGURES, Form
from .matrix import CandidateFigures, collect_samples, estimate_speed
from .matrix import measure as measure_step
from .model import Result
from .sources import Sources
from .statistics import Ratio
from .summaries import weigh_each, weigh_together

OUTAGE_SHIFT_S = 1.0
"""Added to each outage before comparing: an outage too short to see is not infinitely better than one of 0.1
s."""


@dataclass(frozen=True)
class Aspect:
    """Something to judge a database by."""

    key: str
    name: str
    """Its name in the choice of aspects."""
    heading: str
    """The heading of its column."""
    about: str
    form: Form
    collect: Callable[[Result], Mapping[str, float]]
    """Reads a result: place (the query's name, or empty) -> figure in the heading's unit."""
    less: bool = False
    """Whether lower is better."""
    several: bool = True
    """Whether each of its tests has a column, or only the one with most candidates."""
    shift: float = 0.0
    """Added to figures before comparing."""

    def to_speed(self, value: float) -> float:
        """A figure as a speed: higher is better."""
        return 1 / (value + self.shift) if self.less else value

    def from_speed(self, speed: float) -> float:
        """The inverse of `as_speed`."""
        return 1 / speed - self.shift if self.less else speed

    def show(self, value: float) -> str:
        """The figure as text for a cell."""
        return self.form.show(max(0.0, value))


@dataclass(frozen=True)
class Shown:
    """What a candidate's repetitions show for an aspect in a test."""

    aspect: Aspect
    figures: CandidateFigures
    """The candidate's speeds."""
    detail: str = ""
    """A qualifier shown with the figure."""

    @property
    def value(self) -> float:
        """The geometric mean over repetitions and places, in the heading's unit."""
        return self.aspect.from_speed(geometric_mean(self.figures.scores))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None with only one repetition."""
        speeds = self.figures.find_interval()
        if speeds is None:
            return None
        low, high = sorted(map(self.aspect.from_speed, speeds))
        return low, high

    @property
    def logs(self) -> dict[str, float]:
        """Query (or empty) -> logarithm of its speed, the mean over the repetitions that have it."""
        logs: dict[str, list[float]] = {}
        for repetition in self.figures.samples:
            for place, values in repetition.items():
                logs.setdefault(place.group, []).append(log(fmean(values)))
        return {place: fmean(values) for place, values in logs.items()}


def _is_disturbed(result: Result) -> bool:
    return any(run.marks for run in result.runs)


def _list_valid(result: Result) -> list[Entry]:
    if result.command not in ("insert", "mixed"):
        return []
    return [entry for entry in list_entries(result.writers) if entry.group.valid]


def _average(key: str, result: Result, entries: Sequence[Entry]) -> dict[str, float]:
    """The mean of a registry figure over the runs of a result; the geometric mean over worker counts or fill
    levels."""
    values: dict[Place, list[float]] = {}
    for entry in entries:
        if value := FIGURES[key].read(entry):
            values.setdefault(find_place(result, entry.group_run), []).append(value)
    return {"": geometric_mean(map(fmean, values.values()))} if values else {}


def _collect_inserts(result: Result) -> dict[str, float]:
    """The rate at the fastest worker count; on growing data, over all fill levels."""
    load = result.settings.load
    # A given rate says nothing about the database's speed.
    is_closed = load.rate_per_s is None and not load.stages and not _is_disturbed(result)
    entries = _list_valid(result) if is_closed else []
    if result.by_fill_level:
        return _average("inserts_per_s", result, entries)
    counts = {entry.group.workers for entry in entries}
    averages = [
        _average(
            "inserts_per_s", result, [entry for entry in entries if entry.group.workers == count]
        )
        for count in counts
    ]
    return max(
        (average for average in averages if average), key=lambda average: average[""], default={}
    )


def _collect_response(result: Result) -> dict[str, float]:
    """Response times of open loops, counted from when a request was due."""
    entries = [] if _is_disturbed(result) else _list_valid(result)
    return _average("latency_p99_ms", result, [entry for entry in entries if entry.group.offered])


def _collect_capacity(result: Result) -> dict[str, float]:
    capacity = result.capacity
    return {"": capacity.events_per_s} if capacity and capacity.events_per_s else {}


def _collect_hot(result: Result) -> dict[str, float]:
    return {
        place.query: 1000 * fmean(values)
        for place, values in collect_samples(result).items()
        if place.query is not None
    }


def _collect_cold(result: Result) -> dict[str, float]:
    if result.command != "query":
        return {}
    return {summary.query: 1000 * summary.cold for summary in result.query_summary if summary.cold}


def _collect_disk(result: Result) -> dict[str, float]:
    weigh = weigh_together if result.command == "capacity" else weigh_each
    size = weigh([run for run in result.writers if run.group.valid]).lasting_bytes
    return {"": size} if size else {}


def _collect_cpu(result: Result) -> dict[str, float]:
    """CPU of the database for inserts alone."""
    entries = [] if _is_disturbed(result) else _list_valid(result)
    return _average(
        "cpu_us_per_event",
        result,
        [entry for entry in entries if entry.group_run.run.readers is None],
    )


def _collect_outage(result: Result) -> dict[str, float]:
    gaps = [outage.gap_s for run in result.writers for outage in run.group.outages]
    return {"": max(gaps)} if gaps and result.valid else {}


ASPECTS = (
    Aspect("inserts", "Inserts", FIGURES["inserts_per_s"].heading,
           "events acknowledged per second in a closed loop, at the best worker count",
           Form.RATE, _collect_inserts),
    Aspect("capacity", "Capacity", "Capacity, events/s",
           "the highest rate that holds within the limits", Form.RATE, _collect_capacity),
    Aspect("response", "Response time", "Response p99 ms",
           "p99 of inserts at a given rate, from when each was due", Form.DIGITS, _collect_response,
           less=True),
    Aspect("hot", "Queries, hot", "Queries, hot, ms",
           "geometric mean over the queries of the mean time without each reader's first execution",
           Form.DIGITS, _collect_hot, less=True),
    Aspect("cold", "Queries, cold", "Queries, cold, ms",
           "the same for each reader's first execution", Form.DIGITS, _collect_cold, less=True,
           several=False),
    Aspect("disk", "Disk", "Disk, " + FIGURES["bytes_per_event"].heading,
           "bytes on disk per event, from growth, after compaction if measured",
           Form.BYTES, _collect_disk, less=True, several=False),
    Aspect("cpu", "CPU per event", "CPU, " + FIGURES["cpu_us_per_event"].heading,
           "the database's CPU ÷ events acknowledged, for inserts alone",
           FIGURES["cpu_us_per_event"].form, _collect_cpu, less=True, several=False),
    Aspect("outage", "Outage", "Outage s",
           "the longest time without an acknowledgement after a fault", Form.TENTHS, _collect_outage,
           less=True, shift=OUTAGE_SHIFT_S),
)  # fmt: skip


def measure(aspect: Aspect, results: Sequence[Result], failed: int = 0) -> Shown | None:
    """What a candidate's repetitions of a test show; None if there is no figure. `failed`: number of jobs
    without a result."""
    samples = [
        {Place(group=place): [aspect.to_speed(value)] for place, value in values.items()}
        for values in map(aspect.collect, results)
        if values
    ]
    if not samples:
        return None
    figures = CandidateFigures(samples, failed=failed + len(results) - len(samples))
    if aspect.key == "capacity":
        # A search knows its answer as an interval, and "no rate holds" is an answer, too.
        figures = measure_step({"": results}, {"": failed}).rows[""]
    details = ["at least"] if inf in figures.bounds else []
    if not figures.complete:
        of = format_count(figures.repetitions, "repetition")
        details.append(f"in {len(figures.samples)} of {of}")
    return Shown(aspect, figures, ", ".join(details))


# --- one campaign beside another of the same plan ---------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A candidate's figure in two campaigns."""

    candidate: str
    step: str
    base: Shown
    own: Shown
    speed: Ratio | None
    """The ratio of the second to the first; above 1 is better."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.speed is None or self.speed.differs is None:
            return "unknown: needs 2 repetitions"
        if not self.speed.differs:
            return "no difference shown" if self.speed.alike else "undecided"
        return "better" if self.speed.value > 1 else "worse"


def compare_campaigns(base: Sources, own: Sources) -> list[Change]:
    """Each candidate's figures that both campaigns have, in the first one's order. The error of 5 % is split
    among the figures. ConfigError if they have none in common."""
    figures = [_collect(sources) for sources in (base, own)]
    common = [key for key in figures[0] if key in figures[1]]
    if not common:
        raise ConfigError(
            "these campaigns have no candidate with a figure of the same step in common: compare campaigns"
            " of the same file"
        )
    error = 0.05 / len(common)
    changes = []
    for candidate, step, aspect in common:
        before, after = (found[candidate, step, aspect] for found in figures)
        speed = estimate_speed(after.figures, before.figures, error)
        changes.append(Change(candidate, step, before, after, speed))
    return changes


def _collect(sources: Sources) -> dict[tuple[str, str, str], Shown]:
    """(candidate, step, key of an aspect) -> what its repetitions show."""
    found: dict[tuple[str, str, str], Shown] = {}
    jobs = dict.fromkeys((source.candidate, source.test) for source in sources.done)
    for job in jobs:
        done = [source.result for source in sources.done if (source.candidate, source.test) == job]
        failed = sum((source.candidate, source.test) == job for source in sources.failed)
        for aspect in ASPECTS:
            if (shown := measure(aspect, done, failed)) is not None:
                found[(*job, aspect.key)] = shown
    return found


def find_absent(base: Sources, own: Sources) -> Sequence[str]:
    """The candidates that only one of them has."""
    sides = [{source.candidate for source in (*side.done, *side.failed)} for side in (base, own)]
    return sorted(sides[0] ^ sides[1])
