"""The rules by which the figures of runs and of queries are doubted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf

from simulator.contract import (
    BOUND_PAUSE_SHARE,
    LEAST_JUDGED_S,
    GroupResult,
    Machine,
    Role,
    describe_stalls,
    sum_stalls_s,
)
from simulator.units import format_in_unit, join_words

from .caveats import Caveat, Kind, Place
from .model import GroupRun, InsertSummary, Result
from .statistics import (
    ENOUGH_RUNS,
    ENOUGH_RUNS_TEXT,
    UNSTABLE_CV,
    Summary,
    find_smallest_difference,
    summarize,
)
from .summaries import EventSize, group_executions, weigh_each

SHORT_WINDOW_S = 10.0
"""Below this, starting and ending are a noticeable part of a run."""

DURATION_OPTIONS = {"capacity": "--step-duration", "tune": "--run-duration"}
"""Command -> the option by which its runs are made longer, where it has one of its own."""

_ROUNDED_S = 0.05
"""A window that is shorter by less is still shown as one of that length: `--duration 10s` gives 9.99 s."""


CLIENTS_PART = 0.15
"""From this share of a request's time on, the client's own is mentioned."""


THROTTLED_SHARE = 0.01
"""From this share of the periods of a worker's CPU limit on, it is mentioned that it was stopped."""


BUSY_SHARE = 0.1
"""From this share of a machine's CPU on, it is mentioned that others took it."""


MIN_OVERLAP_OF_READERS = 0.8
"""Below this share of the time, it is mentioned that not all workers asked at once."""


def find_in_whole(result: Result) -> Iterator[Caveat]:
    """Caveats of every command."""
    if result.source:
        yield Caveat(Kind.NOT_MEASURED, f"by this tool: {result.source}")
    if not result.complete:
        how = f"ended by {result.ended_by}" if result.ended_by else "ended, or is still running"
        yield Caveat(Kind.INCOMPLETE, f"not all runs were made: the command was {how}")


def find_own_statements(result: Result) -> Iterator[Caveat]:
    """Caveats about what was asked."""
    if queries := result.own_statements:
        text = f"{join_words(queries)} sent as the workload's own statements, not as the module's"
        yield Caveat(Kind.OWN_STATEMENTS, text)


def find_in_inserts(result: Result) -> Iterator[Caveat]:
    """Caveats about the runs of writers."""
    writers = result.writers
    for group_run in writers:
        if not group_run.group.valid:
            reasons = "; ".join(group_run.group.invalid_reasons)
            yield Caveat(
                Kind.INVALID, reasons, _locate(result, group_run), group_run.group.rate_per_s
            )
    for group_run in writers:
        yield from _find_bound(group_run, _locate(result, group_run))
    for group_run in writers:
        yield from _find_saturated(group_run, _locate(result, group_run))
    yield from _find_clients_part(result, writers)
    yield from find_busy(result)
    for group_run in writers:
        if group_run.group.retries:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in group_run.group.errors.items())
            text = f"{group_run.group.retries:,} ({kinds})"
            yield Caveat(Kind.RETRIES, text, _locate(result, group_run))
    yield from find_short(result)
    yield from _find_unstable(result.insert_summary)
    yield from _find_few(result)
    yield from find_unknown_sizes(writers)


def _find_bound(group_run: GroupRun, place: Place) -> Iterator[Caveat]:
    """How it shows that a client was the limit, and whether it had the CPUs or had to share them."""
    client = group_run.group.client
    if not (group_run.group.valid and client and client.bound):
        return
    taken = (
        max(machine.others_share or 0.0, machine.steal_share or 0.0)
        for machine in group_run.run.machines
    )
    where = " on a busy machine" if max(taken, default=0.0) >= BUSY_SHARE else ""
    # A pause is in no query's time.
    by_pause = (client.pause_share or 0.0) >= BOUND_PAUSE_SHARE
    subject = "the queries per second are" if by_pause else "this is"
    text = f"{client.bound_reason}: {subject} your client's speed{where}, not your database's"
    yield Caveat(Kind.CLIENT_BOUND, text, place)


def _find_saturated(group_run: GroupRun, place: Place) -> Iterator[Caveat]:
    """What was not kept up with, how that shows, and what it does to the response times."""
    offered = group_run.group.offered
    if not (group_run.group.valid and offered and offered.saturated):
        return
    unit = "queries" if group_run.group.role is Role.READ else "events"
    text = f"did not keep up with {offered.rate_per_s:,.10g} {unit}/s: {offered.reason}"
    if offered.unsent:
        text += (
            f"; {offered.unsent:,} {unit} that were never sent count in the response times with the time"
            " they waited"
        )
    yield Caveat(Kind.SATURATED, text, place)


def find_unknown_sizes(
    writers: Sequence[GroupRun], weigh: Callable[[Sequence[GroupRun]], EventSize] = weigh_each
) -> Iterator[Caveat]:
    """Why sizes aren't known, each reason once: it is the same in all runs. `weigh`: finds what an event
    takes."""
    sizes = [(group_run.group.storage, "what is on disk") for group_run in writers]
    sizes += [
        (group_run.group.storage_compacted, "what is on disk once compacted")
        for group_run in writers
    ]
    reasons = {f"{subject}: {size.reason}" for size, subject in sizes if size and size.reason}
    if reason := weigh(writers).reason:
        reasons.add(f"bytes per event: {reason}")
    yield from (Caveat(Kind.NOT_KNOWN, text) for text in sorted(reasons))


def find_not_as_asked(result: Result) -> Iterator[Caveat]:
    """What was asked for, but not given for want of data or time, each once."""
    late = [group_run.group.lateness for group_run in result.writers if group_run.group.lateness]
    if late:
        least = min(late, key=lambda lateness: lateness.came)
        text = (
            f"{100 * least.asked:.2g}% of the events should have come late, and {100 * least.came:.2g}% did:"
            " the others were due after the run; make it longer, or the delays shorter"
        )
        yield Caveat(Kind.NOT_AS_ASKED, text)
    long_windows = (group_run.group.long_windows for group_run in result.readers)
    first = next((windows for windows in long_windows if windows), None)
    if first:
        named = [f"{name} ({format_in_unit(ms / 1000)})" for name, ms in first.queries.items()]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        text = (
            f"the stored events span {format_in_unit(first.stored_ms / 1000)}, less than the windows of"
            f" {', '.join(named[:_MOST_NAMED])}{more}: store more"
        )
        yield Caveat(Kind.NOT_AS_ASKED, text)


_MOST_NAMED = 3


def find_unknown_use(result: Result) -> Iterator[Caveat]:
    """Why it isn't known what the database used, each reason once; none if some runs tell it, or if nothing
    is stored anywhere."""
    counts = [group_run.group.verification for group_run in result.writers]
    if any(count and count.stored is None for count in counts):
        return
    resources = [run.resources for run in result.runs if run.resources is not None]
    if all(used.cpu_s is None for used in resources):
        reasons = {f"what the database used: {used.reason}" for used in resources if used.reason}
        yield from (Caveat(Kind.NOT_KNOWN, text) for text in sorted(reasons))


def is_judged(group: GroupResult) -> bool:
    """Whether it can be said what held a group back: for readers only if they were at work for long enough,
    with a version that looked at the client's part in asking (and counted rows)."""
    if group.role is Role.WRITE:
        return True
    looked = any(query.rows is not None for query in group.queries)
    return looked and (group.window_s or 0.0) >= LEAST_JUDGED_S


def limit_of_clients_part(group: GroupResult) -> float | None:
    """How many times as fast the run could be with a client that costs nothing; None if the client's
    part is small, unknown, or all there is.

    With one request in flight in a closed loop, or behind the schedule of an open one, a request's time
    is the client's and the database's together: without the client's share s of it, the rate could be
    1 ÷ (1 − s) times as high. The same holds for the time from an answer to the next question.
    """
    parts = _find_clients_parts(group)
    share = max(parts.values(), default=0.0)
    return 1 / (1 - share) if share < 1 and parts else None


def _find_clients_parts(group: GroupResult) -> dict[str, float]:
    """Part in words -> its share of the time: the client's CPU, and readers' pauses, where it is large
    enough to be named and holds the database up."""
    client = group.client
    if client is None or client.bound or not group.valid or not is_judged(group):
        return {}
    if group.offered and not group.offered.saturated:
        return {}
    parts = {}
    if (pause := client.describe_pause()) and client.pause_share is not None:
        parts[pause] = client.pause_share
    if client.in_flight == 1:
        share = client.cpu_share
        parts[f"{share:.0%} of each request's time is the client's own CPU"] = share
    return {text: share for text, share in parts.items() if share >= CLIENTS_PART}


def _find_clients_part(result: Result, runs: Sequence[GroupRun]) -> Iterator[Caveat]:
    """The client's part for each number of workers, from the run in which it was largest."""
    most: dict[Place, tuple[float, str]] = {}
    throttled: dict[Place, float] = {}
    stalled: dict[Place, tuple[float, str]] = {}
    for group_run in runs:
        is_reader = group_run.group.role is Role.READ
        place = replace(
            _locate_group(group_run) if is_reader else _locate(result, group_run), run=None
        )
        if (limit := limit_of_clients_part(group_run.group)) is not None:
            part = ", and ".join(_find_clients_parts(group_run.group))
            most[place] = max(most.get(place, (0.0, "")), (limit, part))
        client = group_run.group.client
        if group_run.group.valid and client and not client.bound:
            share = client.throttled_share or 0.0
            throttled[place] = max(throttled.get(place, 0.0), share)
            if stalls := group_run.group.stalls:
                delayed = [stall for stall in stalls if stall.worker is not None]
                what = "may have delayed the slowest requests" if delayed else "delayed no request"
                text = describe_stalls(delayed or stalls, group_run.group.window_s or 0.0)
                text += f", which {what}"
                longest = stalled.get(place, (0.0, ""))
                stalled[place] = max(longest, (sum_stalls_s(stalls), text))
    for place, (limit, part) in most.items():
        text = f"{part}; with an ideal client the rate could be up to {limit:.2f} times as high"
        yield Caveat(Kind.CLIENTS_PART, text, place)
    for place, share in throttled.items():
        if share >= THROTTLED_SHARE:
            text = (
                f"a worker was stopped by its CPU limit in {share:.0%} of the periods, which may have delayed"
                " the slowest requests"
            )
            yield Caveat(Kind.CLIENTS_PART, text, place)
    for place, (_, text) in stalled.items():
        yield Caveat(Kind.CLIENTS_PART, text, place)


def find_busy(result: Result) -> Iterator[Caveat]:
    """What others took of the machines. Readers beside writers ran on the same ones at the same time."""
    machines: dict[Place | None, list[Sequence[Machine]]] = {}
    if result.command == "query":
        machines[None] = [run.machines for run in result.runs]
    for group_run in (*result.writers, *result.alone):
        place = _locate_group(group_run) if group_run.alone else _locate(result, group_run)
        machines.setdefault(replace(place, run=None), []).append(group_run.run.machines)
    for where, runs in machines.items():
        yield from _find_taken(runs, where)


def _find_taken(runs: Sequence[Sequence[Machine]], where: Place | None) -> Iterator[Caveat]:
    """What others took in runs that measured the same: for each cause, the worst of them."""

    def worst(share: Callable[[Machine], float]) -> tuple[Machine, str, str] | None:
        busiest = [max(machines, key=share) for machines in runs if machines]
        busy = [machine for machine in busiest if share(machine) >= BUSY_SHARE]
        if not busy:
            return None
        most = max(busy, key=share)
        up_to = "up to " if len(busy) > 1 else ""
        often = f" in {len(busy)} of {len(runs)} runs" if len(runs) > 1 else ""
        return most, f"{up_to}{share(most):.0%} of the CPU of {most.node}", often

    finding = worst(lambda machine: machine.others_share or 0.0)
    if finding:
        machine, how_much, often = finding
        named = ", ".join(f"{name} {share:.0%}" for name, share in machine.others.items())
        programs = f" ({named})" if named else ""
        text = f"others took {how_much}{often}{programs}: stop them, or measure on an idle machine"
        yield Caveat(Kind.BUSY, text, where)
    finding = worst(lambda machine: machine.steal_share or 0.0)
    if finding:
        _, how_much, often = finding
        text = (
            f"the hypervisor gave {how_much} to other machines (steal){often}: measure on"
            " dedicated CPUs"
        )
        yield Caveat(Kind.BUSY, text, where)


def find_place(result: Result, group_run: GroupRun) -> Place:
    """Where figures stand beside those of other runs: a number of workers or, on growing data, a level."""
    if group_run.group.role is Role.READ:
        return Place(workers=group_run.group.workers, group="reader")
    if result.by_fill_level:
        return Place(level=group_run.run.fill_level)
    return Place(workers=group_run.group.workers)


def _locate(result: Result, group_run: GroupRun) -> Place:
    """The place of a run of writers; a level has only one."""
    place = find_place(result, group_run)
    return place if result.by_fill_level else replace(place, run=group_run.run.run)


def _locate_group(group_run: GroupRun) -> Place:
    """The place of a run of one group, beside the other or alone."""
    word = "reader" if group_run.group.role is Role.READ else "writer"
    group = f"{word} alone" if group_run.alone else word
    return Place(workers=group_run.group.workers, run=group_run.run.run, group=group)


def locate_run(result: Result, group_run: GroupRun) -> Place:
    """The place of a run of any kind."""
    if group_run.group.role is Role.WRITE and not result.baseline:
        return _locate(result, group_run)
    return _locate_group(group_run)


def find_short(result: Result) -> Iterator[Caveat]:
    """Runs so short that starting and ending are a noticeable part of them."""
    # A search begins with a short closed loop, which only says where to look.
    is_search = result.command == "capacity"
    runs = [
        group_run.group for group_run in result.writers if group_run.group.offered or not is_search
    ]
    load = result.settings.load
    longer_s = load.warm_up_s + SHORT_WINDOW_S
    if is_search and load.duration_s:
        # Unless it is given, the warm-up of a longer step is longer, too.
        share = 1 - load.warm_up_s / load.duration_s
        longer_s = ceil(round(SHORT_WINDOW_S / share, 6)) if share > 0 else longer_s
    remedy = (
        f"raise --num-inserts, for {SHORT_WINDOW_S:.0f} s or longer"
        if load.duration_s is None
        else f"give {DURATION_OPTIONS.get(result.command, '--duration')} {longer_s:g}s or longer"
    )
    if window_s := find_short_window(runs):
        yield describe_short(window_s, remedy)


def find_short_window(groups: Sequence[GroupResult]) -> float | None:
    """The shortest window of the valid groups, if it is short."""
    windows = [group.window_s for group in groups if group.valid and group.window_s is not None]
    shortest = min(windows, default=None)
    return shortest if shortest is not None and shortest < SHORT_WINDOW_S - _ROUNDED_S else None


def describe_short(window_s: float, remedy: str) -> Caveat:
    """The caveat about runs that take no longer, with what makes them longer."""
    text = f"start-up and shutdown dominate a run of {window_s:.1f} s: {remedy}"
    return Caveat(Kind.SHORT, text)


def _find_unstable(summary: Sequence[InsertSummary]) -> Iterator[Caveat]:
    for entry in summary:
        if entry.stable is False and entry.cv is not None:
            text = (
                f"the runs differ by {entry.cv:.0%} (CV; {UNSTABLE_CV:.0%} is high): find out why"
                " before you use this number"
            )
            yield Caveat(Kind.UNSTABLE, text, Place(entry.workers, entry.fill_level), cv=entry.cv)


def _find_few(result: Result) -> Iterator[Caveat]:
    if result.by_fill_level:
        yield Caveat(Kind.FEW_RUNS, "each level is a single run, so its spread is unknown")
        return
    summary = result.insert_summary
    few = [entry for entry in summary if entry.cv is not None and 2 <= entry.runs < ENOUGH_RUNS]
    if few:
        widest = max(few, key=lambda entry: find_smallest_difference(entry.cv or 0, entry.runs))
        difference = find_smallest_difference(widest.cv or 0, widest.runs)
        # Runs at a rate of their own hardly vary: less than a percent is not "0% or more".
        least = f"only differences of {max(0.01, difference):.0%} or more are"
        shown = "no difference is" if difference == inf else least
        yield Caveat(
            Kind.FEW_RUNS,
            f"with {widest.runs} runs this noisy, {shown} detectable; {ENOUGH_RUNS_TEXT} or more runs"
            " detect smaller ones",
        )
    single = [entry.workers for entry in summary if entry.runs == 1]
    if single:
        counts = join_words([f"{count:,}" for count in single])
        word = "worker" if single == [1] else "workers"
        yield Caveat(
            Kind.FEW_RUNS, f"a single valid run with {counts} {word} says nothing about its spread"
        )


def find_in_queries(result: Result) -> Iterator[Caveat]:
    """Caveats about the readers of a query command."""
    for reason in dict.fromkeys(reason for run in result.runs for reason in run.invalid_reasons):
        yield Caveat(Kind.INVALID, reason)
    yield from find_busy(result)
    yield from find_in_reads(result)
    if not result.by_number:
        return
    overlaps = [
        group_run.group.overlap
        for group_run in result.readers
        if group_run.group.overlap is not None
    ]
    if overlaps and min(overlaps) < MIN_OVERLAP_OF_READERS:
        yield Caveat(
            Kind.APART,
            f"all workers asked at once for only {min(overlaps):.0%} of the time; the others' executions"
            " had less competition: raise --runs",
        )
    spreads = spread_queries(result)
    for query, spread in spreads.items():
        if spread.stable is False and spread.cv is not None:
            text = f"the {_sample_word(result)} differ by {spread.cv:.0%} (CV; {UNSTABLE_CV:.0%} is high)"
            yield Caveat(Kind.UNSTABLE, text, Place(query=query), cv=spread.cv)
    executions = group_executions(result.asked).values()
    if any(not of_query.warm for of_query in executions):
        yield Caveat(
            Kind.FEW_RUNS,
            "a query was asked once only, so its times are those of first executions;"
            f" more --runs show these apart, and {ENOUGH_RUNS_TEXT} or more further ones show"
            " small differences",
        )
        return
    fewest = min((spread.runs for spread in spreads.values()), default=ENOUGH_RUNS)
    if fewest < ENOUGH_RUNS:
        yield Caveat(
            Kind.FEW_RUNS,
            f"{_count_samples(result, fewest)}; {ENOUGH_RUNS_TEXT} or more show smaller differences",
        )


def find_in_reads(result: Result) -> Iterator[Caveat]:
    """Caveats about groups that ask, and about those that were at work alone."""
    readers = result.readers
    for group_run in [*(readers if result.command == "mixed" else ()), *result.alone]:
        if not group_run.group.valid:
            yield Caveat(
                Kind.INVALID, "; ".join(group_run.group.invalid_reasons), _locate_group(group_run)
            )
    for group_run in (*readers, *result.alone):
        yield from _find_saturated(group_run, _locate_group(group_run))
        yield from _find_bound(group_run, _locate_group(group_run))
    yield from _find_clients_part(result, readers)


def spread_queries(result: Result) -> dict[str, Summary]:
    """Query -> the spread of its times."""
    by_query = group_executions(result.asked)
    return {query: summarize(executions.samples) for query, executions in by_query.items()}


def _sample_word(result: Result) -> str:
    return "runs" if result.settings.readers == 1 else "workers' means"


def _count_samples(result: Result, number: int) -> str:
    if result.settings.readers == 1:
        times = "once" if number == 1 else f"{number} times"
        return f"after its first execution a query was asked {times}"
    return f"{number} workers are {number} samples, however often each of them asks"
