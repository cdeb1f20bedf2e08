"""A rate that changes: when requests are due, and what became of those of each stage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from math import sqrt
from typing import Any

import numpy as np
import pytest

from simulator.collector.merge import merge_group
from simulator.collector.status import find_loss
from simulator.collector.verdicts import extend_offers
from simulator.contract import (
    MOST_STAGES,
    Arrivals,
    Group,
    GroupResult,
    Load,
    Measure,
    Offered,
    Progress,
    RunLimit,
    StageResult,
    find_mean_rate,
    format_stages,
    parse_stages,
    sum_durations_s,
)
from simulator.histograms import COARSE, Histogram
from simulator.worker.measure import Recorder
from simulator.worker.schedule import Schedule, make_schedule

from ..helpers import histogram_of, worker_figures

START = 1000.0


def load_of(text: str, **changes: Any) -> Load:
    stages = parse_stages(text)
    values = {
        "stages": stages,
        "rate_per_s": find_mean_rate(stages),
        "duration_s": sum_durations_s(stages),
    }
    return Load.model_validate(values | changes)


def open_loop(text: str, worker: int = 0, seed: int = 7, **load: Any) -> Schedule:
    schedule = make_schedule(load_of(text, **load), worker, seed)
    schedule.begin(START)
    return schedule


def told(schedule: Schedule) -> list[float]:
    return list(takewhile(lambda due: due < schedule.ends, iter(lambda: schedule.next_due(0), -1)))


def left(schedule: Schedule) -> list[float]:
    return [due for some in schedule.remaining() for due in some.tolist()]


def count(due: Sequence[float], edges: Sequence[float]) -> list[int]:
    counts, _ = np.histogram(np.array(due) - START, bins=edges)
    return list(map(int, counts))


# --- as they are written --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept", "mean", "length_s"),
    [
        ("2m:1000,10m:5k,2m:1000", "120s:1000,600s:5000,120s:1000", 27_000 / 7, 840.0),
        ("1.5s:10, 500ms:0", "1.5s:10,0.5s:0", 7.5, 2.0),
        ("1h:0.5", "3600s:0.5", 0.5, 3600.0),
    ],
)
def test_stages_are_read_and_written(text: str, kept: str, mean: float, length_s: float) -> None:
    stages = parse_stages(text)
    assert format_stages(stages) == kept
    assert parse_stages(kept) == stages
    assert find_mean_rate(stages) == pytest.approx(mean)
    assert sum_durations_s(stages) == pytest.approx(length_s)
    load = load_of(text)
    assert Load.model_validate_json(load.model_dump_json()) == load
    assert load.model_dump(mode="json")["stages"] == kept


def test_a_constant_rate_is_written_as_ever() -> None:
    constant = Load(rate_per_s=5.0)
    assert constant.model_dump(mode="json")["stages"] == ""
    assert Load.model_validate_json(constant.model_dump_json()) == constant
    assert Load.model_validate({"rate_per_s": 5.0, "stages": []}) == Load(rate_per_s=5.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2m", "'2m': write stages as in 2m:1000,10m:5000,2m:1000"),
        ("2m:1000,", "'': write stages as in"),
        ("2:1000", "'2:1000': write stages as in"),
        ("2m:fast", "'2m:fast': write stages"),
        ("0s:5", "'0s:5': write"),
        ("2m:-1", "'2m:-1': write"),
        ("1m:0,2m:0", "one stage at least needs a rate above 0"),
        (",".join(["1s:1"] * (MOST_STAGES + 1)), "101 stages: 100 at most"),
    ],
)
def test_wrong_ones_say_how_to_write_them(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"write stages|needs a rate|at most") as caught:
        parse_stages(text)
    assert said in str(caught.value)


# --- when requests are due ------------------------------------------------------------------------

TEXT = "2s:300,3s:3000,1s:0,4s:600"
EDGES = [0, 2, 5, 6, 10]
EXPECTED = [600, 9000, 0, 2400]


def test_even_arrivals_offer_the_rate_of_each_stage_exactly() -> None:
    due = np.sort([
        time
        for worker in range(3)
        for time in told(open_loop(TEXT, worker, workers=3, arrivals=Arrivals.EVEN))
    ])  # fmt: skip
    assert count(due.tolist(), EDGES) == pytest.approx(EXPECTED, abs=1)
    # Within a stage they are evenly spaced, all workers' together.
    fast = due[(due > START + 2) & (due < START + 5)]
    assert np.diff(fast) == pytest.approx(1 / 3000, rel=1e-6)
    slow = due[due > START + 6]
    assert np.diff(slow) == pytest.approx(1 / 600, rel=1e-6)


def test_poisson_arrivals_offer_it_as_closely_as_chance_allows() -> None:
    due = [time for worker in range(3) for time in told(open_loop(TEXT, worker, workers=3))]
    for counted, expected in zip(count(due, EDGES), EXPECTED, strict=True):
        assert counted == pytest.approx(expected, abs=5 * sqrt(expected))
    gaps = np.diff(np.sort([time for time in due if START + 2 < time < START + 5]))
    # As much spread as an exponential distribution has.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_it_follows_from_the_seed_and_one_stage_is_a_constant_rate(arrivals: Arrivals) -> None:
    first, again = (told(open_loop(TEXT, arrivals=arrivals)) for _ in range(2))
    assert first == again
    staged = told(open_loop("4s:200,6s:200", arrivals=arrivals))
    constant = make_schedule(Load(rate_per_s=200.0, duration_s=10.0, arrivals=arrivals), 0, 7)
    constant.begin(START)
    assert staged == pytest.approx(told(constant), abs=1e-9)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
@pytest.mark.parametrize("asked", [0, 1, 4096, 5000, 20_000])
def test_each_due_time_is_told_once(arrivals: Arrivals, asked: int) -> None:
    whole = told(open_loop(TEXT, arrivals=arrivals))
    schedule = open_loop(TEXT, arrivals=arrivals)
    first = [due for due in (schedule.next_due(0) for _ in range(asked)) if due < schedule.ends]
    assert [*first, *left(schedule)] == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
@pytest.mark.parametrize("until_s", [0.5, 3.3, 5.5, 8.0, 12.0])
def test_what_is_due_by_then_is_counted_and_listed(arrivals: Arrivals, until_s: float) -> None:
    schedule = open_loop(TEXT, arrivals=arrivals)
    expected = sum(due <= START + until_s for due in told(open_loop(TEXT, arrivals=arrivals)))
    listed = [due for some in schedule.list_due(START + until_s) for due in some.tolist()]
    assert len(listed) == pytest.approx(expected, abs=1)
    # Far from what was told it is the mean.
    mean = schedule.count_due(START + until_s)
    assert mean == pytest.approx(expected, abs=1 if arrivals is Arrivals.EVEN else 5 * 110)
    for _ in range(expected):
        schedule.next_due(0)
    assert schedule.count_due(START + until_s) == pytest.approx(expected, abs=1)


# --- what becomes of them -------------------------------------------------------------------------


def record(recorder: Recorder, due_s: float, took_s: float) -> None:
    begins = recorder._origin
    recorder.record_due(begins + due_s, 0.0, begins + due_s, begins + due_s + took_s, 10)


def test_a_worker_tells_of_each_stage() -> None:
    """Two stages, of which the first second is a warm-up; what is answered later counts there."""
    schedule = make_schedule(
        load_of("2s:50,2s:100", batch=10, warm_up_s=1.0, arrivals=Arrivals.EVEN), 0, 0
    )
    recorder = Recorder(schedule)
    began = time.perf_counter() - 3600
    recorder.begin(began)
    for due_s, took_s in ((0.5, 0.1), (0.9, 0.5), (1.5, 0.2), (1.9, 0.4), (2.0, 0.3), (2.5, 9.0)):
        record(recorder, due_s, took_s)
    due = next(due for due in iter(lambda: schedule.next_due(0), None) if due >= began + 3.0)
    recorder.leave_unsent(due, 10)
    recorder.end()
    first, second = recorder.result().stages
    # Two were due in the warm-up, one of which was answered after it.
    assert (first.due, first.achieved, first.backlog) == (20, 20, 10)
    assert first.histogram is not None
    assert second.histogram is not None
    assert first.histogram.range_us()[1] == pytest.approx(400_000, rel=1e-3)
    # Those at 2 s and 2.5 s, and those that were never sent: from 3 s on, ten in a second.
    unsent = second.due // 10 - 2
    assert (second.achieved, second.backlog) == (20, 10 * (1 + unsent))
    assert second.histogram.count == 2 + unsent
    assert unsent == pytest.approx(10, abs=1)


def stage(due: int, achieved: int, backlog: int, *took_us: int) -> StageResult:
    return StageResult(
        due=due, achieved=achieved, backlog=backlog, histogram=histogram_of(*took_us)
    )


def merge(load: Load, end_s: float, *stages: Sequence[StageResult]) -> GroupResult:
    """The result of workers that have done all that was due."""
    figures = {}
    for worker, parts in enumerate(stages):
        due = sum(part.due for part in parts)
        done = sum(part.achieved for part in parts)
        offer = Offered(due=due, unsent=0, due_timeline=[(0, due)], own_delay=histogram_of(10, 10))
        figures[worker] = worker_figures(
            start_s=load.warm_up_s, end_s=end_s, count=done, measured=done, timeline=[(0, done)],
            offered=offer, stages=parts,
        )  # fmt: skip
    return merge_group(load, figures, dict.fromkeys(figures, "n"), {})


def test_stages_are_merged_over_the_workers() -> None:
    load = load_of("10s:100,20s:1000", workers=2, warm_up_s=4.0)
    own = [stage(300, 300, 2, *[1000] * 60), stage(10_000, 10_000, 0, *[5000] * 60)]
    group = merge(load, 30.0, own, own)
    first, second = group.stages
    assert (first.begins_s, first.duration_s, first.rate_per_s) == (4.0, 6.0, 100.0)
    assert (first.due, first.achieved, first.backlog, first.saturated) == (600, 600, 4, False)
    assert (second.begins_s, second.duration_s, second.due) == (10.0, 20.0, 20_000)
    assert first.latency_ms is not None
    assert second.latency_ms is not None
    assert first.latency_ms.p99 == pytest.approx(1.0, rel=1e-3)
    assert second.latency_ms.p99 == pytest.approx(5.0, rel=1e-3)
    assert group.offered is not None
    assert not group.offered.saturated
    assert group.offered.due == 20_600


def test_a_stage_that_was_not_kept_up_with_saturates_the_run_that_caught_up_later() -> None:
    load = load_of("10s:100,10s:1000,10s:100")
    group = merge(
        load, 30.0, [stage(1000, 1000, 0), stage(10_000, 7000, 3000), stage(1000, 4000, 0)]
    )
    assert [result.saturated for result in group.stages] == [False, True, False]
    assert group.offered is not None
    assert group.offered.saturated
    assert group.offered.reason == (
        "in stage 2 (10 s at 1,000 events/s) 10,000 events were due, but only 7,000 were done"
    )
    assert group.valid, group.invalid_reasons


def test_of_a_run_that_ended_early_there_are_the_stages_that_it_came_to() -> None:
    load = load_of("10s:100,20s:1000,5s:1").model_copy(update={"duration_s": 15.0})
    group = merge(load, 15.0, [stage(1000, 1000, 0), stage(5000, 5000, 0), stage(0, 0, 0)])
    assert [(result.begins_s, result.duration_s) for result in group.stages] == [
        (0.0, 10.0),
        (10.0, 5.0),
    ]


def test_a_constant_rate_has_no_stages() -> None:
    load = Load(rate_per_s=100.0, duration_s=10.0)
    assert merge(load, 10.0, []).stages == []
    assert Recorder(make_schedule(load, 0, 0))._stages is None


def test_what_was_due_after_a_worker_gave_up_is_that_of_its_stage() -> None:
    load = load_of("10s:100,10s:1000", workers=2)
    offer = Offered(due=0, unsent=0, due_timeline=[], own_delay=histogram_of(1, 1))
    parts = {
        worker: worker_figures(end_s=end_s, offered=offer)
        for worker, end_s in ((0, 8.0), (1, 13.0))
    }
    extended = extend_offers(parts, load)[0].offered
    assert extended is not None
    # Half of 2 s at 100, and of 3 s at 1,000.
    assert extended.due == 100 + 1500


def test_limits_know_how_much_can_be_due_in_all_stages() -> None:
    load = load_of("10s:100,10s:1000", warm_up_s=5.0, arrivals=Arrivals.EVEN)
    histogram = Histogram.of([1.0] * 105, COARSE)
    message = Progress(worker=0, stage="run", elapsed_s=9, done=105, latency=histogram)
    limit = RunLimit(measure=Measure.P99, at_most=10.0)
    # 500 and 10,000 in the window: 105 of them may be slow.
    assert find_loss(limit, Group(load=load), [message], 1) is None
    worse = message.model_copy(update={"latency": Histogram.of([1.0] * 106, COARSE)})
    assert find_loss(limit, Group(load=load), [worse], 1) is not None
