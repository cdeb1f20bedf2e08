"""When requests are due."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest

from simulator.contract import Arrivals, Load, Role
from simulator.worker.schedule import (
    ClosedLoop,
    Schedule,
    lower_priority,
    make_schedule,
    sharpen_sleep,
)

START = 1000.0


def open_loop(worker: int = 0, seed: int = 7, start: float = START, **load: Any) -> Schedule:
    """The schedule of one worker of an open loop, begun."""
    values: dict[str, Any] = {"rate_per_s": 1000.0, "batch": 10, "duration_s": 10.0}
    schedule = make_schedule(Load.model_validate(values | load), worker, seed)
    schedule.begin(start)
    return schedule


def told(schedule: Schedule, count: int | None = None) -> list[float]:
    """The due times that `next_due` returns: `count` of them, or all before the end."""
    if count is not None:
        return [schedule.next_due(START) for _ in range(count)]
    return list(takewhile(lambda due: due < schedule.ends, iter(lambda: schedule.next_due(0), -1)))


def left(schedule: Schedule) -> list[float]:
    """The due times that remain, by the schedule."""
    return [due for some in schedule.remaining() for due in some.tolist()]


def gaps_of(due: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The gaps from the start to the first due time, and from each to the next."""
    return np.diff(np.array([START, *due]))


# --- even -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "batch", "rate"), [(1, 0, 50.0), (4, 100, 4000.0), (3, 7, 1e5)]
)
def test_even_requests_interleave(workers: int, batch: int, rate: float) -> None:
    """Request k of worker w is due at start + (k + w/W) · batch · W/rate."""
    load: dict[str, Any] = {
        "workers": workers,
        "batch": batch,
        "rate_per_s": rate,
        "arrivals": Arrivals.EVEN,
    }
    for worker in range(workers):
        due = told(open_loop(worker, duration_s=None, **load), 5)
        gap = max(1, batch) * workers / rate
        expected = [START + (k + worker / workers) * gap for k in range(5)]
        assert due == pytest.approx(expected, abs=1e-9)


def test_all_workers_even_requests_are_one_even_series() -> None:
    load: dict[str, Any] = {
        "workers": 5,
        "batch": 10,
        "rate_per_s": 500.0,
        "arrivals": Arrivals.EVEN,
    }
    due = sorted(time for worker in range(5) for time in told(open_loop(worker, **load)))
    assert len(due) * 10 == 500 * 10
    assert np.diff(due) == pytest.approx(10 / 500.0)


def test_what_is_due_in_any_stretch_is_the_rate_of_it() -> None:
    """For even arrivals exactly, for Poisson as closely as chance allows: nothing drifts."""
    for arrivals, deviations in ((Arrivals.EVEN, 0.0), (Arrivals.POISSON, 5.0)):
        load: dict[str, Any] = {
            "workers": 3,
            "batch": 10,
            "rate_per_s": 30_000.0,
            "arrivals": arrivals,
        }
        due = np.sort([time for worker in range(3) for time in told(open_loop(worker, **load))])
        counts, _ = np.histogram(due, bins=10, range=(START, START + 10))
        assert counts.sum() == pytest.approx(30_000, abs=deviations * sqrt(30_000))
        assert np.abs(counts - 3000).max() <= max(1, deviations * sqrt(3000))


# --- Poisson --------------------------------------------------------------------------------------


def test_poisson_gaps_are_exponential() -> None:
    """Kolmogorov and Smirnov: no further from the distribution than 1.63 ÷ √n, which chance exceeds in
    one of a hundred seeds (Stephens, JASA 69, 1974)."""
    due = told(open_loop(duration_s=None), 20_000)
    gaps = np.sort(gaps_of(due))
    expected = 1 - np.exp(-gaps / 0.01)
    n = len(gaps)
    steps = np.arange(n + 1) / n
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance < 1.63 / sqrt(n)


def test_poisson_gaps_are_independent_of_those_before() -> None:
    """Also across what is drawn at once."""
    gaps = gaps_of(told(open_loop(duration_s=None), 20_000))
    for lag in (1, 2, 4096):
        correlation = np.corrcoef(gaps[:-lag], gaps[lag:])[0, 1]
        assert abs(correlation) < 4 / sqrt(len(gaps))


def test_poisson_follows_from_the_seed() -> None:
    first, again, other = (told(open_loop(seed=seed), 5000) for seed in (7, 7, 8))
    assert first == again
    assert not set(first) & set(other)


def test_poisson_workers_are_independent() -> None:
    load: dict[str, Any] = {"workers": 2, "duration_s": None}
    first, second = (gaps_of(told(open_loop(worker, **load), 10_000)) for worker in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / sqrt(10_000)
    reader = told(open_loop(role=Role.READ, rate_per_s=100.0), 100)
    writer = told(open_loop(rate_per_s=1000.0, batch=10), 100)
    assert reader != writer, "readers ask when writers send"


def test_the_start_only_shifts() -> None:
    first, later = (told(open_loop(start=start), 5000) for start in (START, START + 5))
    assert np.array(later) - np.array(first) == pytest.approx(5)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
@pytest.mark.parametrize("asked", [0, 1, 4095, 4096, 4097, 20_000])
def test_each_due_time_is_told_once(arrivals: Arrivals, asked: int) -> None:
    """By `next_due`, or of what it has not told yet by `remaining`, whenever that begins."""
    load: dict[str, Any] = {"rate_per_s": 3_000.0, "batch": 0, "arrivals": arrivals}
    whole = told(open_loop(**load))
    assert len(whole) > 29_000
    schedule = open_loop(**load)
    first = told(schedule, asked)
    assert [*first, *left(schedule)] == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_what_remains_ends(arrivals: Arrivals) -> None:
    """Many at a time: millions may be left."""
    schedule = open_loop(rate_per_s=1e6, batch=0, arrivals=arrivals, duration_s=2.0)
    parts = list(schedule.remaining())
    gaps = np.diff(np.concatenate(parts))
    assert len(gaps) == pytest.approx(2_000_000, rel=0.005)
    assert len(parts) < 20
    assert gaps.min() >= 0
    # From one part to the next there is no more than elsewhere.
    assert gaps.max() < (1.5e-6 if arrivals is Arrivals.EVEN else 25e-6)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_nothing_remains_of_a_schedule_that_is_over(arrivals: Arrivals) -> None:
    schedule = open_loop(arrivals=arrivals)
    told(schedule)
    assert left(schedule) == []
    slow = open_loop(rate_per_s=0.001, batch=0, arrivals=arrivals, workers=2, worker=1)
    assert told(slow) == []
    assert left(slow) == []


def test_window_and_end_count_from_the_start() -> None:
    schedule = open_loop(duration_s=30.0, warm_up_s=10.0)
    assert (schedule.begins, schedule.measured_from, schedule.ends) == (START, 1010.0, 1030.0)
    endless = open_loop(duration_s=None)
    assert (endless.measured_from, endless.ends) == (START, inf)


def test_without_a_rate_a_request_is_due_when_there_is_a_place_for_it() -> None:
    schedule = make_schedule(Load(duration_s=5.0, warm_up_s=1.0), 0, 0)
    schedule.begin(START)
    assert isinstance(schedule, ClosedLoop)
    assert not schedule.is_open
    assert schedule.next_due(1003.2) == 1003.2
    assert (schedule.measured_from, schedule.ends) == (1001.0, 1005.0)
    assert left(schedule) == []


def slice_ns() -> int:
    """This thread's slice, as the kernel tells it: 0 before Linux 6.12."""
    attributes = ctypes.create_string_buffer(48)
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) == 0
    runtime_ns: int = struct.unpack("=IIQiIQQQ", attributes.raw)[5]
    return runtime_ns


@pytest.mark.skipif(
    platform.system() != "Linux"
    or tuple(map(int, platform.release().split(".")[:2])) < (6, 12)
    or os.sched_getscheduler(0) != os.SCHED_OTHER,
    reason="Linux has slices of a thread's own from 6.12 on, in its usual policy",
)
def test_who_sleeps_sharply_may_interrupt_who_computes_patiently() -> None:
    def sleeping() -> tuple[int, int]:
        sharpen_sleep()
        with ThreadPoolExecutor(1, initializer=lower_priority) as computing:
            return slice_ns(), computing.submit(slice_ns).result()

    with ThreadPoolExecutor(1) as thread:
        own, other = thread.submit(sleeping).result()
    assert own < other


def test_recorded_arrivals_are_due_as_the_recording_says() -> None:
    def find_due_s(request: int, count: int) -> Any:
        return np.arange(request, request + count) ** 2 / 10

    load = Load(rate_per_s=10, arrivals=Arrivals.RECORDED, duration_s=5)
    schedule = make_schedule(load, 0, 0, find_due_s)
    schedule.begin(100.0)
    assert [schedule.next_due(0.0) for _ in range(4)] == pytest.approx([100, 100.1, 100.4, 100.9])
    assert schedule.count_due(100.5) == 3
    left = np.concatenate(list(schedule.remaining()))
    assert left.tolist() == pytest.approx([100 + number**2 / 10 for number in (4, 5, 6, 7)])
