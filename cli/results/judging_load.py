"""What results say about the required load and the limits at it. Pure.

A run counts if it offered the required rate (up to 5 % more), in requests of the required size, with the
required questions beside it at their rates, on the required history. A search counts if it kept to the same
limits under the same conditions. Whose step it was doesn't matter: own steps are judged like those that
follow from the requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, inf

from simulator.contract import GroupResult, Measure, Role, RunLimit, RunResult
from simulator.units import format_count, format_duration

from .answers import Capacity
from .decision import Cell, Evidence, Requirement, Sample, Unit, decide
from .evidence import (
    ALMOST,
    ORDER,
    Measured,
    Question,
    Repetition,
    cite,
    collect,
    join,
    make_sample,
    stay_silent,
)
from .limits import find_query, measure
from .model import Result
from .requirements import Requirements
from .store import StoredResult

MOST_RATE = 1.05
"""A run at up to so many times the required rate shows what the required one does."""


@dataclass(frozen=True)
class _LoadRun:
    """A run that offered the required load."""

    stored: StoredResult
    run: RunResult
    writers: GroupResult


def _find_loads(question: Question, repetition: Repetition) -> tuple[list[_LoadRun], str]:
    """The runs of a repetition that count for the load, and why if there are none."""
    loads, why = [], ""
    for stored in repetition.stored:
        result = stored.result
        settings = result.settings
        # A rate that changes is the required one for a while at most.
        if (
            result.command not in ("insert", "mixed")
            or settings.disturbances
            or settings.load.stages
        ):
            continue
        for run in result.runs:
            writers = run.writers
            if writers is None or writers.offered is None or run.marks or run.undone:
                continue
            if run.retention is not None:
                continue  # at a compressed clock more is deleted in a minute than in a month
            offered = writers.offered.rate_per_s
            if not ALMOST * question.rate_per_s <= offered <= MOST_RATE * question.rate_per_s:
                why = why or f"{stored.result.label} offered {Unit.EVENTS_PER_S.show(offered)}"
            elif differs := _find_difference(question, result, run):
                why = differs
            else:
                loads.append(_LoadRun(stored, run, writers))
    if repetition.failed:
        why = repetition.failed[0]
    return loads, why or f"nothing was measured at {Unit.EVENTS_PER_S.show(question.rate_per_s)}"


def _find_difference(question: Question, result: Result, run: RunResult) -> str | None:
    """Why a run, or a search of such runs, was not what is required but for its rate; None if it was."""
    needed, batch = question.needed, result.settings.load.batch
    if needed.insert.batch is not None and max(1, batch) != needed.insert.batch:
        return f"measured in batches of {max(1, batch):,}, not of {needed.insert.batch:,}"
    level = result.settings.data.prefill if run.fill_level is None else run.fill_level
    if level < ALMOST * question.history:
        return f"measured on {level:,} events, not on the history's {question.history:,}"
    if (
        (history := needed.history) is not None
        and history.span is not None
        and history.every is not None
    ):
        data = result.settings.data
        span_s, every_s = data.prefill_span_s or 0.0, data.prefill_every_s or inf
        if span_s < ALMOST * history.span or every_s * ALMOST > history.every:
            return (
                f"measured without the history of {format_duration(history.span)}, one event per device"
                f" every {format_duration(history.every)}"
            )
    rates = _find_query_rates(result)
    for name, limits in needed.queries.items():
        if rates.get(name, 0.0) < ALMOST * limits.rate:
            return f"measured without {name} {limits.rate:g} times a second beside it"
    return None


def _find_query_rates(result: Result) -> dict[str, float]:
    """Query -> how often per second it was to be asked beside the inserts."""
    settings = result.settings
    if settings.query_rate_per_s is None or not settings.queries:
        return {}
    queries = settings.queries
    weights = queries if isinstance(queries, dict) else dict.fromkeys(queries, 1.0)
    total = fsum(weights.values())
    return {name: settings.query_rate_per_s * weight / total for name, weight in weights.items()}


def judge_limit(question: Question, limit: RunLimit, repetition: Repetition) -> Sample:
    """Whether a repetition kept a limit; of several runs the worst counts."""
    runs, why = _find_loads(question, repetition)
    if not runs:
        return stay_silent(repetition, why)
    return join(repetition, [_judge_run(question, limit, run) for run in runs])


def _judge_run(question: Question, limit: RunLimit, load: _LoadRun) -> Sample:
    evidence = [cite(load.stored, load.run)]
    group = load.writers if limit.query is None else load.run.readers
    if group is None or not group.valid:
        reasons = "; ".join(group.invalid_reasons) if group else "nobody asked"
        return make_sample(None, None, f"invalid: {reasons}", evidence)
    per_request = load.stored.result.settings.load.events_per_request
    value = measure(limit, load.writers, load.run.readers, per_request)
    if group.offered is not None and group.offered.saturated:
        if excuse := _excuse(question, load, group):
            return make_sample(None, value, excuse, evidence)
        return make_sample(False, value, f"saturated: {group.offered.reason}", evidence)
    query = find_query(limit.query, load.run.readers) if limit.query else None
    if value is None or (query and query.executions < limit.measure.least_requests):
        return _judge_unknown(limit, load, evidence)
    return make_sample(value <= limit.at_most, value, None, evidence)


def _excuse(question: Question, load: _LoadRun, group: GroupResult) -> str | None:
    """Why a group that didn't keep up doesn't show that the database can't: the client was the limit, or it
    could not have as many requests under way as there are if each takes as long as it may (Little's law),
    while none took longer."""
    if group.client is not None and group.client.bound:
        return "the client was the limit: more workers, or a larger machine for it, would decide"
    places = question.count_places(load.stored.result.settings.load.events_per_request)
    if group is load.writers:
        (needed, longest_ms), options = places[Role.WRITE], "workers, or in-flight"
    else:
        (needed, longest_ms), options = places[Role.READ], "readers, or reader-in-flight"
    available = group.workers * ((group.client.in_flight if group.client else None) or 1)
    if available >= needed or group.service_ms is None or group.service_ms.tail > longest_ms:
        return None
    return (
        f"{available:,} in flight are too few if each takes as long as allowed: more {options},"
        f" {needed:,} in all, would decide"
    )


def _judge_unknown(limit: RunLimit, load: _LoadRun, evidence: list[Evidence]) -> Sample:
    """Judge a percentile of too few requests. A lower percentile above the limit breaks it, too."""
    query = find_query(limit.query, load.run.readers) if limit.query else None
    times = query.latency_ms if query else load.writers.latency_ms
    higher = limit.measure in (Measure.P99, Measure.P99_9)
    if higher and times is not None and times.p90 > limit.at_most:
        return make_sample(False, None, f"p90 {limit.show(times.p90)}", evidence)
    needed = limit.measure.least_requests
    requests = format_count(query.executions, "execution") if query else "too few requests"
    why = f"{requests}, and {limit.measure} needs {needed:,}: a longer run would decide"
    return make_sample(None, None, why, evidence)


def decide_rate(question: Question, row: Requirement, measured: Measured) -> Cell:
    """Whether the load is kept up with, and no search within the same limits finds a lower capacity. The
    capacity is the figure, and gives the headroom."""
    bounds = [
        _is_bound(stored.result.capacity)
        for repetition in measured.repetitions
        for stored in repetition.stored
        if stored.result.capacity is not None
    ]
    samples = collect(measured, lambda repetition: judge_rate(question, repetition), loaded=True)
    cell = decide(row, samples, at_least=any(bounds))
    if cell.value is not None:
        with_figure = sum(sample.value is not None for sample in samples)
        often = f" in {with_figure} of {len(samples)}" if with_figure < len(samples) else ""
        return cell.model_copy(update={"shown": f"holds {cell.shown}{often}"})
    if any(sample.keeps for sample in samples):
        return cell.model_copy(update={"shown": "kept up"})
    return cell


def _is_bound(capacity: Capacity) -> bool:
    return capacity.events_per_s is not None and (
        capacity.above_per_s is None or capacity.client_bound
    )


def judge_rate(question: Question, repetition: Repetition) -> Sample:
    """Whether a repetition kept up with the load, and what its search found."""
    runs, why = _find_loads(question, repetition)
    loads = [_judge_load(question, run) for run in runs]
    searches = list(_judge_searches(question, repetition))
    if not loads and not searches:
        return stay_silent(repetition, why)
    if not searches:
        return join(repetition, loads)
    search = min(searches, key=lambda sample: (ORDER[sample.keeps], sample.value or 0.0))
    search = join(repetition, [search])
    if not loads:
        return search
    load = join(repetition, loads)
    within = [
        judge_limit(question, limit, repetition).keeps for limit in question.needed.list_limits()
    ]
    if load.keeps and all(within) and search.keeps is False:
        why = f"{search.why}, yet the load itself was within all limits: more repetitions would decide"
        search = search.model_copy(update={"keeps": None, "why": why})
    if load.keeps and search.keeps is None and search.value is None:
        weaker = load  # what the search tried in vain was more than the load
    else:
        weaker = min((search, load), key=lambda sample: ORDER[sample.keeps])
    evidence = [*load.evidence, *search.evidence]
    return weaker.model_copy(update={"value": search.value, "evidence": evidence})


def _judge_load(question: Question, load: _LoadRun) -> Sample:
    """Whether a run kept up with what was due: writers and readers."""
    evidence = [cite(load.stored, load.run)]
    groups = [(load.writers, ""), *([(load.run.readers, "readers ")] if load.run.readers else [])]
    for group, prefix in groups:
        if not group.valid:
            reasons = "; ".join(group.invalid_reasons)
            return make_sample(None, None, f"{prefix}invalid: {reasons}", evidence)
    for group, prefix in groups:
        if group.offered is not None and group.offered.saturated:
            if excuse := _excuse(question, load, group):
                return make_sample(None, None, f"{prefix}saturated: {excuse}", evidence)
            why = f"{prefix}saturated: {group.offered.reason}"
            return make_sample(False, None, why, evidence)
    return make_sample(True, None, None, evidence)


def _judge_searches(question: Question, repetition: Repetition) -> Iterator[Sample]:
    """What each search within the required limits found."""
    for stored in repetition.stored:
        capacity = stored.result.capacity
        if capacity is None or not covers(capacity.limits, question.needed):
            continue
        if not stored.result.runs or _find_difference(
            question, stored.result, stored.result.runs[-1]
        ):
            continue
        evidence, rate = [cite(stored)], capacity.events_per_s
        if rate is not None:
            keeps = rate >= question.rate_per_s
            least = "at least " if _is_bound(capacity) else ""
            why = f"it holds {least}{Unit.EVENTS_PER_S.show(rate)} within the limits"
            yield make_sample(keeps, rate, None if keeps else why, evidence)
        elif capacity.above_per_s is not None and capacity.above_per_s <= question.rate_per_s:
            why = f"not even {Unit.EVENTS_PER_S.show(capacity.above_per_s)} hold within the limits"
            yield make_sample(False, None, why, evidence)
        else:
            yield make_sample(None, None, "the search found no rate that holds", evidence)


def covers(own: Sequence[RunLimit], needed: Requirements) -> bool:
    """Whether a search with these limits keeps to the required ones, or to narrower ones."""
    return all(
        any(_is_within(limit, required) for limit in own) for required in needed.list_limits()
    )


def _is_within(own: RunLimit, limit: RunLimit) -> bool:
    """Whether a limit is this one, or narrower."""
    same = own.query == limit.query and own.measure is limit.measure
    return same and own.at_most <= limit.at_most * (1 + 1e-9)
