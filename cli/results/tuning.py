"""The models of a tuning in result.json, and what follows from its trials. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, fsum, log
from typing import Any

from pydantic import BaseModel

from simulator.contract import Bounded, RunLimit

from .statistics import Ratio, estimate_ratio


class TunedSetting(Bounded, BaseModel):
    """A setting that was varied."""

    name: str
    option: bool = False
    """Whether it is the module's; otherwise it is the load's."""
    values: list[Any]
    default: Any = None
    """What it is without being varied: as given otherwise, or by default."""


class Trial(Bounded, BaseModel):
    """One measurement of a combination."""

    candidate: int
    """Its place among the candidates."""
    stage: int
    """1 and up; the last is the comparison of those that are left."""
    rate_per_s: float | None = None
    """Events per second, or with limits the capacity; None: there was no figure."""
    runs: list[int] = []
    """Numbers of the runs it rests on."""
    reasons: list[str] = []
    """Why there is no figure."""


class Tuning(Bounded, BaseModel):
    """Which settings suit."""

    over: list[TunedSetting]
    candidates: list[dict[str, Any]]
    """Setting -> value; the last may be the defaults alone."""
    limits: list[RunLimit] = []
    """What a rate has to keep to; without any the closed loop's throughput is meant."""
    trials: list[Trial] = []
    """In the order in which they were made."""
    finalists: list[int] = []
    """Which candidates were compared at the end; none if it didn't come to that."""

    @property
    def stages(self) -> int:
        """The number of the last stage."""
        return max((trial.stage for trial in self.trials), default=0)

    @property
    def defaults(self) -> dict[str, Any]:
        """The combination that nobody would have to choose."""
        return {setting.name: setting.default for setting in self.over}

    def find_rates(self, candidate: int, stage: int | None = None) -> list[float]:
        """The figures of a candidate, of one stage or of all."""
        return [
            trial.rate_per_s
            for trial in self.trials
            if trial.candidate == candidate and trial.rate_per_s and stage in (None, trial.stage)
        ]

    def find_settings(self, run: int) -> dict[str, Any]:
        """What a run was made with."""
        for trial in self.trials:
            if run in trial.runs:
                return self.candidates[trial.candidate]
        return {}

    def rank_finalists(self) -> list[int]:
        """The finalists that have figures, the fastest first: by the geometric mean of the last stage."""
        last = self.stages
        measured = [candidate for candidate in self.finalists if self.find_rates(candidate, last)]
        return sorted(measured, key=lambda candidate: -mean(self.find_rates(candidate, last)))

    def weigh_settings(self) -> dict[str, float]:
        """Setting -> how many times as fast its best value is as its worst, by the geometric mean of all
        combinations with a value in the first stage: how much it matters."""
        weights = {}
        for setting in self.over:
            means = [
                mean(rates)
                for value in setting.values
                if (rates := list(self._collect_first(setting.name, value)))
            ]
            weights[setting.name] = max(means) / min(means) if means else 1.0
        return dict(sorted(weights.items(), key=lambda pair: -pair[1]))

    def _collect_first(self, name: str, value: Any) -> Iterable[float]:
        for number, settings in enumerate(self.candidates):
            if settings[name] == value:
                yield from self.find_rates(number, 1)


def mean(rates: Sequence[float]) -> float:
    """The geometric mean: rates vary by a share of themselves."""
    return exp(fsum(map(log, rates)) / len(rates))


def compare_candidates(tuning: Tuning, candidate: int, base: int, stage: int) -> Ratio | None:
    """How many times as fast as `base` the candidate is in a stage; None without figures of both."""
    own, other = (tuning.find_rates(number, stage) for number in (candidate, base))
    return estimate_ratio(own, other) if own and other else None


def is_best_shown(tuning: Tuning, ranked: Sequence[int]) -> bool:
    """Whether the first is shown to be faster than the next."""
    if len(ranked) < 2:
        return True
    ratio = compare_candidates(tuning, ranked[0], ranked[1], tuning.stages)
    return ratio is not None and bool(ratio.differs)
