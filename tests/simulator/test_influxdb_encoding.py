"""Line protocol, byte by byte."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest

from simulator.contract import Load, Tables
from simulator.errors import SimulatorError
from simulator.modules.base import Job
from simulator.modules.influxdb.encoding import LineEncoder, tag_set
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import Column, ColumnType, EventBlock, Schema
from simulator.workloads.temperature import Temperature

ODD = Schema(
    table="a, 100 %=b",
    columns=(
        Column("the time", ColumnType.TIMESTAMP_MS),
        Column("de,vice", ColumnType.TEXT),
        Column("note=%d", ColumnType.TEXT),
        Column("at", ColumnType.TIMESTAMP_MS),
    ),
    time="the time",
    device="de,vice",
    key=("de,vice", "the time"),
)


def odd(device: bytes, note: bytes) -> EventBlock:
    devices = np.array([device])
    columns = {
        "the time": np.array([7]),
        "de,vice": devices,
        "note=%d": np.array([note]),
        "at": np.array([9]),
    }
    return EventBlock(ODD, 0, 0, columns, devices)


def test_a_line() -> None:
    block = Temperature(seed=4, device_spread=2).block(3, 10, 2)
    [payload] = LineEncoder(Job(Temperature.schema, Load(batch=5)), False).encode(block)
    times, values = block.columns["timestamp"], block.columns["temperature"]
    assert payload.data.decode().split("\n") == [
        f"events,device_id=w00003d{i:06d} sequence_number={10 + i}i,"
        f"temperature={values[i]:.2f} {times[i]}"
        for i in range(2)
    ]


@pytest.mark.parametrize(("batch", "sizes"), [(4, [4, 4, 1]), (9, [9]), (100, [9]), (0, [1] * 9)])
def test_requests_are_as_large_as_asked_for(batch: int, sizes: list[int]) -> None:
    block = Temperature().block(0, 0, 9)
    payloads = LineEncoder(Job(Temperature.schema, Load(batch=batch)), False).encode(block)
    assert [payload.events for payload in payloads] == sizes
    requests = [payload.data.split(b"\n") for payload in payloads]
    assert [len(lines) for lines in requests] == sizes
    together = LineEncoder(Job(Temperature.schema, Load(batch=9)), False).encode(block)[0].data
    assert b"\n".join(line for lines in requests for line in lines) == together
    assert [payload.last for payload in payloads] == (np.cumsum(sizes) - 1).tolist()


@pytest.mark.parametrize("batch", [5, 0])
def test_events_are_dealt_to_the_measurements_by_their_number(batch: int) -> None:
    block = Temperature().block(0, 6, 7)
    load = Load(batch=batch, tables=Tables.MULTIPLE)
    encoder = LineEncoder(Job(Temperature.schema, load), False)
    lines = [line for payload in encoder.encode(block) for line in payload.data.split(b"\n")]
    assert [line.partition(b",")[0].decode() for line in lines] == [
        f"events{number % 4}" for number in range(6, 13)
    ]


@pytest.mark.parametrize("batch", [5, 0])
def test_compressed_requests_hold_the_same(batch: int) -> None:
    block = Temperature().block(0, 0, 12)
    job = Job(Temperature.schema, Load(batch=batch))
    plain, compressed = (LineEncoder(job, compress).encode(block) for compress in (False, True))
    assert [gzip.decompress(payload.data) for payload in compressed] == [
        payload.data for payload in plain
    ]


def test_what_would_end_a_name_tag_or_text_is_escaped() -> None:
    """https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/#special-characters"""
    block = odd(b"d=1, 2", b'say "a\\b", c=d')
    [payload] = LineEncoder(Job(ODD), False).encode(block)
    assert payload.data == (
        rb"a\,\ 100\ %\=b,de\,vice=d\=1\,\ 2 "
        rb'note\=%d="say \"a\\b\", c=d",at=9i 7'
    )


TAGGED = Schema(
    "things",
    (
        Column("at", ColumnType.TIMESTAMP_MS),
        Column("weight", ColumnType.INT32, tag=True),
        Column("thing", ColumnType.TEXT),
        Column("a b", ColumnType.TEXT, tag=True),
        Column("width", ColumnType.FLOAT64, tag=True),
        Column("height", ColumnType.FLOAT32, decimals=1, tag=True),
        Column("on", ColumnType.BOOL, tag=True),
        Column("number", ColumnType.INT64),
    ),
    time="at",
    device="thing",
    key=("thing", "at"),
)


def tagged(names: list[bytes], weights: list[int]) -> EventBlock:
    count = len(names)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "at": np.arange(count),
        "weight": np.array(weights, dtype=np.int32),
        "thing": np.array([b"t"] * count),
        "a b": np.array(names),
        "width": np.resize([0.1, 1500.0], count),
        "height": np.full(count, 2.5, dtype=np.float32),
        "on": np.resize([True, False], count),
        "number": np.arange(count),
    }
    return EventBlock(TAGGED, 0, 0, columns, columns["thing"])


@pytest.mark.parametrize("batch", [10, 1, 0])
def test_columns_that_describe_the_device_are_tags(batch: int) -> None:
    """In the order of their names; none where a text is empty, and numbers are texts."""
    encoder = LineEncoder(Job(TAGGED, Load(batch=batch)), False)
    # The second time with a value that is new.
    for weights in ([7, -3], [-3, 12]):
        payloads = encoder.encode(tagged([b"x, y=z", b""], weights))
        assert b"\n".join(payload.data for payload in payloads).split(b"\n") == [
            rb"things,a\ b=x\,\ y\=z,height=2.5,on=true,thing=t,weight=%d,width=0.1 number=0i 0"
            % weights[0],
            b"things,height=2.5,on=false,thing=t,weight=%d,width=1500 number=1i 1" % weights[1],
        ]


@pytest.mark.parametrize("text", [b"two\nlines", b"ends in \\"])
def test_a_tag_column_that_cannot_be_written_is_refused(text: bytes) -> None:
    with pytest.raises(SimulatorError, match="tag a b: InfluxDB accepts no line break"):
        LineEncoder(Job(TAGGED), False).encode(tagged([b"fine", text], [1, 2]))


def test_a_devices_document_becomes_its_tags() -> None:
    block = Cpu(seed=1, device_spread=2, extra_tags=1).block(0, 0, 2)
    [payload] = LineEncoder(Job(Cpu.schema, Load(batch=2)), False).encode(block)
    tags, fields, time = payload.data.split(b"\n")[0].split(b" ")
    assert tags == (
        b"cpu,arch=x64,datacenter=us-east-1a,hostname=w00000d000000,os=Debian12,rack=0,"
        b"region=us-east-1,service=0,service_environment=production,service_version=0,"
        b"tag_00=value_0,team=BER"
    )
    assert fields.startswith(b"usage_user=%di,usage_system=" % block.columns["usage_user"][0])
    assert int(time) == block.columns["ts"][0]


def test_tags_are_sorted_escaped_and_never_empty() -> None:
    document = b'{"z": "1", "a b": "x, y=z", "none": "", "number": 2.5, "m": "Gr\xc3\xbc\xc3\x9fe"}'
    assert tag_set(document) == rb",a\ b=x\,\ y\=z,m=" + "Grüße".encode() + b",number=2.5,z=1"


@pytest.mark.parametrize("value", ["two\\nlines", "ends in \\\\"])
def test_a_tag_that_cannot_be_written_is_refused(value: str) -> None:
    with pytest.raises(SimulatorError, match="tag t: InfluxDB accepts no line break"):
        tag_set(b'{"t": "%s"}' % value.encode())
