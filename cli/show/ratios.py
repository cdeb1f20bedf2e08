"""How much faster one result is than another, in words, and what official clients cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf

from simulator.units import format_bytes, format_count, join_words

from ..results.comparison import (
    ASKING,
    ClientCost,
    MetricComparison,
    choose_columns,
    collect_figures,
    compare_clients,
)
from ..results.figures import FIGURES
from ..results.indexes import IndexCosts, find_index_costs
from ..results.matrix import Measured
from ..results.model import Result
from ..results.statistics import Ratio, summarize
from .tables import Table, format_interval, format_ms, format_rate

MOST_PLACES = 3
"""The most places that a sentence names; the others are counted."""


def format_factor(value: float) -> str:
    """Three digits, or a whole number from 20."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 20 else f"{value:,.0f}"


def format_speed(value: float) -> str:
    """`1.94× faster`, `95× slower`: always the larger speed ÷ the smaller."""
    return (
        f"{format_factor(value)}× faster" if value >= 1 else f"{format_factor(1 / value)}× slower"
    )


def format_speed_interval(low: float, high: float) -> str:
    """`1.80 to 2.10× faster`, `1.05× slower to 1.10× faster`, or `1.80× faster or more` if an end isn't known
    (0, or infinite)."""
    if low == 0 or high == inf:
        end = high if low == 0 else low
        if end in (0, inf):
            return "not known"
        further = (end < 1) == (low == 0)
        return f"{format_speed(end)} or {'more' if further else 'less'}"
    if low >= 1:
        return f"{format_factor(low)} to {format_speed(high)}"
    if high < 1:
        return f"{format_factor(1 / high)} to {format_speed(low)}"
    return f"{format_speed(low)} to {format_speed(high)}"


def describe_ratios(names: Sequence[str], comparisons: Sequence[MetricComparison]) -> list[str]:
    """A sentence for each comparison; those without a difference share one, and the table has their
    intervals."""
    sentences = []
    comparisons = [comparison for comparison in comparisons if not comparison.rate_given]
    folded = [
        kind
        for kind in _UNDIFFERENT
        if sum(_judge(comparison) == kind for comparison in comparisons) > 1
    ]
    for comparison in comparisons:
        outcome = _judge(comparison)
        if outcome in folded:
            continue
        name, base = names[comparison.position], names[0]
        if comparison.speed.interval is None:
            text = f"{name} is {format_speed(comparison.speed.value)} than {base}, from single runs"
        else:
            interval = f"95 % interval {format_speed_interval(*comparison.speed.interval)}"
            if outcome == _VOID:
                runs = format_count(min(comparison.runs, comparison.base_runs), "run")
                text = f"{name} and {base} can't be compared: {runs} vary too much"
            elif comparison.speed.differs:
                text = f"{name} is {format_speed(comparison.speed.value)} than {base} ({interval})"
            else:
                text = f"{_UNDIFFERENT[outcome]} between {name} and {base} ({interval})"
        sentences.append(f"{comparison.place}: {text}.")
    for kind in folded:
        places: dict[str, list[str]] = {}
        for comparison in comparisons:
            if _judge(comparison) == kind:
                places.setdefault(names[comparison.position], []).append(str(comparison.place))
        texts = "; ".join(f"{name} ({', '.join(own)})" for name, own in places.items())
        side = {_ALIKE: "from", _UNDECIDED: "against"}.get(kind, "with")
        sentences.append(f"{_UNDIFFERENT[kind].capitalize()} {side} {names[0]}: {texts}.")
    return sentences


def lead_comparison(names: Sequence[str], comparisons: Sequence[MetricComparison]) -> list[str]:
    """The answer: each result against the first in a sentence; results with the same outcome share one."""
    by_outcome: dict[tuple[int, str], list[str]] = {}
    for position in range(1, len(names)):
        rate_given = [
            comparison
            for comparison in comparisons
            if comparison.position == position and comparison.rate_given
        ]
        measured = [
            comparison
            for comparison in comparisons
            if comparison.position == position and not comparison.rate_given
        ]
        parts = []
        for kind in dict.fromkeys(_name_kind(comparison) for comparison in measured):
            of_kind = [comparison for comparison in measured if _name_kind(comparison) == kind]
            for outcome in dict.fromkeys(map(_judge, of_kind)):
                alike = [comparison for comparison in of_kind if _judge(comparison) == outcome]
                where = "" if len(alike) == len(of_kind) else f" ({_list_places(alike)})"
                parts.append(_describe_outcome(outcome, alike, kind, names[0]) + where)
        if rate_given:
            parts.append(
                f"not compared with {names[0]} in {_name_kind(rate_given[0])}, since they kept up with a"
                " given --rate"
            )
        if parts:
            undifferent = not rate_given and all(
                _judge(comparison) in _UNDIFFERENT for comparison in measured
            )
            key = (0 if undifferent else position, ", ".join(parts))
            by_outcome.setdefault(key, []).append(names[position])
    return [
        f"{join_words(results)}: {text}{' each' if len(results) > 1 else ''}."
        for (_, text), results in by_outcome.items()
    ]


_ALIKE, _UNDECIDED, _VOID = "alike", "undecided", "void"
_UNDIFFERENT = {
    _ALIKE: "no difference shown", _UNDECIDED: "undecided", _VOID: "can't be compared",
}  # fmt: skip
"""Words for outcomes in which neither is faster."""


def _judge(comparison: MetricComparison) -> str:
    if comparison.speed.is_void:
        return _VOID
    if comparison.speed.differs is False:
        return _ALIKE if comparison.speed.alike else _UNDECIDED
    side = "faster" if comparison.speed.value >= 1 else "slower"
    return side if comparison.speed.differs else f"{side}, from single runs"


def _describe_outcome(
    outcome: str, comparisons: Sequence[MetricComparison], kind: str, base: str
) -> str:
    if outcome == _ALIKE:
        return f"no difference from {base} shown in {kind}"
    if outcome == _VOID:
        return f"can't be compared with {base} in {kind}, since runs vary too much"
    if outcome == _UNDECIDED:
        return f"undecided against {base} in {kind}"
    side, comma, single = outcome.partition(",")
    interval = comparisons[0].speed.interval
    # A single place has an interval, several have a range.
    ends: Sequence[float] = [comparison.speed.value for comparison in comparisons]
    if len(comparisons) == 1 and interval and interval[0] > 0 and interval[1] < inf:
        ends = interval
    factors = sorted(value if side == "faster" else 1 / value for value in ends)
    texts = [text for text, _ in groupby(format_factor(value) for value in factors)]
    several = f"{texts[0]} to {texts[-1]}" if len(texts) > 1 else texts[0]
    measure = f"{several} times as fast as" if side == "faster" else f"{several}× slower than"
    return f"{measure} {base} in {kind}{comma}{single}"


def _name_kind(comparison: MetricComparison) -> str:
    if comparison.place.query is not None:
        return "queries"
    if comparison.place.capacity:
        return "capacity"
    if comparison.place.tuned:
        return "inserts with the best settings"
    return "inserts" if comparison.place.response is None else "response times"


def _list_places(comparisons: Sequence[MetricComparison]) -> str:
    if len(comparisons) <= MOST_PLACES:
        return ", ".join(str(comparison.place) for comparison in comparisons)
    word = "queries" if comparisons[0].place.query is not None else "places"
    return f"{len(comparisons)} {word}"


_MOST_INDEXES = 4
"""The most indexes that a line names."""


def describe_index_costs(measured: Measured) -> list[str]:
    """Disk space of each candidate's indexes and their cost to inserts, a line each; none where neither is
    known."""
    lines = []
    for name, cost in find_index_costs(measured).items():
        parts = []
        if cost.share is not None:
            largest = sorted(cost.sizes.items(), key=lambda each: -each[1])
            named = [f"{index} {format_bytes(size)}" for index, size in largest[:_MOST_INDEXES]]
            more = len(largest) - len(named)
            rest = f" and {more} more" if more > 0 else ""
            total = format_bytes(cost.total_bytes)
            parts.append(f"take {cost.share:.0%} of {total} on disk ({', '.join(named)}{rest})")
        parts.append(_describe_slowdown(cost))
        lines.append(f"{name}: its indexes {'; '.join(parts)}.")
    return lines


def _describe_slowdown(cost: IndexCosts) -> str:
    """How much they slow inserts down."""
    speed = cost.speed
    if speed is None:
        return "their cost to inserts was not measured"
    text = f"inserts compared with {cost.without}: "
    if speed.interval is None:
        return f"{text}{format_speed(speed.value)}, from single runs"
    interval = format_speed_interval(*speed.interval)
    if speed.differs:
        return f"{text}{format_speed(speed.value)} ({interval})"
    return f"{text}{'next to no difference' if speed.alike else 'undecided'} ({interval})"


# --- what official clients cost ----------------------------------------------------------------------


def tabulate_clients(result: Result) -> Table:
    """Each client's figures: the mean of its rates with its interval, and the means of the other figures."""
    comparison = result.clients
    if comparison is None:
        return Table([], [])
    columns = choose_columns([result])
    of_cpu = [key for key in (columns.cpu, columns.row) if key]
    way = "Queries by" if comparison.asks else "Inserts by"
    headers = [
        "Client", way, "Runs", FIGURES[columns.rate].heading, "95% interval",
        *(FIGURES[key].heading.replace("Client", "CPU,") for key in of_cpu), "p50, ms", "p99, ms",
    ]  # fmt: skip
    by_client = collect_figures([result])
    turns = {turn.client for turn in comparison.turns}
    rows = []
    for client, text in comparison.ways.items():
        if (figures := by_client.get(client)) is not None:
            rates = summarize(figures[columns.rate])
            rows.append([
                client, text, f"{rates.runs:,}", format_rate(rates.avg),
                format_interval(rates.ci95, format_rate),
                *(_format_mean(figures.get(key, ())) for key in of_cpu),
                *(_format_latency(figures.get(key, ())) for key in (columns.p50, columns.p99)),
            ])  # fmt: skip
        elif client in turns:
            rows.append([client, text, "0", *["-"] * (len(headers) - 3)])
    return Table(headers, rows, left=("Client", way))


def tabulate_questions(result: Result) -> Table:
    """How long each query took with each client: means over its valid runs."""
    comparison = result.clients
    if comparison is None or not comparison.asks:
        return Table([], [])
    asked = [
        (query, comparison.find_client(group_run.run.run))
        for group_run in result.compared
        if group_run.group.valid
        for query in group_run.group.queries
    ]
    rows = []
    for name in sorted({query.query for query, _ in asked}):
        for client in comparison.ways:
            own = [query for query, by in asked if (query.query, by) == (name, client)]
            times = [query.latency_ms for query in own if query.latency_ms]
            if own:
                rows.append([
                    name, client, f"{sum(query.executions for query in own):,}",
                    _format_latency([ms.p50 for ms in times]),
                    _format_latency([ms.p99 for ms in times if ms.p99 is not None]),
                ])  # fmt: skip
    return Table(["Query", "Client", "Times", "p50, ms", "p99, ms"], rows, left=("Query", "Client"))


def tabulate_turns(result: Result) -> Table:
    """Which client made which run, in run order."""
    turns = result.clients.turns if result.clients else []
    return Table(["Run", "Client"], [[f"{turn.run:,}", turn.client] for turn in turns], ("Client",))


def describe_clients(result: Result) -> list[str]:
    """What each client costs compared with the lean path: a sentence each."""
    costs = compare_clients([result])
    if result.clients is None or not costs:
        return [
            "The cost of a client is unknown: the client and the lean path each need a valid run."
        ]
    return [_describe_cost(cost, result) for cost in costs]


def _describe_cost(cost: ClientCost, result: Result) -> str:
    columns = choose_columns([result])
    event, request = ("query", "query") if columns is ASKING else ("event", "request")
    parts = [_describe_rate(cost.ratios[columns.rate])]
    if (cpu := cost.ratios.get(columns.cpu)) is not None:
        own, lean = (_format_mean(side[columns.cpu]) for side in (cost.own, cost.lean))
        parts.append(f"{own} µs of CPU per {event} instead of {lean} ({_format_times(cpu)})")
    if columns.row is not None and columns.row in cost.ratios:
        own, lean = (_format_mean(side[columns.row]) for side in (cost.own, cost.lean))
        parts.append(f"{own} per row instead of {lean}")
    if (p50 := cost.ratios.get(columns.p50)) is not None:
        own, lean = (_format_latency(side[columns.p50]) for side in (cost.own, cost.lean))
        parts.append(f"a {request}'s p50 {own} ms instead of {lean} ({_format_times(p50)})")
    way = result.clients.ways[cost.client] if result.clients else cost.client
    return f"What your application's client ({way}) costs you: {'; '.join(parts)}."


def _describe_rate(rate: Ratio) -> str:
    if rate.interval is None:
        return f"{format_speed(rate.value)} than the lean path, from single runs"
    interval = f"95 % interval {format_speed_interval(*rate.interval)}"
    if not rate.differs:
        return f"no difference in throughput shown ({interval})"
    return f"{format_speed(rate.value)} than the lean path ({interval})"


def _format_times(ratio: Ratio) -> str:
    interval = f"; {' to '.join(map(format_factor, ratio.interval))}" if ratio.interval else ""
    return f"{format_factor(ratio.value)} times{interval}"


def _format_mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):,.2f}" if values else "-"


def _format_latency(values: Sequence[float]) -> str:
    return format_ms(sum(values) / len(values)) if values else "-"


def describe_client_costs(results: Sequence[Result]) -> str:
    """What each client costs compared with the lean path in a few words, from all of these results."""
    columns = choose_columns(results)
    texts = []
    for cost in compare_clients(results):
        text = f"{cost.client}: {_describe_rate(cost.ratios[columns.rate])}"
        if (cpu := cost.ratios.get(columns.cpu)) is not None:
            # `2.8× (0.9 to 8.9)`.
            ends = f" ({' to '.join(map(format_factor, cpu.interval))})" if cpu.interval else ""
            unit = "query" if columns is ASKING else "event"
            text += f", CPU per {unit} {format_factor(cpu.value)}×{ends}"
        texts.append(text)
    return "; ".join(texts) or "the cost of a client is unknown"


def write_clients_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    rate = choose_columns([result]).rate
    costs = compare_clients([result])
    if not costs:
        return "no figures of two clients"
    return ", ".join(f"{cost.client} {format_speed(cost.ratios[rate].value)}" for cost in costs)
