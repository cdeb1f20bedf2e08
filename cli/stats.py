"""Statistics over runs. Pure.

scipy.special and not scipy.stats: the same distributions at less than half of the import's cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

UNSTABLE_CV = 0.10
"""From this coefficient of variation on, runs differ too much (pyperf warns at the same 10 %)."""

ENOUGH_RUNS = 6
"""With six runs, [min, max] covers the median with 1 - 2/2**6 = 97 % without any assumption."""


@dataclass(frozen=True)
class Summary:
    """One quantity over several runs."""

    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    """95 % interval of the mean (Student's t), not below 0; None with a single run."""
    cv: float | None
    """Coefficient of variation: sample standard deviation ÷ mean; None with a single run."""
    stable: bool | None
    """cv below UNSTABLE_CV; None with a single run."""


def summarize(values: Sequence[float]) -> Summary:
    """Figures over runs; ValueError without any.

    Interval: mean ± t(n−1; 0.975) · s/√n. Runs are independent, so this holds for them; it must
    not be used for the seconds of one run, which are not.
    """
    import numpy as np

    if not values:
        raise ValueError("no values")
    mean = float(np.mean(values))
    ci95 = cv = stable = None
    if len(values) > 1:
        from scipy.special import stdtrit

        deviation = float(np.std(values, ddof=1))
        half = float(stdtrit(len(values) - 1, 0.975)) * deviation / math.sqrt(len(values))
        # Rates and durations are never negative, which the t distribution does not know.
        ci95 = (max(0.0, mean - half), mean + half)
        cv = deviation / mean if mean else 0.0
        stable = cv < UNSTABLE_CV
    return Summary(
        len(values), min(values), max(values), mean, float(np.median(values)), ci95, cv, stable
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between the values (numpy's default)."""
    import numpy as np

    return float(np.percentile(values, percent))


def smallest_difference(cv: float, runs: int) -> float:
    """The smallest relative difference between two results of `runs` runs each that a two-sided
    t-test at 5 % would find with 80 % probability; `runs` ≥ 2. Infinite if they vary too much.

    Power of the two-sample t-test from the noncentral t distribution: Cohen, Statistical Power
    Analysis for the Behavioral Sciences (1988), chapter 2.
    """
    from scipy.special import nctdtrinc, stdtrit

    freedom = 2 * runs - 2
    critical = float(stdtrit(freedom, 0.975))
    # P(T' > critical) = 0.8 for the noncentrality that is sought; the other tail is nil there.
    noncentrality = float(nctdtrinc(freedom, 0.2, critical))
    deviations = noncentrality * cv * math.sqrt(2 / runs)
    # The larger result varies by the same share of a larger mean, so the difference d is sought for
    # which d = deviations · √((1 + (1 + d)²) / 2).
    square = deviations**2
    if square >= 2:
        return math.inf
    return (square + math.sqrt(square**2 + 4 * square * (1 - square / 2))) / (2 - square)
