"""Comparisons: which figures, which ratio, what fails."""

from __future__ import annotations

import pytest

from cli.results.caveats import Place
from cli.results.comparison import (
    MetricComparison,
    check_comparable,
    compare,
    find_failures,
    find_missing,
)
from cli.results.conditions import WARNED, compare_conditions
from cli.results.matrix import collect_samples
from cli.results.model import Result
from cli.results.statistics import combine_cv, count_runs_needed, estimate_ratio
from cli.system.errors import ConfigError
from simulator.conditions import Condition
from simulator.contract import Execution

from ..made import ask, inserts, open_loop, queries, steps, stored

SLOW = [100.0, 101.0, 99.0]
FAST = [110.0, 112.0, 111.0]


def one(results: list[Result]) -> MetricComparison:
    (only,) = compare(results)
    return only


def test_inserts_are_compared_by_worker_count() -> None:
    base, other = inserts({1: SLOW, 4: [300.0, 310.0]}), inserts({4: [200.0, 190.0], 1: FAST})
    first, second = compare([base, other])
    assert (first.place, second.place) == (Place(workers=1), Place(workers=4))
    assert first.speed == estimate_ratio(FAST, SLOW)
    assert first.verdict == "faster"
    assert (first.base_figure, first.figure) == (100.0, 111.0)
    assert first.runs_for_five_percent == count_runs_needed(combine_cv(SLOW, FAST) or 0, 0.05)
    assert second.verdict == "slower"


def test_only_valid_runs_count() -> None:
    base, other = inserts({1: SLOW}), inserts({1: [*FAST, 5.0]})
    other.writers[-1].group.invalid_reasons = ["lost"]
    assert collect_samples(other) == {Place(workers=1): FAST}
    assert one([base, other]).speed == estimate_ratio(FAST, SLOW)


def test_a_shorter_query_time_is_a_higher_speed() -> None:
    base, other = queries({"count": [2.0, 2.1, 1.9]}), queries({"count": [1.0, 1.05, 0.95]})
    comparison = one([base, other])
    assert comparison.speed.value == pytest.approx(2.0)
    assert comparison.verdict == "faster"
    assert [comparison.base_figure, comparison.figure] == pytest.approx([2.0, 1.0])


def test_the_executions_of_one_worker_are_one_sample() -> None:
    """Workers that ask together disturb each other: their executions, taken singly, would make the
    interval too small. The first of each is not among them."""
    each = [
        Execution(run=run, worker=worker, duration_s=run + worker / 10, rows=1)
        for run in (1, 2, 3)
        for worker in range(10)
    ]
    (samples,) = collect_samples(queries({}, queries=[ask("q", each)])).values()
    assert samples == pytest.approx([2.5 + worker / 10 for worker in range(10)])


def test_of_a_single_worker_each_execution_is_a_sample() -> None:
    samples = collect_samples(queries({"q": [1.0, 2.0, 3.0]}, cold=9.0))
    assert samples == {Place(query="q"): [1.0, 2.0, 3.0]}


def test_a_difference_that_is_not_shown() -> None:
    comparison = one([inserts({1: [100.0, 130.0]}), inserts({1: [110.0, 140.0]})])
    assert comparison.verdict == "undecided"
    narrow = one([inserts({1: [100.0, 101.0]}), inserts({1: [100.5, 101.5]})])
    assert narrow.verdict == "no difference shown"
    assert comparison.runs_for_five_percent is not None
    assert comparison.runs_for_five_percent > 50


def test_single_runs_can_not_tell() -> None:
    comparison = one([inserts({1: [100.0]}), inserts({1: [200.0]})])
    assert comparison.verdict == "unknown: needs 2 runs"
    assert comparison.speed.interval is None
    assert comparison.runs_for_five_percent is None


def test_fill_levels_are_compared_by_level() -> None:
    comparisons = compare([steps({0: 100.0, 50: 90.0}), steps({0: 50.0, 50: 30.0, 100: 20.0})])
    assert [(comparison.place, round(comparison.speed.value, 3)) for comparison in comparisons] == [
        (Place(level=0), 0.5),
        (Place(level=50), 0.333),
    ]


def test_what_one_has_and_another_lacks() -> None:
    assert find_missing([inserts({1: SLOW, 2: SLOW}), inserts({2: SLOW, 4: SLOW})]) == [
        (Place(workers=1), 1),
        (Place(workers=4), 0),
    ]


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([inserts({1: SLOW})], "two results or more"),
        ([inserts({1: SLOW}), queries({"q": [1.0]})], "inserts and queries can't be compared"),
        ([inserts({1: SLOW}), steps({0: 1.0})], "inserts and fill levels can't be compared"),
    ],
)
def test_what_can_not_be_compare(results: list[Result], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_comparable([stored(result) for result in results])


# --- open loops -----------------------------------------------------------------------------------


def test_response_times_are_compared_with_response_times() -> None:
    """The less, the faster."""
    base, other = open_loop({4: [1000.0, 1001.0]}), open_loop({4: [1000.0, 1001.0]})
    for number, group_run in enumerate(other.writers):
        assert group_run.group.latency_ms is not None
        changes = {"p50": 3.0, "p99": 2.0 + 0.5 * number}
        group_run.group.latency_ms = group_run.group.latency_ms.model_copy(update=changes)
    comparisons = {str(comparison.place): comparison for comparison in compare([base, other])}
    assert list(comparisons) == ["4 workers", "4 workers, response p50", "4 workers, response p99"]
    assert comparisons["4 workers"].verdict == "rate was given"
    assert (
        comparisons["4 workers, response p50"].base_figure,
        comparisons["4 workers, response p50"].figure,
    ) == (1.5, 3.0)
    assert comparisons["4 workers, response p50"].speed.value == pytest.approx(0.5)
    assert comparisons["4 workers, response p50"].verdict == "slower"
    assert comparisons["4 workers, response p99"].speed.value == pytest.approx(2.0)
    assert find_failures(["a", "b"], [base, other], 0.95) == ["b at 4 workers, response p50: 0.500"]


def test_latencies_of_a_closed_loop_are_no_response_times() -> None:
    """And it misses none."""
    results = [inserts({4: SLOW}), open_loop({4: SLOW})]
    assert [str(comparison.place) for comparison in compare(results)] == ["4 workers"]
    assert find_missing(results) == []
    elsewhere = [open_loop({4: SLOW}), open_loop({1: SLOW})]
    assert len(find_missing(elsewhere)) == 6


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (inserts({4: SLOW}), {"rate_per_s", "arrivals"}),
        (open_loop({4: SLOW}, rate_per_s=2000.0), {"rate_per_s"}),
        (open_loop({4: SLOW}, options={"arrivals": "even"}), {"arrivals"}),
    ],
    ids=["closed", "another rate", "other arrivals"],
)
def test_how_requests_were_offered_is_a_condition(other: Result, named: set[str]) -> None:
    conditions = compare_conditions([open_loop({4: SLOW}), other])
    of_load = {
        difference.name
        for difference in conditions.differences
        if difference.condition is Condition.LOAD
    }
    assert of_load == named
    assert Condition.LOAD in WARNED


# --- against a limit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "limit", "fails"),
    [
        ({1: FAST}, 0.95, False),
        ({1: [90.0, 91.0, 89.0]}, 0.95, True),
        ({1: [90.0, 91.0, 89.0]}, 0.85, False),
        # Below by chance, as the interval says.
        ({1: [60.0, 90.0, 120.0]}, 0.95, False),
        # Single runs have no interval that could excuse them.
        ({1: [50.0]}, 0.95, True),
        # What is not there is not as fast.
        ({2: FAST}, 0.95, True),
        # One worker count of several is enough.
        ({1: FAST, 4: [50.0, 51.0, 52.0]}, 0.95, True),
    ],
)
def test_fail_below(other: dict[int, list[float]], limit: float, fails: bool) -> None:
    base = inserts({1: SLOW, 4: SLOW})
    failed = find_failures(["a", "b"], [base, inserts(other)], limit)
    assert bool(failed) is fails, failed


def test_fail_below_names_what_is_slow() -> None:
    assert find_failures(
        ["a", "b"], [inserts({4: SLOW}), inserts({4: [50.0, 50.5, 49.5]})], 0.95
    ) == ["b at 4 workers: 0.500"]
