"""A step's ranking as bars: each candidate's mean over its repetitions, with its interval. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..render.bars import RATE, SECONDS, WITHIN_LIMITS, Bar, count_fitting, draw_bars, rank
from ..render.figure import Figure
from ..results.model import Result
from ..results.statistics import summarize
from .ranking import describe_doubts, pool_samples


def draw_ranking(step: str, measured: Mapping[str, Sequence[Result]]) -> Figure | None:
    """The candidates of a step, the fastest first, of queries each query's; None unless two have a figure.
    `measured`: candidate -> its results, one for each repetition that gave one."""
    if all(one.capacity is not None for own in measured.values() for one in own) and all(
        len(own) < 2 for own in measured.values()
    ):
        return None  # a search's interval says more than its answer as a single sample
    pooled = {
        name: {place: values for place, values in own.items() if place.response is None}
        for name, own in pool_samples(measured).items()
    }
    rates = {
        name: max(own.items(), key=lambda pair: sum(pair[1]) / len(pair[1]))
        for name, places in pooled.items()
        if (own := {place: v for place, v in places.items() if not place.has_times})
    }
    queries = dict.fromkeys(place for own in pooled.values() for place in own if place.has_times)
    doubts = describe_doubts(measured)
    if len(rates) > 1:
        alike = len({place for place, _ in rates.values()}) == 1
        bars = rank(
            [
                _make_bar((name if alike else f"{name}, {place}") + doubts.get(name, ""), values)
                for name, (place, values) in rates.items()
            ]
        )
        unit = WITHIN_LIMITS if any(place.capacity for place, _ in rates.values()) else RATE
    else:
        bars = [
            _make_bar(f"{place}, {name}", own[place])
            for place in queries
            for name, own in pooled.items()
            if place in own
        ]
        unit = SECONDS
    if len(bars) < 2:
        return None
    figure = draw_bars("answer", f"Ranking by {step}", bars, unit, count_fitting(bars))
    note = figure.note
    if any(len(results) > 1 for results in measured.values()):
        note = note.replace("the valid runs", "the repetitions").replace("single run", "repetition")
    return replace(figure, note=note)


def _make_bar(name: str, values: Sequence[float]) -> Bar:
    found = summarize(values)
    return Bar(name, found.avg, found.ci95, values)
