"""Who is first, by how much, and between whom it is undecided. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from statistics import fmean

from simulator.units import join_words

from ..show.clients import describe_client_costs
from ..show.ratios import MOST_PLACES, format_factor, format_speed_interval, lead_comparison
from ..show.tables import format_ms, format_rate
from .caveats import Place
from .comparison import compare_samples
from .model import Result
from .naming import format_options
from .samples import (
    CAPACITY,
    CandidateFigures,
    Measured,
    collect_measured,
    estimate_speed,
    list_common,
    take_best_workers,
)
from .statistics import Ratio

MOST_UNEQUAL = 1.05
"""How many times as many events some queries may meet as others."""

RANKING_ERROR = 0.001
"""How often a ranking of equals may call any of them faster: shared out over all pairs (Bonferroni). So rare
since a decision rests on it, and since neighbouring runs on a busy machine vary alike."""


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate in a ranking."""

    name: str
    rank: str
    """`1.`, or `1 to 2.`; empty with a single repetition, which ranks nobody."""
    figure: str
    """What it measured; empty if it has no figure."""
    beside: str = ""
    """How it compares with the first, or why it has no figure."""

    def __str__(self) -> str:
        text = "; ".join(filter(None, [self.figure, self.beside]))
        return f"{f'{self.rank} {self.name}'.strip()}: {text}."


@dataclass(frozen=True)
class Ranking:
    """The candidates ranked by one step."""

    title: str
    lines: Sequence[str]
    standings: Sequence[RankedCandidate] = ()


_ONE_REPETITION = (
    "One repetition can't rank candidates: what changed on the machine between them is among their"
    " differences. For the same time, give repeats: 6 and runs: 1."
)
"""`benchmarks/false_alarms` finds a quarter and more of equals called different if measured in blocks."""

_BY_RESPONSE = (
    "The candidates were given different rates: their inserts per second are those rates, so only times"
    " rank them."
)
_ALL_KEPT_UP = (
    "All that were measured kept up with the same rate: their inserts per second are that rate, so only"
    " times rank them."
)


def rank_candidates(
    step: str,
    measured: Measured,
    repeats: int,
    failed: Mapping[str, int] | None = None,
) -> Ranking:
    """The candidates of a step with their figures, the fastest first where it is decided which one that is.
    `measured`: candidate -> its results, one for each repetition that gave one; `failed`: candidate -> number
    of repetitions that gave none.

    Each repetition is one sample: runs within it share the moment at which they were made. Where the
    candidates have different worker counts, each stands with the one at which it is fastest.
    """
    reason = _describe_given(measured)
    lines = [reason] if reason else []
    collected = {
        name: collect_measured(results, (failed or {}).get(name, 0), reason is not None)
        for name, results in measured.items()
    }
    ranked = {name: figures for name, figures in collected.items() if figures.samples}
    ranked, chosen = take_best_workers(ranked)
    alone = max((figures.repetitions for figures in collected.values()), default=0) < 2
    standings = _list_figures(ranked) if alone else _list_ranks(ranked)
    lines += map(str, standings)
    if chosen:
        counts = ", ".join(f"{name} {count:,}" for name, count in chosen.items())
        lines.append(f"Inserts of each at its best number of workers: {counts}.")
    lines += _name_best_settings(measured)
    lines += _name_own_statements(measured)
    for name, figures in collected.items():
        if not figures.samples:
            why = f"no figure: {_describe_missing(figures) or 'not measured yet'}"
            standings.append(RankedCandidate(name, "", "", why))
            lines.append(str(standings[-1]))
        elif figures.repetitions < repeats:
            lines.append(f"{name}: from {figures.repetitions} of {repeats} repetitions so far.")
    if repeats == 1 and len(ranked) > 1:
        lines.append(_ONE_REPETITION)
    lines += _warn_of_levels(chain.from_iterable(measured.values()))
    return Ranking(f"Ranking by {step}", lines, standings)


def _name_own_statements(measured: Measured) -> list[str]:
    """Which candidates were asked by the workload's own statements, and which queries."""
    queries = {
        name: dict.fromkeys(chain.from_iterable(result.own_statements for result in results))
        for name, results in measured.items()
    }
    return [
        f"{name}: {join_words(list(names))} sent as the workload's own statement."
        for name, names in queries.items()
        if names
    ]


def describe_client_costs_of(step: str, measured: Measured) -> Ranking:
    """What official clients cost each candidate; a database isn't better for a slower client."""
    title = "What official clients cost beside the lean path"
    standings = [
        RankedCandidate(
            name, "", describe_client_costs(results) if results else "nothing was measured"
        )
        for name, results in measured.items()
    ]
    title = title if step == "clients" else f"{step}: {title.lower()}"
    return Ranking(title, [str(standing) for standing in standings], standings)


def pool_samples(
    measured: Measured,
) -> dict[str, dict[Place, list[float]]]:
    """Candidate -> what it has measured, a sample for each repetition; where worker counts differ, at its
    best one. With a single repetition its runs are the samples."""
    only_times = _describe_given(measured) is not None
    collected = {
        name: collect_measured(results, only_times=only_times) for name, results in measured.items()
    }
    chosen, _ = take_best_workers(
        {name: figures for name, figures in collected.items() if figures.samples}
    )
    return {name: figures.pool() for name, figures in chosen.items()}


def describe_doubts(measured: Measured) -> dict[str, str]:
    """Candidate -> what must stand beside the mean of its searches: a bound, or how many found a rate."""
    doubts = {}
    for name, results in measured.items():
        figures = collect_measured(results)
        if figures.none_below:
            doubts[name] = f" ({len(figures.samples)} of {figures.repetitions})"
        elif inf in figures.bounds:
            doubts[name] = " (at least)"
    return doubts


@dataclass(frozen=True)
class Rank:
    """Where a candidate stands: with pairs undecided, somewhere between two ranks."""

    name: str
    best: int
    """One more than the number of candidates that are shown to be faster."""
    worst: int
    """The same, with those against which it is undecided, too."""

    def __str__(self) -> str:
        return f"{self.best}." if self.best == self.worst else f"{self.best} to {self.worst}."


def find_ranks(measured: Mapping[str, CandidateFigures]) -> list[Rank]:
    """The ranks of candidates that have figures, the fastest first. A pair is decided by the interval of the
    ratio of their speeds, over all that both have measured; those that are alike share a rank."""
    error = share_error(len(measured))
    ranks = []
    for name, figures in measured.items():
        rivals = [
            estimate_speed(rival, figures, error)
            for other, rival in measured.items()
            if other != name
        ]
        ranks.append(Rank(name, *bound_rank(rivals)))
    base = next(iter(measured.values()), None)
    speeds = {
        name: ratio.value if base and (ratio := estimate_speed(figures, base, error)) else 0.0
        for name, figures in measured.items()
    }
    return sorted(ranks, key=lambda rank: (rank.best, -speeds[rank.name]))


def share_error(candidates: int) -> float:
    return RANKING_ERROR / max(1, candidates * (candidates - 1) // 2)


def bound_rank(rivals: Sequence[Ratio | None]) -> tuple[int, int]:
    """The best and the worst rank that a candidate may have. `rivals`: how many times as fast as it each of
    the others is."""
    faster = sum(map(is_faster, rivals))
    open_pairs = sum(ratio is None or not (ratio.differs or ratio.alike) for ratio in rivals)
    return 1 + faster, 1 + faster + open_pairs


def is_faster(ratio: Ratio | None) -> bool:
    """Whether the first of a pair is shown to be faster."""
    return ratio is not None and ratio.interval is not None and ratio.interval[0] > 1


def _list_ranks(measured: Mapping[str, CandidateFigures]) -> list[RankedCandidate]:
    """Each candidate with its rank, its figure, and how it compares with the first."""
    ranks = find_ranks(measured)
    standings = []
    for rank in ranks:
        head, figures = ranks[0].name, measured[rank.name]
        beside = ""
        if rank.name != head:
            beside = _compare_with(head, measured[head], figures, len(ranks))
        standings.append(RankedCandidate(rank.name, str(rank), _describe_figures(figures), beside))
    return standings


def _list_figures(measured: Mapping[str, CandidateFigures]) -> list[RankedCandidate]:
    """The candidates of a single repetition with their figures, in the file's order."""
    return [
        RankedCandidate(name, "", _describe_figures(figures)) for name, figures in measured.items()
    ]


def _compare_with(head: str, base: CandidateFigures, own: CandidateFigures, candidates: int) -> str:
    error = share_error(candidates)
    ratio = estimate_speed(own, base, error)
    if ratio is None:
        return f"no figure in common with {head}"
    places = list_common(own, base)
    over = f" over {_count_places(places)}" if len(places) > 1 else ""
    if ratio.differs and ratio.interval:
        factor = format_factor(max(ratio.value, 1 / ratio.value))
        side = "faster" if ratio.value > 1 else "slower"
        text = f"{factor}× {side} than {head}{over} ({format_speed_interval(*ratio.interval)})"
    elif ratio.alike:
        text = f"no difference from {head} shown{over}"
    else:
        text = f"undecided against {head}{over}: {_describe_doubt(own, base, ratio)}"
    if len(places) > 1 and min(len(own.samples), len(base.samples)) > 1:
        compared = compare_samples([base.pool(), own.pool()], error / len(places))
        if (
            len(
                {
                    (comparison.speed.differs, comparison.speed.alike, comparison.speed.value > 1)
                    for comparison in compared
                }
            )
            > 1
        ):
            # The name is left out, since it stands at the beginning of the line.
            detail = lead_comparison([head, ""], compared)[0].removeprefix(": ").removesuffix(".")
            text += f"; {detail}"
    return text


def _count_places(places: Sequence[Place]) -> str:
    queries = all(place.query is not None for place in places)
    return f"{len(places)} {'queries' if queries else 'figures'}"


def _describe_doubt(own: CandidateFigures, base: CandidateFigures, ratio: Ratio) -> str:
    """Why a comparison is undecided."""
    apart = f"{format_factor(max(ratio.value, 1 / ratio.value))} times apart"
    counts = sorted({len(own.samples), len(base.samples)})
    number = " and ".join(f"{count}" for count in counts)
    parts = [f"{number} repetition{'' if counts == [1] else 's'}, {apart}"]
    if inf in (*own.bounds, *base.bounds):
        parts.append("a figure is only a lower bound")
    if not (own.complete and base.complete):
        parts.append("not all repetitions gave a figure")
    return ", ".join(parts)


def _describe_figures(measured: CandidateFigures) -> str:
    """The highest rate, or else the first few times: means over the samples; and how many gave none."""
    means = {place: fmean(values) for place, values in measured.pool().items()}
    rates = {place: mean for place, mean in means.items() if not place.has_times}
    if CAPACITY in rates:
        least = "at least " if inf in measured.bounds and measured.complete else ""
        text = f"holds {least}{format_rate(rates[CAPACITY])} events/s"
    elif rates:
        place = max(rates, key=lambda place: rates[place])
        where = f" ({place})" if len(rates) > 1 else ""
        text = f"{format_rate(rates[place])} inserts/s{where}"
    else:
        times = [
            f"{place} {format_ms(mean if place.response else 1000 * mean)} ms"
            for place, mean in list(means.items())[:MOST_PLACES]
        ]
        more = len(means) - len(times)
        text = ", ".join(times) + (f" and {more} more" if more else "")
    if measured.complete:
        return text
    missing = _describe_missing(measured)
    return f"{text} in {len(measured.samples)} of {measured.repetitions} repetitions ({missing})"


def _describe_missing(measured: CandidateFigures) -> str:
    """The repetitions that gave no figure, and why."""
    parts = []
    if measured.failed:
        parts.append(f"{measured.failed} failed")
    if measured.none_found:
        lowest = min(measured.none_below)
        down_to = "" if lowest == inf else f", not even {format_rate(lowest)} events/s"
        parts.append(f"{measured.none_found} found no rate that holds{down_to}")
    return ", ".join(parts)


def _describe_given(measured: Measured) -> str | None:
    """Why inserts per second are what the candidates were asked for; None if they say how fast these are."""
    inserted = [
        result for results in measured.values() for result in results if result.insert_summary
    ]
    rates = {result.settings.load.rate_per_s for result in inserted}
    if len(rates) > 1:
        return _BY_RESPONSE
    return _ALL_KEPT_UP if rates and all(map(_kept_up, inserted)) else None


def _kept_up(result: Result) -> bool:
    """Whether a rate was given, and every run that counts was as fast."""
    offers = [run.group.offered for run in result.writers if run.group.valid]
    return all(offered is not None and not offered.saturated for offered in offers)


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


def _warn_of_levels(results: Iterable[Result]) -> list[str]:
    """A warning if queries met different numbers of events: they take longer on more."""
    levels = [
        result.fill_level for result in results if result.command == "query" and result.fill_level
    ]
    if not levels or max(levels) <= MOST_UNEQUAL * min(levels):
        return []
    text = f"Not comparable: the queries ran on between {min(levels):,} and {max(levels):,} events."
    return [f"{text} Insert the same number for all (num-inserts instead of duration)."]
