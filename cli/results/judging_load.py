"""Judges the required load and its limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from simulator.contract import GroupResult, Measure, Role, RunLimit
from simulator.units import format_amount, format_count, format_duration

from .answers import Capacity, find_query, measure
from .decision import Cell, Evidence, Requirement, Sample, Unit, decide
from .loads import (
    ORDER,
    LoadRun,
    Measured,
    Question,
    Repetition,
    cite,
    collect,
    find_difference,
    find_loads,
    find_scale,
    join,
    make_sample,
    stay_silent,
)
from .requirements import Requirements
from .scaling import ONE_LEVEL, Growth, extend, find_growth


def judge_limit(question: Question, limit: RunLimit, repetition: Repetition) -> Sample:
    """Whether a repetition kept a limit; the worst of its runs counts."""
    loads = find_loads(question, repetition)
    if not loads.runs:
        return stay_silent(repetition, loads.why)
    return join(repetition, [_judge_run(question, limit, run) for run in loads.runs])


def decide_limit(question: Question, row: Requirement, limit: RunLimit, measured: Measured) -> Cell:
    """Whether a limit is kept, on the history and at full retention."""
    samples = collect(measured, partial(judge_limit, question, limit), loaded=True)
    cell = decide(row, samples)
    scale = find_scale(question, measured)
    if scale is None or not limit.measure.is_time:
        return cell.model_copy(update={"scale": scale})
    return extend(row, cell, scale, *_find_growths(question, limit, measured, samples))


def _find_growths(
    question: Question, limit: RunLimit, measured: Measured, samples: Sequence[Sample]
) -> tuple[list[Growth], str]:
    """How the limited figure grew in each repetition, and why that is unknown for others."""
    values = {sample.repetition: sample.value for sample in samples}
    window_s = question.windows_s.get(limit.query or "", 0.0)
    growths, why = [], ONE_LEVEL
    for repetition in measured.repetitions:
        loads = find_loads(question, repetition)
        before = [load for load in loads.smaller if load.run.valid]
        if not before or loads.events is None:
            continue
        if before[0].find_span_s(question.rate_per_s) < window_s:
            why = (
                f"and the smaller fill level, {format_amount(before[0].events)}, has less than the"
                f" {format_duration(window_s)} that the query looks at: a larger history would decide"
            )
            continue
        low = before[0].events, _measure(limit, before[0])
        high = loads.events, values.get(repetition.number)
        if (growth := find_growth(repetition.number, low, high, loads.busy)) is not None:
            growths.append(growth)
    return growths, why


def _measure(limit: RunLimit, load: LoadRun) -> float | None:
    per_request = load.stored.result.settings.load.events_per_request
    return measure(limit, load.writers, load.run.readers, per_request)


def _judge_run(question: Question, limit: RunLimit, load: LoadRun) -> Sample:
    evidence = [cite(load.stored, load.run)]
    group = load.writers if limit.query is None else load.run.readers
    if group is None or not group.valid:
        reasons = "; ".join(group.invalid_reasons) if group else "it was never run"
        return make_sample(None, None, f"invalid: {reasons}", evidence)
    value = _measure(limit, load)
    if group.offered is not None and group.offered.saturated:
        if excuse := _excuse(question, load, group):
            return make_sample(None, value, excuse, evidence)
        return make_sample(False, value, f"saturated: {group.offered.reason}", evidence)
    query = find_query(limit.query, load.run.readers) if limit.query else None
    if value is None or (query and query.executions < limit.measure.least_requests):
        return _judge_unknown(limit, load, evidence)
    return make_sample(value <= limit.at_most, value, None, evidence)


def _excuse(question: Question, load: LoadRun, group: GroupResult) -> str | None:
    """Why a group that fell behind doesn't prove that the database can't keep up: the client was the limit,
    or it allowed fewer requests in flight than there are if each takes as long as allowed (Little's law), and
    none took longer."""
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


def _judge_unknown(limit: RunLimit, load: LoadRun, evidence: list[Evidence]) -> Sample:
    """Judge a percentile with too few requests. A lower percentile above the limit also breaks it."""
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
    """Whether the database keeps up with the load, and no search within the same limits finds a lower
    capacity. The capacity is the figure, and gives the headroom."""
    bounds = [
        _is_bound(stored.result.capacity)
        for repetition in measured.repetitions
        for stored in repetition.stored
        if stored.result.capacity is not None
    ]
    samples = collect(measured, lambda repetition: judge_rate(question, repetition), loaded=True)
    cell = decide(row, samples, at_least=any(bounds))
    if (scale := find_scale(question, measured)) is not None:
        cell = extend(row, cell, scale, *_find_slowing(question, measured, samples))
    if cell.value is not None:
        with_figure = sum(sample.value is not None for sample in samples)
        often = f" in {with_figure} of {len(samples)}" if with_figure < len(samples) else ""
        return cell.model_copy(update={"shown": f"holds {cell.shown}{often}"})
    if any(sample.keeps for sample in samples):
        return cell.model_copy(update={"shown": "kept up"})
    return cell


def _find_slowing(
    question: Question, measured: Measured, samples: Sequence[Sample]
) -> tuple[list[Growth], str]:
    """The capacity extrapolated to more stored events: it falls as the median insert time rises from one fill
    level to the next."""
    values = {sample.repetition: sample.value for sample in samples}
    growths = []
    for repetition in measured.repetitions:
        loads, value = find_loads(question, repetition), values.get(repetition.number)
        times = [
            {load.events: _find_median_ms(load) for load in runs}
            for runs in (loads.smaller, loads.runs)
        ]
        if value is None or not all(times):
            continue
        (low, before_ms), (high, after_ms) = (max(of_level.items()) for of_level in times)
        if before_ms and after_ms:
            before = low, value * after_ms / before_ms
            growth = find_growth(repetition.number, before, (high, value), loads.busy)
            growths += [growth] if growth else []
    if any(value is not None for value in values.values()):
        return growths, ONE_LEVEL
    return growths, "kept up: a search would show what is left"


def _find_median_ms(load: LoadRun) -> float | None:
    times = load.writers.service_ms or load.writers.latency_ms
    return times.p50 if times else None


def _is_bound(capacity: Capacity) -> bool:
    return capacity.events_per_s is not None and (
        capacity.above_per_s is None or capacity.client_bound
    )


def judge_rate(question: Question, repetition: Repetition) -> Sample:
    """Whether a repetition kept up with the load, and the result of its search."""
    found = find_loads(question, repetition)
    loads = [_judge_load(question, run) for run in found.runs]
    searches = list(_judge_searches(question, repetition))
    if not loads and not searches:
        return stay_silent(repetition, found.why)
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
        weaker = load  # what the search failed at was more than the load
    else:
        weaker = min((search, load), key=lambda sample: ORDER[sample.keeps])
    evidence = [*load.evidence, *search.evidence]
    return weaker.model_copy(update={"value": search.value, "evidence": evidence})


def _judge_load(question: Question, load: LoadRun) -> Sample:
    """Whether writers and readers of a run kept up with what was due."""
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
    """The result of each search within the required limits."""
    for stored in repetition.stored:
        capacity = stored.result.capacity
        if capacity is None or not covers(capacity.limits, question.needed):
            continue
        if not stored.result.runs or find_difference(
            question, stored.result, stored.result.runs[-1]
        ):
            continue
        evidence, rate = [cite(stored)], capacity.events_per_s
        broke = f": {capacity.why}" if capacity.why else ""
        if rate is not None:
            keeps = rate >= question.rate_per_s
            least = "at least " if _is_bound(capacity) else ""
            why = f"it holds {least}{Unit.EVENTS_PER_S.show(rate)} within the limits{broke}"
            yield make_sample(keeps, rate, None if keeps else why, evidence)
        elif capacity.above_per_s is not None and capacity.above_per_s <= question.rate_per_s:
            why = f"not even {Unit.EVENTS_PER_S.show(capacity.above_per_s)} hold within the limits{broke}"
            yield make_sample(False, None, why, evidence)
        else:
            yield make_sample(None, None, "the search found no rate that holds", evidence)


def covers(own: Sequence[RunLimit], needed: Requirements) -> bool:
    """Whether these limits of a search are the required ones or stricter."""
    return all(
        any(_is_within(limit, required) for limit in own) for required in needed.list_limits()
    )


def _is_within(own: RunLimit, limit: RunLimit) -> bool:
    """Whether a limit is this one, or stricter."""
    same = own.query == limit.query and own.measure is limit.measure
    return same and own.at_most <= limit.at_most * (1 + 1e-9)
