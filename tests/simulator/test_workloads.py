"""Events: each a function of seed, worker and number, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import orjson
import pytest
from pydantic import ValidationError
from scipy import stats

from simulator import workloads
from simulator.contract import MAX_WORKERS
from simulator.errors import OptionError
from simulator.testing.events import Awkward, rows_of
from simulator.workloads import WORKLOADS, load_workload, workload_names
from simulator.workloads.base import MAX_DEVICES, Workload
from simulator.workloads.cpu import METRICS, Cpu
from simulator.workloads.noise import random_words
from simulator.workloads.schema import FIRST_TIMESTAMP_MS, Column, ColumnType, EventBlock, Schema
from simulator.workloads.temperature import Temperature

ALL = [*WORKLOADS.values(), Awkward]
REGIONS = ["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "sa-east-1"]
MANY = 100_000


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 97])
def test_any_block_size_gives_the_same_events(kind: type[Workload], size: int) -> None:
    tags = {"extra_tags": 2} if kind is Cpu else {}
    workload = kind(seed=11, device_spread=5, **tags)
    whole = workload.block(3, 7, 100)
    pieces = [workload.block(3, start, min(size, 107 - start)) for start in range(7, 107, size)]
    assert rows_of(*pieces) == rows_of(whole)
    assert b"".join(piece.devices.tobytes() for piece in pieces) == whole.devices.tobytes()
    assert [len(piece) for piece in pieces][:-1] == [size] * (len(pieces) - 1)


@pytest.mark.parametrize("kind", WORKLOADS.values())
def test_other_seeds_and_workers_give_other_events(kind: type[Workload]) -> None:
    values = {
        rows_of(kind(seed=seed).block(worker, 0, 4))[number]
        for seed in (0, 1, 2**64 - 1)
        for worker in (0, 1, MAX_WORKERS - 1)
        for number in range(4)
    }
    assert len(values) == 3 * 3 * 4


@pytest.mark.parametrize("kind", ALL)
def test_blocks_match_their_schema(kind: type[Workload]) -> None:
    block = kind(device_spread=3).block(0, 0, 10)
    types = {
        ColumnType.TIMESTAMP_MS: "i8", ColumnType.INT64: "i8", ColumnType.INT32: "i4",
        ColumnType.FLOAT32: "f4", ColumnType.TEXT: "S", ColumnType.JSON: "S",
    }  # fmt: skip
    assert list(block.columns) == [column.name for column in block.schema.columns]
    for column in block.schema.columns:
        values = block.columns[column.name]
        assert len(values) == 10
        expected = types[column.type]
        assert values.dtype.kind == expected if expected == "S" else values.dtype == expected
    assert {block.schema.time, *block.schema.key} <= set(block.columns)


@pytest.mark.parametrize("kind", ALL)
def test_no_two_events_have_the_same_key(kind: type[Workload]) -> None:
    workload = kind(device_spread=4)
    blocks = [workload.block(worker, 0, 500) for worker in range(3)]
    keys = {tuple(block.key_of(row).items()) for block in blocks for row in range(500)}
    assert len(keys) == 1500


@pytest.mark.parametrize("kind", ALL)
def test_events_are_dealt_to_devices_in_turn(kind: type[Workload]) -> None:
    workload = kind(device_spread=3)
    ids = workload.devices(2).tolist()
    assert len(set(ids)) == 3
    for first, count in ((4, 5), (2, 16_384), (10**9, 20_000), (0, 0)):
        dealt = [ids[number % 3] for number in range(first, first + count)]
        assert workload.block(2, first, count).devices.tolist() == dealt


def test_device_ids_are_of_one_width_and_hold_the_worker() -> None:
    most = Temperature(device_spread=MAX_DEVICES).devices(MAX_WORKERS - 1)
    assert most[-1] == b"w99999d999999"
    assert {len(text) for text in most[[0, 9, 10, -1]].tolist()} == {13}
    assert Temperature().devices(7).tolist() == [b"w00007d000000"]


@pytest.mark.parametrize("kind", [*WORKLOADS.values()])
def test_continuing_in_time_or_starting_again(kind: type[Workload]) -> None:
    workload = kind(seed=2)
    time = workload.schema.time
    on = workload.block(0, 5000, 50).columns[time]
    again = workload.block(0, 5000, 50, time_origin=5000).columns[time]
    first = workload.block(0, 0, 50).columns[time]
    interval = 450 if kind is Temperature else 1000
    assert (on - again == 5000 * interval).all()
    assert on[0] > first[-1]
    assert abs(int(again[0]) - FIRST_TIMESTAMP_MS) <= 150


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_does_not_fit_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed"):
        Temperature(seed=seed)


def test_random_words_can_be_entered_anywhere() -> None:
    whole = random_words(1, 2, 0, 50, 3)
    for first in range(9):
        assert (random_words(1, 2, first, 4, 3) == whole[first : first + 4]).all()


# --- temperature ----------------------------------------------------------------------------------


def test_temperature_golden_values() -> None:
    """Frozen: whoever changes the generator makes every earlier result incomparable."""
    assert rows_of(Temperature().block(0, 0, 3)) == [
        (1704067199860, "w00000d000000", 0, float(np.float32(-19.37))),
        (1704067200484, "w00000d000000", 1, float(np.float32(-6.72))),
        (1704067200860, "w00000d000000", 2, float(np.float32(-13.88))),
    ]
    assert rows_of(Temperature(seed=42, device_spread=3).block(7, 1_000_000, 4)) == [
        (1704517199939, "w00007d000001", 1000000, float(np.float32(30.89))),
        (1704517200529, "w00007d000002", 1000001, float(np.float32(1.98))),
        (1704517201040, "w00007d000000", 1000002, float(np.float32(13.99))),
        (1704517201475, "w00007d000001", 1000003, float(np.float32(-18.31))),
    ]
    assert rows_of(Temperature(seed=2**64 - 1).block(99_999, 2**40, 1)) == [
        (496484299699143, "w99999d000000", 2**40, float(np.float32(19.37)))
    ]


def test_timestamps_rise_by_450_ms_give_or_take_the_jitter() -> None:
    steps = np.diff(Temperature(seed=4).block(0, 0, MANY).columns["timestamp"])
    assert steps.min() >= 150
    assert steps.max() <= 750
    assert steps.mean() == pytest.approx(450, abs=0.1)


def test_jitter_is_even() -> None:
    numbers = np.arange(MANY)
    times = Temperature(seed=4).block(0, 0, MANY).columns["timestamp"]
    jitter = times - FIRST_TIMESTAMP_MS - numbers * 450
    assert (jitter.min(), jitter.max()) == (-150, 150)
    assert _is_even(jitter + 150, 301)


def test_temperatures_are_even_with_two_decimals() -> None:
    values = Temperature(seed=4).block(0, 0, MANY).columns["temperature"].astype(float)
    hundredths = np.round(values * 100).astype(int)
    assert np.abs(values * 100 - hundredths).max() < 3e-4
    assert (hundredths.min(), hundredths.max()) == (-2000, 3500)
    assert _is_even(hundredths + 2000, 5501)


def test_temperature_and_jitter_are_independent() -> None:
    """They come from the halves of one random word."""
    columns = Temperature(seed=4).block(0, 0, MANY).columns
    jitter = columns["timestamp"] - np.arange(MANY) * 450
    assert abs(np.corrcoef(jitter, columns["temperature"])[0, 1]) < 0.01
    neighbours = np.corrcoef(columns["temperature"][1:], columns["temperature"][:-1])
    assert abs(neighbours[0, 1]) < 0.01


def test_sequence_number_is_the_events_number() -> None:
    numbers = Temperature().block(5, 1234, 10).columns["sequence_number"]
    assert numbers.tolist() == list(range(1234, 1244))
    assert Temperature.schema.sequence == "sequence_number"


def _is_even(values: np.ndarray[tuple[int], np.dtype[np.int64]], size: int) -> bool:
    """Whether a chi-square test lets the values pass as evenly spread. The seed is fixed, so this
    is no matter of luck."""
    counts = np.bincount(values, minlength=size)
    return bool(stats.chisquare(counts).pvalue > 0.01)


# --- cpu ------------------------------------------------------------------------------------------


def test_cpu_golden_values() -> None:
    """Frozen, as for temperature."""
    block = Cpu(seed=42, device_spread=3, extra_tags=2).block(7, 1_000_000, 2)
    assert block.columns["tags"][0] == (
        b'{"arch":"x64","datacenter":"us-east-1c","hostname":"w00007d000001","os":"Debian12",'
        b'"rack":"34","region":"us-east-1","service":"14","service_environment":"staging",'
        b'"service_version":"1","team":"MUC","tag_00":"value_4","tag_01":"value_5"}'
    )
    assert block.columns["ts"].tolist() == [1705067200000, 1705067201000]
    metrics = [[int(block.columns[name][row]) for name in METRICS] for row in range(2)]
    assert metrics == [
        [59, 31, 76, 97, 50, 100, 23, 53, 24, 89],
        [10, 29, 10, 38, 72, 8, 6, 51, 15, 68],
    ]


def test_cpu_metrics_are_percentages_evenly_spread_and_independent() -> None:
    columns = Cpu(seed=4).block(0, 0, MANY).columns
    metrics = np.array([columns[name] for name in METRICS])
    assert (metrics.min(), metrics.max()) == (0, 100)
    # There are 4096 equally likely numbers, so each percentage gets 40 or 41 of them.
    shares = np.bincount(np.arange(4096) * 101 // 4096) / 4096
    assert {40, 41} == set((shares * 4096).astype(int).tolist())
    counts = np.bincount(metrics.ravel(), minlength=101)
    assert stats.chisquare(counts, shares * metrics.size).pvalue > 0.01
    correlations = np.corrcoef(metrics) - np.eye(len(METRICS))
    assert np.abs(correlations).max() < 0.015


@pytest.mark.parametrize("spread", [1, 3, 1800, 1801, 5000])
def test_tags_are_those_of_few_hosts_however_many_there_are(spread: int) -> None:
    """Beyond some number, documents aren't kept but put together."""
    first = 10 * spread + spread // 2
    block = Cpu(device_spread=spread, extra_tags=2).block(12, first, 2500)
    documents = [orjson.loads(text) for text in block.columns["tags"].tolist()]
    assert [document["hostname"] for document in documents] == block.devices.astype(str).tolist()
    for number, document in enumerate(documents[::97]):
        host = 12 * 7919 + (first + 97 * number) % spread
        region = REGIONS[host % 6]
        assert document == {
            "arch": ("x64", "arm64")[host % 2],
            "datacenter": region + "abc"[host // 6 % 3],
            "hostname": document["hostname"],
            "os": ("Debian12", "Debian13", "Ubuntu24.04LTS")[host // 2 % 3],
            "rack": str(host % 100),
            "region": region,
            "service": str(host % 20),
            "service_environment": ("production", "staging", "test")[host // 3 % 3],
            "service_version": str(host // 20 % 2),
            "team": ("BER", "HAM", "MUC", "ZRH")[host // 5 % 4],
            "tag_00": f"value_{host % 10}",
            "tag_01": f"value_{(host + 1) % 10}",
        }


def test_a_single_hosts_document_is_there_once() -> None:
    tags = Cpu().block(3, 7, 100).columns["tags"]
    assert tags.strides == (0,)
    assert len(set(tags.tolist())) == 1


def test_tags_follow_from_the_host_alone() -> None:
    block = Cpu(device_spread=4, extra_tags=3).block(9, 0, 8)
    documents = [orjson.loads(text) for text in block.columns["tags"].tolist()]
    assert [document["hostname"] for document in documents] == block.devices.astype(str).tolist()
    assert documents[:4] == documents[4:]
    assert {len(document) for document in documents} == {13}
    plain = orjson.loads(Cpu(seed=1).block(9, 0, 1).columns["tags"].tolist()[0])
    assert plain == {k: v for k, v in documents[0].items() if not k.startswith("tag_")}


def test_a_key_by_path_names_the_device_and_not_the_document() -> None:
    assert Cpu(device_spread=2).block(1, 0, 5).key_of(3) == {
        "tags": "w00001d000001",
        "ts": FIRST_TIMESTAMP_MS + 3000,
    }


# --- schemas and blocks ---------------------------------------------------------------------------


def test_parts_are_views_of_the_block() -> None:
    block = Temperature(device_spread=3).block(1, 10, 20)
    part = block.part(4, 9)
    assert rows_of(part) == rows_of(block)[4:9]
    assert (part.worker, part.first, len(part)) == (1, 14, 5)
    assert rows_of(block.part(1, 20, 4)) == rows_of(block)[1::4]
    assert np.shares_memory(part.columns["timestamp"], block.columns["timestamp"])


def test_parts_keep_what_is_missing() -> None:
    block = Temperature().block(0, 0, 10)
    places = np.arange(10) % 3 == 0
    block = replace(block, missing={"temperature": places})
    assert block.part(2, 9, 2).missing["temperature"].tolist() == places[2:9:2].tolist()
    assert Temperature().block(0, 0, 1).missing == {}


def test_metrics_are_the_numbers_that_are_measured() -> None:
    more = (
        Column("x", ColumnType.FLOAT64),
        Column("n", ColumnType.INT64),
        Column("on", ColumnType.BOOL),
        Column("version", ColumnType.INT32, tag=True),
    )
    schema = Temperature.schema
    assert schema.metrics == 1
    assert replace(schema, columns=schema.columns + more).metrics == 3
    assert Cpu.schema.metrics == 10


def test_key_of_has_plain_values() -> None:
    block = Temperature(device_spread=3).block(1, 10, 20)
    key = block.key_of(4)
    time, device, number, _ = rows_of(block)[4]
    assert key == {"device_id": device, "timestamp": time, "sequence_number": number}
    assert [type(value) for value in key.values()] == [str, int, int]


def test_a_schema_knows_its_columns() -> None:
    assert Temperature.schema.column("temperature").decimals == 2
    with pytest.raises(KeyError):
        Temperature.schema.column("humidity")
    assert Cpu.schema.sequence is None


def test_a_text_in_the_key_is_decoded() -> None:
    schema = Schema(
        "t",
        (Column("at", ColumnType.TIMESTAMP_MS), Column("place", ColumnType.TEXT)),
        time="at", device="place", key=("place", "at"),
    )  # fmt: skip
    places = np.array(["Küche".encode()])
    block = EventBlock(schema, 0, 0, {"at": np.array([5]), "place": places}, places)
    assert block.key_of(0) == {"place": "Küche", "at": 5}


# --- from other packages --------------------------------------------------------------------------


def test_another_package_can_bring_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "simulator.testing.events:Awkward", workloads.ENTRY_POINTS)

    def entry_points(group: str, name: str | None = None) -> EntryPoints:
        assert group == workloads.ENTRY_POINTS
        return EntryPoints([point] if name in (None, "theirs") else [])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert load_workload("theirs") is Awkward
    assert workload_names() == ["temperature", "cpu", "machines", "trucks", "wide", "theirs"]


def test_a_workload_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(OptionError) as refused:
        load_workload("temperatur")
    assert str(refused.value) == (
        "there is no workload 'temperatur'; did you mean temperature?"
        " (known: temperature, cpu, machines, trucks, wide)"
    )


def test_a_workload_knows_its_own_options_alone() -> None:
    with pytest.raises(ValidationError):
        Temperature(extra_tags=2)
    assert Cpu(extra_tags=2, device_spread=3).schema.json_keys == 12
    assert Temperature(device_spread=3).schema.devices_per_worker == 3
