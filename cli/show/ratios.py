"""How much faster one result is than another, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf

from simulator.units import format_bytes, format_count, join_words

from ..results.comparison import MetricComparison
from ..results.indexes import IndexCosts, find_index_costs
from ..results.matrix import Measured

MOST_PLACES = 3
"""Places that a sentence names; more are counted."""


def format_factor(value: float) -> str:
    """Three digits, or whole from 20 on."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 20 else f"{value:,.0f}"


def format_speed(value: float) -> str:
    """`1.94× faster`, `95× slower`: the larger speed ÷ the smaller, whichever is meant."""
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
    """What each comparison shows, a sentence each; several without a difference share a sentence, and their
    intervals are in the table."""
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
    """The answer: each result against the first, in a sentence; results with the same outcome share one."""
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
                f"not compared with {names[0]} in {_name_kind(rate_given[0])}, since a --rate was given"
                " and kept up with"
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
"""Outcomes in which neither is faster, in words."""


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
    # One place has an interval, several have a range.
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
"""Indexes that a line names."""


def describe_index_costs(measured: Measured) -> list[str]:
    """What the indexes of each candidate take on disk, and cost inserts, a line each; none for those of which
    neither is known."""
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
    """What they cost inserts."""
    speed = cost.speed
    if speed is None:
        return "what inserts lose by them was not measured"
    text = f"inserts beside {cost.without}: "
    if speed.interval is None:
        return f"{text}{format_speed(speed.value)}, from single runs"
    interval = format_speed_interval(*speed.interval)
    if speed.differs:
        return f"{text}{format_speed(speed.value)} ({interval})"
    return f"{text}{'next to no difference' if speed.alike else 'undecided'} ({interval})"
