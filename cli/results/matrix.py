"""Candidates side by side: the figures of each by repetition, and which pairs they decide. Pure. One error
rule for all. A repetition is one sample, since its runs share the conditions of the moment; with a single
repetition, each run is one. Figures vary in proportion, so intervals are Student's and Welch's on logarithms.

A pair is decided if the interval of its ratio excludes 1, alike if it stays within `ALIKE_FACTOR` of it, and
undecided otherwise. Several pairs split the error (Bonferroni). The answer of a search is an interval: the
rate that held and the one that didn't, which is unbounded if the client was the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import permutations
from math import exp, inf, log
from statistics import fmean, geometric_mean, variance
from typing import Generic, NamedTuple, TypeVar

from simulator.contract import Role

from .caveats import Place
from .figures import COMPARED, FIGURES
from .model import Result
from .observations import CAPACITY, Observation, observe
from .statistics import Ratio, estimate_ratio, find_mean, t_quantile

Samples = Mapping[Place, Sequence[float]]
"""Place -> a figure for each independent measurement."""

Measured = Mapping[str, Sequence[Result]]
"""Candidate -> its results of a step, one per repetition that has one."""

Key = TypeVar("Key", bound=Hashable)

RANKING_ERROR = 0.001
"""How often a ranking of equals may call any of them faster. Strict because decisions depend on it, and
because neighbouring runs on a busy machine correlate."""


_READ = [figure for figure in COMPARED if Role.WRITE in figure.roles] + [FIGURES["due"]]


def collect_samples(result: Result) -> dict[Place, list[float]]:
    """The figures of a result as independent samples: inserts per second of each valid run, in an open loop
    also its response times in ms, and seconds of each query. Runs of a search, a tuning or a comparison of
    clients differ in rate: only the answer can be compared."""
    samples = _collect(observe(result, figures=_READ, parts=False))
    return {
        place: values for place, values in samples.items() if not (place.capacity or place.tuned)
    }


def _collect(observations: Iterable[Observation]) -> dict[Place, list[float]]:
    samples: dict[Place, list[float]] = {}
    for seen in observations:
        place, figures = seen.place, seen.figures
        if place is None or not seen.valid:
            continue
        if seen.run is None:
            values = {place: figures.get(place.figure or "query_mean_s")}
        else:
            values = {place: figures.get("inserts_per_s")}
            # Latencies of a closed loop aren't response times.
            for figure in _READ if values[place] and "due" in figures else ():
                if figure.unit == "ms":
                    values[replace(place, figure=figure.key)] = figures.get(figure.key)
        for at, value in values.items():
            if value:
                samples.setdefault(at, []).append(value)
    return samples


def gather(
    observations: Iterable[Observation], name: Callable[[Observation], Key | None]
) -> dict[Key, dict[str, list[float]]]:
    """Name -> figure -> its values in the valid runs, for comparisons within a result. Leaves out entries
    without a name and figures of 0."""
    values: dict[Key, dict[str, list[float]]] = {}
    for seen in observations:
        key = name(seen) if seen.valid and seen.run is not None else None
        if key is not None:
            for figure, value in seen.figures.items():
                if value:
                    values.setdefault(key, {}).setdefault(figure, []).append(value)
    return values


class Average(NamedTuple):
    """A candidate's figure."""

    values: Sequence[float]
    """One per repetition or, with a single repetition, per run."""
    mean: float

    def show(self, write: Callable[[float], str]) -> str:
        """`15,237 (2,170 to 83,600)`: with the range of its values, unless both ends read the same."""
        mean, low, high = map(write, (self.mean, min(self.values), max(self.values)))
        return mean if low == high else f"{mean} ({low} to {high})"


@dataclass(frozen=True)
class CandidateFigures:
    """A row of the matrix: a candidate's figures."""

    samples: Sequence[Samples]
    """The samples of each repetition that gave a figure."""
    bounds: Sequence[float] = ()
    """For a capacity: the upper end of each repetition's interval, including repetitions that found no
    rate."""
    precision: float = 0.0
    """For a capacity: rates this close aren't distinguished."""
    failed: int = 0
    """Repetitions without a figure: the job failed, or no run of it was valid."""
    none_below: Sequence[float] = ()
    """The lowest rate tried in each search that found none; infinite if unknown."""

    @property
    def repetitions(self) -> int:
        """The number of repetitions, with a figure or without."""
        return len(self.samples) + self.failed + len(self.none_below)

    @property
    def complete(self) -> bool:
        """Whether all repetitions gave a figure."""
        return len(self.samples) == self.repetitions

    def average(self) -> dict[Place, Average]:
        """Its mean at each place: over its repetitions or, with a single one, over its runs."""
        average = fmean if len(self.samples) == 1 else find_mean
        return {place: Average(values, average(values)) for place, values in self.pool().items()}

    def pool(self) -> dict[Place, list[float]]:
        """One sample per repetition: the mean of its runs; with a single repetition, its runs."""
        if len(self.samples) == 1:
            return {place: list(values) for place, values in self.samples[0].items()}
        pooled: dict[Place, list[float]] = {}
        for samples in self.samples:
            for place, values in samples.items():
                pooled.setdefault(place, []).append(fmean(values))
        return pooled

    def score(self, places: Sequence[Place]) -> list[float]:
        """The overall speed of each repetition over these places."""
        return [
            geometric_mean([_find_speed(place, samples[place]) for place in places])
            for samples in self.samples
        ]

    @property
    def scores(self) -> list[float]:
        """The overall speed of each repetition over all its places."""
        return [
            geometric_mean([_find_speed(*each) for each in samples.items()])
            for samples in self.samples
        ]

    @property
    def variance(self) -> float | None:
        """The squared standard error of the logarithm of the mean speed; None with only one repetition."""
        logs = [log(score) for score in self.scores]
        if len(logs) < 2:
            return None
        # All repetitions of a search may end at the same step.
        return max(variance(logs), log(1 + self.precision) ** 2 / 12) / len(logs)

    def find_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean speed; None with only one repetition."""
        if self.variance is None:
            return None
        half = min(20.0, t_quantile(0.975, len(self.samples) - 1) * self.variance**0.5)
        middle = log(geometric_mean(self.scores))
        return exp(middle - half), exp(middle + half)


def _find_speed(place: Place, values: Sequence[float]) -> float:
    mean = fmean(values)
    return 1 / mean if place.has_times else mean


def list_common(own: CandidateFigures, base: CandidateFigures) -> list[Place]:
    """The places at which every repetition of both has figures."""
    first, *others = [*own.samples, *base.samples]
    return [place for place in first if all(place in samples for samples in others)]


def estimate_speed(own: CandidateFigures, base: CandidateFigures, error: float) -> Ratio | None:
    """The speed ratio of the first to the base over all places where both have figures; None without any.

    Bounds count as bounds: the rate a search reached at least says nothing about what the database can't do.

    A candidate with a failed repetition isn't shown to be faster by the others.
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


def is_faster(ratio: Ratio | None) -> bool:
    """Whether the first of a pair is shown to be faster."""
    return ratio is not None and ratio.interval is not None and ratio.interval[0] > 1


@dataclass(frozen=True)
class Rank:
    """A candidate's rank: with undecided pairs, a range of ranks."""

    best: int
    """One more than the number of candidates shown to be faster."""
    worst: int
    """The same, including undecided ones."""
    of: int
    """The number of ranked candidates."""

    def __str__(self) -> str:
        """`1`, `1 to 3`; `undecided` where it may be any."""
        if self.best == self.worst:
            return f"{self.best}"
        return (
            "undecided"
            if (self.best, self.worst) == (1, self.of)
            else f"{self.best} to {self.worst}"
        )


def share_error(candidates: int) -> float:
    """The error of each pair's interval, given the number of candidates."""
    return RANKING_ERROR / max(1, candidates * (candidates - 1) // 2)


class Matrix(Generic[Key]):
    """Candidates × figures: their rows, and which pairs are decided."""

    def __init__(self, rows: Mapping[Key, CandidateFigures]) -> None:
        self.rows = rows
        self.error = share_error(len(rows))

    @cached_property
    def pairs(self) -> dict[tuple[Key, Key], Ratio | None]:
        """(own, base) -> the speed ratio of the first to the second."""
        return {
            (own, base): estimate_speed(self.rows[own], self.rows[base], self.error)
            for own, base in permutations(self.rows, 2)
        }

    def find_rank(self, own: Key) -> Rank:
        """The possible ranks of a candidate; candidates that are alike share one."""
        rivals = [ratio for (rival, base), ratio in self.pairs.items() if base == own]
        faster = sum(map(is_faster, rivals))
        open_pairs = sum(ratio is None or not (ratio.differs or ratio.alike) for ratio in rivals)
        return Rank(1 + faster, 1 + faster + open_pairs, len(self.rows))

    def rank(self) -> dict[Key, Rank]:
        """Candidate -> its rank, fastest first."""
        ranks = {name: self.find_rank(name) for name in self.rows}
        first = next(iter(self.rows.values()), None)

        def place(name: Key) -> tuple[int, float]:
            ratio = first and estimate_speed(self.rows[name], first, self.error)
            return ranks[name].best, -ratio.value if ratio else 0.0

        return {name: ranks[name] for name in sorted(ranks, key=place)}

    @property
    def is_single(self) -> bool:
        """Whether no candidate has more than one repetition, so that none is ranked."""
        return max((row.repetitions for row in self.rows.values()), default=0) < 2


def tabulate(
    observations: Iterable[Observation],
    candidates: Mapping[str, int],
    figures: Collection[str] | None = None,
) -> Matrix[str]:
    """The matrix of observations. `candidates`: name -> its repetitions, including failed ones; `figures`:
    keys of figures to compare; None: all comparable ones."""
    seen: dict[str, dict[int | None, list[Observation]]] = {}
    for observation in observations:
        repetitions = seen.setdefault(observation.candidate, {})
        repetitions.setdefault(observation.repetition, []).append(observation)
    return Matrix(
        {
            name: _make_row(list(seen.get(name, {}).values()), made, figures)
            for name, made in candidates.items()
        }
    )


def _make_row(
    repetitions: Sequence[Sequence[Observation]], made: int, figures: Collection[str] | None
) -> CandidateFigures:
    collected: list[Samples] = []
    bounds: list[float] = []
    none_below: list[float] = []
    precision = 0.0
    for observations in repetitions:
        samples = {
            place: values
            for place, values in _collect(observations).items()
            if figures is None or place.key in figures
        }
        collected += [samples] if samples else []
        for search in (seen.figures for seen in observations if seen.place == CAPACITY):
            above = search.get("capacity_above_per_s") or inf
            bounds.append(inf if search["capacity_client_bound"] else above)
            precision = max(precision, search["capacity_precision"])
            none_below += [] if samples else [above]
    failed = made - len(collected) - len(none_below)
    return CandidateFigures(collected, bounds, precision, failed, none_below)


# --- a step of a campaign -------------------------------------------------------------------------


class Given(Enum):
    """Why rates say nothing about speed: they were given."""

    DIFFERENT = "different rates"
    KEPT_UP = "one rate that all kept up with"


def find_given(measured: Measured) -> Given | None:
    """Why inserts per second say nothing about speed; None if they do."""
    inserted = [
        result for results in measured.values() for result in results if result.insert_summary
    ]
    if len({result.settings.load.rate_per_s for result in inserted}) > 1:
        return Given.DIFFERENT
    offers = [run.group.offered for result in inserted for run in result.writers if run.group.valid]
    kept_up = all(offered is not None and not offered.saturated for offered in offers)
    return Given.KEPT_UP if inserted and kept_up else None


TIMES = {"query_mean_s", *(figure.key for figure in _READ if figure.unit == "ms")}
"""The figures that measure speed if rates were given."""


def measure(
    measured: Measured,
    failed: Mapping[str, int] | None = None,
    figures: Collection[str] | None = None,
) -> Matrix[str]:
    """The matrix of a step. `failed`: candidate -> its repetitions without a result; `figures`: keys of
    figures to compare; None: all comparable ones."""
    return tabulate(
        (
            observation
            for name, results in measured.items()
            for number, result in enumerate(results, 1)
            for observation in observe(result, name, number, _READ, parts=False)
        ),
        {name: len(results) + (failed or {}).get(name, 0) for name, results in measured.items()},
        figures,
    )


def take_best_workers(
    rows: Mapping[str, CandidateFigures],
) -> tuple[dict[str, CandidateFigures], dict[str, int]]:
    """If candidates inserted with different worker counts: each only at its fastest, all under one place so
    that they compare; and candidate -> its fastest count."""
    speeds = {name: _find_speeds(row) for name, row in rows.items()}
    if len({frozenset(counts) for counts in speeds.values() if counts}) < 2:
        return dict(rows), {}
    best = {name: max(counts, key=counts.__getitem__) for name, counts in speeds.items() if counts}
    common = next(iter(best.values()))

    def move(name: str, samples: Samples) -> Samples:
        return {
            place if place.workers is None else replace(place, workers=common): values
            for place, values in samples.items()
            if place.workers in (None, best.get(name))
        }

    return {
        name: replace(row, samples=[move(name, samples) for samples in row.samples])
        for name, row in rows.items()
    }, best


def _find_speeds(row: CandidateFigures) -> dict[int, float]:
    """Worker count -> mean rate or, if rates were given, response speed."""
    rates: dict[int, list[float]] = {}
    responses: dict[int, list[float]] = {}
    for samples in row.samples:
        for place, values in samples.items():
            if place.workers is not None:
                speeds = responses if place.has_times else rates
                speeds.setdefault(place.workers, []).extend(values)
    if rates:
        return {workers: find_mean(values) for workers, values in rates.items()}
    return {workers: 1 / find_mean(values) for workers, values in responses.items()}


def average_samples(measured: Measured) -> dict[str, dict[Place, Average]]:
    """Candidate -> its figures; if worker counts differ, at its best one."""
    step = measure(measured, figures=TIMES if find_given(measured) else None)
    rows = {name: row for name, row in step.rows.items() if row.samples}
    return {name: row.average() for name, row in take_best_workers(rows)[0].items()}
