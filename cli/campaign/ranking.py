"""Who is first, by how much, and who can't be told apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import geometric_mean

from ..results.comparison import Compared, collect_samples, compare, compare_samples
from ..results.model import Result
from ..results.naming import format_options
from ..results.place import Place
from ..show.clients import describe_client_costs
from ..show.ratios import MOST_PLACES, lead_comparison
from ..show.tables import format_ms, format_rate

MOST_UNEQUAL = 1.05
"""How many times as many events some queries may meet as others."""


@dataclass(frozen=True)
class Ranking:
    """The candidates by one step."""

    title: str
    lines: Sequence[str]


_ONE_REPETITION = (
    "One repetition: what changed on the machine between the candidates is among their differences. Give"
    " repeats: 6, and runs: 1 for the same time."
)
"""Of equals measured in blocks `benchmarks/false_alarms` finds a quarter and more called different."""

_BY_RESPONSE = (
    "The candidates were given other rates: inserts per second are what was asked for, so that only times"
    " rank them."
)
_ALL_KEPT_UP = (
    "All that were measured kept up with the same rate: inserts per second are what was asked for, so that"
    " only times rank them."
)

Samples = Mapping[Place, Sequence[float]]
"""What a result has measured: where -> a figure for each run."""


@dataclass(frozen=True)
class _Measured:
    """What a candidate has measured in a step."""

    results: Sequence[Result]
    """One for each repetition that gave one."""
    samples: Sequence[Samples]
    """Of each of them."""

    @property
    def known(self) -> bool:
        """Whether there is a figure."""
        return any(self.samples)


def rank_candidates(step: str, measured: Mapping[str, Sequence[Result]], repeats: int) -> Ranking:
    """The candidates of a step by their speed, the best first. `measured`: candidate -> its results, one
    for each repetition that gave one; who has none is named last.

    Each repetition is one sample: runs within it share the moment at which they were made. With a single
    one, its runs are the samples. Where the candidates have other worker counts, each stands with
    the one at which it is fastest.
    """
    known, chosen = _take_best_workers(_collect_known(measured))
    given = _tell_given(measured)
    lines = [given] if given else []
    if known:
        base = next(iter(known.values()))
        by_speed = sorted(known, key=lambda name: -_score(base, known[name]))
        lines += _tell(by_speed, known)
    if chosen:
        said = ", ".join(f"{name} {count:,}" for name, count in chosen.items())
        lines.append(f"Inserts of each at its best number of workers: {said}.")
    lines += _name_best_settings(measured)
    for name, results in measured.items():
        if name not in known:
            lines.append(f"{name}: nothing to rank.")
        elif len(results) < repeats:
            lines.append(f"{name}: from {len(results)} of {repeats} repetitions only.")
    if repeats == 1 and len(known) > 1:
        lines.append(_ONE_REPETITION)
    return Ranking(
        f"Ranking by {step}", lines + _warn_of_levels(chain.from_iterable(measured.values()))
    )


def tell_clients(step: str, measured: Mapping[str, Sequence[Result]]) -> Ranking:
    """What official clients cost each candidate; a database isn't better for a slower client."""
    title = "What official clients cost beside the lean path"
    lines = [
        f"{name}: {describe_client_costs(results) if results else 'nothing was measured'}."
        for name, results in measured.items()
    ]
    return Ranking(title if step == "clients" else f"{step}: {title.lower()}", lines)


def pool_samples(
    measured: Mapping[str, Sequence[Result]],
) -> dict[str, dict[Place, list[float]]]:
    """Candidate -> what it has measured, a sample for each repetition; with other worker counts, at its best
    one. Of a single repetition its runs are the samples."""
    chosen, _ = _take_best_workers(_collect_known(measured))
    return {name: _list_samples(one) for name, one in chosen.items()}


def _list_samples(measured: _Measured) -> dict[Place, list[float]]:
    """Of each repetition one; of a single repetition its runs."""
    if len(measured.samples) == 1:
        return {place: list(values) for place, values in measured.samples[0].items()}
    return _pool(measured)


def _collect_known(measured: Mapping[str, Sequence[Result]]) -> dict[str, _Measured]:
    """Candidate -> what it has measured, of those that have a figure by which they can be ranked."""
    given = _tell_given(measured) is not None
    own = {
        name: _Measured(
            results,
            [
                {
                    place: values
                    for place, values in _collect(one).items()
                    if place.has_times or not given
                }
                for one in results
            ],
        )
        for name, results in measured.items()
    }
    return {name: one for name, one in own.items() if one.known}


def _tell_given(measured: Mapping[str, Sequence[Result]]) -> str | None:
    """Why inserts per second are what the candidates were asked for; None if they are how fast they are."""
    inserted = [one for results in measured.values() for one in results if one.insert_summary]
    rates = {one.settings.load.rate_per_s for one in inserted}
    if len(rates) > 1:
        return _BY_RESPONSE
    return _ALL_KEPT_UP if rates and all(map(_kept_up, inserted)) else None


def _kept_up(result: Result) -> bool:
    """Whether there was a rate, and every run that counts was as fast."""
    runs = [run for run in result.insert_runs if run.valid]
    return all(run.offered is not None and not run.offered.saturated for run in runs)


def _collect(result: Result) -> Samples:
    found: dict[Place, Sequence[float]] = dict(collect_samples(result))
    if result.capacity is not None and result.capacity.events_per_s is not None:
        found[Place(capacity=True)] = [result.capacity.events_per_s]
    if result.tuning is not None and (best := result.tuning.rank_finalists()):
        found[Place(tuned=True)] = result.tuning.find_rates(best[0], result.tuning.stages)
    return found


def _name_best_settings(measured: Mapping[str, Sequence[Result]]) -> list[str]:
    """What suits each candidate, of a step that tunes them."""
    lines = []
    for name, results in measured.items():
        found = [
            format_options(tuning.candidates[best[0]])
            for one in results
            if (tuning := one.tuning) is not None and (best := tuning.rank_finalists())
        ]
        if found:
            lines.append(f"{name} is best with {' or '.join(dict.fromkeys(found))}.")
    return lines


def _take_best_workers(
    measured: Mapping[str, _Measured],
) -> tuple[dict[str, _Measured], dict[str, int]]:
    """If not all have inserted by the same worker counts: of each only its fastest, all at one place, so that
    they compare; and which that is."""
    speeds = {name: _find_speeds(one) for name, one in measured.items()}
    if len({frozenset(counts) for counts in speeds.values()}) < 2:
        return dict(measured), {}
    best = {name: max(counts, key=lambda n: counts[n]) for name, counts in speeds.items() if counts}
    common = next(iter(best.values()))

    def move(name: str, samples: Samples) -> Samples:
        return {
            place if place.workers is None else replace(place, workers=common): values
            for place, values in samples.items()
            if place.workers in (None, best.get(name))
        }

    moved = {
        name: replace(one, samples=[move(name, samples) for samples in one.samples])
        for name, one in measured.items()
    }
    return moved, best


def _find_speeds(measured: _Measured) -> dict[int, float]:
    """Worker count -> mean rate, or where rates were given how fast it responds."""
    rates: dict[int, list[float]] = {}
    responses: dict[int, list[float]] = {}
    for samples in measured.samples:
        for place, values in samples.items():
            if place.workers is not None:
                found = rates if place.response is None else responses
                found.setdefault(place.workers, []).extend(values)
    if rates:
        return {workers: geometric_mean(values) for workers, values in rates.items()}
    return {workers: 1 / geometric_mean(values) for workers, values in responses.items()}


def _warn_of_levels(results: Iterable[Result]) -> list[str]:
    """Queries take longer on more events: they must all have met as many."""
    levels = [one.fill_level for one in results if one.command == "query" and one.fill_level]
    if not levels or max(levels) <= MOST_UNEQUAL * min(levels):
        return []
    text = f"Not alike: the queries met between {min(levels):,} and {max(levels):,} events."
    return [f"{text} Insert the same number for all (num-inserts instead of duration)."]


def _tell(by_speed: Sequence[str], measured: Mapping[str, _Measured]) -> list[str]:
    best = head = by_speed[0]
    rank, lines = 1, [f"1. {best}: {_tell_figures(_list_samples(measured[best]))}."]
    for place, name in enumerate(by_speed[1:], 2):
        if not _is_tie(_compare(measured[head], measured[name])):
            rank, head = place, name
        said = lead_comparison([best, name], _compare(measured[best], measured[name]))
        text = said[0] if said else f"{name}: measured nothing that {best} has, too."
        if head not in (best, name):
            text += f" A tie with {head}."
        lines.append(f"{rank}. {text}")
    return lines


def _tell_figures(samples: Samples) -> str:
    """The highest rate, or else the first few times: means over the samples."""
    means = {place: sum(values) / len(values) for place, values in samples.items()}
    rates = {place: mean for place, mean in means.items() if not place.has_times}
    if rates:
        place = max(rates, key=lambda one: rates[one])
        where = f" ({place})" if len(rates) > 1 else ""
        unit = "events per second hold" if place.capacity else "inserts per second"
        return f"{format_rate(rates[place])} {unit}{where}"
    told = [
        f"{place} {format_ms(mean)} ms" if place.response else f"{place} {format_ms(mean)} s"
        for place, mean in list(means.items())[:MOST_PLACES]
    ]
    more = len(means) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _score(base: _Measured, other: _Measured) -> float:
    """How many times as fast, all in all; 0 if there is nothing to compare."""
    found = _compare(base, other)
    return geometric_mean([one.speed.value for one in found]) if found else 0.0


def _is_tie(found: Sequence[Compared]) -> bool:
    return bool(found) and all(one.speed.differs is False for one in found)


def _compare(base: _Measured, other: _Measured) -> list[Compared]:
    if len(base.results) == len(other.results) == 1:
        # The interval of a search's answer says more than the answer as a single sample.
        capacities = compare([base.results[0], other.results[0]])
        found = [one for one in capacities if one.place.capacity]
        return found or compare_samples([base.samples[0], other.samples[0]])
    return compare_samples([_pool(base), _pool(other)])


def _pool(measured: _Measured) -> dict[Place, list[float]]:
    """A sample for each repetition: the geometric mean of its runs, since speeds are compared as ratios."""
    found: dict[Place, list[float]] = {}
    for samples in measured.samples:
        for place, values in samples.items():
            found.setdefault(place, []).append(geometric_mean(values))
    return found
