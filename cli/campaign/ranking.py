"""Who is first, by how much, and who can't be told apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import geometric_mean

from ..results.comparison import Compared, collect_samples, compare, compare_samples
from ..results.model import Result
from ..results.place import Place
from ..show.ratios import lead_comparison

MOST_UNEQUAL = 1.05
"""How many times as many events some queries may meet as others."""


@dataclass(frozen=True)
class Ranking:
    """The candidates by one step."""

    step: str
    lines: Sequence[str]


def rank_candidates(step: str, measured: Mapping[str, Sequence[Result]], repeats: int) -> Ranking:
    """The candidates of a step by their speed, the best first. `measured`: candidate -> its results, one
    for each repetition that gave one; who has none is named last.

    Each repetition is one sample: runs within it share the moment at which they were made. With a single
    one, its runs are the samples.
    """
    names = [name for name, results in measured.items() if any(map(_pool_one, results))]
    lines = []
    if names:
        by_speed = sorted(names, key=lambda name: -_score(measured[names[0]], measured[name]))
        lines = _tell(by_speed, measured)
    for name, results in measured.items():
        if name not in names:
            lines.append(f"{name}: nothing to rank.")
        elif len(results) < repeats:
            lines.append(f"{name}: from {len(results)} of {repeats} repetitions only.")
    return Ranking(step, lines + _warn_of_levels(chain.from_iterable(measured.values())))


def _warn_of_levels(results: Iterable[Result]) -> list[str]:
    """Queries take longer on more events: they must all have met as many."""
    levels = [one.fill_level for one in results if one.command == "query" and one.fill_level]
    if not levels or max(levels) <= MOST_UNEQUAL * min(levels):
        return []
    text = f"Not alike: the queries met between {min(levels):,} and {max(levels):,} events."
    return [f"{text} Insert the same number for all (num-inserts instead of duration)."]


def _tell(by_speed: Sequence[str], measured: Mapping[str, Sequence[Result]]) -> list[str]:
    best = head = by_speed[0]
    rank, lines = 1, [f"1. {best}"]
    for place, name in enumerate(by_speed[1:], 2):
        if not _is_tie(_compare(measured[head], measured[name])):
            rank, head = place, name
        said = lead_comparison([best, name], _compare(measured[best], measured[name]))
        text = said[0] if said else f"{name}: measured nothing that {best} has, too."
        if head not in (best, name):
            text += f" A tie with {head}."
        lines.append(f"{rank}. {text}")
    return lines


def _score(base: Sequence[Result], results: Sequence[Result]) -> float:
    """How many times as fast, all in all; 0 if there is nothing to compare."""
    found = _compare(base, results)
    return geometric_mean([one.speed.value for one in found]) if found else 0.0


def _is_tie(found: Sequence[Compared]) -> bool:
    return bool(found) and all(one.speed.differs is False for one in found)


def _compare(base: Sequence[Result], results: Sequence[Result]) -> list[Compared]:
    if len(base) == len(results) == 1:
        return compare([base[0], results[0]])
    return compare_samples([_pool(base), _pool(results)])


def _pool(results: Sequence[Result]) -> dict[Place, list[float]]:
    found: dict[Place, list[float]] = {}
    for result in results:
        for place, value in _pool_one(result).items():
            found.setdefault(place, []).append(value)
    return found


def _pool_one(result: Result) -> dict[Place, float]:
    """What a repetition says: the geometric mean of its runs, since speeds are compared as ratios."""
    found = {place: geometric_mean(values) for place, values in collect_samples(result).items()}
    if result.capacity is not None and result.capacity.events_per_s is not None:
        found[Place(capacity=True)] = result.capacity.events_per_s
    return found
