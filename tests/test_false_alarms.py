"""The parts of benchmarks/false_alarms: the simulated machine is as the measured one, and its verdicts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.false_alarms import (
    GOAL,
    JUDGED_RUNS,
    LAGS,
    ORDERS,
    Machine,
    Series,
    autocorrelate,
    count_false_alarms,
    find_share_interval,
    load_series,
    solve_yule_walker,
)

SERIES = load_series()


def draw(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name)
def test_simulated_rates_vary_and_hang_together_as_measured(series: Series) -> None:
    """The straight line taken out of both."""
    logs = np.log(np.asarray(series.inserts_per_s))
    runs = np.arange(len(logs))
    rest = logs - np.polyval(np.polyfit(runs, logs, 1), runs)
    machine = Machine(series.inserts_per_s)
    [simulated] = np.log(machine.simulate(1, 20_000, draw())) - machine.drift * np.arange(20_000)
    assert autocorrelate(simulated, LAGS) == pytest.approx(autocorrelate(rest, LAGS), abs=0.05)
    assert simulated.std() == pytest.approx(rest.std(), rel=0.1)


def test_drift_goes_on_through_a_simulated_series() -> None:
    noise = draw(3).normal(0, 0.001, 60)
    machine = Machine(np.exp(0.02 * np.arange(60) + noise).tolist())
    [simulated] = np.log(machine.simulate(1, 50, draw()))
    assert machine.drift == pytest.approx(0.02, abs=0.0001)
    assert simulated[-1] - simulated[0] == pytest.approx(49 * 0.02, abs=0.01)


def test_a_process_of_one_coefficient_is_found_from_its_autocorrelations() -> None:
    assert solve_yule_walker([0.6, 0.36, 0.216]) == pytest.approx([0.6, 0, 0], abs=1e-12)


def test_orders_give_each_as_many_runs() -> None:
    for order, deal in ORDERS.items():
        assert sorted(deal(6, random.Random(2))) == [0] * 6 + [1] * 6, order
    assert ORDERS["turns"](3, random.Random(2)) in ([0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 0])
    assert ORDERS["blocks"](3, random.Random(2)) in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    turns = np.reshape(ORDERS["chance"](20, random.Random(2)), (20, 2))
    assert set(turns.sum(axis=1)) == {1}
    assert 0 < turns[:, 0].sum() < 20


def test_of_independent_runs_the_order_does_not_matter() -> None:
    """The verdict's own 5 % are left, so the alarms of blocks come from neighbours that vary alike."""
    machine = Machine(np.exp(draw(5).normal(0, 0.1, 2_000)).tolist())
    for order in ORDERS:
        assert count_false_alarms(machine, order, 6, 400) / 400 == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name)
def test_interleaved_runs_keep_to_the_goal_where_blocks_do_not(series: Series) -> None:
    machine = Machine(series.inserts_per_s)
    shares = {order: count_false_alarms(machine, order, JUDGED_RUNS, 200) / 200 for order in ORDERS}
    assert max(shares["turns"], shares["chance"]) <= GOAL
    assert shares["blocks"] > 2 * GOAL


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert find_share_interval(10, 100) == pytest.approx((0.0552, 0.1744), abs=0.0001)
    assert find_share_interval(0, 100)[0] == 0
