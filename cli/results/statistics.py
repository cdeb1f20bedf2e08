"""Statistics over independent runs, and Student's t distribution, central and noncentral: all that the
intervals need, without SciPy's 140 MB and half a second of import; tests check it against SciPy. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import mul
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNSTABLE_CV = 0.10
"""Above this coefficient of variation, runs differ too much (pyperf also warns at 10 %)."""

ENOUGH_RUNS = 6
"""With six runs, [min, max] covers the median with 1 - 2/2**6 = 97 % without any assumption."""

ENOUGH_RUNS_TEXT = "six"

ALIKE_FACTOR = 1.1
"""Two figures are alike only if the interval of their ratio stays within this factor of 1 on both sides; a
wider one that contains 1 is undecided."""


@dataclass(frozen=True)
class Summary:
    """One quantity over several runs."""

    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    """95 % interval of the mean; None for a single run, and for two times."""
    cv: float | None
    """Coefficient of variation: sample standard deviation ÷ mean; None with a single run."""
    stable: bool | None
    """cv below UNSTABLE_CV; None with a single run."""


def find_mean(values: Sequence[float]) -> float:
    """The mean of a figure over repetitions: geometric, since figures vary in proportion, and so that the
    ratio of two means is the mean of the ratios; arithmetic if a value isn't above 0. ValueError without
    values."""
    if not values:
        raise ValueError("no values")
    low, high = min(values), max(values)
    if low <= 0:
        return fmean(values)
    # The mean of equal values must not differ by rounding.
    return low if low == high else math.exp(fmean(map(math.log, values)))


def summarize(values: Sequence[float]) -> Summary:
    """Summary over the runs of a result, with an arithmetic mean, as in the reference; ValueError without
    values.

    Interval: mean ± t(n−1; 0.975) · s/√n. Valid for runs, which are independent, but not for the seconds of
    one run, which are not.
    """
    import numpy as np

    if not values:
        raise ValueError("no values")
    mean = float(np.mean(values))
    ci95 = cv = stable = None
    if len(values) > 1:
        deviation = float(np.std(values, ddof=1))
        half = t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values))
        # Rates and durations are never negative, but the t interval may be.
        ci95 = (max(0.0, mean - half), mean + half)
        cv = deviation / mean if mean else 0.0
        stable = cv < UNSTABLE_CV
    return Summary(
        len(values), min(values), max(values), mean, float(np.median(values)), ci95, cv, stable
    )


def summarize_times(values: Sequence[float]) -> Summary:
    """Summary over times, with an interval on logarithms; ValueError without values.

    Interval: mean · exp(± t(n−1; 0.975) · s/(mean·√n)), by the delta method for the logarithm of the mean.
    Times are above 0 and skewed, so that an interval of the mean itself could begin below 0. With little
    variation both agree. Two times have none: it would span orders of magnitude (t = 12.7).
    """
    summary = summarize(values)
    if summary.runs < 3 or not summary.cv:
        ci95 = summary.ci95 if summary.runs > 2 else None
    else:
        half = t_quantile(0.975, summary.runs - 1) * summary.cv / math.sqrt(summary.runs)
        ci95 = (summary.avg * math.exp(-half), summary.avg * math.exp(half))
    return replace(summary, ci95=ci95)


def summarize_repetitions(values: Sequence[float]) -> Summary:
    """Summary over repetitions, with the mean of `find_mean`; ValueError without values.

    Interval: mean · exp(± t(n−1; 0.975) · s/√n), with s of the logarithms. None for two values, or if a value
    isn't above 0.
    """
    import numpy as np

    mean, ci95 = find_mean(values), None
    if len(values) > 2 and min(values) > 0:
        deviation = float(np.std(np.log(values), ddof=1))
        half = t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values))
        ci95 = (mean * math.exp(-half), mean * math.exp(half))
    return replace(summarize(values), avg=mean, ci95=ci95)


def find_percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between the values (numpy's default)."""
    import numpy as np

    return float(np.percentile(values, percent))


def find_smallest_difference(cv: float, runs: int) -> float:
    """The smallest relative difference between two results of `runs` runs each that a two-sided
    t-test at 5 % would find with 80 % probability; `runs` ≥ 2. Infinite if they vary too much.

    Power of the two-sample t-test from the noncentral t distribution: Cohen, Statistical Power
    Analysis for the Behavioral Sciences (1988), chapter 2.
    """
    deviations = _find_shift(runs) * cv * math.sqrt(2 / runs)
    # The larger result varies in proportion to its larger mean, so we seek the difference d
    # for which d = deviations · √((1 + (1 + d)²) / 2).
    square = deviations**2
    if square >= 2:
        return math.inf
    return (square + math.sqrt(square**2 + 4 * square * (1 - square / 2))) / (2 - square)


# A comparison of many results needs the same few numbers of runs again and again.
@lru_cache(maxsize=4096)
def _find_shift(runs: int) -> float:
    """The noncentrality at which the test of `find_smallest_difference` finds a difference with 80 %
    probability."""
    freedom = 2 * runs - 2
    critical = t_quantile(0.975, freedom)
    # P(T' > critical) = 0.8; the other tail is negligible there.
    return noncentrality(0.2, critical, freedom)


@dataclass(frozen=True)
class Ratio:
    """The ratio of two quantities."""

    value: float
    """Ratio of the geometric means."""
    interval: tuple[float, float] | None
    """Confidence interval; None if one side has a single run."""

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 1; None without an interval."""
        return None if self.interval is None else not self.interval[0] <= 1 <= self.interval[1]

    @property
    def is_void(self) -> bool:
        """Whether the interval reaches from far below 1 to far above it, so that the two can't be
        compared."""
        if self.interval is None:
            return False
        return self.interval[0] <= 1 / VOID_FACTOR and self.interval[1] >= VOID_FACTOR

    @property
    def alike(self) -> bool:
        """Whether the interval contains 1 and is narrow enough to rule out a relevant difference."""
        if self.interval is None or self.differs:
            return False
        return self.interval[0] >= 1 / ALIKE_FACTOR and self.interval[1] <= ALIKE_FACTOR


VOID_FACTOR = 10.0
"""An interval from this many times slower to this many times faster says nothing."""
_LARGEST_LOG = 300.0
"""An interval that reaches further says nothing, and its ends would overflow."""


def estimate_ratio(
    values: Sequence[float], base: Sequence[float], error: float = 0.05, step: float = 0.0
) -> Ratio:
    """`values` ÷ `base`, which may differ in their number of runs and in their spread. ValueError without
    values, or if one isn't above 0. `error`: how often the interval may miss the true ratio; several
    comparisons split it. `step`: the relative distance of neighbouring values if only rounded ones are
    possible; repetitions that round to the same value are no more exact than that.

    Welch's t interval for the difference of the means of the logarithms, transformed back by exp: Welch,
    The generalization of 'Student's' problem when several different population variances are
    involved, Biometrika 34 (1947). As an effect size with an interval instead of a test: Kalibera &
    Jones, Quantifying performance changes with effect size confidence intervals,
    https://arxiv.org/abs/2007.10899. On logarithms, since rates vary in proportion, and A ÷ B must be the
    inverse of B ÷ A.
    """
    import numpy as np

    if not values or not base or min(*values, *base) <= 0:
        raise ValueError("a ratio needs values above 0 on both sides")
    logs = [np.log(np.asarray(side, dtype=float)) for side in (values, base)]
    quotient = math.exp(float(logs[0].mean() - logs[1].mean()))
    if min(len(values), len(base)) < 2:
        return Ratio(quotient, None)
    if not step and not any(np.ptp(side) for side in logs):
        return Ratio(quotient, (quotient, quotient))
    # Squared standard errors of the means; their degrees of freedom by Welch and Satterthwaite.
    least = math.log1p(step) ** 2 / 12
    errors = [max(least, float(side.var(ddof=1))) / len(side) for side in logs]
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(side) - 1) for error, side in zip(errors, logs, strict=True)
    )
    half = min(_LARGEST_LOG, t_quantile(1 - error / 2, freedom) * math.sqrt(sum(errors)))
    return Ratio(quotient, (quotient * math.exp(-half), quotient * math.exp(half)))


MOST_RUNS = 10_000
"""If more were needed, finding the cause of the spread would be better."""


def count_runs_needed(cv: float, difference: float) -> int | None:
    """The fewest runs on each side for which `find_smallest_difference` is at most `difference`; None if more
    than MOST_RUNS."""
    if find_smallest_difference(cv, MOST_RUNS) > difference:
        return None
    too_few, enough = 1, MOST_RUNS
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if find_smallest_difference(cv, middle) <= difference:
            enough = middle
        else:
            too_few = middle
    return enough


def combine_cv(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The coefficient of variation of two sides assumed to vary alike: the root mean square. That of one side
    if the other has a single run; None if both have."""
    import numpy as np

    spreads = [summary.cv for summary in map(summarize, (values, others)) if summary.cv is not None]
    return float(np.sqrt(np.mean(np.square(spreads)))) if spreads else None


def count_events_per_cost(inserts_per_s: float, cost_per_hour: float) -> float:
    """Events per unit of currency at this rate."""
    return inserts_per_s * 3600 / cost_per_hour


# --- Student's t ----------------------------------------------------------------------------------


# With Z normal and S = √(χ²/ν), T = (Z + δ) ÷ S. So P(T ≤ t) is the mean of Φ(t·S − δ) over S, whose density
# is smooth and narrow: Gauss-Legendre quadrature gives ten digits.

_NODES = 160
# Standard deviations of S (each about 1/√(2ν)) to integrate over: less than 10⁻¹⁵ lies beyond.
_REACH = 12.0
_PRECISION = 1e-10


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """t with P(T ≤ t) = `probability`; `freedom` ≥ 1 need not be a whole number."""
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    return _root(lambda t: t_probability(t, freedom) - probability, 0.0, 1.0)


@lru_cache(maxsize=4096)
def noncentrality(probability: float, t: float, freedom: float) -> float:
    """δ ≥ 0 with P(T ≤ t) = `probability` < 0.5 for the noncentral distribution; `t` > 0."""
    return _root(lambda delta: probability - t_probability(t, freedom, delta), 0.0, t)


def t_probability(t: float, freedom: float, delta: float = 0.0) -> float:
    """P(T ≤ t) for `freedom` degrees of freedom and noncentrality `delta`."""
    roots, weights = _scale(freedom)
    tails = map(math.erfc, ((delta - t * roots) / math.sqrt(2)).tolist())
    total: float = sum(map(mul, weights, tails))
    return 0.5 * total


# Welch's degrees of freedom hardly ever repeat, so the cache is bounded.
@lru_cache(maxsize=64)
def _scale(freedom: float) -> tuple[NDArray[np.float64], list[float]]:
    """Values of S and the share of the distribution that each represents."""
    import numpy as np

    nodes, weights = _quadrature()
    spread = _REACH / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - spread), 1 + spread
    # As a function of the square root of S, the density is smooth at 0, too.
    low, high = math.sqrt(low), math.sqrt(high)
    places = low + (high - low) / 2 * (nodes + 1)
    roots = places**2
    half = freedom / 2
    constant = math.log(2) + half * math.log(half) - math.lgamma(half)
    density = np.exp(constant + (freedom - 1) * np.log(roots) - half * roots**2)
    shares = weights * density * places
    return roots, (shares / shares.sum()).tolist()


@cache
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function that is at most 0 at `low` crosses 0: secants within the bracket. An end that
    stays twice in a row counts half, or it might never move (the Illinois variant of regula
    falsi): Dowell & Jarratt, BIT 11 (1971).
    """
    while rising(high) < 0:
        low, high = high, 2 * high
    at_low, at_high = rising(low), rising(high)
    moved = 0
    while high - low > _PRECISION * max(1.0, high):
        middle = high - at_high * (high - low) / (at_high - at_low)
        at_middle = rising(middle)
        if abs(at_middle) < 1e-14:
            return middle
        if at_middle < 0:
            low, at_low, at_high = middle, at_middle, at_high / 2 if moved < 0 else at_high
            moved = -1
        else:
            high, at_high, at_low = middle, at_middle, at_low / 2 if moved > 0 else at_low
            moved = 1
    return (low + high) / 2
