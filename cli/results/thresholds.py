"""Limits by which a comparison fails, as in `p99 > 50ms` or `rate < 0.95 base`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.contract import Role
from simulator.units import parse_amount, parse_duration_ms

from ..system.errors import ConfigError
from .caveats import Place, find_place
from .comparison import MetricComparison, compare
from .entries import QUERY_TIMES, list_entries
from .figures import LIMITED, Better
from .matrix import collect_samples
from .model import Result

METRICS = tuple(LIMITED)
"""What a limit may be about, besides `query:NAME`, a query's mean time."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FORM = re.compile(r"(\S+?)\s*(<=|>=|<|>)\s*([\d.][\d.,_eE]*)\s*(\S*)")


@dataclass(frozen=True)
class Threshold:
    """A limit, and on which side of it a result fails."""

    text: str
    metric: str
    sign: str
    value: float
    """Events per second, milliseconds, bytes; of a relative limit, a factor of the first result's figure."""
    relative: bool

    def is_crossed(self, value: float) -> bool:
        """Whether a result with this value fails."""
        return _OPERATORS[self.sign](value, self.value)


def parse_threshold(text: str) -> Threshold:
    """`rate < 0.95 base`, `p99 > 50ms`, `query:newest-per-device > 1.2 base`; ConfigError if it is none."""
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
    """Why the results after the first fail against limits, wherever they have the figure; one that has it
    nowhere fails, too. A figure that no interval tells from the first one's crosses no relative limit."""
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
    """Whether an interval shows no difference, which is known of rates and of queries; other figures are
    taken as they are."""
    compared = limit.metric == "rate" or limit.metric.startswith("query:")
    return compared and comparison is not None and comparison.speed.differs is False


def collect_values(result: Result, metric: str) -> dict[Place, float]:
    """The figure wherever the result has it, over its valid runs: of rates and query times the mean, of
    latencies and sizes the highest (of a rate of readers the lowest). Latencies of a query command are
    each query's own."""
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
