"""From the steps of a search to its answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.contract import DataSet, InsertRun
from simulator.workloads import load_workload

from ...results.bottleneck import Limit, find_bottleneck
from ...results.capacity import Capacity, CapacityBottleneck, CapacityStep
from ...results.growth import find_bytes_per_day
from ...results.statistics import count_events_per_cost
from .search import LOWEST_SHARE, Goal, Interval, find_contradicting, find_interval
from .state import SearchState


def find_answer(state: SearchState, cost_per_hour: float | None = None) -> Capacity:
    """What the steps so far say, if there are any."""
    wanted, goal = state.wanted, state.goal
    found = Interval(None, None, sure=False, because="no rate was tried")
    if goal is not None:
        found = find_interval(goal, state.tried)
        found = _bound_below(found, goal)
    judged = [step for step in state.offered if step.holds is not None]
    contradicting = find_contradicting(state.tried, found)
    answer = Capacity(
        limits=list(wanted.limits),
        precision=wanted.precision,
        events_per_s=found.low,
        above_per_s=found.high,
        sure=found.sure,
        unsure_because=found.because,
        client_bound=_is_client_bound(state.steps, found),
        contradicting=[judged[place].run for place in contradicting],
        bottleneck=_find_bottleneck(state, found),
        steps=state.steps,
    )
    return answer if found.low is None else _add_figures(answer, state, found.low, cost_per_hour)


def _bound_below(found: Interval, goal: Goal) -> Interval:
    """An interval without a rate that holds, of a search that couldn't try lower ones."""
    if not found.sure or found.low or goal.lowest_per_s <= goal.closed_loop_per_s * LOWEST_SHARE:
        return found
    because = (
        "lower rates have too few requests in a step for a verdict: longer steps, or a smaller batch, let"
        " them be tried"
    )
    return replace(found, sure=False, because=because)


def _add_figures(
    answer: Capacity, state: SearchState, rate: float, cost_per_hour: float | None
) -> Capacity:
    """The answer with what the rate comes to in devices, on disk, per CPU and per money."""
    numbers = {step.run for step in answer.steps_at_answer}
    runs = [run for run in state.runs if run.run in numbers]
    cpus = [cpus for run in runs if run.resources and (cpus := run.resources.cpus)]
    interval_s = find_device_interval(state.wanted.data)
    return answer.model_copy(
        update={
            "devices": rate * interval_s,
            "device_interval_s": interval_s,
            "bytes_per_day": find_bytes_per_day(state.runs, numbers, rate),
            "database_cpus": _mean(cpus) if cpus else None,
            "events_per_s_per_cpu": rate / _mean(cpus) if cpus else None,
            "events_per_cost": count_events_per_cost(rate, cost_per_hour)
            if cost_per_hour
            else None,
        }
    )


def find_device_interval(data: DataSet) -> float:
    """Mean time in seconds from one event of a device to the next, in the time of the events."""
    kind = load_workload(data.workload, data.definition)
    return kind(data.seed, **data.workload_options).device_interval_ms / 1000


def _is_client_bound(steps: Sequence[CapacityStep], found: Interval) -> bool:
    """Whether most of the runs that missed at the interval's upper end show the client's speed."""
    missed = [
        step.client_bound for step in steps if step.rate_per_s == found.high and step.holds is False
    ]
    return 2 * sum(missed) > len(missed)


def _find_bottleneck(state: SearchState, found: Interval) -> CapacityBottleneck | None:
    """What held back the nearest run above the capacity that was at its limit. A run can miss a limit on
    response times though nobody is busy; the closed loop is at its limit by nature."""
    rates = {step.run: step.rate_per_s for step in state.steps}
    above = [
        (rate, run)
        for run in state.runs
        if (rate := rates.get(run.run)) is not None and (found.low is None or rate > found.low)
    ]
    nearest: list[tuple[float | None, InsertRun]] = [*sorted(above, key=lambda one: one[0])]
    nearest += [(None, run) for run in state.runs[:1]]
    for rate, run in nearest:
        bottleneck = find_bottleneck(run)
        if bottleneck is not None and bottleneck.limit is not Limit.NOTHING:
            return CapacityBottleneck(
                limit=bottleneck.limit, evidence=bottleneck.evidence, rate_per_s=rate
            )
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
