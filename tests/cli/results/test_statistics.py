"""Statistics over runs, against scipy.stats and against a simulation's table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cli.results.model import QuerySummary
from cli.results.statistics import (
    MOST_RUNS,
    combine_cv,
    count_events_per_cost,
    count_runs_needed,
    estimate_ratio,
    find_percentile,
    find_smallest_difference,
    summarize,
    summarize_times,
)
from cli.results.summaries import summarize_inserts, summarize_queries
from simulator.contract import Execution, GroupResult, Role, RunResult

from ...helpers import insert_run
from ..made import ask as make_query

SAMPLES = [
    [428_000.0, 431_500.0, 402_000.0],
    [1.0, 2.0],
    [0.012, 0.015, 0.011, 0.4, 0.013, 0.012, 0.014],
]


@pytest.mark.parametrize("values", SAMPLES)
def test_the_interval_is_students(values: list[float]) -> None:
    summary = summarize(values)
    low, high = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert summary.ci95 is not None
    assert summary.ci95 == pytest.approx((max(0.0, low), high))
    assert summary.cv == pytest.approx(stats.variation(values, ddof=1))


@pytest.mark.parametrize("values", SAMPLES)
def test_plain_figures(values: list[float]) -> None:
    summary = summarize(values)
    assert (summary.runs, summary.min, summary.max) == (len(values), min(values), max(values))
    assert summary.avg == pytest.approx(sum(values) / len(values))
    assert summary.median == pytest.approx(np.median(values))


def test_no_rate_is_below_zero() -> None:
    """With two runs the interval is wide; its lower end stops where rates do."""
    summary = summarize([1.0, 2.0])
    assert summary.ci95 is not None
    assert summary.ci95[0] == 0
    assert summary.ci95[1] > 7


def test_the_interval_of_times_is_on_logarithms() -> None:
    for values in SAMPLES:
        summary, plain = summarize_times(values), summarize(values)
        assert (summary.avg, summary.cv) == (plain.avg, plain.cv)
        if len(values) == 2:
            assert summary.ci95 is None
            continue
        assert summary.ci95 is not None
        low, high = summary.ci95
        assert 0 < low < summary.avg < high
        assert low * high == pytest.approx(summary.avg**2)
    # Where times vary little, it is Student's.
    values = [1.0, 1.001, 0.999]
    assert summarize_times(values).ci95 == pytest.approx(summarize(values).ci95, rel=1e-4)
    assert summarize_times([2.0, 2.0, 2.0]).ci95 == (2.0, 2.0)


def test_one_run_says_nothing_of_its_spread() -> None:
    summary = summarize([5.0])
    assert (summary.min, summary.max, summary.avg, summary.median) == (5.0, 5.0, 5.0, 5.0)
    assert (summary.ci95, summary.cv, summary.stable) == (None, None, None)


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
    assert find_percentile(values, percent) == pytest.approx(
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
    difference = 100 * find_smallest_difference(cv / 100, runs)
    # The simulation's figures are rounded up to half a point.
    assert simulated * 0.85 - 0.5 <= difference <= simulated * 1.15
    assert difference == pytest.approx(simulated, rel=0.15, abs=0.5)


def test_the_smallest_difference_has_the_power_that_it_claims() -> None:
    """Welch's and Student's test are the same for groups of one size, but for the freedom."""
    generator = np.random.Generator(np.random.PCG64(3))
    for cv, runs in ((0.02, 3), (0.1, 3), (0.1, 6)):
        difference = find_smallest_difference(cv, runs)
        size = (20_000, runs)
        slower = generator.normal(1, cv, size)
        faster = generator.normal(1 + difference, cv * (1 + difference), size)
        detected = stats.ttest_ind(slower, faster, axis=1).pvalue < 0.05
        assert detected.mean() == pytest.approx(0.8, abs=0.02)


def test_runs_that_vary_too_much_can_show_no_difference() -> None:
    assert find_smallest_difference(0.5, 2) == math.inf


def test_no_variation_shows_any_difference() -> None:
    assert find_smallest_difference(0.0, 3) == 0.0


# --- ratios ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "base"),
    [
        ([110.0, 112.0, 111.5], [100.0, 101.0, 99.0]),
        ([1.0, 2.0], [30.0, 31.0, 45.0, 28.0, 33.0]),
        ([0.012, 0.015, 0.4], [0.011, 0.013]),
    ],
)
def test_the_ratio_is_welchs_on_logarithms(values: list[float], base: list[float]) -> None:
    ratio = estimate_ratio(values, base)
    logs = [np.log(values), np.log(base)]
    shares = [float(np.var(side, ddof=1)) / len(side) for side in logs]
    freedom = sum(shares) ** 2 / sum(
        share**2 / (len(side) - 1) for share, side in zip(shares, logs, strict=True)
    )
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(shares))
    middle = stats.gmean(values) / stats.gmean(base)
    assert ratio.value == pytest.approx(middle)
    assert ratio.interval == pytest.approx((middle * math.exp(-half), middle * math.exp(half)))
    assert ratio.differs is (abs(math.log(middle)) > half)


def test_a_ratio_the_other_way_round_is_its_inverse() -> None:
    first, second = [3.0, 4.0, 3.5], [1.0, 1.5, 1.25, 1.1]
    there, back = estimate_ratio(first, second), estimate_ratio(second, first)
    assert there.interval is not None
    assert back.interval is not None
    assert back.value == pytest.approx(1 / there.value)
    assert back.interval == pytest.approx((1 / there.interval[1], 1 / there.interval[0]))


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    """Tried with runs that vary by 10 % around means of 1 and 1.2."""
    generator = np.random.Generator(np.random.PCG64(5))
    held = 0
    for _ in range(2000):
        low, high = estimate_ratio(
            list(generator.normal(1.2, 0.12, 4)), list(generator.normal(1, 0.1, 6))
        ).interval or (math.inf, 0)
        held += low <= 1.2 <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("values", "base"), [([2.0], [1.0, 1.1]), ([2.0, 2.2], [1.0])])
def test_a_single_run_gives_no_interval(values: list[float], base: list[float]) -> None:
    ratio = estimate_ratio(values, base)
    assert ratio.value == pytest.approx(2.0, rel=0.05)
    assert (ratio.interval, ratio.differs) == (None, None)


def test_runs_that_do_not_vary() -> None:
    assert estimate_ratio([2.0, 2.0], [1.0, 1.0]).interval == pytest.approx((2.0, 2.0))
    assert estimate_ratio([1.0, 1.0], [1.0, 1.0]).differs is False


@pytest.mark.parametrize(("values", "base"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_no_ratio_without_figures(values: list[float], base: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        estimate_ratio(values, base)


@pytest.mark.parametrize("cv", [0.01, 0.037, 0.1, 0.5])
def test_the_runs_needed_are_the_fewest_that_do(cv: float) -> None:
    runs = count_runs_needed(cv, 0.05)
    assert runs is not None
    assert find_smallest_difference(cv, runs) <= 0.05
    assert runs == 2 or find_smallest_difference(cv, runs - 1) > 0.05


def test_runs_needed_has_its_limits() -> None:
    assert count_runs_needed(0.0, 0.05) == 2
    assert find_smallest_difference(3.0, MOST_RUNS) > 0.05
    assert count_runs_needed(3.0, 0.05) is None


def test_the_common_variation() -> None:
    first, second = [90.0, 110.0], [70.0, 100.0, 130.0]
    cvs = [float(stats.variation(side, ddof=1)) for side in (first, second)]
    assert combine_cv(first, second) == pytest.approx(math.sqrt((cvs[0] ** 2 + cvs[1] ** 2) / 2))
    assert combine_cv(first, [5.0]) == pytest.approx(cvs[0])
    assert combine_cv([1.0], [5.0]) is None


def test_events_per_unit_of_money() -> None:
    assert count_events_per_cost(1000.0, 2.0) == 1_800_000


# --- summaries ------------------------------------------------------------------------------------


def test_inserts_are_summarised_by_workers_over_valid_runs() -> None:
    runs = [
        insert_run(workers=4, rate_per_s=100.0),
        insert_run(workers=1, rate_per_s=10.0),
        insert_run(workers=4, rate_per_s=200.0),
        insert_run(workers=4, rate_per_s=9000.0, invalid_reasons=["lost"]),
        insert_run(workers=8, rate_per_s=None, invalid_reasons=["lost"]),
    ]
    four, single = summarize_inserts(runs, by_fill_level=False)
    assert (four.workers, four.fill_level, four.runs) == (4, None, 2)
    assert (four.min, four.max, four.avg, four.median) == (100, 200, 150, 150)
    assert four.stable is False
    assert (single.workers, single.runs, single.ci95) == (1, 1, None)


def test_steps_are_summarised_by_fill_level() -> None:
    runs = [insert_run(fill_level=level, rate_per_s=100.0 + level) for level in (0, 50)]
    assert [(entry.fill_level, entry.avg) for entry in summarize_inserts(runs, True)] == [
        (0, 100),
        (50, 150),
    ]


def ask(worker: int, *durations: float | None) -> list[Execution]:
    """A worker's executions, one after the other."""
    return [
        Execution(run=run, worker=worker, duration_s=duration, rows=7,
                  error="failed" if duration is None else None)
        for run, duration in enumerate(durations, 1)
    ]  # fmt: skip


def sum_up(executions: list[Execution]) -> list[QuerySummary]:
    """The summaries of a run with these executions."""
    group = GroupResult(role=Role.READ, workers=3, queries=[make_query("a", executions)])
    return summarize_queries([RunResult(groups=[group])])


def test_queries_are_summarised_without_each_workers_first() -> None:
    (only,) = sum_up([*ask(0, 50.0, 1.0, 3.0), *ask(1, 30.0, 5.0, 7.0)])
    assert (only.query, only.runs, only.rows, only.cold) == ("a", 4, 7, 40.0)
    assert (only.min, only.max, only.avg, only.median) == (1.0, 7.0, 4.0, 4.0)
    assert only.p95 == pytest.approx(6.7)


def test_the_interval_is_over_the_workers_means() -> None:
    """1,000 executions of two workers are two samples: the interval doesn't shrink with them."""
    runs = [ask(worker, 9.0, *[mean] * 500) for worker, mean in enumerate((1.0, 2.0, 4.0))]
    (only,) = sum_up([execution for executions in runs for execution in executions])
    assert only.ci95 == summarize_times([1.0, 2.0, 4.0]).ci95
    (alone,) = sum_up(ask(0, 9.0, 1.0, 2.0, 4.0))
    assert alone.ci95 == only.ci95


def test_first_executions_count_if_there_are_no_others() -> None:
    (only,) = sum_up([*ask(0, 2.0), *ask(1, 4.0)])
    assert (only.runs, only.avg, only.cold) == (2, 3.0, 3.0)
    assert only.ci95 is None  # of two


def test_what_failed_is_no_execution() -> None:
    (only,) = sum_up(ask(0, None, 2.0, None, 4.0))
    assert (only.runs, only.avg, only.cold) == (2, 3.0, None)
    assert sum_up(ask(0, None, None)) == []
