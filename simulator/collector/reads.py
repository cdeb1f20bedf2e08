"""From what readers measured in a run that is ended by the clock to its figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..contract import Client, Load, QueryFigures, ReadRun, WorkerQuery, WorkerReads
from ..histograms import encode_histogram, latency_ms, merge_histograms
from .merge import (
    BOUND_CPU_SHARE,
    explain_nothing,
    find_late_starts,
    merge_service,
    span_of,
)
from .offered import judge_offer


def merge_reads(
    asked: Mapping[int, WorkerReads],
    clock_offsets_s: Mapping[int, float],
    load: Load,
    fill_level: int | None,
    data_grow: bool,
    drawn: Collection[str] = (),
) -> ReadRun:
    """One run from what each of its readers measured.

    `load`: the group's; `fill_level`: events in the database when the window began; `data_grow`: there
    are writers, so that answers may differ in length; `drawn`: queries whose answers may anyway, since each
    execution has parameters of its own.
    """
    offsets = {worker: clock_offsets_s.get(worker, 0.0) for worker in asked}
    spans = [(p.start_s + offsets[w], p.end_s + offsets[w]) for w, p in asked.items()]
    window, overlap = span_of(spans)
    measured = sum(part.measured for part in asked.values())
    histogram = merge_histograms(part.histogram for part in asked.values())
    seconds: Counter[int] = Counter()
    for part in asked.values():
        seconds.update(dict(part.timeline))
    names = dict.fromkeys(query.query for part in asked.values() for query in part.queries)
    figures = [
        _merge_query(
            [query for part in asked.values() for query in part.queries if query.query == name]
        )
        for name in names
    ]
    reasons = _find_failures(figures, names if data_grow else drawn)
    if not measured:
        reasons.append(
            explain_nothing(load, window, [part.offer for part in asked.values() if part.offer])
        )
    reasons += find_late_starts(offsets, window)
    offered = judge_offer(
        [part.offer for part in asked.values() if part.offer],
        load,
        1,
        measured,
        seconds,
        (min(start for start, _ in spans), max(end for _, end in spans)),
    )
    return ReadRun(
        workers=len(asked),
        run=1,
        valid=not reasons,
        invalid_reasons=reasons,
        fill_level=fill_level,
        window_s=window,
        queries_per_s=measured / window if window > 0 and measured else None,
        overlap=overlap,
        warm_up_s=load.warm_up_s,
        queries=figures,
        latency_ms=latency_ms(histogram),
        histogram=encode_histogram(histogram),
        **merge_service([part.service for part in asked.values()]),
        offered=offered,
        client=_cost(list(asked.values())),
        timeline=sorted(seconds.items()),
    )


def _find_failures(figures: Sequence[QueryFigures], varying: Collection[str]) -> list[str]:
    """What makes the run invalid. `varying`: queries whose answers may differ in length."""
    reasons = []
    failed: dict[str | None, list[QueryFigures]] = {}
    for one in figures:
        if one.errors:
            failed.setdefault(one.error, []).append(one)
    for error, alike in failed.items():
        times = [f"{one.errors} times" if one.errors > 1 else "once" for one in alike]
        if len(alike) == 1:
            reasons.append(f"query {alike[0].query} failed {times[0]}: {error}")
        else:
            # A database that goes away fails them all, in the same long words.
            named = (f"{one.query} ({often})" for one, often in zip(alike, times, strict=True))
            reasons.append(f"queries {', '.join(named)} failed: {error}")
    reasons += [
        f"query {one.query} gave {one.rows_min} to {one.rows_max} rows: the data changed meanwhile"
        for one in figures
        if one.rows_min != one.rows_max and one.query not in varying
    ]
    return reasons


def _merge_query(parts: Sequence[WorkerQuery]) -> QueryFigures:
    """One query of all readers."""
    latency = merge_histograms(part.histogram for part in parts)
    cold = [part.cold_s for part in parts if part.cold_s is not None]
    return QueryFigures(
        query=parts[0].query,
        executions=sum(part.executions for part in parts),
        errors=sum(part.errors for part in parts),
        error=next((part.error for part in parts if part.error), None),
        rows_min=min((part.rows_min for part in parts if part.rows_min is not None), default=None),
        rows_max=max((part.rows_max for part in parts if part.rows_max is not None), default=None),
        cold_s=sum(cold) / len(cold) if cold else None,
        warm_s=[part.warm_s / part.warm for part in parts if part.warm],
        latency_ms=latency_ms(latency),
        histogram=encode_histogram(latency),
        service_ms=merge_service([part.service for part in parts]).get("service_ms"),
    )


def _cost(parts: Sequence[WorkerReads]) -> Client:
    """What asking cost the readers. Answers are unpacked by the database's own client."""
    cpu = sum(part.cpu_s for part in parts)
    spans = [part.end_s - part.start_s for part in parts]
    busiest = max((p.cpu_s / s for p, s in zip(parts, spans, strict=True) if s > 0), default=0.0)
    bound = busiest >= BOUND_CPU_SHARE
    return Client(
        cpu_s=cpu,
        cpu_share=busiest,
        generate_s=0.0,
        encode_s=0.0,
        ceiling_share=0.0,
        throttled_share=None,
        in_flight=1,
        bound=bound,
        bound_reason=f"a reader's CPU was busy {busiest:.0%} of the time" if bound else None,
    )
