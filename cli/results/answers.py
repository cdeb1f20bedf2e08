"""The models of answers in result.json: outcomes of limits, and results of searches (a capacity, a tuning)
with what follows from their steps and trials. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import ceil, exp, fsum, log
from typing import Any

from pydantic import BaseModel

from simulator.contract import (
    Bounded,
    GroupResult,
    LatencyMs,
    Measure,
    QueryResult,
    RunLimit,
)

from .statistics import Ratio, estimate_ratio


class Outcome(StrEnum):
    """The outcome of a limit, or of all limits of a run."""

    KEPT = "kept"
    MISSED = "missed"
    UNDECIDED = "undecided"
    """The run has too few requests, or isn't valid; not counted as kept."""


class LimitVerdict(Bounded, BaseModel):
    """One limit in one run."""

    limit: RunLimit
    outcome: Outcome
    figure: float | None = None
    """The limited figure, in milliseconds or as a share; None if unknown."""
    reason: str | None = None
    """Why it is undecided, or missed although the figure is unknown."""


class RunVerdict(Bounded, BaseModel):
    """All limits in one run."""

    outcome: Outcome
    """`kept` if each is, and the run is valid and kept up with its rate."""
    reasons: list[str] = []
    """Why they aren't kept, or are undecided."""
    limits: list[LimitVerdict]

    @property
    def holds(self) -> bool | None:
        """Whether all limits are kept; None: undecided."""
        return None if self.outcome is Outcome.UNDECIDED else self.outcome is Outcome.KEPT

    @property
    def figures(self) -> dict[str, float]:
        """Name of a limit -> the figure that it is about, if that is known."""
        pairs = ((verdict.limit.name, verdict.figure) for verdict in self.limits)
        return {name: figure for name, figure in pairs if figure is not None}

    @property
    def summary(self) -> str:
        """`p99=100ms missed; error_share=0.1% kept`."""
        return "; ".join(f"{verdict.limit} {verdict.outcome}" for verdict in self.limits)


def sum_up(outcomes: list[Outcome]) -> Outcome:
    """The combined outcome: kept if all are, missed if any is."""
    worst = (Outcome.MISSED, Outcome.UNDECIDED)
    return next((outcome for outcome in worst if outcome in outcomes), Outcome.KEPT)


# --- what limits are about. Pure. -------------------------------------------------------------------


def measure(
    limit: RunLimit, writers: GroupResult | None, readers: GroupResult | None, per_request: int
) -> float | None:
    """The figure of a run that a limit applies to, in milliseconds or as a share; None if unknown."""
    if limit.query is None:
        if writers is None:
            return None
        if limit.measure is Measure.ERROR_SHARE:
            if writers.count is None:
                return None
            errors = sum(writers.errors.values())
            attempts = ceil(writers.count / per_request) + errors  # of the whole run
            return errors / attempts if attempts else None
        # In a closed loop a request is due when it is sent.
        service = writers.service_ms or writers.latency_ms
        return _find_percentile(limit.measure, writers.latency_ms, service)
    query = find_query(limit.query, readers)
    if query is None:
        return None
    if limit.measure is Measure.ERROR_SHARE:
        attempts = query.executions + query.errors
        return query.errors / attempts if attempts else None
    return _find_percentile(limit.measure, query.latency_ms, query.service_ms or query.latency_ms)


def find_query(name: str, readers: GroupResult | None) -> QueryResult | None:
    """What readers measured for a query; None if they didn't run it."""
    return (
        next((query for query in readers.queries if query.query == name), None) if readers else None
    )


def _find_percentile(
    measure: Measure, response: LatencyMs | None, service: LatencyMs | None
) -> float | None:
    if measure is Measure.SERVICE_P99:
        return None if service is None else service.p99
    percentile: float | None = getattr(response, measure, None)
    return percentile


# --- capacity ----------------------------------------------------------------------------------------


class CapacityStep(Bounded, BaseModel):
    """One run of a search."""

    run: int
    """Its number among `runs`, and among `reads` if there are readers."""
    rate_per_s: float | None = None
    """Requested events per second; None for the closed loop at the beginning. What was due by the step's seed
    is `offered.due` of its run."""
    seed: int | None = None
    """The seed of its events and arrivals."""
    holds: bool | None = None
    """None for the closed loop, and for a step with too few requests for a verdict."""
    reasons: list[str] = []
    """Why it doesn't hold, or why there is no verdict."""
    figures: dict[str, float] = {}
    """Limit -> the limited figure, in milliseconds or as a share."""
    client_bound: bool = False
    """The step is client-bound."""


class CapacityBottleneck(Bounded, BaseModel):
    """What held back the lowest rate above the capacity."""

    limit: str
    evidence: str
    rate_per_s: float | None = None
    """The rate offered in that run; None: the closed loop."""


class Capacity(Bounded, BaseModel):
    """The highest rate that holds, in events per second. A rate holds if a run at it is valid, not
    saturated and within all limits."""

    limits: list[RunLimit] = []
    precision: float
    """How narrow the interval should be: its upper end ÷ its lower end is at most 1 + `precision`."""
    events_per_s: float | None = None
    """The interval's lower end: the highest rate that holds. None: no tried rate does."""
    above_per_s: float | None = None
    """The interval's upper end: the lowest rate above it that doesn't hold. None: all rates hold."""
    sure: bool = False
    """Whether both ends were repeated until their verdicts were sure."""
    unsure_because: str | None = None
    client_bound: bool = False
    """The client was the limit at `above_per_s`; the database may be capable of more."""
    contradicting: list[int] = []
    """Numbers of the runs whose verdict contradicts the answer."""
    devices: float | None = None
    """This many devices send `events_per_s`, one event per `device_interval_s` each."""
    device_interval_s: float | None = None
    bytes_per_day: float | None = None
    """On disk, at `events_per_s`."""
    database_cpus: float | None = None
    events_per_s_per_cpu: float | None = None
    """`events_per_s` ÷ CPUs that the database may use."""
    events_per_cost: float | None = None
    """Events that one unit of `cost_per_hour` pays for."""
    bottleneck: CapacityBottleneck | None = None
    """None: unknown."""
    steps: list[CapacityStep] = []
    """In the order they ran."""

    @property
    def missed(self) -> list[CapacityStep]:
        """The failed steps at `above_per_s`."""
        return [
            step
            for step in self.steps
            if step.holds is False and step.rate_per_s == self.above_per_s
        ]

    @property
    def broken(self) -> dict[str, list[float]]:
        """Name of a limit -> the figures of the steps that broke it at `above_per_s`, starting with the limit
        broken most often and most severely."""
        figures = {
            limit.name: [
                figure
                for step in self.missed
                if (figure := step.figures.get(limit.name)) is not None and figure > limit.at_most
            ]
            for limit in self.limits
        }
        bounds = {limit.name: limit.at_most for limit in self.limits}

        def weigh(name: str) -> tuple[int, float]:
            return -len(figures[name]), -max(figures[name]) / (bounds[name] or 1.0)

        return {name: figures[name] for name in sorted(filter(figures.get, figures), key=weigh)}

    @property
    def why(self) -> str | None:
        """What broke at `above_per_s`, the limits first: `range p90 127 ms > 100 ms at 800 events/s`; None if
        no rate failed."""
        if not self.missed:
            return None
        limits = {limit.name: limit for limit in self.limits}
        texts = []
        for name, figures in self.broken.items():
            limit = limits[name]
            ends = dict.fromkeys((limit.show(min(figures)), limit.show(max(figures))))
            texts.append(f"{limit.heading} {' to '.join(ends)} > {limit.show(limit.at_most)}")
        broke = "; ".join(texts or self.missed[0].reasons)
        return f"{broke} at {self.above_per_s:,.10g} events/s" if broke else None

    @property
    def steps_at_answer(self) -> list[CapacityStep]:
        """The steps that held at `events_per_s`."""
        rate = self.events_per_s
        return [
            step
            for step in self.steps
            if step.holds and rate is not None and step.rate_per_s == rate
        ]


# --- tuning ------------------------------------------------------------------------------------------


class TunedSetting(Bounded, BaseModel):
    """A setting that was varied."""

    name: str
    option: bool = False
    """Whether it is an option of the module; otherwise of the load."""
    values: list[Any]
    default: Any = None
    """Its value if it weren't varied: as given elsewhere, or the default."""


class Trial(Bounded, BaseModel):
    """One measurement of a combination."""

    candidate: int
    """Its place among the candidates."""
    stage: int
    """From 1; the last is the comparison of the finalists."""
    rate_per_s: float | None = None
    """Events per second, or the capacity if there are limits; None: no figure."""
    runs: list[int] = []
    """Numbers of the runs it rests on."""
    reasons: list[str] = []
    """Why there is no figure."""


class Tuning(Bounded, BaseModel):
    """The best settings."""

    over: list[TunedSetting]
    candidates: list[dict[str, Any]]
    """Setting -> value; the last may be the defaults alone."""
    limits: list[RunLimit] = []
    """The limits a rate must keep; without any, the throughput of the closed loop counts."""
    trials: list[Trial] = []
    """In the order they ran."""
    finalists: list[int] = []
    """The candidates compared at the end; empty if the search ended before."""

    @property
    def stages(self) -> int:
        """The number of the last stage."""
        return max((trial.stage for trial in self.trials), default=0)

    @property
    def defaults(self) -> dict[str, Any]:
        """The combination of all defaults."""
        return {setting.name: setting.default for setting in self.over}

    def find_rates(self, candidate: int, stage: int | None = None) -> list[float]:
        """The figures of a candidate, in one stage or in all."""
        return [
            trial.rate_per_s
            for trial in self.trials
            if trial.candidate == candidate and trial.rate_per_s and stage in (None, trial.stage)
        ]

    def find_settings(self, run: int) -> dict[str, Any]:
        """The combination that a run used."""
        for trial in self.trials:
            if run in trial.runs:
                return self.candidates[trial.candidate]
        return {}

    def rank_finalists(self) -> list[int]:
        """The finalists with figures, fastest first, by the geometric mean of the last stage."""
        last = self.stages
        measured = [candidate for candidate in self.finalists if self.find_rates(candidate, last)]
        return sorted(measured, key=lambda candidate: -mean(self.find_rates(candidate, last)))

    def weigh_settings(self) -> dict[str, float]:
        """Setting -> how much it matters: the ratio of its best value to its worst, by the geometric mean
        over all combinations with a value in the first stage."""
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
    """The geometric mean, since rates vary in proportion."""
    return exp(fsum(map(log, rates)) / len(rates))


def compare_candidates(tuning: Tuning, candidate: int, base: int, stage: int) -> Ratio | None:
    """The candidate's ratio to `base` in a stage; None unless both have figures."""
    own, other = (tuning.find_rates(number, stage) for number in (candidate, base))
    return estimate_ratio(own, other) if own and other else None


def is_best_shown(tuning: Tuning, ranked: Sequence[int]) -> bool:
    """Whether the first is significantly faster than the next."""
    if len(ranked) < 2:
        return True
    ratio = compare_candidates(tuning, ranked[0], ranked[1], tuning.stages)
    return ratio is not None and bool(ratio.differs)
