"""Signals: pure functions of (seed, column, device, time), spread as their definition says."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from simulator.workloads import noise
from simulator.workloads.definition import round_decimals
from simulator.workloads.noise import Points
from simulator.workloads.schema import FIRST_TIMESTAMP_MS
from simulator.workloads.signals import (
    Choice,
    Counter,
    Cycle,
    Hold,
    Normal,
    Numbers,
    Percentiles,
    Wander,
)

MINUTE_MS = 60_000
MANY = 100_000


def points(devices: int, ticks: int, interval_ms: int = MINUTE_MS, seed: int = 3) -> Points:
    """Each device in turn at each tick."""
    numbers = np.tile(np.arange(devices, dtype=np.int64), ticks)
    times = FIRST_TIMESTAMP_MS + np.repeat(np.arange(ticks, dtype=np.int64), devices) * interval_ms
    return Points(times, *noise.device_keys(seed, 0, numbers))


def make(signal: Numbers, where: Points, exact: bool = True) -> NDArray[np.float64]:
    return signal.make(where, 9, exact, FIRST_TIMESTAMP_MS)


def wander(low: float, high: float, period_ms: float, roughness: float, octaves: int) -> Wander:
    values = {"low": low, "high": high, "period": f"{period_ms}ms"}
    return Wander.model_validate(
        {"kind": "wander", **values, "roughness": roughness, "octaves": octaves}
    )


def cycle(shift: float, noise: float) -> Cycle:
    return Cycle.model_validate(
        {"kind": "cycle", "low": 10, "high": 20, "period": "1d", "shift": shift, "noise": noise}
    )


def is_even(words: NDArray[np.uint32]) -> bool:
    counts = np.bincount(words >> np.uint32(26), minlength=64)
    return bool(stats.chisquare(counts).pvalue > 0.001)


def test_words_are_even_and_independent_of_columns_devices_and_times() -> None:
    where = points(100, 1000)
    first, second = (noise.event_words(where, noise.make_salt(name)) for name in ("a", "b"))
    assert is_even(first) and is_even(first ^ second)
    table = first.reshape(1000, 100).astype(np.float64)
    for shifted in (table[1:], table[:, 1:]):
        beside = table[: shifted.shape[0], : shifted.shape[1]]
        assert abs(np.corrcoef(beside.ravel(), shifted.ravel())[0, 1]) < 0.015
    cells = np.repeat(np.arange(1000, dtype=np.uint32), 100)
    assert is_even(noise.cell_words(where, cells, 5))
    assert is_even(noise.device_words(points(MANY, 1), 5))


def test_no_two_devices_of_a_fleet_have_the_same_keys() -> None:
    numbers = np.arange(50_000, dtype=np.int64)
    first, second = noise.device_keys(0, 0, numbers)
    both = first.astype(np.uint64) << np.uint64(32) | second
    assert len(np.unique(both)) == len(numbers)
    for seed, fleet in ((1, 0), (0, 1), (2**64 - 1, 99_999)):
        first, second = noise.device_keys(seed, fleet, numbers)
        assert not np.isin(first.astype(np.uint64) << np.uint64(32) | second, both).any()


def test_uniform_is_even_from_low_to_high() -> None:
    values = noise.uniform(points(100, 1000), 7, -5, 15)
    assert stats.kstest(values, "uniform", (-5, 20)).pvalue > 0.01
    whole = noise.uniform_integers(points(100, 1000), 7, -2, 3)
    assert set(whole.tolist()) == {-2, -1, 0, 1, 2, 3}
    assert stats.chisquare(np.bincount(whole + 2)).pvalue > 0.01


@pytest.mark.parametrize("exact", [False, True])
def test_normal_is_normal(exact: bool) -> None:
    values = make(Normal(kind="normal", mean=20, deviation=3), points(100, 1000), exact)
    assert values.dtype == (np.float64 if exact else np.float32)
    assert stats.kstest(values, "norm", (20, 3)).pvalue > 0.01
    assert np.abs(values - 20).max() < 6 * 3


def find_autocorrelation(lag_ms: float, period_ms: float, roughness: float, octaves: int) -> float:
    """How values of a device's `wander` that are `lag_ms` apart correlate, over all times.

    Linear interpolation of independent values with a random phase has the cubic B-spline as its
    autocorrelation (Unser, "Splines: a perfect fit", IEEE Signal Processing Magazine 16, 1999); the
    octaves are independent, so their variances add up.
    """
    weights = [roughness ** (2 * octave) for octave in range(octaves)]
    spline = [_cubic_spline(lag_ms / period_ms * 2**octave) for octave in range(octaves)]
    shared = sum(weight * value for weight, value in zip(weights, spline, strict=True))
    return shared / (sum(weights) * _cubic_spline(0))


def _cubic_spline(x: float) -> float:
    x = abs(x)
    if x >= 2:
        return 0.0
    return (2 - x) ** 3 / 6 if x >= 1 else 2 / 3 - x * x + x**3 / 2


@pytest.mark.parametrize("roughness", [0, 0.4, 1])
def test_wander_correlates_with_itself_as_defined(roughness: float) -> None:
    """Over many devices, whose phases differ, at lags up to two periods and beyond."""
    period_ms, octaves = 32 * MINUTE_MS, 4
    where = points(20_000, 81)
    values = make(wander(-10, 10, period_ms, roughness, octaves), where)
    series = values.reshape(81, 20_000)
    for lag in (0, 1, 2, 4, 8, 16, 32, 48, 64, 80):
        expected = find_autocorrelation(lag * MINUTE_MS, period_ms, roughness, octaves)
        # All devices and times have the same mean, 0, and the same variance.
        shared = (series[: 81 - lag] * series[lag:]).mean() / (series**2).mean()
        assert shared == pytest.approx(expected, abs=0.02), lag
    assert find_autocorrelation(0, period_ms, roughness, octaves) == pytest.approx(1)


def test_wander_is_the_rougher_the_rougher_it_shall_be() -> None:
    def steps(roughness: float) -> float:
        values = make(wander(0, 100, 32 * MINUTE_MS, roughness, 5), points(50, 500), False)
        series = values.reshape(500, 50)
        assert series.min() >= 0 and series.max() <= 100
        return float(np.abs(np.diff(series, axis=0)).mean() / series.std())

    assert steps(0) < steps(0.3) < steps(0.6) < steps(1)


def test_two_devices_wander_apart() -> None:
    values = make(wander(0, 1, 20 * MINUTE_MS, 0.5, 4), points(50, 2000))
    correlations = np.corrcoef(values.reshape(2000, 50).T) - np.eye(50)
    assert np.abs(correlations).max() < 0.4
    assert abs(correlations.mean()) < 0.01


def test_cycle_repeats_each_period_and_is_shifted_by_device() -> None:
    where = points(3, 48, 30 * MINUTE_MS)
    curve = make(cycle(0, 0), where).reshape(48, 3)
    assert np.allclose(curve[:, 0], curve[:, 1])
    assert (curve.min(), curve.max()) == (pytest.approx(10), pytest.approx(20))
    assert curve[0, 0] == pytest.approx(10)  # midnight
    shifted = make(cycle(0.5, 0), where).reshape(48, 3)
    assert abs(shifted[0, 0] - shifted[0, 1]) > 0.01
    noisy = make(cycle(0, 2), where).reshape(48, 3)
    apart = np.abs(noisy - curve)
    assert 1.5 < apart.max() <= 2.0001


def test_counter_rises_by_its_rate() -> None:
    counter = {"kind": "counter", "start": 5, "every": "1m", "spread": 50}
    series = make(Counter.model_validate(counter), points(20, 100))
    table = series.reshape(100, 20)
    assert np.allclose(np.diff(table, axis=0), 1)
    assert 5 <= table[0].min() < 20 and 40 < table[0].max() < 55


def test_counter_begins_anew_at_each_devices_own_time() -> None:
    counter = {"kind": "counter", "start": 5, "every": "1m", "resets": "20m"}
    table = make(Counter.model_validate(counter), points(50, 100)).reshape(100, 50)
    steps = np.diff(table, axis=0)
    assert np.all(np.isclose(steps, 1) | np.isclose(steps, -19))
    assert table.min() >= 5 and table.max() < 25
    assert set(np.count_nonzero(steps < 0, axis=0).tolist()) <= {4, 5}
    assert len(set(np.argmax(steps < 0, axis=0).tolist())) > 10


@pytest.mark.parametrize("period", [None, "1h"])
def test_percentiles_are_those_of_the_values(period: str | None) -> None:
    values = {"p0": 0.0, "p25": 0.0, "p50": 1.0, "p90": 10.0, "p100": 50.0}
    signal = Percentiles.model_validate({"kind": "percentiles", "values": values, "period": period})
    series = make(signal, points(2000, 50, 10 * MINUTE_MS))
    assert series.min() >= 0 and series.max() <= 50
    assert np.percentile(series, [25, 50]) == pytest.approx([0, 1], abs=0.15)
    assert (series > 10).mean() == pytest.approx(0.1, abs=0.01)
    table = series.reshape(50, 2000)
    shared = np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]
    assert shared > 0.5 if period else abs(shared) < 0.02


def test_choice_goes_by_weights_and_hold_lasts() -> None:
    table = noise.pick_table([1, 0, 3])
    assert len(table) == noise.PICKS
    choice = Choice(kind="choice", values=("a", "b", "c"))
    picked = noise.pick(choice.draw(points(100, 1000), 2), table)
    shares = np.bincount(picked, minlength=3) / len(picked)
    assert shares == pytest.approx([0.25, 0, 0.75], abs=0.01)
    hold = Hold.model_validate({"kind": "hold", "values": ["a", "b", "c"], "lasts": "1h"})
    held = noise.pick(hold.draw(points(200, 600), 2), table).reshape(600, 200)
    # Ten hours, so ten or eleven draws, of which 2 * 0.25 * 0.75 differ from the one before.
    changes = np.count_nonzero(np.diff(held.astype(int), axis=0), axis=0)
    assert changes.max() <= 10 and changes.mean() == pytest.approx(10 * 0.375, rel=0.15)
    assert len(set(np.argmax(np.diff(held.astype(int), axis=0) != 0, axis=0).tolist())) > 20


def test_tags_stay() -> None:
    words = noise.device_words(points(50, 20), 1)
    tags = noise.pick(words, noise.pick_table([1] * 5)).reshape(20, 50)
    assert (tags == tags[0]).all()
    assert len(set(tags[0].tolist())) == 5


@pytest.mark.parametrize("share", [0, 0.02, 1])
def test_a_share_is_absent(share: float) -> None:
    where = points(100, 1000)
    assert noise.absent(where, 3, share).mean() == pytest.approx(share, abs=0.002)


def test_values_are_absent_for_a_time() -> None:
    table = noise.absent(points(500, 600), 3, 0.1, 20 * MINUTE_MS).reshape(600, 500)
    assert table.mean() == pytest.approx(0.1, rel=0.05)
    # Of the absent ones, a twentieth is the last of its time; the next is absent at 10 %.
    assert table[1:][table[:-1]].mean() == pytest.approx(1 - 0.9 / 20, abs=0.01)


def test_rounding_leaves_no_negative_zero() -> None:
    values = round_decimals(np.array([-0.001, 0.126, -7.999], np.float32), 2)
    assert [f"{value:.2f}" for value in values.tolist()] == ["0.00", "0.13", "-8.00"]
