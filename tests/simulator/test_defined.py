"""Workloads that are made from definitions: events are functions of seed, worker and number."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from simulator.errors import OptionError
from simulator.testing.events import SUNDRY, Sundry
from simulator.workloads import SHIPPED, load_workload
from simulator.workloads.defined import Defined, define
from simulator.workloads.schema import ColumnType, EventBlock
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition

WINDOW = Sundry.window

_DTYPES = {
    ColumnType.TIMESTAMP_MS: "i8", ColumnType.INT64: "i8", ColumnType.INT32: "i4",
    ColumnType.FLOAT32: "f4", ColumnType.FLOAT64: "f8", ColumnType.BOOL: "?",
}  # fmt: skip


def rows(*blocks: EventBlock) -> list[tuple[Any, ...]]:
    """Events as tuples; None where there is no value."""
    events = []
    for block in blocks:
        columns = []
        for name, values in block.columns.items():
            missing = block.missing.get(name, np.zeros(len(block), bool))
            pairs = zip(values.tolist(), missing.tolist(), strict=True)
            columns.append([None if absent else value for value, absent in pairs])
        events += list(zip(*columns, strict=True))
    return events


@pytest.mark.parametrize("late", [0.0, 0.3])
@pytest.mark.parametrize("options", [{"device_spread": 5}, {"devices": 11, "sharing_workers": 3}])
def test_any_blocks_in_any_order_give_the_same_events(late: float, options: dict[str, Any]) -> None:
    draw = random.Random(5)
    whole = Sundry(9, late=late, **options)
    in_parts = Sundry(9, late=late, **options)
    for _ in range(60):
        worker, first = draw.randrange(4), draw.choice([0, 7, WINDOW - 20, 10**9])
        expected = rows(whole.block(worker, first, 60))
        start = draw.randrange(60)
        count = draw.randrange(61 - start)
        part = in_parts.block(worker, first + start, count)
        assert rows(part) == expected[start : start + count]
        assert part.first == first + start
        assert rows(part.part(0, count, 2)) == expected[start : start + count : 2]


def test_other_seeds_and_workers_give_other_events() -> None:
    events = {
        row[:2] + row[7:8]
        for seed in (0, 1, 2**64 - 1)
        for worker in (0, 1, 99_999)
        for row in rows(Sundry(seed, device_spread=3).block(worker, 0, 9))
    }
    assert len(events) == 81


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_devices_in_all_send_the_same_however_many_workers_there_are(workers: int) -> None:
    ticks = 5
    events = []
    for worker in range(workers):
        workload = Sundry(4, devices=7, sharing_workers=workers, late=0)
        own = len(workload.devices(worker))
        assert own in (7 // workers, -(-7 // workers))
        events += rows(workload.block(worker, 0, own * ticks))
    assert sorted(events, key=repr) == sorted(
        rows(Sundry(4, late=0).block(0, 0, 7 * ticks)), key=repr
    )


@pytest.mark.parametrize("devices", [1, 7, 500])
def test_late_events_come_later_and_each_exactly_once(devices: int) -> None:
    """Two windows, and a piece of the third: what is sent is what would be, were nothing late."""
    late, on_time = (Sundry(1, late=share, device_spread=devices) for share in (0.2, 0.0))
    for window in range(2):
        sent = late.block(0, window * WINDOW, WINDOW)
        due = on_time.block(0, window * WINDOW, WINDOW)
        keys = [
            np.sort(
                np.rec.fromarrays(
                    [block.devices, block.columns["timestamp"], block.columns["return"]]
                )
            )
            for block in (sent, due)
        ]
        assert (keys[0] == keys[1]).all()
    ahead_ms = np.maximum.accumulate(sent.columns["timestamp"]) - sent.columns["timestamp"]
    # A device's interval is 10 s, and the jitter 2 s.
    assert np.count_nonzero(ahead_ms > 12_000) / WINDOW == pytest.approx(0.2, abs=0.04)
    assert ahead_ms.max() <= 120_000 + 12_000
    in_order = np.maximum.accumulate(due.columns["timestamp"]) - due.columns["timestamp"]
    assert in_order.max() <= 2_000


def test_delays_may_be_exponential() -> None:
    text = SUNDRY.replace(
        "{share: 10%, most: 2m}", "{share: 50%, delay: exponential, mean: 20s, most: 10m}"
    )
    text = text.replace("interval: 10s\njitter: 2s", "interval: 100ms")
    workload = define(parse_definition(text, "sundry.yaml"))(device_spread=1)
    times = workload.block(0, 0, 100_000).columns["timestamp"]
    ahead_s = (np.maximum.accumulate(times) - times) / 1000
    assert ahead_s[ahead_s > 1].mean() - 1 == pytest.approx(20, rel=0.05)
    assert np.count_nonzero(ahead_s > 60) / len(times) == pytest.approx(0.5 * np.exp(-3), rel=0.1)


@pytest.mark.parametrize("clock_factor", [1, 3])
def test_nothing_is_sent_in_gaps(clock_factor: int) -> None:
    text = SUNDRY.replace("interval: 10s", "interval: 10s\ngaps: {every: 2m, lasts: 45s}")
    workload = define(parse_definition(text, "sundry.yaml"))(
        device_spread=2, late=0, clock_factor=clock_factor
    )
    block = workload.block(0, 0, 2 * 7 * 5)
    times_s = (block.columns["timestamp"] - workload.schema.epoch_ms).reshape(5, 7, 2) / 1000
    ticks_s = 120 * np.arange(5)[:, None, None] + 10 * np.arange(7)[:, None]
    behind_s = times_s - clock_factor * ticks_s
    assert (behind_s.min() >= 0) and (behind_s.max() <= 2)
    _, located = workload.locate(np.zeros(70, np.int64), np.arange(70))
    assert np.array_equal(located, block.columns["timestamp"])
    found = [
        workload.find_tick(second * 1000 * clock_factor) for second in (0, 60, 70, 119, 120, 130)
    ]
    assert found == [0, 6, 7, 7, 7, 8]


def test_times_are_within_their_tick() -> None:
    workload = Sundry(device_spread=7, late=0)
    times = workload.block(0, 0, 700).columns["timestamp"].reshape(100, 7)
    behind = times - (workload.schema.epoch_ms + np.arange(100)[:, None] * workload.interval_ms)
    assert (behind.min() >= 0) and (behind.max() <= 2000) and behind.std() > 400


def test_tags_follow_from_the_devices_name_alone() -> None:
    block, other = (Sundry(seed, device_spread=20, late=0).block(3, 0, 60) for seed in (1, 2))
    for name in ("order", "table"):
        assert block.columns[name].tolist() == other.columns[name].tolist()
        assert block.columns[name][:20].tolist() == block.columns[name][40:].tolist()
    assert len(set(block.columns["order"].tolist())) >= 4
    assert block.columns["return"].tolist() != other.columns["return"].tolist()


@pytest.mark.parametrize("name", [*SHIPPED, "sundry"])
def test_blocks_match_their_schema(name: str) -> None:
    kind = Sundry if name == "sundry" else load_workload(name)
    assert issubclass(kind, Defined)
    block = kind(2).block(1, 5, 2000)
    assert list(block.columns) == [column.name for column in kind.schema.columns]
    for column in block.schema.columns:
        values = block.columns[column.name]
        assert len(values) == 2000
        expected = _DTYPES.get(column.type)
        assert values.dtype.kind == "S" if expected is None else values.dtype == expected
        assert column.nullable == (column.name in block.missing)
        if column.decimals is not None:
            # As near to a number of so many digits as the type gets.
            scaled = values.astype(np.float64) * 10**column.decimals
            assert np.abs(scaled - np.rint(scaled)).max() < 0.02
    shares = {column.name: column.missing for column in kind.definition.columns if column.missing}
    assert set(block.missing) == set(shares)
    for column_name, share in shares.items():
        assert block.missing[column_name].mean() == pytest.approx(share, abs=0.04)
    keys = {tuple(block.key_of(row).items()) for row in range(2000)}
    assert len(keys) == 2000


def test_shipped_definitions_are_what_the_documents_say() -> None:
    machines, wide = load_workload("machines"), load_workload("wide")
    assert issubclass(machines, Defined) and issubclass(wide, Defined)
    assert len(machines.schema.columns) == 12
    assert len(machines().devices(0)) == 5000
    assert len({column.type for column in machines.schema.columns}) == 7
    late = machines.definition.late
    assert late is not None and late.share == 0.02
    assert [column.type for column in wide.schema.columns].count(ColumnType.FLOAT64) == 200


@pytest.mark.parametrize(
    ("kind", "signal", "low", "high"),
    [
        ("float64, decimals: 15", "kind: uniform, low: -1.0e+300, high: 1.0e+300", -1e300, 1e300),
        ("float64, decimals: 15", "kind: choice, values: [1.0e+300, 0.12345678901234567]", 0.1, 1e300),
        ("float64, decimals: 1", "kind: hold, lasts: 1s, values: [0.123, 4.56]", 0.1, 4.6),
        ("float32, decimals: 15", "kind: wander, low: -3.0e+38, high: 3.0e+38, period: 1h", -3e38, 3e38),
        ("float32, decimals: 1", "kind: uniform, low: 0.28, high: 0.42", 0.3, 0.4),
        ("float32", "kind: cycle, low: 0, high: 1.0e-30, period: 1h, noise: 4.0e-25", -4e-25, 5e-25),
        ("int32", "kind: uniform, low: 0.5, high: 1.9", 1, 1),
        ("int64", "kind: wander, low: 0.4, high: 1.6, period: 8s, octaves: 1", 1, 1),
        ("timestamp_ms", "kind: cycle, low: 0.6, high: 2.4, period: 10s, noise: 0.3", 1, 2),
    ],
)  # fmt: skip
def test_numbers_are_within_what_was_asked_for(
    kind: str, signal: str, low: float, high: float
) -> None:
    head = begin_definition("boilers", "boiler", "Boilers", devices=10, interval="1s")
    column = f"  - {{name: heat, type: {kind}, signal: {{{signal}}}}}\n"
    workload = define(parse_definition(head + column, "boilers.yaml"))(seed=3)
    values = workload.block(0, 0, 3000).columns["heat"]
    assert values.min() >= values.dtype.type(low) and values.max() <= values.dtype.type(high)
    decimals = workload.schema.column("heat").decimals
    if decimals is not None:
        # As encoders write them.
        read = np.array([f"{value:.{decimals}f}" for value in values.tolist()], values.dtype)
        assert read.tolist() == values.tolist()


def test_golden_values() -> None:
    """Frozen: whoever changes the generator makes every earlier result incomparable."""
    block = load_workload("machines")(42).block(0, 1_000_000, 2)
    assert rows(block) == GOLDEN


GOLDEN = [
    (
        *(1704069200495, b"w00000d000297", b"hall-1", b"robot", b"running", False),
        *(55.900001525878906, 5.556, 2.2939999103546143, 9.670000076293945, 24724, 0),
    ),
    (
        *(1704069200194, b"w00000d000298", b"hall-6", b"press", b"running", False),
        *(40.599998474121094, 3.654, 2.359999895095825, 4.269999980926514, 95668, 0),
    ),
]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"devices": 3, "sharing_workers": 4}, "3 devices in all, too few for 4 workers"),
        ({"devices": 3, "device_spread": 4}, "set one of them"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, int], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        Sundry(**options)


def test_a_million_devices_take_flat_memory() -> None:
    workload = load_workload("machines")(devices=1_000_000)
    workload.block(0, 0, 16_384)
    tracemalloc.start()
    try:
        for number in range(1, 12):
            workload.block(0, number * 100 * 16_384, 16_384)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 8e6 and peak < 40e6
