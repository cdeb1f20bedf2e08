"""The caveats of a result: applies all rules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, inf

from simulator.contract import BOUND_PAUSE_SHARE, Measure, Role
from simulator.modules.options import LEAN
from simulator.units import format_count, format_in_unit, join_words

from .answers import Capacity
from .caveats import (
    Caveat,
    Kind,
    Place,
    Weight,
    locate_group,
    locate_run,
    locate_writers,
)
from .comparison import choose_columns, collect_figures
from .decision import Trust
from .model import GroupRun, Result
from .rules import (
    DURATION_OPTIONS,
    RULES,
    find_busy,
    find_clients_part,
    find_short,
    find_short_window,
    find_unknown_sizes,
    is_busy,
)
from .statistics import ENOUGH_RUNS, Summary, find_smallest_difference, summarize
from .summaries import group_executions, weigh_together


def find_in_capacity(result: Result) -> Iterator[Caveat]:
    """Caveats about the answer and the steps behind it; the other steps don't matter."""
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
    """Caveats about the runs behind the answer: those of the best combination in the last stage."""
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
    # The search before the last stage may be short; with limits, each begins with a short
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
        yield RULES["short"].say(extent=-window_s, window_s=window_s, longer=longer)


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
    """How the database's speed changed, judging by the verdicts that contradict the answer."""
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
    """Percentiles of too few requests."""
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


_MOST_NAMED = 3


def find_caveats(result: Result) -> list[Caveat]:
    """All caveats of the result, most serious first."""
    finders: Mapping[str, Sequence[Callable[[Result], Iterable[Caveat]]]] = {
        "query": [_find_in_queries],
        "capacity": [find_in_capacity],
        "tune": [find_in_tuning],
        "clients": [find_in_clients],
    }
    of_command = finders.get(result.command, [_find_in_inserts, _find_in_reads])
    return [
        caveat
        for find in (_find_in_whole, find_skipped_faults, *of_command, _find_in_what_was_asked)
        for caveat in find(result)
    ]


def list_kinds(result: Result) -> list[str]:
    """Why to doubt the result, in a few words each, most serious first: what would change its figures, not
    how certain they are, which intervals show."""
    kinds = {caveat.kind for caveat in find_caveats(result)} - {Kind.NOT_MEASURED}
    return [str(kind) for kind in Kind if kind in kinds and kind.weight is not Weight.SURENESS]


def judge_trust(results: Iterable[Result]) -> Trust | None:
    """How far the results can be trusted; None without any. Falling behind a rate is a finding, not a reason
    for doubt."""
    worst: dict[Kind, Caveat] | None = None
    for result in results:
        worst = {} if worst is None else worst
        for caveat in find_caveats(result):
            kind = caveat.kind
            if kind.weight is Weight.SURENESS or kind is Kind.SATURATED:
                continue
            if kind not in worst or caveat.extent > worst[kind].extent:
                worst[kind] = caveat
    if worst is None:
        return None
    reasons = [worst[kind].brief or str(kind) for kind in Kind if kind in worst]
    return Trust(level="low" if reasons else "good", reasons=reasons)


def summarize_doubts(result: Result) -> list[str]:
    """What makes the result unfit for comparison, in a few words each."""
    caveats = find_caveats(result)
    texts = [caveat.text for caveat in caveats if caveat.kind.weight is Weight.WHOLE]
    of_answer = _OF_ANSWERS.get(result.command)
    if of_answer is not None:
        return texts + [caveat.text for caveat in caveats if caveat.kind in of_answer]
    runs = len(result.writers)
    for kind, (one, several) in _COUNTED.items():
        if count := sum(caveat.kind is kind for caveat in caveats):
            texts.append(f"{count} of {runs} runs {one if count == 1 else several}")
    return texts


_OF_ANSWERS = {
    "capacity": (Kind.UNSURE, Kind.CLIENT_BOUND),
    "query": (Kind.INVALID, Kind.CLIENT_BOUND),
    "tune": (Kind.INVALID,),
    "clients": (Kind.INVALID,),
}
"""Command -> the kinds of caveats that invalidate its answer."""
_COUNTED = {
    Kind.INVALID: ("is invalid and left out", "are invalid and left out"),
    Kind.CLIENT_BOUND: (
        "shows the client's speed, not the database's",
        "show the client's speed, not the database's",
    ),
    Kind.SATURATED: ("is saturated", "are saturated"),
}
"""Kind -> phrases for one run and for several."""


def is_stable(result: Result) -> bool | None:
    """Whether no spread is unusually high; None if nothing was measured twice."""
    if result.capacity is not None:
        return result.capacity.sure
    if result.command == "insert":
        flags = [entry.stable for entry in result.insert_summary if entry.stable is not None]
    else:
        spreads = spread_queries(result).values()
        flags = [spread.stable for spread in spreads if spread.stable is not None]
    return all(flags) if flags else None


def spread_queries(result: Result) -> dict[str, Summary]:
    """Query -> the spread of its times."""
    by_query = group_executions(result.asked)
    return {query: summarize(executions.samples) for query, executions in by_query.items()}


def _find_in_whole(result: Result) -> Iterator[Caveat]:
    if result.source:
        yield RULES["not measured"].say(source=result.source)
    if not result.complete:
        how = f"ended by {result.ended_by}" if result.ended_by else "ended, or is still running"
        yield RULES["incomplete"].say(how=how)


def find_skipped_faults(result: Result) -> Iterator[Caveat]:
    """Disturbances that weren't done as planned, each once, with the runs concerned."""
    disturbed = [*result.writers, *result.alone]
    faults: dict[tuple[str, str], list[tuple[GroupRun, str]]] = {}
    for group_run in disturbed:
        for mark in group_run.run.marks:
            if not mark.ok:
                faults.setdefault((mark.action, "failed"), []).append((group_run, mark.said or ""))
        for skipped in group_run.run.undone:
            faults.setdefault((skipped.action, "was not done"), []).append(
                (group_run, skipped.reason)
            )
    for (action, fate), cases in faults.items():
        (group_run, reason), *others = cases
        often = f" in {len(cases)} of {len(disturbed)} runs" if len(disturbed) > 1 else ""
        place = None if others else locate_run(result, group_run)
        yield RULES["skipped fault"].say(
            place, action=action, fate=fate, often=often, reason=reason
        )


def _find_in_inserts(result: Result) -> Iterator[Caveat]:
    """Caveats about the runs of writers."""
    places = [(group_run, locate_writers(result, group_run)) for group_run in result.writers]
    for group_run, place in places:
        group = group_run.group
        if not group.valid:
            reason = "; ".join(group.invalid_reasons)
            yield RULES["invalid"].say(place, rate=group.rate_per_s, reason=reason)
    overlaps = [group_run.group.overlap for group_run in result.writers]
    overlap = min((share for share in overlaps if share is not None), default=1.0)
    if result.by_fill_level and overlap < RULES["uneven levels"].threshold:
        yield RULES["uneven levels"].say(overlap=overlap)
    for group_run, place in places:
        yield from _find_bound(group_run, place)
    for group_run, place in places:
        yield from _find_saturated(group_run, place)
    yield from find_clients_part(result, result.writers)
    yield from find_busy(result)
    for group_run, place in places:
        if retries := group_run.group.retries:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in group_run.group.errors.items())
            yield RULES["retries"].say(place, retries=retries, kinds=kinds)
    yield from find_short(result)
    for entry in result.insert_summary:
        if entry.stable is False and entry.cv is not None:
            yield RULES["unstable runs"].say(Place(entry.workers, entry.fill_level), cv=entry.cv)
    yield from _find_few(result)
    yield from find_unknown_sizes(result.writers)


def _find_bound(group_run: GroupRun, place: Place) -> Iterator[Caveat]:
    """The evidence for a client-bound group, and whether it had the CPUs to itself."""
    client = group_run.group.client
    if group_run.group.valid and client and client.bound:
        # No query's time includes a pause.
        by_pause = (client.pause_share or 0.0) >= BOUND_PAUSE_SHARE
        yield RULES["client-bound"].say(
            place,
            reason=client.bound_reason,
            subject="the queries per second are" if by_pause else "this is",
            on_what=" on a busy machine" if is_busy(group_run.run) else "",
        )


def _find_saturated(group_run: GroupRun, place: Place) -> Iterator[Caveat]:
    """What the database fell behind with, the evidence, and the effect on response times."""
    offered = group_run.group.offered
    if group_run.group.valid and offered and offered.saturated:
        unit = "queries" if group_run.group.role is Role.READ else "events"
        unsent = (
            f"; {offered.unsent:,} {unit} that were never sent count in the response times with the time"
            " they waited"
        )
        yield RULES["saturated"].say(
            place,
            offered=offered.rate_per_s,
            unit=unit,
            reason=offered.reason,
            unsent=unsent if offered.unsent else "",
        )


def _find_few(result: Result) -> Iterator[Caveat]:
    if result.by_fill_level:
        yield RULES["single levels"].say()
        return
    summary = result.insert_summary
    few = [entry for entry in summary if entry.cv is not None and 2 <= entry.runs < ENOUGH_RUNS]
    if few:
        widest = max(few, key=lambda entry: find_smallest_difference(entry.cv or 0, entry.runs))
        difference = find_smallest_difference(widest.cv or 0, widest.runs)
        # Runs at a given rate hardly vary: less than a percent is not "0% or more".
        least = f"only differences of {max(0.01, difference):.0%} or more are"
        shown = "no difference is" if difference == inf else least
        yield RULES["few runs"].say(runs=widest.runs, shown=shown)
    single = [entry.workers for entry in summary if entry.runs == 1]
    if single:
        counts = join_words([f"{count:,}" for count in single])
        word = "worker" if single == [1] else "workers"
        yield RULES["single runs"].say(workers=f"{counts} {word}")


def _find_in_queries(result: Result) -> Iterator[Caveat]:
    """Caveats about the readers of a query command."""
    for reason in dict.fromkeys(reason for run in result.runs for reason in run.invalid_reasons):
        yield RULES["invalid"].say(reason=reason)
    yield from find_busy(result)
    yield from _find_in_reads(result)
    if not result.by_number:
        return
    overlaps = (group_run.group.overlap for group_run in result.readers)
    overlap = min((share for share in overlaps if share is not None), default=1.0)
    if overlap < RULES["apart"].threshold:
        yield RULES["apart"].say(overlap=overlap)
    alone = result.settings.readers == 1
    spreads = spread_queries(result)
    for query, spread in spreads.items():
        if spread.stable is False and spread.cv is not None:
            samples = "runs" if alone else "workers' means"
            yield RULES["unstable queries"].say(Place(query=query), cv=spread.cv, samples=samples)
    if any(not executions.warm for executions in group_executions(result.asked).values()):
        yield RULES["first executions"].say()
        return
    fewest = min((spread.runs for spread in spreads.values()), default=ENOUGH_RUNS)
    if fewest < RULES["few samples"].threshold:
        times = "once" if fewest == 1 else f"{fewest} times"
        samples = f"after its first execution a query ran {times}"
        if not alone:
            samples = f"{fewest} workers are {fewest} samples, however many executions each has"
        yield RULES["few samples"].say(samples=samples)


def _find_in_reads(result: Result) -> Iterator[Caveat]:
    """Caveats about readers, and about groups that ran alone."""
    readers = result.readers
    for group_run in [*(readers if result.command == "mixed" else ()), *result.alone]:
        if not group_run.group.valid:
            reason = "; ".join(group_run.group.invalid_reasons)
            yield RULES["invalid"].say(locate_group(group_run), reason=reason)
    for group_run in (*readers, *result.alone):
        yield from _find_saturated(group_run, locate_group(group_run))
        yield from _find_bound(group_run, locate_group(group_run))
    yield from find_clients_part(result, readers)


def _find_in_what_was_asked(result: Result) -> Iterator[Caveat]:
    """What was requested but lacked data or time; whose statements were sent; and why the database's resource
    use is unknown."""
    late = [group_run.group.lateness for group_run in result.writers if group_run.group.lateness]
    if late:
        least = min(late, key=lambda lateness: lateness.came)
        yield RULES["late events"].say(asked=100 * least.asked, came=100 * least.came)
    long_windows = (group_run.group.long_windows for group_run in result.readers)
    if first := next((windows for windows in long_windows if windows), None):
        named = [f"{name} ({format_in_unit(ms / 1000)})" for name, ms in first.queries.items()]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        span = format_in_unit(first.stored_ms / 1000)
        yield RULES["long windows"].say(
            span=span, queries=f"{', '.join(named[:_MOST_NAMED])}{more}"
        )
    if queries := result.own_statements:
        yield RULES["own statements"].say(queries=join_words(queries))
    counts = [group_run.group.verification for group_run in result.writers]
    resources = [run.resources for run in result.runs if run.resources is not None]
    stores = not any(count and count.stored is None for count in counts)
    if stores and all(used.cpu_s is None for used in resources):
        for reason in sorted({used.reason for used in resources if used.reason}):
            yield RULES["unknown use"].say(reason=reason)
