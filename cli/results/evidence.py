"""What a campaign has measured of each candidate, by repetition, and how results become samples. Pure."""

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
"""Rates and numbers of events count from this share of what is required on: they may be rounded."""


@dataclass(frozen=True)
class Repetition:
    """A turn of a candidate."""

    number: int
    stored: Sequence[StoredResult]
    """The results of its jobs that are done."""
    failed: Sequence[str] = ()
    """Its jobs that failed: which, and why."""
    ended: bool = True
    """Whether none of its jobs is still to come."""


@dataclass(frozen=True)
class Measured:
    """What a campaign has measured of a candidate."""

    candidate: str
    repetitions: Sequence[Repetition]
    price: Price = field(default_factory=Price)


@dataclass(frozen=True)
class Question:
    """What is asked of the results."""

    needed: Requirements
    rate_per_s: float
    """Events per second of all devices together."""
    windows_s: Mapping[str, float] = field(default_factory=dict)
    """Query -> how much time it looks at, as far as that is known."""

    @property
    def kept(self) -> int | None:
        """Events that are stored in the end: the load's in the retention; None without one."""
        retention_s = self.needed.retention
        return None if retention_s is None else round(self.rate_per_s * retention_s)

    @property
    def history(self) -> int:
        """Events that must be stored before; 0 if no number of events is required."""
        history = self.needed.history
        return 0 if history is None else history.count_events(self.rate_per_s, self.kept)

    def find_request_rates(self, batch: int) -> dict[str | None, float]:
        """Query -> how often it is asked per second; None -> requests per second, each of so many events."""
        rates: dict[str | None, float] = {None: self.rate_per_s / batch}
        return rates | {name: limits.rate for name, limits in self.needed.queries.items()}

    def count_places(self, batch: int) -> dict[Role, tuple[int, float]]:
        """How many requests of writers (with so many events each) and of readers are under way at once if
        each takes as long as it may (Little's law), and how long that is at most, in milliseconds. Both are 0
        without a limit on times."""
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
    """A sample for each repetition that shows something, or has ended without. `loaded`: whether it depends
    on the load of the machine."""
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
    """The runs that a sample rests on."""
    results = {stored.id: stored.result for stored in repetition.stored}
    for evidence in sample.evidence:
        for run in results[evidence.result].runs:
            if not evidence.runs or run.run in evidence.runs:
                yield run


ORDER = {False: 0, None: 1, True: 2}
"""`keeps` of a sample -> its rank: the worst first."""


def make_sample(
    keeps: bool | None,
    value: float | None,
    why: str | None,
    evidence: Sequence[Evidence],
    final: bool = False,
) -> Sample:
    """What a run, or a result, says; `join` adds the repetition."""
    return Sample(
        repetition=0, keeps=keeps, value=value, why=why, evidence=list(evidence), final=final
    )


def stay_silent(repetition: Repetition, why: str) -> Sample:
    """A repetition that gave no figure, and why."""
    return Sample(repetition=repetition.number, keeps=None, why=why, failed=bool(repetition.failed))


def join(repetition: Repetition, parts: Sequence[Sample]) -> Sample:
    """What several runs of a repetition say together: the worst of them, with the evidence of all."""
    worst = min(parts, key=lambda part: (not part.final, ORDER[part.keeps], -(part.value or 0.0)))
    evidence = [result for part in parts for result in part.evidence]
    return worst.model_copy(update={"repetition": repetition.number, "evidence": evidence})


def cite(stored: StoredResult, run: RunResult | None = None) -> Evidence:
    """A result, or one run of it."""
    runs = [] if run is None else [run.run]
    return Evidence(result=stored.id, label=stored.result.label, runs=runs)
