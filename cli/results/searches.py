"""The rules by which the answers of searches are doubted: of a capacity, of a tuning, and of a comparison
of clients. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from simulator.contract import Measure
from simulator.modules.options import LEAN
from simulator.units import format_count

from .answers import Capacity
from .caveats import Caveat
from .comparison import choose_columns, collect_figures
from .model import GroupRun, Result
from .rules import (
    DURATION_OPTIONS,
    RULES,
    find_busy,
    find_short,
    find_short_window,
    find_unknown_sizes,
)
from .summaries import weigh_together


def find_in_capacity(result: Result) -> Iterator[Caveat]:
    """Caveats about the answer and the steps that it rests on: others may be as bad as they like."""
    capacity = result.capacity
    if capacity is None:
        return
    if capacity.client_bound:
        yield RULES["capacity of the client"].say(above=capacity.above_per_s or 0)
    if not capacity.sure and capacity.unsure_because:
        yield RULES["unsure capacity"].say(reason=capacity.unsure_because)
    if capacity.contradicting:
        yield _describe_contradictions(capacity)
    writers = {group_run.run.run: group_run for group_run in result.writers}
    holding = [writers[step.run] for step in capacity.steps_at_answer]
    yield from _find_few_requests(capacity, holding, result.settings.load.events_per_request)
    yield from find_busy(result)
    yield from find_short(result)
    yield from find_unknown_sizes(result.writers, weigh_together)


def find_in_tuning(result: Result) -> Iterator[Caveat]:
    """Caveats about the runs that the answer rests on: those of the best in the last stage."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return  # the answer says that there is none
    last = [trial for trial in tuning.trials if trial.stage == tuning.stages]
    best = [trial for trial in last if trial.candidate == ranked[0]]
    numbers = {number for trial in best for number in trial.runs}
    runs = [group_run.group for group_run in result.writers if group_run.run.run in numbers]
    bound = sum(group.client is not None and group.client.bound for group in runs)
    if bound and not tuning.limits:
        yield RULES["tuning the client"].say(bound=bound, runs=len(runs))
    if failed := sum(trial.rate_per_s is None for trial in tuning.trials):
        yield RULES["failed trials"].say(failed=failed, trials=len(tuning.trials))
    if len(best) < RULES["few comparisons"].threshold:
        times = "once" if len(best) == 1 else f"{len(best)} times"
        yield RULES["few comparisons"].say(times=times)
    yield from find_busy(result)
    # The search before the last stage may be as short as it likes; with limits each begins with a short
    # closed loop.
    compared = {number for trial in last for number in trial.runs}
    window_s = find_short_window(
        [
            group_run.group
            for group_run in result.writers
            if group_run.run.run in compared and (group_run.group.offered or not tuning.limits)
        ]
    )
    duration_s = result.settings.load.duration_s
    if window_s and duration_s:
        # Its runs are longer than those of the first stage by a factor that depends on the combinations.
        needed_s = ceil(duration_s * RULES["short"].threshold / window_s)
        longer = f"give {DURATION_OPTIONS['tune']} {needed_s}s"
        yield RULES["short"].say(window_s=window_s, longer=longer)


def find_in_clients(result: Result) -> Iterator[Caveat]:
    """Caveats about the runs of a comparison of clients."""
    comparison = result.clients
    if comparison is None:
        return
    for run in result.runs:
        if not run.valid:
            client = comparison.find_client(run.run) or "loading"
            reason = "; ".join(run.invalid_reasons)
            yield RULES["invalid turn"].say(run=run.run, client=client, reason=reason)
    lean = [
        group_run.group
        for group_run in result.compared
        if comparison.find_client(group_run.run.run) == LEAN
    ]
    if bound := sum(bool(group.valid and group.client and group.client.bound) for group in lean):
        yield RULES["lean path bound"].say(bound=bound, runs=len(lean))
    yield from find_busy(result)
    yield from find_short(result)
    rate = choose_columns([result]).rate
    counts = [len(figures[rate]) for figures in collect_figures([result]).values()]
    if min(counts, default=0) < RULES["few turns"].threshold:
        yield RULES["few turns"].say()


def _describe_contradictions(capacity: Capacity) -> Caveat:
    """How the database's speed changed, to judge by the verdicts that don't follow from the answer."""
    offered = [step for step in capacity.steps if step.rate_per_s is not None]
    against = [step for step in offered if step.run in capacity.contradicting]
    half = len(offered) / 2
    early = all(offered.index(step) < half for step in against)
    change = "its speed varies near the limit, or changed during the search"
    if early and all(step.holds for step in against):
        change = "the database seems to have become slower during the search"
    elif early and not any(step.holds for step in against):
        change = "the database seems to have become faster during the search"
    steps = format_count(len(against), "step contradicts", "steps contradict")
    outcomes = ", ".join(
        f"{step.rate_per_s:,.10g} {'held' if step.holds else 'did not hold'}"
        for step in against[:4]
    )
    more = ", …" if len(against) > 4 else ""
    return RULES["contradicting steps"].say(
        steps=steps, outcomes=f"{outcomes}{more}", change=change
    )


def _find_few_requests(
    capacity: Capacity, runs: Sequence[GroupRun], per_request: int
) -> Iterator[Caveat]:
    """Percentiles of only a handful of requests."""
    shares = [
        1 - (limit.measure.percent or 0) / 100
        for limit in capacity.limits
        if limit.measure in _TAILS and not limit.query
    ]
    needed = max((RULES["few requests"].threshold / share for share in shares), default=0)
    offers = [group_run.group.offered for group_run in runs if group_run.group.offered]
    requests = [offered.due / per_request for offered in offers]
    if requests and min(requests) < round(needed):
        yield RULES["few requests"].say(requests=min(requests))


_TAILS = (Measure.P99, Measure.SERVICE_P99, Measure.P99_9)
"""Percentiles that a step may have too few requests for."""
