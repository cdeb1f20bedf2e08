"""Rankings in words: which candidate is first in a step, by how much, and which pairs are undecided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from simulator.units import join_words

from ..results.caveats import Place
from ..results.comparison import compare_samples
from ..results.matrix import (
    TIMES,
    CandidateFigures,
    Given,
    Matrix,
    Measured,
    find_given,
    list_common,
    measure,
    take_best_workers,
)
from ..results.naming import format_options
from ..results.observations import CAPACITY
from ..results.statistics import Ratio
from .ratios import (
    MOST_PLACES,
    describe_client_costs,
    describe_index_costs,
    format_factor,
    format_speed_interval,
    lead_comparison,
)
from .tables import format_ms, format_rate

UNDECIDED = "undecided"
"""In place of a rank that may be any."""
MOST_UNEQUAL = 1.05
"""By what factor the numbers of events that queries run on may differ."""


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate in a ranking."""

    name: str
    rank: str
    """`1.`, `1 to 2.` or `undecided`; empty with a single repetition, which ranks nothing."""
    figure: str
    """Its figure; empty if it has none."""
    beside: str = ""
    """How it compares with the first, or why it has no figure."""

    def __str__(self) -> str:
        text = "; ".join(filter(None, [self.figure, self.beside]))
        if self.rank == UNDECIDED:
            return f"{self.name} ({UNDECIDED}): {text}."
        return f"{f'{self.rank} {self.name}'.strip()}: {text}."


@dataclass(frozen=True)
class Ranking:
    """The ranking of the candidates by one step."""

    title: str
    lines: Sequence[str]
    standings: Sequence[RankedCandidate] = ()


_ONE_REPETITION = (
    "One repetition can't rank candidates: the machine may have changed between them. For about the same"
    " time, set repeats: 6 and runs: 1."
)
"""`benchmarks/false_alarms`: measured in blocks, a quarter or more of equal candidates are called
different."""

_GIVEN = {
    Given.DIFFERENT: (
        "The candidates had different rates: their inserts per second are those rates, so only times rank"
        " them."
    ),
    Given.KEPT_UP: (
        "All that were measured kept up with the same rate: their inserts per second equal it, so only"
        " times rank them."
    ),
}


def rank_candidates(
    step: str,
    measured: Measured,
    repeats: int,
    failed: Mapping[str, int] | None = None,
) -> Ranking:
    """The candidates of a step with their figures, fastest first where that is decided. `measured`: candidate
    -> its results, one per successful repetition; `failed`: candidate -> number of repetitions without a
    result. With several worker counts, each candidate is ranked at its fastest.
    """
    given = find_given(measured)
    lines = [_GIVEN[given]] if given else []
    every = measure(measured, failed, figures=TIMES if given else None)
    rows, chosen = take_best_workers({name: row for name, row in every.rows.items() if row.samples})
    standings = _list_standings(Matrix(rows), ranked=not every.is_single)
    lines += map(str, standings)
    if chosen:
        counts = ", ".join(f"{name} {count:,}" for name, count in chosen.items())
        lines.append(f"Inserts at the best worker count of each: {counts}.")
    lines += _name_best_settings(measured)
    for name, results in measured.items():
        own = list(dict.fromkeys(chain.from_iterable(result.own_statements for result in results)))
        if own:
            lines.append(f"{name}: {join_words(own)} sent as the workload's own statement.")
    lines += describe_index_costs(measured)
    for name, row in every.rows.items():
        if not row.samples:
            why = f"no figure: {_describe_missing(row) or 'not measured yet'}"
            standings.append(RankedCandidate(name, "", "", why))
            lines.append(str(standings[-1]))
        elif row.repetitions < repeats:
            lines.append(f"{name}: from {row.repetitions} of {repeats} repetitions so far.")
    if repeats == 1 and len(rows) > 1:
        lines.append(_ONE_REPETITION)
    every_result = chain.from_iterable(measured.values())
    levels = [
        result.fill_level
        for result in every_result
        if result.command == "query" and result.fill_level
    ]
    if levels and max(levels) > MOST_UNEQUAL * min(levels):  # queries are slower on more events
        lines.append(
            f"Not comparable: the queries ran on between {min(levels):,} and {max(levels):,} events."
            " Insert the same number for all (num-inserts instead of duration)."
        )
    return Ranking(f"Ranking by {step}", lines, standings)


def describe_client_costs_of(step: str, measured: Measured) -> Ranking:
    """What official clients cost each candidate; not a ranking, since a database isn't worse for a slower
    client."""
    title = "What official clients cost compared with the lean path"
    standings = [
        RankedCandidate(
            name, "", describe_client_costs(results) if results else "nothing was measured"
        )
        for name, results in measured.items()
    ]
    title = title if step == "clients" else f"{step}: {title.lower()}"
    return Ranking(title, [str(standing) for standing in standings], standings)


def describe_doubts(measured: Measured) -> dict[str, str]:
    """Candidate -> the qualifier of its searches' mean: a bound, or how many found a rate."""
    doubts = {}
    for name, row in measure(measured).rows.items():
        if row.none_below:
            doubts[name] = f" ({len(row.samples)} of {row.repetitions})"
        elif inf in row.bounds:
            doubts[name] = " (at least)"
    return doubts


def _list_standings(matrix: Matrix[str], ranked: bool) -> list[RankedCandidate]:
    """Each candidate with its figure; `ranked`: also with its rank and its ratio to the first."""
    apart = _list_apart(matrix)
    if not ranked:
        return [
            RankedCandidate(name, "", _describe_figures(row, apart))
            for name, row in matrix.rows.items()
        ]
    ranks = matrix.rank()
    head = next(iter(ranks), "")
    return [
        RankedCandidate(
            name,
            UNDECIDED if str(rank) == UNDECIDED else f"{rank}.",
            _describe_figures(matrix.rows[name], apart),
            "" if name == head else _compare_with(head, name, matrix),
        )
        for name, rank in ranks.items()
    ]


def _compare_with(head: str, name: str, matrix: Matrix[str]) -> str:
    own, base, ratio = matrix.rows[name], matrix.rows[head], matrix.pairs[name, head]
    if ratio is None:
        return f"no figure in common with {head}"
    places = list_common(own, base)
    over = ""
    if len(places) > 1:
        queries = all(place.query is not None for place in places)
        over = f" over {len(places)} {'queries' if queries else 'figures'}"
    factor = format_factor(max(ratio.value, 1 / ratio.value))
    if ratio.differs and ratio.interval:
        side = "faster" if ratio.value > 1 else "slower"
        text = f"{factor}× {side} than {head}{over} ({format_speed_interval(*ratio.interval)})"
    elif ratio.alike:
        text = f"no difference from {head} shown{over}"
    else:
        counts = sorted({len(own.samples), len(base.samples)})
        number = " and ".join(f"{count}" for count in counts)
        plural = "" if counts == [1] else "s"
        spread = _show_spread(ratio, own.score(places), base.score(places))
        doubts = [f"{number} repetition{plural}, {factor} times apart{spread}"]
        if inf in (*own.bounds, *base.bounds):
            doubts.append("a figure is only a lower bound")
        if not (own.complete and base.complete):
            doubts.append("not all repetitions gave a figure")
        text = f"undecided against {head}{over}: {', '.join(doubts)}"
    if len(places) > 1 and min(len(own.samples), len(base.samples)) > 1:
        compared = compare_samples([base.pool(), own.pool()], matrix.error / len(places))
        speeds = [comparison.speed for comparison in compared]
        if len({(speed.differs, speed.alike, speed.value > 1) for speed in speeds}) > 1:
            # Without the name, which begins the line.
            detail = lead_comparison([head, ""], compared)[0].removeprefix(": ").removesuffix(".")
            text += f"; {detail}"
    return text


def _show_spread(ratio: Ratio, own: Sequence[float], base: Sequence[float]) -> str:
    """The range of a factor over repetitions, if both candidates have the same ones."""
    if len(own) != len(base) or len(own) < 2:
        return ""
    sides = (own, base) if ratio.value > 1 else (base, own)
    factors = [more / less for more, less in zip(*sides, strict=True)]
    low, high = format_factor(min(factors)), format_factor(max(factors))
    return "" if low == high else f" ({low} to {high})"


def _list_apart(matrix: Matrix[str]) -> list[Place]:
    """The places, those with the largest differences first, since they decide."""
    means: dict[Place, list[float]] = {}
    for row in matrix.rows.values():
        for place, average in row.average().items():
            means.setdefault(place, []).append(average.mean)
    return sorted(means, key=lambda place: -max(means[place]) / min(means[place]))


def _describe_figures(row: CandidateFigures, apart: Sequence[Place]) -> str:
    """The highest rate, or else a few times (means and ranges), those that differ most first (`apart`); and
    how many repetitions gave none."""
    averages = row.average()
    rates = {place: average for place, average in averages.items() if not place.has_times}
    if CAPACITY in rates:
        least = "at least " if inf in row.bounds and row.complete else ""
        text = f"holds {least}{rates[CAPACITY].show(format_rate)} events/s"
    elif rates:
        place = max(rates, key=lambda place: rates[place].mean)
        where = f" ({place})" if len(rates) > 1 else ""
        text = f"{rates[place].show(format_rate)} inserts/s{where}"
    else:
        times = [
            f"{place} {average.show(format_ms if place.response else _write_s)} ms"
            for place, average in [(p, averages[p]) for p in apart if p in averages][:MOST_PLACES]
        ]
        more = len(averages) - len(times)
        text = ", ".join(times) + (f" and {more} more" if more else "")
    if row.complete:
        return text
    return (
        f"{text} in {len(row.samples)} of {row.repetitions} repetitions ({_describe_missing(row)})"
    )


def _write_s(s: float) -> str:
    """A time in seconds, in ms."""
    return format_ms(1000 * s)


def _describe_missing(row: CandidateFigures) -> str:
    """How many repetitions gave no figure, and why."""
    parts = [f"{row.failed} failed"] if row.failed else []
    if row.none_below:
        lowest = min(row.none_below)
        down_to = "" if lowest == inf else f", not even {format_rate(lowest)} events/s"
        parts.append(f"{len(row.none_below)} found no rate that holds{down_to}")
    return ", ".join(parts)


def _name_best_settings(measured: Measured) -> list[str]:
    """The best settings of each candidate, for a step that tunes them."""
    lines = []
    for name, results in measured.items():
        settings = [
            format_options(tuning.candidates[best[0]])
            for result in results
            if (tuning := result.tuning) is not None and (best := tuning.rank_finalists())
        ]
        if settings:
            lines.append(f"{name} is best with {' or '.join(dict.fromkeys(settings))}.")
    return lines
