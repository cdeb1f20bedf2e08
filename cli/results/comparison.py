"""Figures of two or more stored results as ratios to those of the first. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from simulator.contract import Role
from simulator.modules.options import LEAN
from simulator.units import parse_amount, parse_duration_ms

from ..system.errors import ConfigError
from .caveats import Place, find_place
from .entries import QUERY_TIMES, list_entries
from .figures import FIGURES, LIMITED, Better
from .matrix import collect_samples, gather
from .model import Result
from .observations import CAPACITY, Observation, observe
from .statistics import Ratio, combine_cv, count_runs_needed, estimate_ratio
from .store import StoredResult

FIVE_PERCENT = 0.05
"""The difference for which the required number of runs is given."""


@dataclass(frozen=True)
class MetricComparison:
    """One result against the first, at one worker count, fill level or query."""

    place: Place
    position: int
    """The result's position among those compared."""
    base_figure: float
    figure: float
    """Means: inserts per second, milliseconds of a response, or seconds of a query."""
    base_runs: int
    runs: int
    speed: Ratio
    """Speed relative to the first: rate ÷ its rate, or its time ÷ time."""
    runs_for_five_percent: int | None
    """Runs that each side would need to show 5 %; None if unknown, or more than is sensible."""
    rate_given: bool = False
    """Whether one side only kept up with a given rate, which is not its speed."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.rate_given:
            return "rate was given"
        if self.speed.differs is None:
            return "unknown: needs 2 runs"
        if self.speed.is_void:
            return "can't be compared"
        if not self.speed.differs:
            return "no difference shown" if self.speed.alike else "undecided"
        return "faster" if self.speed.value > 1 else "slower"


def check_comparable(results: Sequence[StoredResult]) -> None:
    """ConfigError if the results can't be compared at all."""
    if len(results) < 2:
        raise ConfigError("compare needs two results or more")
    kinds = list(dict.fromkeys(stored.result.kind for stored in results))
    if "tunings" in kinds:
        raise ConfigError(
            "tunings can't be compared: compare runs of insert with the settings that they found"
        )
    if "clients" in kinds:
        raise ConfigError("a result of clients is a comparison itself: compare runs of insert")
    if len(kinds) > 1:
        raise ConfigError(f"{' and '.join(kinds)} can't be compared with each other")


def compare(results: Sequence[Result]) -> list[MetricComparison]:
    """Each result against the first, wherever both have figures, in the first one's order."""
    samples = [collect_samples(result) for result in results]
    return _compare_capacities(results) + [
        replace(
            comparison,
            rate_given=_is_given(results[0], results[comparison.position], comparison.place),
        )
        for comparison in compare_samples(samples)
    ]


def _is_given(base: Result, other: Result, place: Place) -> bool:
    """Whether one of the two only kept up with a given rate there, so that its speed is unknown."""
    rates = [result.settings.load.rate_per_s for result in (base, other)]
    if place.has_times:
        return False
    return any(
        rate is not None
        and not any(
            run.group.offered and run.group.offered.saturated
            for run in result.writers
            if run.group.valid and find_place(result, run) == place
        )
        for rate, result in zip(rates, (base, other), strict=True)
    )


def compare_samples(
    samples: Sequence[Mapping[Place, Sequence[float]]], error: float = 0.05
) -> list[MetricComparison]:
    """Ratios of independent runs to the first one's, wherever both have some, in its order. `error`: of each
    interval, see `estimate_ratio`."""
    base, *others = samples
    comparisons = []
    for place, base_values in base.items():
        for position, other in enumerate(others, 1):
            if place not in other:
                continue
            values = other[place]
            sides = (base_values, values) if place.has_times else (values, base_values)
            cv = combine_cv(base_values, values)
            comparisons.append(
                MetricComparison(
                    place, position, fmean(base_values), fmean(values), len(base_values), len(values),
                    estimate_ratio(*sides, error),
                    None if cv is None else count_runs_needed(cv, FIVE_PERCENT),
                )
            )  # fmt: skip
    return comparisons


def _compare_capacities(results: Sequence[Result]) -> list[MetricComparison]:
    """Capacities relative to the first. Each lies within its interval, so their ratio lies between the ratios
    of the ends; a client-bound search leaves the upper end open."""
    found = []
    for position, result in enumerate(results):
        capacity = result.capacity
        if capacity is not None and capacity.events_per_s is not None:
            above = None if capacity.client_bound else capacity.above_per_s
            found.append((position, capacity.events_per_s, above or inf, len(capacity.steps) - 1))
    if not found or found[0][0] != 0:
        return []
    (_, base_low, base_high, base_steps), *others = found
    return [
        MetricComparison(
            CAPACITY, position, base_low, low, base_steps, steps,
            Ratio(low / base_low, (low / base_high, high / base_low)), None,
        )
        for position, low, high, steps in others
    ]  # fmt: skip


def find_failures(names: Sequence[str], results: Sequence[Result], limit: float) -> list[str]:
    """Why a comparison fails a limit: each speed ratio below it, unless its interval shows no difference; and
    a result with nothing to compare, which must not pass for lack of figures."""
    comparisons = compare(results)
    failed = [
        f"{names[comparison.position]} at {comparison.place}: {comparison.speed.value:.3f}"
        for comparison in comparisons
        if comparison.speed.value < limit and comparison.speed.differs is not False
    ]
    absent = set(range(1, len(results))) - {comparison.position for comparison in comparisons}
    return failed + [f"{names[n]} has nothing to compare with {names[0]}" for n in sorted(absent)]


def find_missing(results: Sequence[Result]) -> list[tuple[Place, int]]:
    """(place, position of a result without a figure there although another has one). A closed loop isn't
    missing response times: it has none."""
    samples = [collect_samples(result) for result in results]
    places = dict.fromkeys(place for figures in samples for place in figures)
    return [
        (place, n)
        for place in places
        for n, figures in enumerate(samples)
        if place not in figures and not (place.response and replace(place, figure=None) in figures)
    ]


# --- beside others, and alone ---------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """A figure of one group next to the other group, as a share of its value alone."""

    group: str
    """`writers` or `readers`."""
    figure: str
    """`rate`, `p50` or `p99`."""
    unit: str
    alone: float
    beside: float
    """Means over the runs."""
    ratio: Ratio
    """Together ÷ alone."""


_COSTS = [
    FIGURES[key] for key in ("inserts_per_s", "queries_per_s", "latency_p50_ms", "latency_p99_ms")
]


def compare_with_alone(result: Result) -> list[Cost]:
    """What writers and readers cost each other, from valid runs."""
    by_group = gather(observe(result, figures=_COSTS, parts=False), lambda seen: seen.group)
    costs = []
    for group in ("writers", "readers"):
        beside, alone = (by_group.get(name, {}) for name in (group, f"{group} alone"))
        for figure in _COSTS:
            own, base = beside.get(figure.key), alone.get(figure.key)
            if own and base:
                name = figure.heading if figure.unit == "ms" else "rate"
                ratio = estimate_ratio(own, base)
                costs.append(Cost(group, name, figure.unit, fmean(base), fmean(own), ratio))
    return costs


# --- official clients --------------------------------------------------------------------------------


ClientFigures = Mapping[str, Sequence[float]]
"""Key of a figure -> its values in a client's valid runs."""


@dataclass(frozen=True)
class ClientColumns:
    """Keys of the figures that compare clients."""

    rate: str
    """Events, or queries, per second."""
    cpu: str
    """Microseconds of client CPU per event or query: generating, encoding, sending, reading the answer."""
    row: str | None = None
    """The same per row of an answer."""
    p50: str = "latency_p50_ms"
    p99: str = "latency_p99_ms"

    @property
    def keys(self) -> list[str]:
        """All of them, in the order of the table."""
        return [key for key in (self.rate, self.cpu, self.row, self.p50, self.p99) if key]


INSERTING = ClientColumns("inserts_per_s", "client_cpu_us_per_event")
ASKING = ClientColumns("queries_per_s", "client_cpu_us_per_query", "client_cpu_us_per_row")


@dataclass(frozen=True)
class ClientCost:
    """A client compared with the lean path."""

    client: str
    own: ClientFigures
    lean: ClientFigures
    ratios: Mapping[str, Ratio]
    """Key of a figure that both have -> client ÷ lean path."""


def are_asked(results: Sequence[Result]) -> bool:
    """Whether all of these compare clients that query."""
    comparisons = [result.clients for result in results if result.clients is not None]
    return bool(comparisons) and all(comparison.asks for comparison in comparisons)


def choose_columns(results: Sequence[Result]) -> ClientColumns:
    """The figures that these comparisons show: those of inserts, unless all clients query."""
    return ASKING if are_asked(results) else INSERTING


def collect_figures(results: Sequence[Result]) -> dict[str, ClientFigures]:
    """Client -> its figures in all of these comparisons, the lean path first. Clients without a valid run are
    left out; other commands have none."""
    columns = choose_columns(results)
    figures = [FIGURES[key] for key in columns.keys]
    collected: dict[str, dict[str, list[float]]] = {}
    for result in results:
        comparison = result.clients
        if comparison is None:
            continue

        def find_client(seen: Observation, result: Result = result) -> str | None:
            assert result.clients is not None and seen.run is not None
            return result.clients.find_client(seen.run) if columns.rate in seen.figures else None

        by_client = gather(observe(result, figures=figures, parts=False), find_client)
        for client in comparison.ways:
            for key, values in by_client.get(client, {}).items():
                collected.setdefault(client, {}).setdefault(key, []).extend(values)
    return {client: own for client, own in collected.items() if columns.rate in own}


def compare_clients(results: Sequence[Result]) -> list[ClientCost]:
    """Each client compared with the lean path, where both have figures."""
    by_client = collect_figures(results)
    lean = by_client.pop(LEAN, None)
    if lean is None:
        return []
    return [
        ClientCost(
            client, own, lean, {key: estimate_ratio(own[key], lean[key]) for key in own if key in lean}
        )
        for client, own in by_client.items()
    ]  # fmt: skip


# --- limits by which a comparison fails --------------------------------------------------------------


METRICS = tuple(LIMITED)
"""What can be limited, besides `query:NAME`, a query's mean time."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FORM = re.compile(r"(\S+?)\s*(<=|>=|<|>)\s*([\d.][\d.,_eE]*)\s*(\S*)")


@dataclass(frozen=True)
class Threshold:
    """A limit, and the side on which a result fails."""

    text: str
    metric: str
    sign: str
    value: float
    """Events per second, milliseconds or bytes; for a relative limit, a factor of the first result's
    figure."""
    relative: bool

    def is_crossed(self, value: float) -> bool:
        """Whether a result with this value fails."""
        return _OPERATORS[self.sign](value, self.value)


def parse_threshold(text: str) -> Threshold:
    """Parses `rate < 0.95 base`, `p99 > 50ms`, `query:newest-per-device > 1.2 base`; else ConfigError."""
    match = _FORM.fullmatch(text.strip())
    if not match:
        raise ConfigError(
            f"--fail-if {text!r}: write a limit as in 'p99 > 50ms' or 'rate < 0.95 base'"
        )
    metric, sign, number, unit = match.groups()
    metric = metric.replace("p99.9", "p99_9")
    if metric not in METRICS and not re.fullmatch("query:.+", metric):
        names = ", ".join(METRICS)
        raise ConfigError(f"--fail-if {text!r}: {metric} is not one of {names}, query:NAME")
    relative = unit == "base"
    amount = parse_amount(number if relative else number + unit)
    value = (
        parse_duration_ms(number.replace(",", "") + unit)
        if _is_time(metric) and not relative
        else amount
    )
    if value is None:
        example = f"{metric} {sign} 50ms" if _is_time(metric) else f"{metric} {sign} 20k"
        share = "0.95" if "<" in sign else "1.1"
        raise ConfigError(
            f"--fail-if {text!r}: write a number with its unit, as in '{example}', or a share of the"
            f" first result's as in '{metric} {sign} {share} base'"
        )
    return Threshold(text, metric, sign, float(value), relative)


def _is_time(metric: str) -> bool:
    return metric not in LIMITED or LIMITED[metric].unit == "ms"


def find_breaches(
    names: Sequence[str], results: Sequence[Result], limits: Sequence[Threshold]
) -> list[str]:
    """Why results after the first fail limits, wherever they have the figure; one that has it nowhere fails,
    too. A figure that doesn't differ significantly from the first one's crosses no relative limit."""
    if not limits:
        return []
    compared = {
        (comparison.place, comparison.position): comparison for comparison in compare(results)
    }
    breaches = []
    for limit in limits:
        base = collect_values(results[0], limit.metric)
        for position, (name, result) in enumerate(zip(names[1:], results[1:], strict=True), 1):
            values = collect_values(result, limit.metric)
            if limit.relative:
                values = {place: value for place, value in values.items() if place in base}
            if not values:
                breaches.append(f"{limit.text}: {name} has no figure for it")
            for place, value in values.items():
                measured = value / base[place] if limit.relative else value
                if limit.is_crossed(measured) and not (
                    limit.relative and _is_tie(compared.get((place, position)), limit)
                ):
                    breaches.append(f"{limit.text}: {name} at {place}: {_format(limit, measured)}")
    return breaches


def _is_tie(comparison: MetricComparison | None, limit: Threshold) -> bool:
    """Whether an interval shows no difference; rates and queries have one, other figures are taken as they
    are."""
    compared = limit.metric == "rate" or limit.metric.startswith("query:")
    return compared and comparison is not None and comparison.speed.differs is False


def collect_values(result: Result, metric: str) -> dict[Place, float]:
    """The figure wherever the result has it, over its valid runs: the mean of rates and query times, the
    highest latency or size (the lowest rate of readers). A query command has latencies per query."""
    if metric == "rate" or metric.startswith("query:"):
        query = metric.partition(":")[2] or None
        scale = 1000.0 if query else 1.0
        return {
            place: scale * sum(values) / len(values)
            for place, values in collect_samples(result).items()
            if place.query == query and place.response is None
        }
    figure = LIMITED[metric]
    if result.command == "query" and (read := QUERY_TIMES.get(figure.key)):
        times = {Place(query=summary.query): read(summary) for summary in result.query_summary}
        return {place: value for place, value in times.items() if value is not None}
    values: dict[Place, float] = {}
    for entry in list_entries(result.readers if Role.WRITE not in figure.roles else result.writers):
        value = figure.read(entry)
        if entry.group.valid and value is not None:
            place = find_place(result, entry.group_run)
            worst = min if figure.better is Better.MORE else max
            values[place] = worst(value, values.get(place, value))
    return values


def _format(limit: Threshold, measured: float) -> str:
    if limit.relative:
        return f"{measured:.3f} of the first one's"
    return f"{measured:,.3f} ms" if _is_time(limit.metric) else f"{measured:,.0f}"
