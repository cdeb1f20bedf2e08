"""Deleting by age: the clock that it goes by, what is kept, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.collector.retention import describe_remaining, weigh_deletions
from simulator.contract import (
    DataSet,
    Deletion,
    GroupResult,
    Load,
    Retention,
    RetentionResult,
    Role,
    StoredPart,
    find_step_ms,
)
from simulator.errors import OptionError
from simulator.modules.capabilities import Ageing
from simulator.modules.postgres.server import create_partitions, list_bounds, list_older
from simulator.worker.measure import Recorder
from simulator.workloads import load_workload
from simulator.workloads.drawing import Stored
from simulator.workloads.numbering import (
    PASSES,
    count_own,
    find_clock_factor,
    find_time_ms,
    make_retention,
)

from ..helpers import worker_figures

DAY_MS = 86_400_000
WORKLOADS = ("temperature", "cpu", "machines", "trucks", "wide")


@pytest.mark.parametrize(
    ("period_ms", "step_ms"),
    [
        (90 * DAY_MS, 4 * DAY_MS),
        (20 * DAY_MS, DAY_MS),
        (7 * DAY_MS, 8 * 3_600_000),
        (3_600_000, 3 * 60_000),
        (20_000, 1000),
        (5_000, 1000),
    ],
)
def test_a_step_is_about_a_twentieth_in_whole_units(period_ms: int, step_ms: int) -> None:
    assert find_step_ms(period_ms) == step_ms


def test_a_limit_is_a_multiple_of_the_step_and_spares_the_period() -> None:
    retention = Retention(period_ms=90 * DAY_MS, step_ms=4 * DAY_MS)
    clock_ms = 200 * DAY_MS + 1
    limit_ms = retention.find_limit(clock_ms)
    assert limit_ms % retention.step_ms == 0
    assert 90 * DAY_MS <= clock_ms - limit_ms < 94 * DAY_MS


@pytest.mark.parametrize("name", WORKLOADS)
def test_events_are_so_many_times_as_far_apart_and_else_the_same(name: str) -> None:
    kind = load_workload(name)
    # Late events are late by as much event time, and so come behind fewer others.
    punctual = {"late": 0} if "late" in kind.options_model.model_fields else {}
    plain, fast = (
        kind(5, clock_factor=factor, device_spread=3, **punctual) for factor in (1, 1000)
    )
    plain_block, fast_block = (workload.block(1, 0, 30) for workload in (plain, fast))
    time, device = plain.schema.time, plain.schema.device
    since, fast_since = (
        block.columns[time] - plain.schema.epoch_ms for block in (plain_block, fast_block)
    )
    # A device's jitter stays what it is.
    assert np.all(np.abs(fast_since - 1000 * since) <= 1000 * plain.device_interval_ms)
    assert fast.device_interval_ms == 1000 * plain.device_interval_ms
    assert fast_since[-1] > 500 * max(1, since[-1])
    assert np.array_equal(plain_block.devices, fast_block.devices)
    workers, numbers = np.full(30, 1), np.arange(30)
    assert np.array_equal(fast.locate(workers, numbers)[1], fast_block.columns[time])
    assert device in fast_block.columns


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_retention_passes_twice_in_a_run_and_its_prefill(name: str) -> None:
    kind = load_workload(name)
    data = DataSet(workload=name, retention_s=90 * 86_400, prefill=2_000)
    load = Load(workers=2, events=4_000)
    own = count_own(load)
    assert own == 8_000
    plain = kind(0, device_spread=20)
    factor = find_clock_factor(plain, data, load, own)
    workload = kind(0, device_spread=20, clock_factor=factor)
    retention = make_retention(workload, data, load)
    assert retention is not None and retention.until_ms is not None
    passed_ms = retention.until_ms - workload.schema.epoch_ms
    assert passed_ms == pytest.approx(PASSES * retention.period_ms, rel=0.02)
    assert retention.find_limit(retention.until_ms) > workload.schema.epoch_ms


def test_at_full_speed_it_is_not_known_how_much_time_passes() -> None:
    assert count_own(Load(duration_s=10)) is None
    assert count_own(Load(duration_s=10, rate_per_s=50)) == 500
    workload = load_workload("temperature")()
    data = DataSet(retention_s=100)
    retention = make_retention(workload, data, Load(duration_s=10))
    assert retention == Retention(period_ms=100_000, step_ms=5_000)
    assert make_retention(workload, DataSet(), Load()) is None


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_newer_events_are_counted_without_looking_at_all(late: float) -> None:
    workload = load_workload("machines")(3, device_spread=7, late=late)
    parts = [StoredPart(0, 40, 9_000), StoredPart(2, 0, 3_000)]
    stored = Stored(workload, parts)
    times = np.concatenate([block.columns[workload.schema.time] for block in stored.blocks()])
    for time_ms in (0, *np.percentile(times, [0, 1, 40, 90, 100]).astype(int).tolist(), 2**60):
        assert stored.count_since(time_ms) == np.count_nonzero(times >= time_ms)


def test_partitions_take_all_times_and_only_whole_ones_are_dropped() -> None:
    retention = Retention(
        period_ms=20 * DAY_MS, step_ms=DAY_MS, until_ms=19_750 * DAY_MS + DAY_MS // 2
    )
    bounds = list_bounds(retention, 19_723 * DAY_MS)
    assert bounds[0] == 19_724 * DAY_MS
    assert bounds[-1] > 19_750 * DAY_MS
    statements = create_partitions("t", bounds)
    assert len(statements) == len(bounds) + 1
    assert "FROM (MINVALUE)" in statements[0]
    assert statements[-1].endswith("TO (MAXVALUE)")
    names = ["t_later", *(f"t_before_{end}" for end in reversed(bounds)), "other_before_5"]
    assert list_older("t", names, bounds[1] + 1) == [f"t_before_{end}" for end in bounds[:2]]
    unknown = retention.model_copy(update={"until_ms": None})
    assert len(list_bounds(unknown, 19_723 * DAY_MS)) == 200


@pytest.mark.parametrize(
    ("ageing", "said"),
    [
        (Ageing(reason="it stores nothing"), "module x can't do --retention: it stores nothing"),
        (
            Ageing("partitions of an hour", unit_ms=3_600_000),
            "deletes by partitions of an hour, which needs a --retention of 20h or more",
        ),
    ],
)
def test_what_a_module_cannot_keep_to_is_refused(ageing: Ageing, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        ageing.require(Retention(period_ms=3_600_000, step_ms=180_000), "x")


# --- what it costs ----------------------------------------------------------------------------------


def test_latencies_are_kept_second_by_second() -> None:
    recorder = Recorder(by_second=True)
    recorder.begin(0.0)
    for number in range(300):
        sent = number / 100
        # Of the last second all but the first took ten times as long.
        recorder.record(sent, sent + (0.1 if sent > 2 else 0.01), 1)
    recorder.end()
    seconds = recorder.result().seconds
    assert {second: latency.count for second, latency in seconds} == dict.fromkeys(range(3), 100)
    plain = Recorder()
    plain.begin(0.0)
    plain.record(0.1, 0.2, 1)
    plain.end()
    assert plain.result().seconds == []


def _weigh(deletions: list[tuple[float, float]], **changes: Any) -> Any:
    recorder = Recorder(by_second=True)
    recorder.begin(0.0)
    for second, events in enumerate((100, 200, 150, 400, 100)):
        for number in range(events):
            sent = second + number / 1000
            recorder.record(sent, sent + 0.001 * (second + 1), 1)
    recorder.end()
    figures = worker_figures(seconds=recorder.result().seconds)
    group = GroupResult(
        role=Role.WRITE,
        workers=1,
        window_s=5.0,
        timeline=list(enumerate((100, 200, 150, 400, 100))),
    ).model_copy(update=changes)
    results = [Deletion(before_ms=0, began_s=began, ended_s=ended) for began, ended in deletions]
    return weigh_deletions(group, [figures], results)


def test_seconds_with_a_deletion_are_held_against_those_without() -> None:
    cost = _weigh([(2.4, 2.9), (3.9, 4.1)])
    assert (cost.before.seconds, cost.before.rate_per_s) == (2, 150)
    assert (cost.during.seconds, cost.during.rate_per_s) == (3, pytest.approx(650 / 3))
    assert (cost.between.seconds, cost.between.rate_per_s) == (0, None)
    assert cost.before.p99_ms == pytest.approx(2, rel=0.04)
    assert cost.during.p99_ms == pytest.approx(5, rel=0.04)
    between = _weigh([(1.0, 1.5), (3.0, 3.1)]).between
    assert (between.seconds, between.rate_per_s) == (2, 125)


def test_the_warm_up_and_the_last_second_are_in_no_part() -> None:
    cost = _weigh([(2.0, 2.5)], warm_up_s=0.5, window_s=4.0)
    assert [part.seconds for part in (cost.before, cost.during, cost.between)] == [1, 1, 1]
    assert _weigh([]) is None


def test_what_should_be_gone_and_is_there_makes_a_run_invalid() -> None:
    result = RetentionResult(period_s=1, step_s=1, deletions=[], remaining=1_200)
    assert describe_remaining(result) == [
        "1,200 events older than the retention allows are still stored"
    ]
    assert describe_remaining(result.model_copy(update={"remaining": 0})) == []
    assert describe_remaining(result.model_copy(update={"remaining": None})) == []


def test_the_clock_of_the_events_is_that_of_their_numbers() -> None:
    workload = load_workload("temperature")(clock_factor=1000)
    assert find_time_ms(workload, 0, 10) == pytest.approx(
        workload.schema.epoch_ms + 10 * 450_000, abs=150
    )
