"""How long requests took: all percentiles as a curve, or the few that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.contract import LatencyMs
from simulator.histograms import latency_ms, merge_histograms, values_at

from ..results.statistics import list_queries
from .figure import Figure, NamedResult, choose_slowest, describe_places
from .tables import format_ms, list_valid
from .vega import Row, draw_lines, draw_points, make_axis, make_spec, needs_log

PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}

MOST_QUERIES = 7
"""In one figure: with more no curve can be told from another."""

_STEPS = 8
"""Points of the curve for each halving of the share of requests that are slower."""


@dataclass(frozen=True)
class _Timed:
    """What a curve is of."""

    name: str
    latency_ms: LatencyMs
    histograms: Sequence[str]
    """Merged; none if only the percentiles are known."""


def draw_latencies(results: Sequence[NamedResult]) -> Figure | None:
    """The distribution of the requests' latency: a curve over the percentiles where each run has its
    histogram, otherwise the percentiles that it has."""
    chosen = [pair for named in results for pair in choose_slowest(named, alone=len(results) == 1)]
    note = (
        f"Of the run with the highest p99 {describe_places(results)}, retries included. A request is a whole"
        " batch."
    )
    if any(one.group.offered for named in results for one in named.result.writers):
        note += " At a given rate (open loop) it counts from when the request was due: the response time."
    timed = [
        _Timed(name, one.group.latency_ms, [one.group.histogram] if one.group.histogram else [])
        for name, one in chosen
        if one.group.latency_ms
    ]
    return _draw_curves("latency", "Latency of a request", "the requests", note, timed)


def draw_query_latencies(results: Sequence[NamedResult]) -> Figure | None:
    """The same of each query, of readers whose runs were ended by the clock."""
    timed = []
    for named in results:
        if named.result.by_number:
            continue
        asked = [query for group in list_valid(named.result.readers) for query in group.queries]
        for query in list_queries(asked):
            found = [one.histogram for one in asked if one.query == query and one.histogram]
            latency = latency_ms(merge_histograms(found)) if found else None
            if latency is not None:
                name = query if len(results) == 1 else f"{query}, {named.name}"
                timed.append(_Timed(name, latency, found))
    timed.sort(key=lambda one: -one.latency_ms.tail)
    note = "All valid runs together."
    if len(timed) > MOST_QUERIES:
        note += f" The {MOST_QUERIES} with the highest p99 of {len(timed)}."
    if any(one.group.offered for named in results for one in named.result.readers):
        note += " At a given rate it counts from when the query was due: the response time."
    return _draw_curves(
        "query-latency", "How long queries took", "the queries", note, timed[:MOST_QUERIES]
    )


def _draw_curves(
    kind: str, title: str, of: str, note: str, timed: Sequence[_Timed]
) -> Figure | None:
    if not timed:
        return None
    rows = [row for one in timed for row in _list_percentiles(one)]
    log = needs_log([row["ms"] for row in rows])
    y = make_axis("ms", "Latency, ms", log=log)
    curve = [row for one in timed for row in _trace(one)]
    if {row["series"] for row in curve} != {one.name for one in timed}:
        x: Row = {"field": "percentile", "type": "ordinal", "title": f"Percentile of {of}",
                  "sort": list(PERCENTILES.values()), "axis": {"labelAngle": 0}}  # fmt: skip
        layers = [draw_lines(x, y, rows), draw_points(x, y, rows)]
        return Figure(kind, title, note, make_spec(rows, layers))
    ends = {row["series"]: row["rank"] for row in curve}
    for row in rows:
        # The slowest of n requests is slower than all but one in n.
        row["rank"] = ends[row["series"]] if row["percentile"] == "max" else row["rank"]
    x = make_axis(
        "rank", f"Percentile of {of}, %",
        axis={"values": _list_ticks(max(ends.values())), "labelExpr": _AS_PERCENT},
    )  # fmt: skip
    x["scale"] = {"type": "log", "nice": False}
    line = draw_lines(x, y, rows) | {"data": {"values": curve}}
    note += " The curve goes on to the slowest; the axis widens its tail."
    return Figure(kind, title, note, make_spec(rows, [line, draw_points(x, y, rows)]))


_AS_PERCENT = "format(100 - 100 / datum.value, '.8~r')"
"""Of 1,000 requests that aren't slower, one is: 99.9 %."""


def _list_ticks(end: float) -> list[float]:
    """50, 90, 99, 99.9 and so on, as one in so many."""
    ticks = [1.0, 2.0]
    while 10 * ticks[-1] <= end * 1.0001 or ticks[-1] == 2.0:
        ticks.append(10.0 if ticks[-1] == 2.0 else 10 * ticks[-1])
    return ticks


def _list_percentiles(timed: _Timed) -> list[Row]:
    """A row for each that the tables show, too."""
    name, rows = timed.name, []
    for field, percentile in PERCENTILES.items():
        value = getattr(timed.latency_ms, field)
        if value is None:
            continue
        text = f"{name}\n{percentile}: {format_ms(value)} ms"
        rank = 1 / (1 - _PERCENTS.get(field, 0) / 100)
        rows.append(
            {"series": name, "percentile": percentile, "rank": rank, "ms": value, "text": text}
        )
    return rows


def _trace(timed: _Timed) -> list[Row]:
    """The curve from the fastest request to the slowest; nothing without a histogram."""
    if not timed.histograms:
        return []
    histogram = merge_histograms(timed.histograms)
    count = histogram.get_total_count()
    ranks, rank = [], 1.0
    while rank < count:
        ranks.append(rank)
        rank *= 2 ** (1 / _STEPS)
    # The last of all is the slowest; a handful of requests has no longer tail than its number.
    ranks.append(float(max(1, count)))
    percents = [100 - 100 / one for one in ranks[:-1]] + [100.0]
    return [
        {"series": timed.name, "rank": one, "ms": us / 1000}
        for one, us in zip(ranks, values_at(histogram, percents), strict=True)
    ]
