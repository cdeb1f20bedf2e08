"""`capacity`: the highest rate that a database holds within limits.

A search requests steps at chosen rates, takes in their results, and draws the conclusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from statistics import fmean
from typing import Any, ClassVar

from simulator.contract import DataSet, Load, Role, RunResult
from simulator.errors import OptionError
from simulator.units import format_span
from simulator.workloads import load_workload

from ...plan.planning import (
    PlannedRun,
    PlannedSeries,
    check_capabilities,
    check_query,
    derive_seed,
    share_devices,
)
from ...plan.requests import CapacityRequest
from ...plan.workloads import count_history
from ...results.answers import Capacity, CapacityBottleneck, CapacityStep
from ...results.bottleneck import Limit, find_bottleneck
from ...results.rules import DURATION_OPTIONS
from ...results.statistics import count_events_per_cost
from ...results.summaries import find_bytes_per_day
from ...system.errors import ConfigError, RunFailed
from ...system.output import note
from .experiment import Experiment, Plan
from .search import (
    FIRST_SHARE,
    LOWEST_SHARE,
    Goal,
    Interval,
    RateTrial,
    check_limits,
    choose_next,
    count_needed,
    expect_steps,
    find_asked,
    find_contradicting,
    find_interval,
    find_lowest,
    is_client_bound,
    judge_run,
)
from .session import Session

CLOSED_LOOP_SHARE = 3
"""The closed loop at the beginning takes a third of a step: it only shows where to look."""
MOST_FAILURES = 2
"""A rate may be too high for a database. After this many runs in a row without figures, something else is
wrong."""


@dataclass
class CapacitySearch:
    """A search with everything it has measured so far, even if it is interrupted."""

    request: CapacityRequest
    runs: list[RunResult] = field(default_factory=list)
    """The closed loop, then one step for each rate."""
    steps: list[CapacityStep] = field(default_factory=list)
    command: str = "capacity"
    of: Sequence[object] = ()
    """What distinguishes searches, besides the name: target and label."""
    name: str = ""
    """Distinguishes labels and logs of several searches of one command."""
    options: Mapping[str, Any] | None = None
    """The module's options, if they aren't the target's."""
    runs_before: int = 0
    """How many runs the command made earlier; the numbers of this search's runs follow."""
    failures: int = 0
    """How many of the last runs in a row gave no figures, or no verdict."""

    @property
    def window_s(self) -> float:
        """How many seconds of a step are measured."""
        load = self.request.load
        return (load.duration_s or 0.0) - load.warm_up_s

    @property
    def loads(self) -> list[Load]:
        """For each run that may be needed, the load that determines its length."""
        return [self.closed_loop] + [self.request.load] * self.request.max_steps

    @property
    def closed_loop(self) -> Load:
        """The writers' load of the first run."""
        load = self.request.load
        return load.model_copy(
            update={
                "rate_per_s": None,
                "duration_s": round((load.duration_s or 0.0) / CLOSED_LOOP_SHARE, 2),
                "warm_up_s": round(load.warm_up_s / CLOSED_LOOP_SHARE, 2),
            }
        )

    @property
    def tried(self) -> list[RateTrial]:
        """The verdicts so far."""
        return [
            RateTrial(step.rate_per_s, step.holds)
            for step in self.steps
            if step.rate_per_s is not None and step.holds is not None
        ]

    @property
    def offered(self) -> list[CapacityStep]:
        """The steps at a rate, with or without a verdict."""
        return [step for step in self.steps if step.rate_per_s is not None]

    @property
    def goal(self) -> Goal | None:
        """What to search for; None until the closed loop has shown where to look."""
        first = self.runs[0].writers if self.runs else None
        if first is None or not first.rate_per_s:
            return None
        request, load = self.request, self.request.load
        lowest = find_lowest(
            first.rate_per_s,
            load.events_per_request,
            self.window_s,
            count_needed(request.limits),
        )
        return Goal(first.rate_per_s, lowest, request.precision, request.max_steps)

    def plan(self) -> Plan:
        """The runs, until the capacity is certain or all steps are made; see `Experiment.plan`. RunFailed if
        the capacity can't be found."""
        yield self._plan_run(self.closed_loop, "closed loop")
        goal, first = self.goal, self.runs[0]
        if goal is None:
            reasons = "; ".join(first.invalid_reasons) or "nothing was acknowledged"
            raise RunFailed(
                f"the closed loop at the beginning gave no rate to start from: {reasons}"
            )
        self._require_requests(goal)
        # Steps without a verdict count, too.
        while len(self.offered) < goal.max_steps and (rate := choose_next(goal, self.tried)):
            number = len(self.offered) + 1
            label = f"step {number} of at most {goal.max_steps}, {rate:,.10g} events/s"
            load = self.request.load.model_copy(update={"rate_per_s": rate})
            try:
                yield self._plan_run(load, label)
            except RunFailed:
                if self.failures >= MOST_FAILURES:
                    raise
            if self.failures >= MOST_FAILURES:
                reasons = "; ".join(self.steps[-1].reasons)
                readers = self.request.readers
                more = "or a higher --query-rate" if readers else "or a smaller --batch"
                raise RunFailed(f"{reasons}\nGive a longer {self._duration_option}, {more}.")

    def _plan_run(self, load: Load, label: str) -> PlannedSeries:
        """A series of one run in which the writers have this load."""
        request, number = self.request, len(self.runs) + 1
        loads = [load]
        if request.readers is not None:
            length = {"duration_s": load.duration_s, "warm_up_s": load.warm_up_s}
            loads.append(request.readers.model_copy(update=length))
        data = share_devices(request.data, request.load.workers)
        seed = self._find_seed(number)
        # A history is kept, so runs differ only by chance.
        own = {"clean": data.clean and number == 1} if data.has_history else {"seed": seed}
        planned = PlannedRun(
            f"{self.name}, {label}" if self.name else label,
            self.runs_before + number,
            data.model_copy(update=own),
            tuple(loads),
            self.options,
            loads_by_prefill=True,
            chance=seed if data.has_history else None,
        )
        prefix = f"{self.name.replace(' ', '-')}-" if self.name else ""
        coming = request.max_steps - len(self.offered) - (load.rate_per_s is not None)
        remaining = [load] + [request.load] * coming
        return PlannedSeries(f"{prefix}step-{number:02d}", [planned], remaining)

    def _find_seed(self, number: int) -> int:
        """The seed of a run. Searches of other targets, labels or combinations of settings have other
        seeds."""
        return derive_seed(self.request.data.seed, *self.of, self.name, number)

    @property
    def _duration_option(self) -> str:
        return DURATION_OPTIONS.get(self.command, "--duration")

    def _require_requests(self, goal: Goal) -> None:
        """RunFailed if steps at the first rate have too few requests for a verdict."""
        first = FIRST_SHARE * goal.closed_loop_per_s
        if goal.lowest_per_s <= first:
            return
        request, load = self.request, self.request.load
        window_s, batch = self.window_s, load.events_per_request
        # Twice what the first rate needs, to leave room for lower ones.
        enough_s = ceil(2 * (load.duration_s or 0.0) * goal.lowest_per_s / first)
        raise RunFailed(
            f"at {first:,.0f} events/s, the first rate to try, a step measures"
            f" {first * window_s / batch:,.0f} requests in {window_s:g} s: too few for a verdict, which needs"
            f" {count_needed(request.limits):,} and a margin for chance\n"
            f"Give {self._duration_option} {enough_s}s or longer, a smaller --batch (now {batch:,}), or more"
            " --workers."
        )

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        """Take in a run; see `Experiment.absorb`."""
        self.runs.append(run)
        rate = planned.load.rate_per_s
        if rate is None:
            if failure:
                return "failed"
            if self.goal is None:
                return "no figure"
            self.steps.append(CapacityStep(run=run.run))
            return f"{self.goal.closed_loop_per_s:,.0f} inserts/s"
        if failure:
            self.failures += 1
            self.steps.append(
                CapacityStep(run=run.run, rate_per_s=rate, holds=False, reasons=[failure.message])
            )
            return f"failed: {failure.message}"
        limits = self.request.limits
        verdict = judge_run(run, limits, planned.load.events_per_request, count_needed(limits))
        self.steps.append(
            CapacityStep(
                run=run.run,
                rate_per_s=rate,
                seed=planned.data.seed if planned.chance is None else planned.chance,
                holds=verdict.holds,
                reasons=list(verdict.reasons),
                figures=verdict.figures,
                client_bound=is_client_bound(run, verdict.limits),
            )
        )
        reasons = "; ".join(verdict.reasons)
        self.failures = self.failures + 1 if verdict.holds is None else 0
        if verdict.holds is None:
            return f"no verdict: {reasons}"
        return "holds" if verdict.holds else f"doesn't hold: {reasons}"


# --- the answer -----------------------------------------------------------------------------------


def find_answer(search: CapacitySearch, cost_per_hour: float | None = None) -> Capacity:
    """The capacity that follows from the steps so far, if there are any."""
    request, goal = search.request, search.goal
    interval = Interval(None, None, sure=False, because="no rate was tried")
    if goal is not None:
        interval = find_interval(goal, search.tried)
        interval = _bound_below(interval, goal)
    judged = [step for step in search.offered if step.holds is not None]
    contradicting = find_contradicting(search.tried, interval)
    missed = [
        step.client_bound
        for step in search.steps
        if step.rate_per_s == interval.high and step.holds is False
    ]
    answer = Capacity(
        limits=list(request.limits),
        precision=request.precision,
        events_per_s=interval.low,
        above_per_s=interval.high,
        sure=interval.sure,
        unsure_because=interval.because,
        # Most of the runs that missed at the upper end were limited by the client.
        client_bound=2 * sum(missed) > len(missed),
        contradicting=[judged[place].run for place in contradicting],
        steps=search.steps,
    )
    answer.bottleneck = _find_bottleneck(search, answer)
    return (
        answer
        if interval.low is None
        else _add_figures(answer, search, interval.low, cost_per_hour)
    )


def _bound_below(interval: Interval, goal: Goal) -> Interval:
    """The interval. If no rate holds because lower ones couldn't be tried, it says so."""
    if (
        not interval.sure
        or interval.low
        or goal.lowest_per_s <= goal.closed_loop_per_s * LOWEST_SHARE
    ):
        return interval
    because = (
        "lower rates have too few requests in a step for a verdict: use longer steps, or a"
        " smaller batch, to try them"
    )
    return replace(interval, sure=False, because=because)


def _add_figures(
    answer: Capacity, search: CapacitySearch, rate: float, cost_per_hour: float | None
) -> Capacity:
    """The answer with what the rate amounts to: devices, disk, per CPU, cost."""
    numbers = {step.run for step in answer.steps_at_answer}
    runs = [run for run in search.runs if run.run in numbers]
    cpus = [cpus for run in runs if run.resources and (cpus := run.resources.cpus)]
    interval_s = find_device_interval(search.request.data)
    per_cost = count_events_per_cost(rate, cost_per_hour) if cost_per_hour else None
    return answer.model_copy(
        update={
            "devices": rate * interval_s,
            "device_interval_s": interval_s,
            "bytes_per_day": find_bytes_per_day(search.runs, numbers, rate),
            "database_cpus": fmean(cpus) if cpus else None,
            "events_per_s_per_cpu": rate / fmean(cpus) if cpus else None,
            "events_per_cost": per_cost,
        }
    )


def find_device_interval(data: DataSet) -> float:
    """The mean time in seconds between a device's events, in the events' own time."""
    kind = load_workload(data.workload, data.definition)
    return kind(data.seed, **data.workload_options).device_interval_ms / 1000


def _find_bottleneck(search: CapacitySearch, answer: Capacity) -> CapacityBottleneck | None:
    """What held back the nearest run above the capacity that reached its limit: the readers if only limits on
    queries were missed. A run can miss a limit on response times while nothing is busy. The closed loop
    always reaches its limit."""
    limits = {limit.name: limit for limit in answer.limits}
    of_queries = answer.broken and all(limits[name].query for name in answer.broken)
    role = Role.READ if of_queries else Role.WRITE
    rates = {step.run: step.rate_per_s for step in search.steps}
    above = [
        (rate, run)
        for run in search.runs
        if (rate := rates.get(run.run)) is not None
        and (answer.events_per_s is None or rate > answer.events_per_s)
    ]
    nearest: list[tuple[float | None, RunResult]] = [*sorted(above, key=lambda pair: pair[0])]
    nearest += [(None, run) for run in search.runs[:1]]
    for rate, run in nearest:
        bottleneck = find_bottleneck(run, role)
        if bottleneck is not None and bottleneck.limit is not Limit.NOTHING:
            return CapacityBottleneck(
                limit=bottleneck.limit, evidence=bottleneck.evidence, rate_per_s=rate
            )
    return None


# --- the command ----------------------------------------------------------------------------------


class CapacityExperiment(Experiment[CapacityRequest]):
    """One search."""

    at_most: ClassVar = True

    def __init__(self, request: CapacityRequest, session: Session) -> None:
        super().__init__(request, session)
        self._search = CapacitySearch(self.request, of=(session.target.name, session.request.label))

    @cached_property
    def lengths(self) -> Sequence[Load]:
        return self._search.loads

    def check(self) -> None:
        super().check()
        request, session = self.request, self.session
        if not (request.data.clean or request.data.has_history):
            raise ConfigError(
                "--no-clean keeps a history, and there is none without --prefill-span: each step makes"
                " its own tables"
            )
        if request.data.prefill and request.data.has_history:
            raise ConfigError(
                "--fill and --prefill-span both say what is stored before: give one of them"
            )
        check_capabilities(request, session.module, session.options)
        queries = None
        if request.readers is not None:
            data = share_devices(request.data, request.load.workers)
            check_query(request.readers, data, session.module, session.options, "--fill")
            if not (request.data.prefill or request.data.has_history):
                note(
                    "the readers could only query what the writers insert during the step: give --fill"
                )
        try:
            if request.readers is not None:
                queries = find_asked(session, request.readers, request.data)
            check_limits(request.limits, queries, request.readers)
        except OptionError as error:
            raise ConfigError(str(error)) from error

    @property
    def prefills(self) -> Sequence[int]:
        data = self.request.data
        if not data.has_history:
            return super().prefills
        events = count_history(
            share_devices(data, self.request.load.workers), self.request.load.workers
        )
        return [events if data.clean else 0, *[0] * (len(self.lengths) - 1)]

    @property
    def expected_runs(self) -> int:
        return 1 + expect_steps(self.request.precision, self.request.max_steps)

    @property
    def keeps_history(self) -> bool:
        return self.request.data.has_history

    def describe_length(self) -> str:
        """How long a search takes at most, not counting what happens before and after each step."""
        request = self.request
        all_s = sum(load.duration_s or 0.0 for load in self.lengths)
        prefill, when = self.prefills[0], "the first" if request.data.has_history else "each"
        fill = f", and the time to insert {prefill:,} events before {when}" if prefill else ""
        return (
            f"a closed loop and at most {request.max_steps} steps of {request.load.duration_s:g} s:"
            f" {format_span(all_s)} at most, plus the time before and after each step{fill}"
        )

    def plan(self) -> Plan:
        yield from self._search.plan()

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        return self._search.absorb(planned, run, failure)

    def summarize(self) -> dict[str, Any]:
        return {"capacity": find_answer(self._search, self.session.target.cost_per_hour)}
