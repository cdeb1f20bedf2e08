"""What a campaign has of each candidate, by repetition, and how its results become samples. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TypeAlias

from simulator.contract import Role, RunResult

from ..target import Price
from .decision import Evidence, Sample
from .requirements import Requirements
from .store import StoredResult

ALMOST = 0.999
"""Rates and numbers of events that are rounded count."""


@dataclass(frozen=True)
class Repetition:
    """A turn of a candidate."""

    number: int
    stored: Sequence[StoredResult]
    """Of its jobs that are done."""
    failed: Sequence[str] = ()
    """Of those that failed: which, and why."""
    ended: bool = True
    """Whether no job of it is still to come."""


@dataclass(frozen=True)
class Measured:
    """What there is of a candidate."""

    candidate: str
    repetitions: Sequence[Repetition]
    price: Price = field(default_factory=Price)


@dataclass(frozen=True)
class Question:
    """What is asked of the results."""

    needed: Requirements
    rate_per_s: float
    """Events per second that the devices come to."""

    @property
    def history(self) -> int:
        """Events that must be stored before; 0 if it isn't a number of events that is required."""
        own = self.needed.history
        return 0 if own is None else own.count_events(self.rate_per_s)

    def find_request_rates(self, batch: int) -> dict[str | None, float]:
        """Query -> how often it is asked a second; None -> requests of so many events a second."""
        found: dict[str | None, float] = {None: self.rate_per_s / batch}
        return found | {name: one.rate for name, one in self.needed.queries.items()}

    def count_places(self, batch: int) -> dict[Role, tuple[int, float]]:
        """Of writers with so many events a request, and of readers: how many requests are under way at once
        if each takes as long as it may (Little's law), and how long that is at most, in milliseconds. Without
        a limit on times: none."""
        rates = self.find_request_rates(batch)
        longest: dict[str | None, float] = {}
        for limit in self.needed.list_limits():
            if limit.measure.is_time:
                longest[limit.query] = max(longest.get(limit.query, 0.0), limit.at_most)
        found = {}
        for role in (Role.WRITE, Role.READ):
            own = {key: ms for key, ms in longest.items() if (key is None) is (role is Role.WRITE)}
            busy = sum(rates[key] * ms / 1000 for key, ms in own.items())
            found[role] = ceil(busy), max(own.values(), default=0.0)
        return found


Judge: TypeAlias = Callable[[Repetition], Sample]


def collect(measured: Measured, judge_one: Judge) -> list[Sample]:
    """A sample for each repetition that has something to say, or has ended without."""
    found = []
    for one in measured.repetitions:
        sample = judge_one(one)
        if sample.keeps is not None or sample.evidence or one.ended:
            found.append(sample)
    return found


ORDER = {False: 0, None: 1, True: 2}
"""What a sample keeps -> how much is to be made of it: the worst first."""


def make_sample(
    keeps: bool | None,
    value: float | None,
    why: str | None,
    evidence: Sequence[Evidence],
    final: bool = False,
) -> Sample:
    """What a run, or a result, says; `join` says of which repetition."""
    return Sample(
        repetition=0, keeps=keeps, value=value, why=why, evidence=list(evidence), final=final
    )


def stay_silent(one: Repetition, why: str) -> Sample:
    """A repetition that gave no figure, and why."""
    return Sample(repetition=one.number, keeps=None, why=why, failed=bool(one.failed))


def join(one: Repetition, parts: Sequence[Sample]) -> Sample:
    """What several runs of a repetition say together: the worst of them, with the evidence of all."""
    worst = min(parts, key=lambda each: (not each.final, ORDER[each.keeps], -(each.value or 0.0)))
    evidence = [each for part in parts for each in part.evidence]
    return worst.model_copy(update={"repetition": one.number, "evidence": evidence})


def cite(stored: StoredResult, run: RunResult | None = None) -> Evidence:
    """A result, or one run of it."""
    runs = [] if run is None else [run.run]
    return Evidence(result=stored.id, label=stored.result.label, runs=runs)
