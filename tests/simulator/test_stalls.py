"""Times in which the load generator stands still: how they are seen, and what they say about a run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from simulator.contract import (
    GroupResult,
    Load,
    RateStage,
    Role,
    Stall,
    WorkerFigures,
    describe_stalls,
)
from simulator.machine import Look, find_stall

from ..helpers import worker_figures
from .collecting import Run, play
from .test_merge import merged

# --- seen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_s", "real_s", "begins_s", "length_s", "asleep_s"),
    [
        (10.05, 100.05, None, 0.0, 0.0),
        (10.29, 100.29, None, 0.0, 0.0),  # 0.24 s, give or take 0.05
        (10.31, 100.31, 10.05, 0.26, 0.0),  # stopped: both clocks go on
        (14.05, 104.05, 10.05, 4.0, 0.0),
        (10.05, 104.05, 10.05, 4.0, 4.0),  # asleep: one does
        (10.02, 104.02, 10.02, 4.0, 4.0),  # asleep, and then it was ended early
        (12.05, 104.05, 10.05, 4.0, 2.0),  # stopped, and asleep meanwhile
        (10.21, 100.36, 10.05, 0.31, 0.15),  # neither alone would be enough
    ],
)  # fmt: skip
def test_a_gap_between_two_looks(
    at_s: float, real_s: float, begins_s: float | None, length_s: float, asleep_s: float
) -> None:
    stall = find_stall(3, Look(10.0, 100.0, 1.0), Look(at_s, real_s, 1.5))
    if begins_s is None:
        assert stall is None
        return
    assert stall is not None
    assert (stall.worker, stall.cpu_s) == (3, 0.5)
    seen = (stall.begins_s, stall.length_s, stall.asleep_s)
    assert seen == pytest.approx((begins_s, length_s, asleep_s))


_WATCHED = """
import sys, time
from simulator.machine import StallWatch
watch = StallWatch(7)
began = time.perf_counter()
print("begun", flush=True)
sys.stdin.readline()
{0}
[stall] = watch.end(time.perf_counter() - began)
print(stall.model_dump_json())
"""


def see(work: str, stopped_s: float = 0.0) -> Stall:
    """The only stall of a process that does this, and is stopped for so long before."""
    with subprocess.Popen(
        [sys.executable, "-c", _WATCHED.format(work)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "begun\n"
        if stopped_s:
            process.send_signal(signal.SIGSTOP)
            time.sleep(stopped_s)
            process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("go on\n", timeout=60)
    return Stall.model_validate_json(out)


def test_a_process_that_is_stopped_notices_it() -> None:
    stall = see("", stopped_s=0.6)
    assert stall.worker == 7
    assert stall.length_s == pytest.approx(0.6, abs=0.2)
    assert stall.cpu_s < 0.1
    assert stall.begins_s < 0.5
    assert stall.asleep_s == 0


def test_a_process_that_computes_and_lets_nobody_else_notices_it() -> None:
    """Nothing is sent then, either: the interpreter's lock is held."""
    stall = see("sum(range(60_000_000))")
    assert stall.cpu_s > 0.1


# --- judged ----------------------------------------------------------------------------------------


def stood(
    worker: int | None = 0, begins_s: float = 2.0, length_s: float = 1.0, **more: float
) -> Stall:
    """A time in which a process stood still."""
    return Stall(worker=worker, begins_s=begins_s, length_s=length_s, **more)


def judge(*stalls: Stall, workers: int = 3, rate_per_s: float | None = None) -> GroupResult:
    """A run whose window is from 2 s to 12 s."""
    parts = [
        {"start_s": 2.0, "end_s": 12.0, "stalls": [stall for stall in stalls if stall.worker == worker]}
        for worker in range(workers)
    ]  # fmt: skip
    load = Load(workers=workers, events=100, rate_per_s=rate_per_s, duration_s=12.0)
    own = [stall for stall in stalls if stall.worker is None]
    return merged(*parts, stalls=own, load=load)


@pytest.mark.parametrize(
    ("stalls", "reason"),
    [
        ([stood(1, 3.0, 4.0)], "4.0 s of 10 s (worker 1: stopped, or left without CPU)"),
        ([stood(None, 3.0, 4.0)], "4.0 s of 10 s (the collector: stopped, or left without CPU)"),
        (
            [stood(0, 3.0, 4.0), stood(1, 3.0, 4.1), stood(2, 3.0, 4.0)],
            "4.1 s of 10 s (worker 1 and 2 more: stopped, or left without CPU)",
        ),
        (
            [stood(2, 3.0, 0.3125), stood(2, 5.0, 0.3125, cpu_s=0.3125)],
            "0.6 s of 10 s (worker 2: busy with its own computing)",
        ),
        # The clock of the run stood still, too.
        ([stood(0, 3.0, 40.0, asleep_s=40.0)], "40.0 s of 50 s (worker 0: the machine slept)"),
    ],
)
def test_a_closed_loop_that_stood_still_is_invalid(stalls: list[Stall], reason: str) -> None:
    """However many workers did: one is enough."""
    run = judge(*stalls)
    assert run.invalid_reasons == [f"the load generator stalled for {reason}"]
    assert run.stalls == sorted(stalls, key=lambda stall: stall.begins_s)


@pytest.mark.parametrize(("waited_s", "valid"), [(3.9, True), (3.7, False)])
def test_a_busy_machine_makes_no_run_invalid(waited_s: float, valid: bool) -> None:
    """A local database has its share of the CPUs; who else had them is told beside it."""
    run = judge(stood(1, 3.0, 4.0, waited_s=waited_s))
    assert run.valid is valid
    assert describe_stalls(run.stalls, 10.0).endswith("4.0 s of 10 s (worker 1: left without CPU)")


def test_a_thread_that_waits_for_a_cpu_is_told_from_one_that_is_stopped() -> None:
    before = Look(10.0, 100.0, 1.0, waited_s=5.0)
    stall = find_stall(3, before, Look(14.05, 104.05, 1.0, waited_s=8.5))
    assert stall is not None
    assert (stall.waited_s, stall.stood_s) == pytest.approx((3.5, 0.5))
    cut = stall.cut(0.0, 12.0, 20.0)
    assert cut is not None
    assert (cut.length_s, cut.waited_s) == pytest.approx((2.05, 2.05))


def test_readers_that_stood_still_are_judged_alike() -> None:
    part = worker_figures(stalls=[stood(0)])
    load = Load(role=Role.READ, duration_s=10.0)
    run = merged(part.model_dump(), load=load, verification=None)
    assert run.invalid_reasons == [
        "the load generator stalled for 1.0 s of 10 s (worker 0: stopped, or left without CPU)"
    ]


def test_an_open_loop_that_stood_still_shows_the_client() -> None:
    run = judge(stood(1, 3.0, 4.0), rate_per_s=25.0)
    assert run.valid
    assert run.client is not None
    assert run.client.bound
    assert run.client.bound_reason == (
        "the load generator stalled for 4.0 s of 10 s (worker 1: stopped, or left without CPU)"
    )
    staged = Load(
        events=100, rate_per_s=25.0, duration_s=12.0, stages=[RateStage(rate_per_s=25.0, duration_s=12.0)]
    )  # fmt: skip
    assert merged({"stalls": [stood()]}, load=staged).valid


def test_a_collector_that_waits_for_its_turn_on_a_busy_machine_is_only_told() -> None:
    """It sends nothing itself."""
    run = judge(stood(None, 3.0, 0.75), stood(None, 5.0, 0.75))
    assert run.valid
    assert len(run.stalls) == 2


@pytest.mark.parametrize("rate_per_s", [None, 25.0])
def test_up_to_two_percent_are_only_told(rate_per_s: float | None) -> None:
    run = merged(
        {"end_s": 20.0, "stalls": [stood(0, 3.0, 0.375)]},
        {"end_s": 20.0, "stalls": [stood(1, 5.0, 0.375)]},  # another process: they don't add up
        load=Load(workers=2, events=100, rate_per_s=rate_per_s, duration_s=20.0),
    )
    assert run.stalls == [stood(0, 3.0, 0.375), stood(1, 5.0, 0.375)]
    assert run.valid
    assert run.client is not None
    assert not run.client.bound
    more = merged(
        {"end_s": 20.0, "stalls": [stood(0, 3.0, 0.375), stood(0, 5.0, 0.375)]},
        load=Load(events=100, rate_per_s=rate_per_s, duration_s=20.0),
    )
    assert more.client is not None
    assert more.valid is (rate_per_s is not None)
    assert more.client.bound is (rate_per_s is not None)


def test_only_the_part_within_the_window_counts() -> None:
    in_warm_up, after_the_end = stood(0, 0.5, 1.5), stood(1, 12.0, 5.0)
    barely = [stood(0, 1.0, 1.2), stood(1, 11.8, 3.0), stood(2, 1.0, 40.0, asleep_s=40.0)]
    assert judge(in_warm_up, after_the_end, *barely).stalls == []
    run = judge(stood(0, 1.0, 1.5), stood(1, 11.5, 3.0), stood(2, 11.9, 40.5, asleep_s=40.0))
    assert [(stall.worker, stall.begins_s) for stall in run.stalls] == [
        (0, 2.0),
        (1, 11.5),
        (2, 11.9),
    ]
    assert [stall.length_s for stall in run.stalls] == pytest.approx([0.5, 0.5, 40.1])


def test_times_are_by_the_collectors_clock() -> None:
    """A worker that may have started so late stood still that much later."""
    part = {"start_s": 2.0, "end_s": 12.0, "stalls": [stood(0, 2.0, 0.5)]}
    run = merged(part, clock_offsets_s={0: 0.75})
    assert [stall.begins_s for stall in run.stalls] == [2.75]


def test_the_group_window_counts_and_not_the_workers_own() -> None:
    """A worker that stood still before its first request had its share of the load not sent."""
    late = {"start_s": 3.0, "end_s": 10.0, "stalls": [stood(1, 1.0, 2.0)]}
    run = merged({}, late)
    assert [stall.length_s for stall in run.stalls] == [2.0]


def test_the_collector_watches_itself_while_workers_are_at_work(database: object) -> None:
    async def story(run: Run) -> None:
        await run.start()
        watch = run.collector._stalls
        assert watch is not None
        watch._stalls.append(stood(None, time.perf_counter(), 3.0))
        report = await run.finish_well()
        assert report.run.writers is not None
        [stall] = report.run.writers.stalls
        assert stall.worker is None
        assert 0 <= stall.begins_s < 1
        assert not watch._thread.is_alive()

    play(story)


def test_a_workers_message_tells_what_it_noticed() -> None:
    figures = WorkerFigures.model_validate_json(
        worker_figures(stalls=[stood(4, 1.0, 0.5, asleep_s=0.1, cpu_s=0.2)]).model_dump_json()
    )
    assert figures.stalls == [stood(4, 1.0, 0.5, asleep_s=0.1, cpu_s=0.2)]
