"""The figures of two or more stored results as ratios to those of the first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from simulator.contract import GroupResult

from ..system.errors import ConfigError
from .caveats import Place, find_place
from .entries import list_entries
from .figures import COMPARED
from .model import GroupRun, Result
from .statistics import Ratio, combine_cv, count_runs_needed, estimate_ratio
from .store import StoredResult
from .summaries import collect_query_samples, group_executions, list_queries

FIVE_PERCENT = 0.05
"""The difference for which the number of runs is given that would show it."""


@dataclass(frozen=True)
class MetricComparison:
    """One result beside the first, at one worker count, fill level or query."""

    place: Place
    position: int
    """The result's position among those compared."""
    base_figure: float
    figure: float
    """Means: inserts per second, milliseconds of a response, or seconds of a query."""
    base_runs: int
    runs: int
    speed: Ratio
    """How many times as fast as the first: rate ÷ its rate, or its time ÷ time."""
    runs_for_five_percent: int | None
    """Runs that each side would need to show 5 %; None if not known, or more than is sensible."""
    rate_given: bool = False
    """Whether one side's rate is only what `--rate` asked for and it kept up with: that is no speed."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.rate_given:
            return "rate was given"
        if self.speed.differs is None:
            return "unknown: needs 2 runs"
        if not self.speed.differs:
            return "no difference shown" if self.speed.alike else "undecided"
        return "faster" if self.speed.value > 1 else "slower"


def collect_samples(result: Result) -> dict[Place, list[float]]:
    """The figures that stand for independent runs: inserts per second of each valid run, in an open loop
    also its response times in ms, or seconds of each query."""
    figures: dict[Place, list[float]] = {}
    if result.command in ("capacity", "tune", "clients"):
        return figures  # its runs are at rates of their own: only the answer can be compared
    for entry in list_entries(result.writers):
        group, at = entry.group, find_place(result, entry.group_run)
        for figure in COMPARED if group.valid and group.rate_per_s else ():
            is_time = figure.unit == "ms"
            value = figure.read(entry)
            if value is not None and (group.offered or not is_time):
                place = replace(at, response=figure.limit) if is_time else at
                figures.setdefault(place, []).append(value)
    executions = group_executions(result.asked)
    for query in list_queries(result.asked):
        samples = (
            executions[query].samples
            if query in executions
            else collect_query_samples(result.asked, query)
        )
        figures[Place(query=query)] = [duration for duration in samples if duration]
    return {place: values for place, values in figures.items() if values}


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
    """Each result beside the first, wherever both have figures, in the first one's order."""
    samples = [collect_samples(result) for result in results]
    return _compare_capacities(results) + [
        replace(
            comparison,
            rate_given=_is_given(results[0], results[comparison.position], comparison.place),
        )
        for comparison in compare_samples(samples)
    ]


def _is_given(base: Result, other: Result, place: Place) -> bool:
    """Whether the two differ in `--rate`, and one of them kept up with its own there, so that it isn't known
    how fast it could have been."""
    rates = [result.settings.load.rate_per_s for result in (base, other)]
    if place.has_times or rates[0] == rates[1]:
        return False
    return any(
        rate is not None
        and not any(
            group_run.group.offered and group_run.group.offered.saturated
            for group_run in _list_runs(result, place)
        )
        for rate, result in zip(rates, (base, other), strict=True)
    )


def _list_runs(result: Result, place: Place) -> list[GroupRun]:
    runs = [group_run for group_run in result.writers if group_run.group.valid]
    if place.level is not None:
        return [group_run for group_run in runs if group_run.run.fill_level == place.level]
    return [group_run for group_run in runs if group_run.group.workers == place.workers]


def compare_samples(
    samples: Sequence[Mapping[Place, Sequence[float]]], error: float = 0.05
) -> list[MetricComparison]:
    """The figures of independent runs beside the first one's, wherever both have some, in its order.
    `error`: of each interval, see `estimate_ratio`."""
    base, *others = samples
    comparisons = []
    for place, base_values in base.items():
        for position, other in enumerate(others, 1):
            if place not in other:
                continue
            values = other[place]
            speed = (
                estimate_ratio(values, base_values, error)
                if not place.has_times
                else estimate_ratio(base_values, values, error)
            )
            cv = combine_cv(base_values, values)
            comparisons.append(
                MetricComparison(
                    place,
                    position,
                    sum(base_values) / len(base_values),
                    sum(values) / len(values),
                    len(base_values),
                    len(values),
                    speed,
                    None if cv is None else count_runs_needed(cv, FIVE_PERCENT),
                )
            )
    return comparisons


def _compare_capacities(results: Sequence[Result]) -> list[MetricComparison]:
    """The capacities beside the first one. Each lies between the ends of its interval, so their ratio lies
    between the ratios of these ends; a client that was the limit leaves the upper end open."""
    base = _bound_capacity(results[0])
    comparisons = []
    for position, other in enumerate(map(_bound_capacity, results[1:]), 1):
        if base is not None and other is not None:
            ends = (other[0] / base[1], other[1] / base[0])
            comparisons.append(
                MetricComparison(
                    Place(capacity=True), position, base[0], other[0], _count_steps(results[0]),
                    _count_steps(results[position]), Ratio(other[0] / base[0], ends), None,
                )
            )  # fmt: skip
    return comparisons


def _bound_capacity(result: Result) -> tuple[float, float] | None:
    """The ends of a capacity's interval; None if no rate holds, or none was found."""
    capacity = result.capacity
    if capacity is None or capacity.events_per_s is None:
        return None
    open_above = capacity.above_per_s is None or capacity.client_bound
    return capacity.events_per_s, inf if open_above else capacity.above_per_s or inf


def _count_steps(result: Result) -> int:
    return len(result.capacity.steps) - 1 if result.capacity else 0


def find_failures(names: Sequence[str], results: Sequence[Result], limit: float) -> list[str]:
    """Why a comparison fails against a limit: each speed ratio below it, unless its interval shows no
    difference; and a result that has nothing to compare, which must not pass for want of figures."""
    comparisons = compare(results)
    failed = [
        f"{names[comparison.position]} at {comparison.place}: {comparison.speed.value:.3f}"
        for comparison in comparisons
        if comparison.speed.value < limit and comparison.speed.differs is not False
    ]
    absent = set(range(1, len(results))) - {comparison.position for comparison in comparisons}
    return failed + [f"{names[n]} has nothing to compare with {names[0]}" for n in sorted(absent)]


def find_missing(results: Sequence[Result]) -> list[tuple[Place, int]]:
    """(where, position of the result that has no figure there while another has). A closed loop misses
    no response times: it has none."""
    samples = [collect_samples(result) for result in results]
    places = dict.fromkeys(place for figures in samples for place in figures)
    return [
        (place, n)
        for place in places
        for n, figures in enumerate(samples)
        if place not in figures
        and not (place.response and replace(place, response=None) in figures)
    ]


# --- beside others, and alone ---------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What a figure of one group becomes beside the other group, as a share of what it is alone."""

    group: str
    """`writers` or `readers`."""
    figure: str
    """`rate`, `p50` or `p99`."""
    alone: float
    beside: float
    """Means over the runs: per second, or in ms."""
    ratio: Ratio
    """Beside ÷ alone."""

    @property
    def unit(self) -> str:
        """The unit of `alone` and `beside`."""
        if self.figure != "rate":
            return "ms"
        return "events/s" if self.group == "writers" else "queries/s"


def compare_with_alone(result: Result) -> list[Cost]:
    """What writers and readers cost each other, as far as valid runs show it."""
    return [
        *_compare_group("writers", result.writers, result.alone),
        *_compare_group("readers", result.readers, result.alone),
    ]


def _compare_group(name: str, beside: Sequence[GroupRun], alone: Sequence[GroupRun]) -> list[Cost]:
    figures: dict[str, Callable[[GroupResult], float | None]] = {
        "rate": lambda group: group.rate_per_s,
        "p50": lambda group: group.latency_ms.p50 if group.latency_ms else None,
        "p99": lambda group: group.latency_ms.p99 if group.latency_ms else None,
    }
    roles = {group_run.group.role for group_run in beside}
    by_itself = [
        group_run.group
        for group_run in alone
        if group_run.group.valid and group_run.group.role in roles
    ]
    with_others = [group_run.group for group_run in beside if group_run.group.valid]
    costs = []
    for figure, read in figures.items():
        own = [value for group in with_others if (value := read(group))]
        base = [value for group in by_itself if (value := read(group))]
        if own and base:
            means = sum(base) / len(base), sum(own) / len(own)
            costs.append(Cost(name, figure, *means, estimate_ratio(own, base)))
    return costs
