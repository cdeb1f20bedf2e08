"""The rules by which the answers of searches are doubted: of a capacity, of a tuning, and of a comparison
of clients. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from simulator.contract import Measure
from simulator.modules.options import LEAN
from simulator.units import format_count

from .capacity import Capacity
from .caveats import Caveat, Kind
from .clients import collect_figures
from .model import GroupRun, Result
from .rules import (
    DURATION_OPTIONS,
    SHORT_WINDOW_S,
    describe_short,
    find_busy,
    find_short,
    find_short_window,
    find_unknown_sizes,
)
from .statistics import ENOUGH_RUNS
from .summaries import weigh_together
from .tuning import Tuning


def find_in_capacity(result: Result) -> Iterator[Caveat]:
    """Caveats about the answer and the steps that it rests on: others may be as bad as they like."""
    capacity = result.capacity
    if capacity is None:
        return
    if capacity.client_bound:
        rate = f"{capacity.above_per_s or 0:,.10g} events/s"
        text = f"the database isn't the limit at {rate}: your client is"
        yield Caveat(Kind.CLIENT_BOUND, text)
    if not capacity.sure and capacity.unsure_because:
        yield Caveat(Kind.UNSURE, capacity.unsure_because)
    if capacity.contradicting:
        yield Caveat(Kind.UNSTABLE, _describe_contradictions(capacity))
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
    best = [
        trial
        for trial in tuning.trials
        if trial.candidate == ranked[0] and trial.stage == tuning.stages
    ]
    numbers = {number for trial in best for number in trial.runs}
    runs = [group_run.group for group_run in result.writers if group_run.run.run in numbers]
    bound = [group for group in runs if group.client and group.client.bound]
    if bound and not tuning.limits:
        text = f"{len(bound)} of {len(runs)} runs of the best show your client's speed: then its CPUs, not"
        yield Caveat(Kind.CLIENT_BOUND, f"{text} the database, decide between settings")
    failed = sum(trial.rate_per_s is None for trial in tuning.trials)
    if failed:
        text = f"{failed:,} of {len(tuning.trials):,} measurements gave no figure and don't count"
        yield Caveat(Kind.INVALID, text)
    if len(best) < ENOUGH_RUNS:
        times = "once" if len(best) == 1 else f"{len(best)} times"
        text = f"the best was measured {times} in the comparison; {ENOUGH_RUNS} or more --runs"
        yield Caveat(Kind.FEW_RUNS, f"{text} show smaller differences")
    yield from find_busy(result)
    yield from _find_short_comparison(result, tuning)


def _find_short_comparison(result: Result, tuning: Tuning) -> Iterator[Caveat]:
    """Short runs of the last stage, which alone counts: the search before may be as short as it likes."""
    compared = {n for trial in tuning.trials if trial.stage == tuning.stages for n in trial.runs}
    # With limits each search begins with a short closed loop.
    runs = [
        group_run.group
        for group_run in result.writers
        if group_run.run.run in compared and (group_run.group.offered or not tuning.limits)
    ]
    window_s, duration_s = find_short_window(runs), result.settings.load.duration_s
    if window_s and duration_s:
        # Its runs are longer than those of the first stage by a factor that depends on the combinations.
        needed_s = ceil(duration_s * SHORT_WINDOW_S / window_s)
        option = f"{DURATION_OPTIONS['tune']} {needed_s}s"
        yield describe_short(window_s, f"give {option}")


def find_in_clients(result: Result) -> Iterator[Caveat]:
    """Caveats about the runs of a comparison of clients."""
    comparison = result.clients
    if comparison is None:
        return
    for run in result.runs:
        if not run.valid:
            text, client = "; ".join(run.invalid_reasons), comparison.find_client(run.run)
            yield Caveat(Kind.INVALID, f"run {run.run} ({client or 'loading'}): {text}")
    lean = [
        group_run.group
        for group_run in result.compared
        if comparison.find_client(group_run.run.run) == LEAN
    ]
    bound = [group for group in lean if group.valid and group.client and group.client.bound]
    if bound:
        text = f"{len(bound)} of {len(lean)} runs by the lean path show your client's speed: with a faster"
        yield Caveat(Kind.CLIENT_BOUND, f"{text} database, or more CPU, clients differ more")
    yield from find_busy(result)
    yield from find_short(result)
    if (
        min((len(figures.rates) for figures in collect_figures(result).values()), default=0)
        < ENOUGH_RUNS
    ):
        text = (
            f"fewer than {ENOUGH_RUNS} valid runs of a client; more --runs show smaller differences"
        )
        yield Caveat(Kind.FEW_RUNS, text)


def _describe_contradictions(capacity: Capacity) -> str:
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
    return f"{steps} this ({outcomes}{more}): {change}"


def _find_few_requests(
    capacity: Capacity, runs: Sequence[GroupRun], per_request: int
) -> Iterator[Caveat]:
    """Percentiles of only a handful of requests."""
    needed = max(
        (_REQUESTS.get(limit.measure, 0) for limit in capacity.limits if not limit.query), default=0
    )
    offers = [group_run.group.offered for group_run in runs if group_run.group.offered]
    requests = [offered.due / per_request for offered in offers]
    if requests and min(requests) < needed:
        text = (
            f"a step at this rate has {min(requests):,.0f} requests, too few to judge the slowest: give a"
            " longer --step-duration"
        )
        yield Caveat(Kind.FEW_RUNS, text)


_REQUESTS = {Measure.P99: 1_000, Measure.SERVICE_P99: 1_000, Measure.P99_9: 10_000}
"""How many requests there must be, for ten of them to be above the percentile."""
