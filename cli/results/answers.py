"""The models of answers in result.json: what became of limits, and what searches found (a capacity, a
tuning), with what follows from their steps and trials. Pure."""

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
    """What became of a limit, or of all limits of a run."""

    KEPT = "kept"
    MISSED = "missed"
    UNDECIDED = "undecided"
    """The run has too few requests, or isn't valid: that is not kept."""


class LimitVerdict(Bounded, BaseModel):
    """One limit in one run."""

    limit: RunLimit
    outcome: Outcome
    figure: float | None = None
    """What the limit is about, in milliseconds or as a share; None if it isn't known."""
    reason: str | None = None
    """Why it can't be decided, or is missed though the figure isn't known."""


class RunVerdict(Bounded, BaseModel):
    """All limits in one run."""

    outcome: Outcome
    """`kept` if each is, and the run is valid and kept up with its rate."""
    reasons: list[str] = []
    """Why they aren't kept, or why that isn't known."""
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
    """The outcome of several together: kept if all are, missed if one is."""
    worst = (Outcome.MISSED, Outcome.UNDECIDED)
    return next((outcome for outcome in worst if outcome in outcomes), Outcome.KEPT)


# --- what limits are about. Pure. -------------------------------------------------------------------


def measure(
    limit: RunLimit, writers: GroupResult | None, readers: GroupResult | None, per_request: int
) -> float | None:
    """A run's figure that a limit is about, in milliseconds or as a share; None if it isn't known."""
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
    """What readers measured of a query; None if they didn't ask it."""
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
    """Events per second that were asked for; None of the closed loop at the beginning. What was due by the
    step's seed is `offered.due` of its run."""
    seed: int | None = None
    """What its events and arrivals follow from."""
    holds: bool | None = None
    """None of the closed loop, and of a step with too few requests for a verdict."""
    reasons: list[str] = []
    """Why it doesn't, or why there is no verdict."""
    figures: dict[str, float] = {}
    """What each limit is about, by its name: milliseconds, or a share."""
    client_bound: bool = False
    """It shows the client's speed."""


class CapacityBottleneck(Bounded, BaseModel):
    """What held back the run nearest above the capacity that was at its limit."""

    limit: str
    evidence: str
    rate_per_s: float | None = None
    """What was offered in that run; None: it was the closed loop."""


class Capacity(Bounded, BaseModel):
    """The highest rate that holds, in events per second. A rate holds if a run at it is valid, not
    saturated and within all limits."""

    limits: list[RunLimit] = []
    precision: float
    """The interval's ends are to be so close: its upper end ÷ its lower end is at most 1 + `precision`."""
    events_per_s: float | None = None
    """The interval's lower end: the highest rate that holds. None: no rate that was tried does."""
    above_per_s: float | None = None
    """The interval's upper end: the lowest rate above it that doesn't hold. None: all rates hold."""
    sure: bool = False
    """Whether both ends were repeated until their verdicts were sure."""
    unsure_because: str | None = None
    client_bound: bool = False
    """`above_per_s` shows what the client can't, and the database may be able to do more."""
    contradicting: list[int] = []
    """Numbers of the runs whose verdict isn't the one that follows from the answer."""
    devices: float | None = None
    """That many send `events_per_s`, each an event in `device_interval_s`."""
    device_interval_s: float | None = None
    bytes_per_day: float | None = None
    """On disk, at `events_per_s`."""
    database_cpus: float | None = None
    events_per_s_per_cpu: float | None = None
    """`events_per_s` ÷ CPUs that the database may use."""
    events_per_cost: float | None = None
    """Events that one unit of `cost_per_hour` pays for."""
    bottleneck: CapacityBottleneck | None = None
    """None: nothing is known of it."""
    steps: list[CapacityStep] = []
    """In the order in which they were made."""

    @property
    def missed(self) -> list[CapacityStep]:
        """The steps that didn't hold `above_per_s`."""
        return [
            step
            for step in self.steps
            if step.holds is False and step.rate_per_s == self.above_per_s
        ]

    @property
    def broken(self) -> dict[str, list[float]]:
        """Name of a limit -> the figures of the steps that broke it at `above_per_s`; the limit first that
        most of them broke, by the most."""
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
        """The steps that held `events_per_s`."""
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
