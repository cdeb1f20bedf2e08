"""How much faster one result is than another, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf

from simulator.units import join_words

from ..results.comparison import MetricComparison

MOST_PLACES = 3
"""Named in a sentence; more are counted."""


def format_factor(value: float) -> str:
    """Three digits, or whole from 20 on."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 20 else f"{value:,.0f}"


def format_speed(value: float) -> str:
    """`1.94× faster`, `95× slower`: the larger speed ÷ the smaller, whichever is meant."""
    return (
        f"{format_factor(value)}× faster" if value >= 1 else f"{format_factor(1 / value)}× slower"
    )


def format_speed_interval(low: float, high: float) -> str:
    """`1.80 to 2.10× faster`, `1.05× slower to 1.10× faster`; of an end that isn't known (0, or infinite)
    `1.80× faster or more`."""
    if low == 0 or high == inf:
        known = high if low == 0 else low
        if known in (0, inf):
            return "not known"
        further = (known < 1) == (low == 0)
        return f"{format_speed(known)} or {'more' if further else 'less'}"
    if low >= 1:
        return f"{format_factor(low)} to {format_speed(high)}"
    if high < 1:
        return f"{format_factor(1 / high)} to {format_speed(low)}"
    return f"{format_speed(low)} to {format_speed(high)}"


def describe_ratios(names: Sequence[str], found: Sequence[MetricComparison]) -> list[str]:
    """What each comparison shows, a sentence each; several without a difference are one sentence, whose
    intervals are in the table."""
    sentences = []
    found = [one for one in found if not one.rate_given]
    folded = [kind for kind in _UNDIFFERENT if sum(_judge(one) == kind for one in found) > 1]
    for one in found:
        outcome = _judge(one)
        if outcome in folded:
            continue
        what, base = names[one.position], names[0]
        if one.speed.interval is None:
            text = f"{what} is {format_speed(one.speed.value)} than {base}, from single runs"
        else:
            interval = f"95 % interval {format_speed_interval(*one.speed.interval)}"
            if one.speed.differs:
                text = f"{what} is {format_speed(one.speed.value)} than {base} ({interval})"
            else:
                text = f"{_UNDIFFERENT[outcome]} between {what} and {base} ({interval})"
        sentences.append(f"{one.place}: {text}.")
    for kind in folded:
        places: dict[str, list[str]] = {}
        for one in found:
            if _judge(one) == kind:
                places.setdefault(names[one.position], []).append(str(one.place))
        told = "; ".join(f"{name} ({', '.join(own)})" for name, own in places.items())
        side = "from" if kind == _ALIKE else "against"
        sentences.append(f"{_UNDIFFERENT[kind].capitalize()} {side} {names[0]}: {told}.")
    return sentences


def lead_comparison(names: Sequence[str], found: Sequence[MetricComparison]) -> list[str]:
    """The answer: each result against the first, in a sentence; those of which the same is said share one."""
    told: dict[tuple[int, str], list[str]] = {}
    for position in range(1, len(names)):
        given = [one for one in found if one.position == position and one.rate_given]
        own = [one for one in found if one.position == position and not one.rate_given]
        parts = []
        for kind in dict.fromkeys(_name_kind(one) for one in own):
            of_kind = [one for one in own if _name_kind(one) == kind]
            for outcome in dict.fromkeys(map(_judge, of_kind)):
                such = [one for one in of_kind if _judge(one) == outcome]
                where = "" if len(such) == len(of_kind) else f" ({_list_places(such)})"
                parts.append(_describe_outcome(outcome, such, kind, names[0]) + where)
        if given:
            parts.append(
                f"not to be compared with {names[0]} in {_name_kind(given[0])}, since a --rate was given"
            )
        if parts:
            undifferent = not given and all(_judge(one) in _UNDIFFERENT for one in own)
            key = (0 if undifferent else position, ", ".join(parts))
            told.setdefault(key, []).append(names[position])
    return [
        f"{join_words(own)}: {text}{' each' if len(own) > 1 else ''}."
        for (_, text), own in told.items()
    ]


_ALIKE, _UNDECIDED = "alike", "undecided"
_UNDIFFERENT = {_ALIKE: "no difference shown", _UNDECIDED: "undecided"}
"""Outcomes by which neither is faster, in words."""


def _judge(one: MetricComparison) -> str:
    if one.speed.differs is False:
        return _ALIKE if one.speed.alike else _UNDECIDED
    side = "faster" if one.speed.value >= 1 else "slower"
    return side if one.speed.differs else f"{side}, from single runs"


def _describe_outcome(outcome: str, such: Sequence[MetricComparison], kind: str, base: str) -> str:
    if outcome == _ALIKE:
        return f"no difference from {base} shown in {kind}"
    if outcome == _UNDECIDED:
        return f"undecided against {base} in {kind}"
    side, comma, single = outcome.partition(",")
    interval = such[0].speed.interval
    # One place has an interval, several have a range.
    ends: Sequence[float] = [one.speed.value for one in such]
    if len(such) == 1 and interval and interval[0] > 0 and interval[1] < inf:
        ends = interval
    factors = sorted(value if side == "faster" else 1 / value for value in ends)
    texts = [text for text, _ in groupby(format_factor(value) for value in factors)]
    several = f"{texts[0]} to {texts[-1]}" if len(texts) > 1 else texts[0]
    measure = f"{several} times as fast as" if side == "faster" else f"{several}× slower than"
    return f"{measure} {base} in {kind}{comma}{single}"


def _name_kind(one: MetricComparison) -> str:
    if one.place.query is not None:
        return "queries"
    if one.place.capacity:
        return "capacity"
    if one.place.tuned:
        return "what its best settings reach"
    return "inserts" if one.place.response is None else "response times"


def _list_places(such: Sequence[MetricComparison]) -> str:
    if len(such) <= MOST_PLACES:
        return ", ".join(str(one.place) for one in such)
    word = "queries" if such[0].place.query is not None else "places"
    return f"{len(such)} {word}"
