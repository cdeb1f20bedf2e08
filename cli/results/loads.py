"""What a campaign has measured of each candidate, by repetition, how results become samples, and which runs
count for the required load. Pure.

A run counts if it offered the required rate (up to 5 % more), in requests of the required size, with the
required queries at their rates, on the required history. A search counts if it had the same limits under the
same conditions. User-defined steps are judged like those derived from the requirements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum, inf
from typing import TypeAlias

from simulator.contract import GroupResult, Role, RunResult
from simulator.units import format_duration

from ..plan.target import Price
from .decision import Evidence, Sample, Scale, Unit
from .model import Result
from .requirements import Requirements
from .rules import describe_busiest
from .scaling import LEAST_RATIO
from .store import StoredResult

ALMOST = 0.999


"""Rates and numbers of events count from this share of the required one: they may be rounded."""


@dataclass(frozen=True)
class Repetition:
    """One turn of a candidate."""

    number: int
    stored: Sequence[StoredResult]
    """The results of its jobs that are done."""
    failed: Sequence[str] = ()
    """Failed jobs -> why."""
    ended: bool = True
    """Whether all of its jobs are over."""


@dataclass(frozen=True)
class Measured:
    """What a campaign measured for a candidate."""

    candidate: str
    repetitions: Sequence[Repetition]
    price: Price = field(default_factory=Price)


@dataclass(frozen=True)
class Question:
    """What the verdict asks of the results."""

    needed: Requirements
    rate_per_s: float
    """Events per second of all devices together."""
    windows_s: Mapping[str, float] = field(default_factory=dict)
    """Query -> the length of time it covers, where known."""

    @property
    def kept(self) -> int | None:
        """Events stored at full retention; None without a retention."""
        retention_s = self.needed.retention
        return None if retention_s is None else round(self.rate_per_s * retention_s)

    @property
    def history(self) -> int:
        """Events that must be stored before; 0 if no number is required."""
        history = self.needed.history
        return 0 if history is None else history.count_events(self.rate_per_s, self.kept)

    def find_request_rates(self, batch: int) -> dict[str | None, float]:
        """Query -> executions per second; None -> insert requests per second of the given batch size."""
        rates: dict[str | None, float] = {None: self.rate_per_s / batch}
        return rates | {name: limits.rate for name, limits in self.needed.queries.items()}

    def count_places(self, batch: int) -> dict[Role, tuple[int, float]]:
        """How many requests of writers (with a given batch size) and of readers are in flight if each takes
        as long as allowed (Little's law), and the longest allowed time in milliseconds. Both are 0 without a
        limit on times."""
        rates = self.find_request_rates(batch)
        longest: dict[str | None, float] = {}
        for limit in self.needed.list_limits():
            if limit.measure.is_time:
                longest[limit.query] = max(longest.get(limit.query, 0.0), limit.at_most)
        places = {}
        for role in (Role.WRITE, Role.READ):
            times_ms = {
                key: ms for key, ms in longest.items() if (key is None) is (role is Role.WRITE)
            }
            busy = sum(rates[key] * ms / 1000 for key, ms in times_ms.items())
            places[role] = ceil(busy), max(times_ms.values(), default=0.0)
        return places


Judge: TypeAlias = Callable[[Repetition], Sample]


def collect(measured: Measured, judge_one: Judge, loaded: bool = False) -> list[Sample]:
    """A sample for each repetition that shows something, or ended without a figure. `loaded`: whether it
    depends on the machine's load."""
    samples = []
    for repetition in measured.repetitions:
        sample = judge_one(repetition)
        if loaded:
            runs = list(_list_runs(repetition, sample))
            sample = sample.model_copy(update={"busy": describe_busiest(runs)})
        if sample.keeps is not None or sample.evidence or repetition.ended:
            samples.append(sample)
    return samples


def _list_runs(repetition: Repetition, sample: Sample) -> Iterator[RunResult]:
    """The runs behind a sample."""
    results = {stored.id: stored.result for stored in repetition.stored}
    for evidence in sample.evidence:
        for run in results[evidence.result].runs:
            if not evidence.runs or run.run in evidence.runs:
                yield run


ORDER = {False: 0, None: 1, True: 2}


"""`keeps` of a sample -> its rank, worst first."""


def make_sample(
    keeps: bool | None,
    value: float | None,
    why: str | None,
    evidence: Sequence[Evidence],
    final: bool = False,
) -> Sample:
    """What a run or a result shows; `join` adds the repetition."""
    return Sample(
        repetition=0, keeps=keeps, value=value, why=why, evidence=list(evidence), final=final
    )


def stay_silent(repetition: Repetition, why: str) -> Sample:
    """A repetition that gave no figure, and why."""
    return Sample(repetition=repetition.number, keeps=None, why=why, failed=bool(repetition.failed))


def join(repetition: Repetition, parts: Sequence[Sample]) -> Sample:
    """What several runs of a repetition show together: the worst, with the evidence of all."""
    worst = min(parts, key=lambda part: (not part.final, ORDER[part.keeps], -(part.value or 0.0)))
    evidence = [result for part in parts for result in part.evidence]
    return worst.model_copy(update={"repetition": repetition.number, "evidence": evidence})


def cite(stored: StoredResult, run: RunResult | None = None) -> Evidence:
    """A result, or one run of it."""
    runs = [] if run is None else [run.run]
    return Evidence(result=stored.id, label=stored.result.label, runs=runs)


# --- which runs count -------------------------------------------------------------------------------

MOST_RATE = 1.05
"""Runs at up to this multiple of the required rate count as the required one."""


@dataclass(frozen=True)
class LoadRun:
    """A run that offered the required load."""

    stored: StoredResult
    run: RunResult
    writers: GroupResult

    @property
    def events(self) -> int:
        """The events stored in the middle of the run."""
        return find_level(self.stored.result, self.run) + (self.writers.count or 0) // 2

    def find_span_s(self, rate_per_s: float) -> float:
        """The time span they cover at the required rate."""
        return max(self.stored.result.settings.data.prefill_span_s or 0.0, self.events / rate_per_s)


@dataclass(frozen=True)
class Loads:
    """The runs of a repetition that offered the required load."""

    runs: list[LoadRun]
    """Runs on the history; if only the retention is known, those on the most events."""
    smaller: list[LoadRun]
    """Runs on the fewest events, to measure growth; none unless the retention is known."""
    why: str
    """Why there are none on the history."""

    @property
    def events(self) -> int | None:
        """How many events the figures apply to; None without runs."""
        return min((load.events for load in self.runs), default=None)

    @property
    def busy(self) -> str | None:
        """The load of other programs during the smaller runs, as in `Sample`."""
        return describe_busiest([load.run for load in self.smaller])


def find_level(result: Result, run: RunResult) -> int:
    """The events stored when a run began."""
    return result.settings.data.prefill if run.fill_level is None else run.fill_level


def find_loads(question: Question, repetition: Repetition) -> Loads:
    """The runs of a repetition that count for the load."""
    loads: list[LoadRun] = []
    others: list[LoadRun] = []
    why = ""
    for stored in repetition.stored:
        result = stored.result
        settings = result.settings
        # A changing rate equals the required one only briefly.
        if (
            result.command not in ("insert", "mixed")
            or settings.disturbances
            or settings.load.stages
        ):
            continue
        for run in result.runs:
            writers = run.writers
            if writers is None or writers.offered is None or run.marks or run.undone:
                continue
            if run.retention is not None:
                continue  # with a compressed clock, a minute deletes more than a month
            offered = writers.offered.rate_per_s
            if not ALMOST * question.rate_per_s <= offered <= MOST_RATE * question.rate_per_s:
                why = why or f"{stored.result.label} offered {Unit.EVENTS_PER_S.show(offered)}"
            elif differs := _find_other_requests(question, result):
                why = differs
            elif differs := _find_other_history(question, result, run):
                why = differs
                others.append(LoadRun(stored, run, writers))
            else:
                loads.append(LoadRun(stored, run, writers))
    if repetition.failed:
        why = repetition.failed[0]
    why = why or f"nothing was measured at {Unit.EVENTS_PER_S.show(question.rate_per_s)}"
    if question.kept is None:
        return Loads(loads, [], why)
    return _split(question, repetition, loads, others, why)


def _split(
    question: Question,
    repetition: Repetition,
    loads: list[LoadRun],
    others: list[LoadRun],
    why: str,
) -> Loads:
    """The runs by fill level; `others` lack the history."""
    most = max((load.events for load in loads), default=0)
    runs = [load for load in loads if load.events * LEAST_RATIO > most]
    below = [load for load in [*loads, *others] if load.events * LEAST_RATIO <= most]
    least = min((load.events for load in below), default=0)
    smaller = [load for load in below if load.events < LEAST_RATIO * least]
    history = question.needed.history
    is_whole = repetition.ended and not repetition.failed
    if history is not None and history.time is not None and not smaller and not is_whole:
        return Loads(
            [], runs, why
        )  # the larger level, whose size isn't known in advance, is missing
    return Loads(runs, smaller, why)


def find_difference(question: Question, result: Result, run: RunResult) -> str | None:
    """Why a run, or a search, deviates from the requirements in anything but its rate; None if it doesn't."""
    return _find_other_requests(question, result) or _find_other_history(question, result, run)


def _find_other_history(question: Question, result: Result, run: RunResult) -> str | None:
    """Why a run doesn't have the required history; None if it does."""
    needed, level = question.needed, find_level(result, run)
    if level < ALMOST * question.history:
        return f"measured on {level:,} events, not on the history's {question.history:,}"
    if (
        (history := needed.history) is not None
        and history.span is not None
        and history.every is not None
    ):
        data = result.settings.data
        span_s, every_s = data.prefill_span_s or 0.0, data.prefill_every_s or inf
        if span_s < ALMOST * history.span or every_s * ALMOST > history.every:
            return (
                f"measured without the history of {format_duration(history.span)}, one event per device"
                f" every {format_duration(history.every)}"
            )
    return None


def _find_other_requests(question: Question, result: Result) -> str | None:
    """Why a result's requests differ from the required ones; None if they don't."""
    needed, batch = question.needed, result.settings.load.batch
    if needed.insert.batch is not None and max(1, batch) != needed.insert.batch:
        return f"measured in batches of {max(1, batch):,}, not of {needed.insert.batch:,}"
    rates = _find_query_rates(result)
    for name, limits in needed.queries.items():
        if rates.get(name, 0.0) < ALMOST * limits.rate:
            return f"measured without {name} {limits.rate:g} times a second beside it"
    return None


def _find_query_rates(result: Result) -> dict[str, float]:
    """Query -> its planned executions per second during the inserts."""
    settings = result.settings
    if settings.query_rate_per_s is None or not settings.queries:
        return {}
    queries = settings.queries
    weights = queries if isinstance(queries, dict) else dict.fromkeys(queries, 1.0)
    total = fsum(weights.values())
    return {name: settings.query_rate_per_s * weight / total for name, weight in weights.items()}


def find_scale(question: Question, measured: Measured) -> Scale | None:
    """How many events the load of a candidate, or else its searches, were measured on; None if that, or full
    retention, is unknown."""
    found = [find_loads(question, repetition) for repetition in measured.repetitions]
    levels = [loads.events for loads in found if loads.events is not None]
    levels = levels or [
        find_level(stored.result, stored.result.runs[-1])
        for repetition in measured.repetitions
        for stored in repetition.stored
        if stored.result.capacity is not None and stored.result.runs
    ]
    if question.kept is None or not levels:
        return None
    fits = [fits_memory(question, load) for loads in found for load in loads.runs]
    in_memory = None if None in fits or not fits else all(fits)
    return Scale(events=min(levels), kept=question.kept, in_memory=in_memory)


def fits_memory(question: Question, load: LoadRun) -> bool | None:
    """Whether the data at the end of a run fits into the database's memory; None: unknown."""
    storage, memory_bytes = load.writers.storage, find_memory(question, load.run)
    if storage is None or storage.total_bytes is None or memory_bytes is None:
        return None
    return storage.total_bytes <= memory_bytes


def find_memory(question: Question, run: RunResult) -> float | None:
    """The database's memory in bytes, as configured or as observed; None: unknown."""
    return question.needed.memory or (run.resources.memory_bytes if run.resources else None)
