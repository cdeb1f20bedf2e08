"""The figures of two or more stored results as ratios to those of the first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from simulator.contract import GroupResult

from ..errors import ConfigError
from .caveats import Place
from .figures import COMPARED, list_entries
from .model import GroupRun, Result
from .statistics import (
    Ratio,
    combine_cv,
    count_runs_needed,
    estimate_ratio,
)
from .store import StoredResult
from .summaries import collect_query_samples, group_executions, list_queries

FIVE_PERCENT = 0.05
"""The difference for which it is said how many runs would show it."""


@dataclass(frozen=True)
class MetricComparison:
    """One result beside the first, at one worker count, fill level or query."""

    place: Place
    position: int
    """Of the result, among those compared."""
    base_figure: float
    figure: float
    """Means: inserts per second, milliseconds of a response, or seconds of a query."""
    base_runs: int
    runs: int
    speed: Ratio
    """How many times as fast as the first: rate ÷ its rate, or its time ÷ time."""
    runs_for_five_percent: int | None
    """Runs that each side would need; None if not known, or more than is sensible."""
    rate_given: bool = False
    """Whether a rate is only what one side was asked for by `--rate`, and kept up with: no speed."""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.rate_given:
            return "rate was given"
        if self.speed.differs is None:
            return "not known: needs 2 runs"
        if not self.speed.differs:
            return "no difference shown" if self.speed.alike else "undecided"
        return "faster" if self.speed.value > 1 else "slower"


def collect_samples(result: Result) -> dict[Place, list[float]]:
    """The figures that stand for independent runs: inserts per second of each valid run, of an open loop
    its response times in ms, too, or seconds of each query."""
    found: dict[Place, list[float]] = {}
    if result.command in ("capacity", "tune", "clients"):
        return found  # its runs are at rates of their own: only the answer can be compared
    for entry in list_entries(result.writers):
        group, level = entry.group, entry.one.run.fill_level
        at = Place(level=level) if result.by_fill_level else Place(workers=group.workers)
        for figure in COMPARED if group.valid and group.rate_per_s else ():
            is_time = figure.unit == "ms"
            value = figure.read(entry)
            if value is not None and (group.offered or not is_time):
                place = replace(at, response=figure.limit) if is_time else at
                found.setdefault(place, []).append(value)
    executions = group_executions(result.asked)
    for query in list_queries(result.asked):
        samples = (
            executions[query].samples
            if query in executions
            else collect_query_samples(result.asked, query)
        )
        found[Place(query=query)] = [duration for duration in samples if duration]
    return {place: values for place, values in found.items() if values}


def check_comparable(results: Sequence[StoredResult]) -> None:
    """ConfigError if these can't be compared at all."""
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
        replace(one, rate_given=_is_given(results[0], results[one.position], one.place))
        for one in compare_samples(samples)
    ]


def _is_given(base: Result, other: Result, place: Place) -> bool:
    """Whether the two differ in `--rate`, and one of them kept up with its own there: how fast it could have
    been isn't known."""
    rates = [result.settings.load.rate_per_s for result in (base, other)]
    if place.has_times or rates[0] == rates[1]:
        return False
    return any(
        rate is not None
        and not any(
            one.group.offered and one.group.offered.saturated for one in _list_runs(result, place)
        )
        for rate, result in zip(rates, (base, other), strict=True)
    )


def _list_runs(result: Result, place: Place) -> list[GroupRun]:
    runs = [one for one in result.writers if one.group.valid]
    if place.level is not None:
        return [one for one in runs if one.run.fill_level == place.level]
    return [one for one in runs if one.group.workers == place.workers]


def compare_samples(
    samples: Sequence[Mapping[Place, Sequence[float]]], error: float = 0.05
) -> list[MetricComparison]:
    """The figures of independent runs beside the first one's, wherever both have some, in its order.
    `error`: of each interval, see `estimate_ratio`."""
    base, *others = samples
    found = []
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
            found.append(
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
    return found


def _compare_capacities(results: Sequence[Result]) -> list[MetricComparison]:
    """The capacities beside the first one. Each is somewhere between the ends of its interval, so their
    ratio is between those that the ends can have; a client that was the limit leaves the upper end open."""
    base = _bound_capacity(results[0])
    found = []
    for position, other in enumerate(map(_bound_capacity, results[1:]), 1):
        if base is not None and other is not None:
            ends = (other[0] / base[1], other[1] / base[0])
            found.append(
                MetricComparison(
                    Place(capacity=True), position, base[0], other[0], _count_steps(results[0]),
                    _count_steps(results[position]), Ratio(other[0] / base[0], ends), None,
                )
            )  # fmt: skip
    return found


def _bound_capacity(result: Result) -> tuple[float, float] | None:
    """The ends of a capacity's interval; None if no rate holds, or none was found."""
    found = result.capacity
    if found is None or found.events_per_s is None:
        return None
    open_above = found.above_per_s is None or found.client_bound
    return found.events_per_s, inf if open_above else found.above_per_s or inf


def _count_steps(result: Result) -> int:
    return len(result.capacity.steps) - 1 if result.capacity else 0


def find_failures(names: Sequence[str], results: Sequence[Result], limit: float) -> list[str]:
    """Why a comparison fails against a limit: each speed ratio below it, unless its interval shows no
    difference; and a result that has nothing to compare, which must not pass for want of figures."""
    found = compare(results)
    failed = [
        f"{names[one.position]} at {one.place}: {one.speed.value:.3f}"
        for one in found
        if one.speed.value < limit and one.speed.differs is not False
    ]
    absent = set(range(1, len(results))) - {one.position for one in found}
    return failed + [f"{names[n]} has nothing to compare with {names[0]}" for n in sorted(absent)]


def find_missing(results: Sequence[Result]) -> list[tuple[Place, int]]:
    """(where, position of the result that has no figure there while another has). A closed loop misses
    no response times: it has none."""
    found = [collect_samples(result) for result in results]
    places = dict.fromkeys(place for each in found for place in each)
    return [
        (place, n)
        for place in places
        for n, each in enumerate(found)
        if place not in each and not (place.response and replace(place, response=None) in each)
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
        """Of `alone` and `beside`."""
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
    roles = {one.group.role for one in beside}
    by_itself = [one.group for one in alone if one.group.valid and one.group.role in roles]
    with_others = [one.group for one in beside if one.group.valid]
    costs = []
    for figure, read in figures.items():
        own = [value for group in with_others if (value := read(group))]
        base = [value for group in by_itself if (value := read(group))]
        if own and base:
            means = sum(base) / len(base), sum(own) / len(own)
            costs.append(Cost(name, figure, *means, estimate_ratio(own, base)))
    return costs
