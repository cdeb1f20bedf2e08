"""IoTDB's tablets, calls and answers as bytes."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.contract import Load, Tables
from simulator.errors import OptionError, SimulatorError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.iotdb.connection import ServerError, check_status
from simulator.modules.iotdb.queries import compile_statement
from simulator.modules.iotdb.schema import make_tags
from simulator.modules.iotdb.tablets import TabletEncoder
from simulator.modules.iotdb.thrift import (
    END_CALL,
    Fields,
    ThriftError,
    call,
    put_bool,
    put_i64,
    read_answer,
    read_blocks,
)
from simulator.modules.options import parse_options
from simulator.testing.events import make_schema
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

# By apache-iotdb 2.0.11: `insert_relational_tablet` of a NumpyTablet with session 77, as Thrift writes it.
OFFICIAL = base64.b64decode(
    "gAEAAQAAAAxpbnNlcnRUYWJsZXQAAAAADAABCgABAAAAAAAAAE0LAAIAAAAFd2hlcmUPAAMLAAAACAAAAAZkZXZpY2UAAAAEbm90"
    "ZQAAAAVzbWFsbAAAAANiaWcAAAAHbWVhc3VyZQAAAAVleGFjdAAAAAJvbgAAAARzZWVuCwAEAAABnwAAAAJ3MAAAAAJ3MAAAAAJ3"
    "MAAAAAJ3MAAAAAJ3MAAAAAN3MTEAAAADdzExAAAAA3cxMQAAAAN3MTEAAAAAAAAABkvDvGNoZQAAAAF4AAAAAAAAAAJhYgAAAAAA"
    "AAABYwAAAAJkZAAAAAD////8/////f////7/////AAAAAAAAAAEAAAACAAAAAwAAAAT///xcrWvAAP///UWCENAA///+Lla14AD/"
    "//8XK1rwAAAAAAAAAAAAAAAA6NSlEAAAAAHRqUogAAAAArp97zAAAAADo1KUQAAAAAAAPoAAAD8AAAA/QAAAP4AAAD+gAAA/wAAA"
    "P+AAAEAAAAAAAAAAAAAAAD/VVVVVVVVVP+VVVVVVVVU/8AAAAAAAAD/1VVVVVVVVP/qqqqqqqqtAAAAAAAAAAEACqqqqqqqrQAVV"
    "VVVVVVUBAAEBAAEBAAEAAAGLz+VoAAAAAYvP5WvoAAABi8/lb9AAAAGLz+VzuAAAAYvP5XegAAABi8/le4gAAAGLz+V/cAAAAYvP"
    "5YNYAAABi8/lh0AAAQEBAAAAAAEIAAALAAUAAABIAAABjMJR9AAAAAGMwlH0AQAAAYzCUfQCAAABjMJR9AMAAAGMwlH0BAAAAYzC"
    "UfQFAAABjMJR9AYAAAGMwlH0BwAAAYzCUfQIDwAGCAAAAAgAAAALAAAACwAAAAEAAAACAAAAAwAAAAQAAAAAAAAACAgABwAAAAkC"
    "AAgAAgAJAQ8ACgMAAAAIAAEBAQEBAQEAAA=="
)
_ROWS = 9
_START = 1_704_067_200_000

SCHEMA = make_schema(
    "where",
    Column("note", ColumnType.TEXT, nullable=True),
    Column("small", ColumnType.INT32),
    Column("big", ColumnType.INT64),
    Column("measure", ColumnType.FLOAT32),
    Column("exact", ColumnType.FLOAT64),
    Column("on", ColumnType.BOOL, nullable=True),
    Column("seen", ColumnType.TIMESTAMP_MS),
)


def official_block() -> EventBlock:
    """The events of the official client's tablet."""
    numbers = np.arange(_ROWS)
    devices = np.array([b"w0"] * 5 + [b"w11"] * 4)
    notes = ["", "Küche", "x", "", "ab", "", "c", "dd", ""]
    columns: dict[str, Any] = {
        "at": numbers + _START,
        "device": devices,
        "note": np.array([note.encode() for note in notes]),
        "small": (numbers - 4).astype(np.int32),
        "big": (numbers - 4) * 10**12,
        "measure": (numbers / 4).astype(np.float32),
        "exact": numbers / 3,
        "on": np.array([True, False, True] * 3),
        "seen": numbers * 1000 + 1_700_000_000_000,
    }
    missing = {"note": np.isin(numbers, (0, 8)), "on": numbers == 3}
    return EventBlock(SCHEMA, 0, 0, columns, devices, missing)


def read_request(message: bytes) -> Fields:
    """The fields of the struct that a call is made with."""
    # An answer's result has the number 0, a call's argument the number 1.
    body = message[8 + len("insertTablet") + 4 :]
    reply = struct.pack("!Ii", 0x80010002, 0) + bytes(4) + body[:1] + b"\0\0" + body[3:]
    fields: Fields = read_answer(reply)
    return fields


def encode(block: EventBlock, batch: int, **load: Any) -> list[bytes]:
    """The calls of a block, complete, for session 77."""
    job = Job(block.schema, Load(batch=batch, **load))
    payloads = TabletEncoder(job).encode(block)
    return [
        b"".join(call) + put_i64(1, 77) + END_CALL for payload in payloads for call in payload.data
    ]


def test_a_tablet_is_that_of_the_official_client() -> None:
    """Except for the order of the request's fields, which is free."""
    [message] = encode(official_block(), 100)
    assert len(message) == len(OFFICIAL)
    ours, official = read_request(message), read_request(OFFICIAL)
    assert set(ours) == set(official)
    for number in official:
        # The server takes runs of one device, whichever comes first.
        if number not in (4, 5):
            assert ours[number] == official[number], number
    assert sorted(rows_of(ours)) == sorted(rows_of(official))


def rows_of(request: Fields) -> list[tuple[Any, ...]]:
    """Time and values of a tablet's rows; None where there is none."""
    count, values, at = request[7], request[4], 0
    columns: list[list[Any]] = [list(np.frombuffer(request[5], ">i8"))]
    kinds = {0: "?", 1: ">i4", 2: ">i8", 3: ">f4", 4: ">f8", 8: ">i8"}
    for code in request[6]:
        cells: list[Any] = []
        if code in kinds:
            array = np.frombuffer(values, kinds[code], count, at)
            cells, at = array.tolist(), at + array.nbytes
        for _ in range(0 if cells else count):
            size = int.from_bytes(values[at : at + 4], "big")
            cells.append(values[at + 4 : at + 4 + size])
            at += 4 + size
        columns.append(cells)
    for column in columns[1:] if at < len(values) else ():
        at += 1
        if values[at - 1]:
            for row in range(count):
                if values[at + row // 8] >> row % 8 & 1:
                    column[row] = None
            at += count // 8 + 1
    assert at == len(values)
    return list(zip(*columns, strict=True))


def test_single_inserts_are_tablets_of_one_row() -> None:
    block = official_block()
    whole = read_request(encode(block, 100)[0])
    singles = [read_request(body) for body in encode(block, 0)]
    rows = [row for request in singles for row in rows_of(request)]
    assert [request[7] for request in singles] == [1] * _ROWS
    assert sorted(map(str, rows)) == sorted(map(str, rows_of(whole)))


def test_singles_without_missing_values_are_the_same_by_the_quick_way() -> None:
    block = Temperature(device_spread=3).block(1, 0, 7)
    rows = [row for body in encode(block, 0) for row in rows_of(read_request(body))]
    [whole] = encode(block, 10)
    assert sorted(rows) == sorted(rows_of(read_request(whole)))


def test_events_of_a_device_stand_together_in_the_order_of_time() -> None:
    block = Temperature(device_spread=3).block(0, 0, 30)
    late = np.random.default_rng(1).permutation(30)
    for chosen in (np.arange(30), late):
        for tables in Tables:
            for body in encode(block.choose(chosen), 30, tables=tables):
                rows = rows_of(read_request(body))
                devices = [row[1] for row in rows]
                runs = 1 + sum(a != b for a, b in pairwise(devices))
                assert runs == len(set(devices)) == 3
                for device in set(devices):
                    times = [row[0] for row in rows if row[1] == device]
                    assert times == sorted(times)


@pytest.mark.parametrize("devices", [1, 3, 40])
@pytest.mark.parametrize("kind", [Cpu, Temperature, load_workload("trucks")])
def test_what_describes_a_device_is_that_of_each_event(kind: type[Workload], devices: int) -> None:
    """Though it is encoded once for each run; single inserts are encoded one by one."""
    block = kind(seed=3, device_spread=devices).block(1, 5, 120)
    rows = [row for body in encode(block, 0) for row in rows_of(read_request(body))]
    for tables in Tables:
        bodies = encode(block, 50, tables=tables)
        assert sorted(row for body in bodies for row in rows_of(read_request(body))) == sorted(rows)


def test_a_request_to_several_tables_is_a_tablet_for_each() -> None:
    block = Temperature(device_spread=3).block(0, 2, 10)
    job = Job(block.schema, Load(batch=6, tables=Tables.MULTIPLE))
    first, second = TabletEncoder(job).encode(block)
    assert (first.events, second.events) == (6, 4)
    tablets = [read_request(b"".join(call) + END_CALL) for call in first.data]
    # Event 2 goes to the third table.
    assert [tablet[2] for tablet in tablets] == [b"events2", b"events3", b"events0", b"events1"]
    assert [tablet[7] for tablet in tablets] == [2, 2, 1, 1]


def block_of(*columns: bytes, types: bytes, encodings: bytes, rows: int) -> bytes:
    """A block of an answer; its time column is of zeros."""
    head = struct.pack("!i", len(types)) + types + struct.pack("!i", rows) + b"\x02" + encodings
    return head + b"\0" + bytes(8 * rows) + b"".join(columns)


def test_columns_of_an_answer() -> None:
    """Null bits, texts, booleans with a place for what is null, a value that is repeated."""
    nulls = bytes([1, 0b0100_0000])
    block = block_of(
        nulls + struct.pack("!2i", 5, -6),
        nulls + struct.pack("!i2si3s", 2, b"ab", 3, "ü!".encode()),
        nulls + bytes([0b1000_0000]),
        b"\x02\0" + struct.pack("!d", 1.5),
        b"\0" + struct.pack("!3f", 0.5, 0.25, -2),
        types=bytes([1, 11, 0, 4, 3]),
        encodings=bytes([1, 3, 0, 4, 1]),
        rows=3,
    )
    assert list(read_blocks([block], [0, 1, 2, 3, 4])) == [
        (5, "ab", True, 1.5, 0.5),
        (None, None, None, 1.5, 0.25),
        (-6, "ü!", False, 1.5, -2.0),
    ]
    assert list(read_blocks([block, block], [-1, 4]))[2:4] == [(0, -2.0), (0, 0.5)]


def test_what_is_no_answer() -> None:
    for message in (b"", b"HTTP/1.1 400 Bad Request", call("insertTablet", put_bool(1, True))):
        with pytest.raises(ThriftError, match="not Thrift"):
            read_answer(message)


def test_a_status_of_several_tells_what_failed() -> None:
    parts = [{1: 200}, {1: 606, 2: b"no memory"}]
    with pytest.raises(ServerError, match="606: no memory"):
        check_status({1: 302, 3: parts})
    check_status({1: 302, 3: parts[:1]})
    check_status({1: 400})


def test_names_that_the_database_can_not_tell_apart() -> None:
    module = load_module("iotdb")
    options = parse_options(module.options_model, {"host": "x", "password": "y"}, str)
    for name in ("Time", "DEVICE"):
        columns = (*SCHEMA.columns, Column(name, ColumnType.INT32))
        with pytest.raises(OptionError, match="capital letters"):
            module(options, Job(replace(SCHEMA, columns=columns)))


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ({"column": "small", "above": 1.5}, '"small" > 1'),
        ({"column": "small", "above": -1.5}, '"small" > -2'),
        ({"column": "big", "below": 1.5}, '"big" < 2'),
        ({"column": "exact", "below": 1.5}, '"exact" < 1.5'),
        ({"column": "measure", "above": 0.1}, '"measure" > 0.10000000149011612'),
    ],
)
def test_conditions_are_of_the_columns_type(where: dict[str, object], condition: str) -> None:
    query = Query.model_validate({"name": "x", "events": ["at"], "where": where})
    assert (
        compile_statement(BoundQuery(query), SCHEMA)
        == f'SELECT "time" FROM "where" WHERE {condition}'
    )


def test_tags_in_their_own_table_are_joined_without_their_time() -> None:
    """One device by its id, several and conditions on tags by a join, as there is no IN of a statement."""
    schema = load_workload("trucks")(device_spread=3, tags="table").schema
    tags = '(SELECT "tags_id", '
    for values, devices, expected in (
        ({"events": ["velocity"]}, ("a",), '= (SELECT "tags_id" FROM'),
        ({"events": ["velocity"]}, ("a", "b"), "AS chosen ON"),
        ({"events": ["fleet", "velocity"]}, None, f" JOIN {tags}"),
        (
            {"events": ["velocity"], "where": {"column": "load_capacity", "above": 1}},
            None,
            "AS chosen ON",
        ),
    ):
        query = Query.model_validate({"name": "x", **values})
        statement = compile_statement(BoundQuery(query, devices), schema)
        assert expected in statement
        assert " IN (SELECT" not in statement


def test_ids_of_devices_lead_to_their_names() -> None:
    workload = Cpu(device_spread=3, tags="table")
    [rows] = workload.device_rows(12)
    block = make_tags(workload.schema, rows)
    assert block.columns["hostname"].tolist() == workload.devices(12).tolist()
    assert block.columns["tags_id"].tolist() == [b"00012%06d" % number for number in range(3)]


def test_a_cluster_that_counts_time_in_another_unit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Buckets of time would be a thousand times as long."""
    kind = load_module("iotdb")
    module: Any = kind(
        parse_options(kind.options_model, {"host": "nowhere", "password": "x"}, str), Job(SCHEMA)
    )
    monkeypatch.setattr(module, "ask", lambda statement: [("TimestampPrecision", "us")])
    with pytest.raises(SimulatorError, match=r"in us.*timestamp_precision=ms"):
        module.prepare()
