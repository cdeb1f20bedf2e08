"""The search finds the capacity of databases whose capacity is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from cli.run.experiments.search import (
    HIGHEST_SHARE,
    Goal,
    Interval,
    RateTrial,
    choose_next,
    find_contradicting,
    find_interval,
    find_lowest,
    judge,
)

Database = Callable[[float, int], bool]
"""(rate, number of the step) -> whether it holds."""


def search(database: Database, goal: Goal) -> tuple[list[RateTrial], Interval]:
    """Until there is no next step."""
    tried: list[RateTrial] = []
    while (rate := choose_next(goal, tried)) is not None:
        tried.append(RateTrial(rate, database(rate, len(tried))))
        assert len(tried) <= goal.max_steps
    return tried, find_interval(goal, tried)


def holds_up_to(capacity: float) -> Database:
    return lambda rate, _: rate <= capacity


def vary(capacity: float, spread: float, seed: int) -> Database:
    """What holds differs from run to run, by a log-normal factor."""
    chance = random.Random(seed)
    return lambda rate, _: rate <= capacity * math.exp(chance.gauss(0, spread))


GOAL = Goal(closed_loop_per_s=100_000, lowest_per_s=100)


@pytest.mark.parametrize("capacity", [150, 3_000, 20_000, 52_345, 69_999, 71_000, 99_000, 140_000])
@pytest.mark.parametrize("precision", [0.01, 0.05, 0.5])
def test_a_steady_database_is_found_in_few_steps(capacity: float, precision: float) -> None:
    goal = Goal(100_000, 100, precision)
    tried, interval = search(holds_up_to(capacity), goal)
    assert interval.sure
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= capacity < interval.high <= interval.low * (1 + precision)
    # Each end three times, in turns.
    assert [trial.rate_per_s for trial in tried].count(interval.low) == 3
    assert {trial.rate_per_s for trial in tried[-2:]} == {interval.low, interval.high}
    assert len(tried) <= (16 if precision > 0.01 else 18)
    assert find_contradicting(tried, interval) == []


def test_a_limit_that_even_the_lowest_rate_misses() -> None:
    tried, interval = search(lambda *_: False, GOAL)
    assert interval == Interval(None, 100, sure=True)
    assert [trial.rate_per_s for trial in tried] == [70_000, 35_000, 8_750, 547, 100, 100, 100]


def test_one_that_all_rates_hold() -> None:
    tried, interval = search(lambda *_: True, GOAL)
    highest = HIGHEST_SHARE * GOAL.closed_loop_per_s
    assert interval == Interval(highest, None, sure=True)
    assert [trial.rate_per_s for trial in tried[:3]] == [70_000, 100_000, 130_000]
    assert len(tried) <= 9


@pytest.mark.parametrize("later", [40_000, 90_000])
@pytest.mark.parametrize("seed", range(10))
def test_a_database_whose_speed_drifts_is_found_as_it_is_at_last(later: float, seed: int) -> None:
    """From 60,000 on, over ten steps; what held before doesn't count for ever, and is told."""
    chance = random.Random(seed)
    capacity = [
        (60_000 + (later - 60_000) * min(1.0, step / 10)) * chance.uniform(0.99, 1.01)
        for step in range(100)
    ]
    goal = Goal(100_000, 100, max_steps=60)
    tried, interval = search(lambda rate, step: rate <= capacity[step], goal)
    assert interval.sure
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low * 0.98 <= capacity[len(tried) - 1] <= interval.high * 1.02
    against = [tried[place] for place in find_contradicting(tried, interval)]
    assert any(trial.holds is (later < 60_000) for trial in against)


def test_noise_near_the_limit_is_repeated_until_the_verdicts_are_sure() -> None:
    """Runs differ by 5 %, as much as the precision: the answer is near, or says that it isn't sure."""
    goal = Goal(100_000, 100, max_steps=40)
    sure, near = 0, 0
    for seed in range(200):
        tried, interval = search(vary(50_000, 0.05, seed), goal)
        assert interval.low is not None
        assert interval.high is not None
        if not interval.sure:
            assert len(tried) == goal.max_steps
            assert interval.because == "40 steps were not enough to be sure"
            assert interval.low < 55_000
            assert interval.high > 45_000
            continue
        sure += 1
        near += interval.low < 50_000 * 1.1 and interval.high > 50_000 / 1.1
    assert sure >= 150
    # Two deviations of a single run are 10 %.
    assert near >= 0.98 * sure


def test_too_few_steps_are_said_to_be_too_few() -> None:
    goal = Goal(100_000, 100, max_steps=4)
    tried, interval = search(holds_up_to(52_345), goal)
    assert len(tried) == 4
    assert interval.because == "4 steps were not enough to be sure"
    assert (interval.low, interval.sure) == (49_500, False)
    assert interval.high == 58_900
    assert find_interval(goal, tried[:1]).because == "1 step was not enough to be sure"
    assert find_interval(goal, []) == Interval(None, None, False, "no rate was tried")


def test_while_verdicts_differ_the_interval_leaves_their_rate_out() -> None:
    verdicts = [(50_000, True), (60_000, False), (55_000, True), (57_000, True), (57_000, False)]
    tried = [RateTrial(*verdict) for verdict in verdicts]
    interval = find_interval(GOAL, tried)
    assert (interval.low, interval.high, interval.sure) == (55_000, 60_000, False)
    assert choose_next(GOAL, tried) == 57_000


@pytest.mark.parametrize(
    ("holds", "misses", "verdict"),
    [
        (0, 0, None),
        (2, 0, None),
        (3, 0, True),
        (3, 1, None),
        (4, 1, True),
        (0, 3, False),
        (1, 4, False),
    ],
)
def test_a_verdict_is_sure_when_one_side_leads_by_three(
    holds: int, misses: int, verdict: bool | None
) -> None:
    assert judge(holds, misses) is verdict


@pytest.mark.parametrize("share", [0.8, 0.2])
def test_the_test_is_wrong_as_rarely_as_it_says(share: float) -> None:
    chance = random.Random(1)
    wrong = 0
    for _ in range(2000):
        holds = misses = 0
        while (verdict := judge(holds, misses)) is None:
            held = chance.random() < share
            holds, misses = holds + held, misses + (not held)
        wrong += verdict is not (share > 0.5)
    assert wrong / 2000 < 0.05


def test_the_lowest_rate_has_enough_requests_for_a_p99_if_the_database_can() -> None:
    assert find_lowest(100_000, 1, 25.0, 100) == pytest.approx(100_000 / 1024)
    assert find_lowest(100_000, 100, 25.0, 100) == 520
    assert find_lowest(1_000, 100, 25.0, 100) == 520
