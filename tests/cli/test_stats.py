"""Statistics over runs, against scipy.stats and against a simulation's table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cli.stats import percentile, smallest_difference, summarize

SAMPLES = [
    [428_000.0, 431_500.0, 402_000.0],
    [1.0, 2.0],
    [0.012, 0.015, 0.011, 0.4, 0.013, 0.012, 0.014],
]


@pytest.mark.parametrize("values", SAMPLES)
def test_the_interval_is_students(values: list[float]) -> None:
    found = summarize(values)
    low, high = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert found.ci95 is not None
    assert found.ci95 == pytest.approx((max(0.0, low), high))
    assert found.cv == pytest.approx(stats.variation(values, ddof=1))


@pytest.mark.parametrize("values", SAMPLES)
def test_plain_figures(values: list[float]) -> None:
    found = summarize(values)
    assert (found.runs, found.min, found.max) == (len(values), min(values), max(values))
    assert found.avg == pytest.approx(sum(values) / len(values))
    assert found.median == pytest.approx(np.median(values))


def test_no_rate_is_below_zero() -> None:
    """With two runs the interval is wide; its lower end stops where rates do."""
    found = summarize([1.0, 2.0])
    assert found.ci95 is not None
    assert found.ci95[0] == 0
    assert found.ci95[1] > 7


def test_one_run_says_nothing_of_its_spread() -> None:
    found = summarize([5.0])
    assert (found.min, found.max, found.avg, found.median) == (5.0, 5.0, 5.0, 5.0)
    assert (found.ci95, found.cv, found.stable) == (None, None, None)


def test_no_run_no_summary() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarize([])


@pytest.mark.parametrize(("spread", "stable"), [(9.9, True), (10.1, False)])
def test_unstable_from_ten_percent_on(spread: float, stable: bool) -> None:
    # Two values 100 ± d vary by d·√2 % around their mean.
    d = spread / math.sqrt(2)
    assert summarize([100 - d, 100 + d]).stable is stable


def test_nothing_but_zeros() -> None:
    assert summarize([0.0, 0.0]).cv == 0.0


@pytest.mark.parametrize("percent", [0, 5, 50, 95, 100])
def test_percentiles_interpolate(percent: float) -> None:
    values = [3.0, 1.0, 2.0, 10.0]
    assert percentile(values, percent) == pytest.approx(
        stats.scoreatpercentile(values, percent, interpolation_method="fraction")
    )


# CV in % -> smallest difference in % that 3, 5, 7, 10 runs of each find with 80 % probability: by
# simulation, as the smallest step of half a percentage point that was enough.
SIMULATED = {
    1: (3.5, 2.5, 2.0, 1.5),
    2: (6.5, 4.5, 3.5, 3.0),
    3.7: (12.5, 8.0, 6.5, 5.5),
    5: (17.0, 11.0, 9.0, 7.0),
    10: (37.0, 23.0, 18.0, 14.5),
}


@pytest.mark.parametrize(
    ("cv", "runs", "simulated"),
    [
        (cv, runs, difference)
        for cv, row in SIMULATED.items()
        for runs, difference in zip((3, 5, 7, 10), row, strict=True)
    ],
)
def test_the_smallest_difference_agrees_with_a_simulation(
    cv: float, runs: int, simulated: float
) -> None:
    found = 100 * smallest_difference(cv / 100, runs)
    # The simulation's figures are rounded up to half a point.
    assert simulated * 0.85 - 0.5 <= found <= simulated * 1.15
    assert found == pytest.approx(simulated, rel=0.15, abs=0.5)


def test_the_smallest_difference_has_the_power_that_it_claims() -> None:
    """Welch's and Student's test are the same for groups of one size, but for the freedom."""
    generator = np.random.Generator(np.random.PCG64(3))
    for cv, runs in ((0.02, 3), (0.1, 3), (0.1, 6)):
        difference = smallest_difference(cv, runs)
        size = (20_000, runs)
        slower = generator.normal(1, cv, size)
        faster = generator.normal(1 + difference, cv * (1 + difference), size)
        found = stats.ttest_ind(slower, faster, axis=1).pvalue < 0.05
        assert found.mean() == pytest.approx(0.8, abs=0.02)


def test_runs_that_vary_too_much_can_show_no_difference() -> None:
    assert smallest_difference(0.5, 2) == math.inf


def test_no_variation_shows_any_difference() -> None:
    assert smallest_difference(0.0, 3) == 0.0
