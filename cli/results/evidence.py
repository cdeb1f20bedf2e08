"""What a campaign measured for each candidate, by repetition, and how results become samples. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TypeAlias

from simulator.contract import Role, RunResult

from ..plan.target import Price
from .decision import Evidence, Sample
from .requirements import Requirements
from .rules import describe_busiest
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
