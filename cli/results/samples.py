"""What the repetitions of each candidate have measured in a step. Pure.

A repetition is one sample, since runs within it share the moment at which they were made. A search knows its
answer as an interval: what it held, and what it didn't, which is unbounded where the client was the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import geometric_mean

from .caveats import Place
from .comparison import collect_samples
from .model import Result
from .statistics import Ratio, estimate_ratio

Samples = Mapping[Place, Sequence[float]]
"""What a result has measured: where -> a figure for each run."""

Measured = Mapping[str, Sequence[Result]]
"""Candidate -> its results of a step, one for each repetition that gave one."""

CAPACITY = Place(capacity=True)


@dataclass(frozen=True)
class CandidateFigures:
    """What a candidate has measured in a step."""

    samples: Sequence[Samples]
    """What each repetition that gave a figure has measured."""
    bounds: Sequence[float] = ()
    """For a capacity: the upper end of each repetition's interval, also of repetitions that found no rate."""
    precision: float = 0.0
    """For a capacity: rates that are so close to each other aren't told apart."""
    failed: int = 0
    """Repetitions without a figure: the job failed, or no run of it was valid."""
    none_below: Sequence[float] = ()
    """The lowest rate that was tried in each search that found no rate; infinite if not known."""

    @property
    def none_found(self) -> int:
        """Repetitions of a search that found no rate."""
        return len(self.none_below)

    @property
    def repetitions(self) -> int:
        """All repetitions that were made, with a figure or without."""
        return len(self.samples) + self.failed + self.none_found

    @property
    def complete(self) -> bool:
        """Whether all repetitions gave a figure."""
        return len(self.samples) == self.repetitions

    def pool(self) -> dict[Place, list[float]]:
        """One sample for each repetition: the geometric mean of its runs, since speeds are compared as
        ratios. Of a single repetition, its runs."""
        if len(self.samples) == 1:
            return {place: list(values) for place, values in self.samples[0].items()}
        pooled: dict[Place, list[float]] = {}
        for samples in self.samples:
            for place, values in samples.items():
                pooled.setdefault(place, []).append(geometric_mean(values))
        return pooled

    def score(self, places: Sequence[Place]) -> list[float]:
        """The overall speed of each repetition over these places."""
        return [
            geometric_mean([_find_speed(place, samples[place]) for place in places])
            for samples in self.samples
        ]


def _find_speed(place: Place, values: Sequence[float]) -> float:
    mean = geometric_mean(values)
    return 1 / mean if place.has_times else mean


def list_common(own: CandidateFigures, base: CandidateFigures) -> list[Place]:
    """The places at which every repetition of both has figures."""
    first, *others = [*own.samples, *base.samples]
    return [place for place in first if all(place in samples for samples in others)]


def estimate_speed(own: CandidateFigures, base: CandidateFigures, error: float) -> Ratio | None:
    """How many times as fast the first is, over all places at which both have figures; None without any.

    Bounds count as bounds: what a search shows at least says nothing of what the database can't do. A
    candidate with a repetition that gave no figure isn't shown to be faster by those that did.
    """
    places = list_common(own, base)
    if not places:
        return None
    step = max(own.precision, base.precision)
    low_own, low_base = own.score(places), base.score(places)
    high_own, high_base = own.bounds or low_own, base.bounds or low_base
    middle = estimate_ratio(low_own, low_base, error, step)
    low, high = 0.0, inf
    if own.complete and inf not in high_base:
        low = (estimate_ratio(low_own, high_base, error, step).interval or (low,))[0]
    if base.complete and inf not in high_own:
        high = (estimate_ratio(high_own, low_base, error, step).interval or (high,))[-1]
    return Ratio(middle.value, (low, high))


def collect_measured(
    results: Sequence[Result], failed: int = 0, only_times: bool = False
) -> CandidateFigures:
    """What the results of a candidate's repetitions have measured. `failed`: repetitions without a result;
    `only_times`: rates were given, and are no speeds."""
    collected: list[Samples] = []
    bounds: list[float] = []
    none_below: list[float] = []
    precision = 0.0
    for result in results:
        samples = {
            place: values
            for place, values in _collect(result).items()
            if place.has_times or not only_times
        }
        searched = result.capacity
        if searched is not None:
            precision = max(precision, searched.precision)
            open_above = searched.above_per_s is None or searched.client_bound
            bounds.append(inf if open_above else searched.above_per_s or inf)
            none_below += [] if samples else [searched.above_per_s or inf]
        else:
            failed += not samples
        collected += [samples] if samples else []
    return CandidateFigures(collected, bounds, precision, failed, none_below)


def _collect(result: Result) -> Samples:
    samples: dict[Place, Sequence[float]] = dict(collect_samples(result))
    if result.capacity is not None and result.capacity.events_per_s is not None:
        samples[CAPACITY] = [result.capacity.events_per_s]
    if result.tuning is not None and (best := result.tuning.rank_finalists()):
        samples[Place(tuned=True)] = result.tuning.find_rates(best[0], result.tuning.stages)
    return samples


def take_best_workers(
    measured: Mapping[str, CandidateFigures],
) -> tuple[dict[str, CandidateFigures], dict[str, int]]:
    """If candidates have inserted with different worker counts: each only with its fastest, all at one place,
    so that they compare; and candidate -> its fastest count."""
    speeds = {name: _find_speeds(figures) for name, figures in measured.items()}
    if len({frozenset(counts) for counts in speeds.values() if counts}) < 2:
        return dict(measured), {}
    best = {
        name: max(counts, key=lambda workers: counts[workers])
        for name, counts in speeds.items()
        if counts
    }
    common = next(iter(best.values()))

    def move(name: str, samples: Samples) -> Samples:
        return {
            place if place.workers is None else replace(place, workers=common): values
            for place, values in samples.items()
            if place.workers in (None, best.get(name))
        }

    moved = {
        name: replace(figures, samples=[move(name, samples) for samples in figures.samples])
        for name, figures in measured.items()
    }
    return moved, best


def _find_speeds(measured: CandidateFigures) -> dict[int, float]:
    """Worker count -> mean rate or, where rates were given, how fast it responds."""
    rates: dict[int, list[float]] = {}
    responses: dict[int, list[float]] = {}
    for samples in measured.samples:
        for place, values in samples.items():
            if place.workers is not None:
                speeds = rates if place.response is None else responses
                speeds.setdefault(place.workers, []).extend(values)
    if rates:
        return {workers: geometric_mean(values) for workers, values in rates.items()}
    return {workers: 1 / geometric_mean(values) for workers, values in responses.items()}
