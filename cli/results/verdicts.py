"""What weakens a result: every rule by which a figure is doubted stands here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from simulator.contract import InsertRun, Machine, Offered, ReadRun

from .capacity import Capacity, Measure
from .model import Baseline, InsertSummary, Result
from .place import Place
from .statistics import (
    ENOUGH_RUNS,
    ENOUGH_RUNS_TEXT,
    UNSTABLE_CV,
    Summary,
    find_smallest_difference,
    group_executions,
    summarize,
)

SHORT_WINDOW_S = 10.0
"""Below this, starting and ending are a noticeable part of a run."""

_ROUNDED_S = 0.05
"""By so much less, a window is still shown as one of that length: `--duration 10s` gives 9.99 s."""


CLIENTS_PART = 0.15
"""Share of a request's time from which on the client's own is said."""


BUSY_SHARE = 0.1
"""Share of a machine's CPU from which on it is said that others took it."""


MIN_OVERLAP_OF_READERS = 0.8
"""Share of the time below which it is said that not all workers asked at once."""


class Kind(StrEnum):
    """Why a figure is to be doubted. The value is how it is printed."""

    NOT_MEASURED = "not measured"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"
    CLIENT_BOUND = "client-bound"
    SATURATED = "saturated"
    CLIENTS_PART = "client's part"
    BUSY = "busy"
    RETRIES = "retries"
    SHORT = "short"
    APART = "apart"
    UNSTABLE = "unstable"
    FEW_RUNS = "few runs"
    UNSURE = "not sure"
    NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Weakness:
    """Something to know before the figures are used."""

    kind: Kind
    text: str
    where: Place | None = None
    """None: it concerns the whole result."""
    rate: float | None = None
    """The inserts per second that don't count because of it."""


def find_weaknesses(result: Result) -> list[Weakness]:
    """All that weakens the result, the gravest first."""
    rules = [_find_in_queries] if result.command == "query" else [_find_in_inserts]
    rules += [_find_in_reads]
    if result.command == "capacity":
        rules = [_find_in_capacity]
    if result.command == "tune":
        rules = [_find_in_tuning]
    rules += [_find_unknown_use]
    return [weakness for rule in (_find_in_whole, *rules) for weakness in rule(result)]


def is_stable(result: Result) -> bool | None:
    """Whether no spread is above what is usual; None if nothing was measured twice."""
    if result.capacity is not None:
        return result.capacity.sure
    if result.command == "insert":
        known = [entry.stable for entry in result.insert_summary if entry.stable is not None]
        return all(known) if known else None
    spreads = [found.stable for found in _spread_of_queries(result).values()]
    known = [stable for stable in spreads if stable is not None]
    return all(known) if known else None


_NAMED = (
    Kind.INCOMPLETE, Kind.INVALID, Kind.CLIENT_BOUND, Kind.SATURATED, Kind.BUSY, Kind.SHORT, Kind.UNSTABLE,
)  # fmt: skip


def list_kinds(result: Result) -> list[str]:
    """Why the result is to be doubted, a word each, the gravest first: what would make its figures
    others, not how sure they are, which an interval shows."""
    found = {weakness.kind for weakness in find_weaknesses(result)}
    return [str(kind) for kind in _NAMED if kind in found]


def summarize_doubts(result: Result) -> list[str]:
    """What makes the result unfit to be compared, a few words each."""
    found = find_weaknesses(result)
    runs = len(result.insert_runs)
    texts = [w.text for w in found if w.kind in (Kind.NOT_MEASURED, Kind.INCOMPLETE)]
    invalid = [w for w in found if w.kind is Kind.INVALID]
    if result.command == "capacity":
        return texts + [w.text for w in found if w.kind in (Kind.UNSURE, Kind.CLIENT_BOUND)]
    if result.command in ("query", "tune"):
        return texts + [weakness.text for weakness in invalid]
    if invalid:
        are = "is" if len(invalid) == 1 else "are"
        texts.append(f"{len(invalid)} of {runs} runs {are} invalid and left out")
    bound = sum(weakness.kind is Kind.CLIENT_BOUND for weakness in found)
    if bound:
        verb = "shows" if bound == 1 else "show"
        texts.append(f"{bound} of {runs} runs {verb} the client's speed, not the database's")
    saturated = sum(weakness.kind is Kind.SATURATED for weakness in found)
    if saturated:
        are = "is" if saturated == 1 else "are"
        texts.append(f"{saturated} of {runs} runs {are} saturated")
    return texts


# --- the rules ------------------------------------------------------------------------------------


def _find_in_whole(result: Result) -> Iterator[Weakness]:
    if result.source:
        yield Weakness(Kind.NOT_MEASURED, f"by this tool: {result.source}")
    if not result.complete:
        yield Weakness(Kind.INCOMPLETE, "the command ended before all its runs were done")


def _find_in_inserts(result: Result) -> Iterator[Weakness]:
    runs = result.insert_runs
    for run in runs:
        if not run.valid:
            place = _locate(result, run)
            reasons = "; ".join(run.invalid_reasons)
            yield Weakness(Kind.INVALID, reasons, place, run.inserts_per_s)
    for run in runs:
        if run.valid and run.client and run.client.bound:
            text = f"{run.client.bound_reason}: this is your client's speed, not your database's"
            yield Weakness(Kind.CLIENT_BOUND, text, _locate(result, run))
    for run in runs:
        if run.valid and run.offered and run.offered.saturated:
            yield Weakness(Kind.SATURATED, _describe_saturation(run.offered), _locate(result, run))
    yield from _find_clients_part(result)
    yield from _find_busy(result)
    for run in runs:
        if run.retries:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in run.errors.items())
            text = f"{run.retries:,} ({kinds})"
            yield Weakness(Kind.RETRIES, text, _locate(result, run))
    yield from _find_short(result)
    yield from _find_unstable(result.insert_summary)
    yield from _find_few(result)
    yield from _find_unknown_sizes(runs)


def _find_unknown_sizes(runs: Sequence[InsertRun]) -> Iterator[Weakness]:
    """Each reason once: it is the same in all runs."""
    sizes = [(run.storage, "what is on disk") for run in runs]
    sizes += [(run.storage_compacted, "what is on disk once compacted") for run in runs]
    said = {f"{what}: {size.reason}" for size, what in sizes if size and size.reason}
    yield from (Weakness(Kind.NOT_KNOWN, text) for text in sorted(said))


def _find_unknown_use(result: Result) -> Iterator[Weakness]:
    """Each reason once, unless some runs tell what the database used, or nothing is stored anywhere."""
    if any(run.verification and run.verification.stored is None for run in result.insert_runs):
        return
    parts = [run.resources for run in result.insert_runs]
    parts += [*(run.resources for run in result.reads), result.resources]
    found = [used for used in parts if used is not None]
    if all(used.cpu_s is None for used in found):
        said = {f"what the database used: {used.reason}" for used in found if used.reason}
        yield from (Weakness(Kind.NOT_KNOWN, text) for text in sorted(said))


def _describe_saturation(offered: Offered, unit: str = "events") -> str:
    """What was not kept up with, how that shows, and what it does to the response times."""
    text = f"{offered.rate_per_s:,.10g} {unit}/s were not kept up with: {offered.reason}"
    if offered.unsent:
        text += (
            f"; response times of {offered.unsent:,} {unit} that were never sent count with the time"
            " they had waited"
        )
    return text


def limit_of_clients_part(run: InsertRun) -> float | None:
    """How many times as fast the run could be with a client that costs nothing; None if the client's
    part is small, unknown, or all there is.

    With one request in flight in a closed loop, or behind the schedule of an open one, a request's time
    is the client's and the database's together: without the client's share s of it, the rate could be
    1 ÷ (1 − s) times as high.
    """
    client = run.client
    if run.offered and not run.offered.saturated:
        return None
    if not (run.valid and client and client.in_flight == 1) or client.bound:
        return None
    share = client.cpu_share
    return 1 / (1 - share) if CLIENTS_PART <= share < 1 else None


def _find_clients_part(result: Result) -> Iterator[Weakness]:
    limits: dict[Place, float] = {}
    for run in result.insert_runs:
        place = _locate_together(result, run)
        limits[place] = max(limits.get(place, 0.0), limit_of_clients_part(run) or 0.0)
    for place, limit in limits.items():
        if limit:
            text = (
                f"{1 - 1 / limit:.0%} of each request's time is the client's own CPU; with an ideal"
                f" client the rate could be up to {limit:.2f} times as high"
            )
            yield Weakness(Kind.CLIENTS_PART, text, place)


def _find_busy(result: Result) -> Iterator[Weakness]:
    """What others took of the machines. Readers beside writers were on the same at the same time."""
    machines: dict[Place | None, list[Sequence[Machine]]] = {}
    for run in result.insert_runs:
        machines.setdefault(_locate_together(result, run), []).append(run.machines)
    if result.command == "query":
        machines[None] = [run.machines for run in result.reads] or [result.machines]
    baseline = result.baseline or Baseline()
    alone: list[InsertRun | ReadRun] = [*baseline.runs, *baseline.reads]
    for one in alone:
        place = replace(_locate_group(result, one), run=None)
        machines.setdefault(place, []).append(one.machines)
    for where, runs in machines.items():
        yield from _find_taken(runs, where)


def _find_taken(runs: Sequence[Sequence[Machine]], where: Place | None) -> Iterator[Weakness]:
    """What others took in runs that measured the same: by each cause, the worst of them."""

    def worst(share: Callable[[Machine], float]) -> tuple[Machine, str, str] | None:
        found = [max(machines, key=share) for machines in runs if machines]
        busy = [machine for machine in found if share(machine) >= BUSY_SHARE]
        if not busy:
            return None
        most = max(busy, key=share)
        up_to = "up to " if len(busy) > 1 else ""
        often = f" in {len(busy)} of {len(runs)} runs" if len(runs) > 1 else ""
        return most, f"{up_to}{share(most):.0%} of the CPU of {most.node}", often

    found = worst(lambda machine: machine.others_share or 0.0)
    if found:
        machine, how_much, often = found
        named = ", ".join(f"{name} {share:.0%}" for name, share in machine.others.items())
        who = f" ({named})" if named else ""
        text = f"others took {how_much}{often}{who}: stop them, or measure where there are none"
        yield Weakness(Kind.BUSY, text, where)
    found = worst(lambda machine: machine.steal_share or 0.0)
    if found:
        _, how_much, often = found
        text = (
            f"the hypervisor gave {how_much} to other machines (steal){often}: measure on CPUs of"
            " your own"
        )
        yield Weakness(Kind.BUSY, text, where)


def _locate_together(result: Result, run: InsertRun) -> Place:
    """Where a run is, together with those that measured the same."""
    if result.by_fill_level:
        return Place(level=run.fill_level)
    return Place(workers=run.workers)


def _locate(result: Result, run: InsertRun) -> Place:
    if result.by_fill_level:
        return Place(level=run.fill_level)
    return Place(workers=run.workers, run=run.run)


def _find_short(result: Result) -> Iterator[Weakness]:
    # A search begins with a short closed loop, which only says where to look.
    runs = [run for run in result.insert_runs if run.offered or result.command != "capacity"]
    windows = [run.window_s for run in runs if run.valid and run.window_s is not None]
    if windows and min(windows) < SHORT_WINDOW_S - _ROUNDED_S:
        load = result.settings.load
        option = "--step-duration" if result.command == "capacity" else "--duration"
        remedy = (
            f"with more --num-inserts let them take {SHORT_WINDOW_S:.0f} s or longer"
            if load.duration_s is None
            else f"with {option} {load.warm_up_s + SHORT_WINDOW_S:g}s or longer they measure less of it"
        )
        yield Weakness(
            Kind.SHORT,
            f"runs of {min(windows):.1f} s measure much of their own start and end; {remedy}",
        )


def _find_unstable(summary: Sequence[InsertSummary]) -> Iterator[Weakness]:
    for entry in summary:
        if entry.stable is False and entry.cv is not None:
            text = (
                f"the runs differ by {entry.cv:.0%} (CV; {UNSTABLE_CV:.0%} is much): find out why"
                " before you use this number"
            )
            yield Weakness(Kind.UNSTABLE, text, Place(entry.workers, entry.fill_level))


def _find_few(result: Result) -> Iterator[Weakness]:
    if result.by_fill_level:
        yield Weakness(Kind.FEW_RUNS, "each level is a single run, so its spread is not known")
        return
    summary = result.insert_summary
    few = [e for e in summary if e.cv is not None and 2 <= e.runs < ENOUGH_RUNS]
    if few:
        widest = max(few, key=lambda entry: find_smallest_difference(entry.cv or 0, entry.runs))
        difference = find_smallest_difference(widest.cv or 0, widest.runs)
        shown = "no difference" if difference == inf else f"differences of {difference:.0%} or more"
        yield Weakness(
            Kind.FEW_RUNS,
            f"{widest.runs} runs that vary like these show {shown} between two results;"
            f" {ENOUGH_RUNS_TEXT} or more show smaller ones",
        )
    single = [entry.workers for entry in summary if entry.runs == 1]
    if single:
        *others, last = [f"{count:,}" for count in single]
        counts = f"{', '.join(others)} and {last}" if others else last
        word = "worker" if single == [1] else "workers"
        yield Weakness(
            Kind.FEW_RUNS, f"a single valid run with {counts} {word} says nothing of its spread"
        )


def _find_in_capacity(result: Result) -> Iterator[Weakness]:
    """In the answer, and in the steps that it rests on: others may be as bad as they like."""
    found = result.capacity
    if found is None:
        return
    if found.client_bound:
        rate = f"{found.above_per_s or 0:,.10g} events/s"
        text = f"what doesn't hold at {rate} is your client, not your database"
        yield Weakness(Kind.CLIENT_BOUND, text)
    if not found.sure and found.unsure_because:
        yield Weakness(Kind.UNSURE, found.unsure_because)
    if found.contradicting:
        yield Weakness(Kind.UNSTABLE, _describe_contradictions(found))
    runs = {run.run: run for run in result.insert_runs}
    holding = [runs[step.run] for step in found.steps_at_answer]
    yield from _find_few_requests(found, holding, result.settings.load.events_per_request)
    yield from _find_busy(result)
    yield from _find_short(result)
    yield from _find_unknown_sizes(result.insert_runs)


def _find_in_tuning(result: Result) -> Iterator[Weakness]:
    """In the runs that the answer rests on: those of the best in the last stage."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return  # the answer says that there is none
    best = [t for t in tuning.trials if t.candidate == ranked[0] and t.stage == tuning.stages]
    numbers = {number for trial in best for number in trial.runs}
    runs = [run for run in result.insert_runs if run.run in numbers]
    bound = [run for run in runs if run.client and run.client.bound]
    if bound and not tuning.limits:
        text = f"{len(bound)} of {len(runs)} runs of the best show your client's speed: its CPUs, not the"
        yield Weakness(Kind.CLIENT_BOUND, f"{text} database, choose between settings then")
    failed = sum(trial.rate_per_s is None for trial in tuning.trials)
    if failed:
        text = f"{failed:,} of {len(tuning.trials):,} measurements gave no figure and don't count"
        yield Weakness(Kind.INVALID, text)
    if len(best) < ENOUGH_RUNS:
        text = f"the best was measured {len(best)} times in the comparison; {ENOUGH_RUNS} or more --runs"
        yield Weakness(Kind.FEW_RUNS, f"{text} show smaller differences")
    yield from _find_busy(result)


def _describe_contradictions(found: Capacity) -> str:
    """How the database's speed changed, by the verdicts that don't follow from the answer."""
    offered = [step for step in found.steps if step.rate_per_s is not None]
    against = [step for step in offered if step.run in found.contradicting]
    half = len(offered) / 2
    early = all(offered.index(step) < half for step in against)
    change = "its speed varies near the limit, or changed meanwhile"
    if early and all(step.holds for step in against):
        change = "the database seems to have become slower meanwhile"
    elif early and not any(step.holds for step in against):
        change = "the database seems to have become faster meanwhile"
    steps = "1 step says" if len(against) == 1 else f"{len(against)} steps say"
    told = ", ".join(
        f"{step.rate_per_s:,.10g} {'held' if step.holds else 'did not hold'}"
        for step in against[:4]
    )
    more = ", …" if len(against) > 4 else ""
    return f"{steps} otherwise ({told}{more}): {change}"


def _find_few_requests(
    found: Capacity, runs: Sequence[InsertRun], per_request: int
) -> Iterator[Weakness]:
    """Percentiles that are those of a handful of requests."""
    needed = max(
        (_REQUESTS.get(limit.measure, 0) for limit in found.limits if not limit.query), default=0
    )
    requests = [run.offered.due / per_request for run in runs if run.offered]
    if requests and min(requests) < needed:
        text = (
            f"a step at this rate has {min(requests):,.0f} requests, of which the slowest are few: a longer"
            " --step-duration shows more of them"
        )
        yield Weakness(Kind.FEW_RUNS, text)


_REQUESTS = {Measure.P99: 1_000, Measure.SERVICE_P99: 1_000, Measure.P99_9: 10_000}
"""How many requests there must be, for ten of them to be above the percentile."""


def _find_in_queries(result: Result) -> Iterator[Weakness]:
    for reason in result.invalid_reasons:
        yield Weakness(Kind.INVALID, reason)
    yield from _find_busy(result)
    if result.overlap is not None and result.overlap < MIN_OVERLAP_OF_READERS:
        yield Weakness(
            Kind.APART,
            f"all workers asked at once for only {result.overlap:.0%} of the time; the others'"
            " executions were disturbed less: ask more often, by --runs",
        )
    spreads = _spread_of_queries(result)
    for query, found in spreads.items():
        if found.stable is False and found.cv is not None:
            text = f"the {_sample_word(result)} differ by {found.cv:.0%} (CV; {UNSTABLE_CV:.0%} is much)"
            yield Weakness(Kind.UNSTABLE, text, Place(query=query))
    if result.reads:
        return
    executions = group_executions(result.query_runs).values()
    if any(not found.warm for found in executions):
        yield Weakness(
            Kind.FEW_RUNS,
            "a query was asked once only, so its times are those of first executions;"
            f" with more --runs these are shown apart, and {ENOUGH_RUNS_TEXT} further ones or"
            " more show small differences",
        )
        return
    fewest = min((found.runs for found in spreads.values()), default=ENOUGH_RUNS)
    if fewest < ENOUGH_RUNS:
        yield Weakness(
            Kind.FEW_RUNS,
            f"{_count_samples(result, fewest)}; {ENOUGH_RUNS_TEXT} or more show smaller differences",
        )


def _find_in_reads(result: Result) -> Iterator[Weakness]:
    """In readers whose run was ended by the clock."""
    baseline = result.baseline or Baseline()
    alone: list[InsertRun | ReadRun] = [*baseline.runs, *baseline.reads]
    beside = result.reads if result.command == "mixed" else []
    for run in (*beside, *alone):
        if not run.valid:
            yield Weakness(Kind.INVALID, "; ".join(run.invalid_reasons), _locate_group(result, run))
    for run in (*result.reads, *alone):
        place = _locate_group(result, run)
        unit = "queries" if isinstance(run, ReadRun) else "events"
        if run.valid and run.offered and run.offered.saturated:
            yield Weakness(Kind.SATURATED, _describe_saturation(run.offered, unit), place)
        if run.valid and run.client and run.client.bound:
            text = f"{run.client.bound_reason}: this is your client's speed, not your database's"
            yield Weakness(Kind.CLIENT_BOUND, text, place)


def _locate_group(result: Result, run: InsertRun | ReadRun) -> Place:
    """A run of one group, beside the other or alone."""
    word = "reader" if isinstance(run, ReadRun) else "writer"
    alone = result.baseline and run in (*result.baseline.runs, *result.baseline.reads)
    return Place(workers=run.workers, run=run.run, group=f"{word} alone" if alone else word)


def _spread_of_queries(result: Result) -> dict[str, Summary]:
    found = group_executions(result.query_runs)
    return {query: summarize(executions.samples) for query, executions in found.items()}


def _sample_word(result: Result) -> str:
    return "runs" if result.settings.readers == 1 else "workers' means"


def _count_samples(result: Result, number: int) -> str:
    if result.settings.readers == 1:
        times = "once" if number == 1 else f"{number} times"
        return f"after its first execution a query was asked {times}"
    return f"{number} workers are {number} samples, however often each of them asks"
