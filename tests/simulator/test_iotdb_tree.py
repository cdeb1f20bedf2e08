"""IoTDB's tree model: tablets and records as bytes, paths, statements, what is refused."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from simulator.contract import Load, Tables
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.iotdb import tablets
from simulator.modules.iotdb.queries import Selection, compile_question
from simulator.modules.iotdb.schema import name_table, quote, split_path, write_node
from simulator.modules.iotdb.tablets import find_runs
from simulator.modules.iotdb.thrift import END_CALL, Fields, put_i64, read_answer
from simulator.modules.iotdb.tree_tablets import TreeEncoder
from simulator.modules.options import parse_options
from simulator.testing.events import Sundry, make_schema
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, EventBlock, Schema
from simulator.workloads.temperature import Temperature

from .test_iotdb import SCHEMA, official_block, rows_of

# By apache-iotdb 2.0.11, as Thrift writes them, with session 77: `insert_aligned_tablets` of the events of
# `official_block`, a tablet for each device; `insert_aligned_record` of its second and its fourth event, in
# which a value is missing.
TABLETS = base64.b64decode(
    "gAEAAQAAAA1pbnNlcnRUYWJsZXRzAAAAAAwAAQoAAQAAAAAAAABNDwACCwAAAAIAAAAXcm9vdC5iZW5jaG1hcmsud2hlcmUudzAAAAAY"
    "cm9vdC5iZW5jaG1hcmsud2hlcmUudzExDwADDwAAAAILAAAABwAAAARub3RlAAAABXNtYWxsAAAAA2JpZwAAAAdtZWFzdXJlAAAABWV4"
    "YWN0AAAAAm9uAAAABHNlZW4LAAAABwAAAARub3RlAAAABXNtYWxsAAAAA2JpZwAAAAdtZWFzdXJlAAAABWV4YWN0AAAAAm9uAAAABHNl"
    "ZW4PAAQLAAAAAgAAAMsAAAAAAAAABkvDvGNoZQAAAAF4AAAAAAAAAAJhYv////z////9/////v////8AAAAA///8XK1rwAD///1FghDQ"
    "AP///i5WteAA////Fyta8AAAAAAAAAAAAAAAAAA+gAAAPwAAAD9AAAA/gAAAAAAAAAAAAAA/1VVVVVVVVT/lVVVVVVVVP/AAAAAAAAA/"
    "9VVVVVVVVQEAAQAAAAABi8/laAAAAAGLz+Vr6AAAAYvP5W/QAAABi8/lc7gAAAGLz+V3oAEBAAAAAAEIAAAAAJ8AAAAAAAAAAWMAAAAC"
    "ZGQAAAAAAAAAAQAAAAIAAAADAAAABAAAAOjUpRAAAAAB0alKIAAAAAK6fe8wAAAAA6NSlEAAP6AAAD/AAAA/4AAAQAAAAD/6qqqqqqqr"
    "QAAAAAAAAABAAqqqqqqqq0AFVVVVVVVVAQEAAQAAAYvP5XuIAAABi8/lf3AAAAGLz+WDWAAAAYvP5YdAAQgAAAAAAAAPAAULAAAAAgAA"
    "ACgAAAGMwlH0AAAAAYzCUfQBAAABjMJR9AIAAAGMwlH0AwAAAYzCUfQEAAAAIAAAAYzCUfQFAAABjMJR9AYAAAGMwlH0BwAAAYzCUfQI"
    "DwAGDwAAAAIIAAAABwAAAAsAAAABAAAAAgAAAAMAAAAEAAAAAAAAAAgIAAAABwAAAAsAAAABAAAAAgAAAAMAAAAEAAAAAAAAAAgPAAcI"
    "AAAAAgAAAAUAAAAEAgAIAQAA"
)
RECORD = base64.b64decode(
    "gAEAAQAAAAxpbnNlcnRSZWNvcmQAAAAADAABCgABAAAAAAAAAE0LAAIAAAAXcm9vdC5iZW5jaG1hcmsud2hlcmUudzAPAAMLAAAABwAA"
    "AARub3RlAAAABXNtYWxsAAAAA2JpZwAAAAdtZWFzdXJlAAAABWV4YWN0AAAAAm9uAAAABHNlZW4LAAQAAAAyCwAAAAZLw7xjaGUB////"
    "/QL///1FghDQAAM+gAAABD/VVVVVVVVVAAAIAAABi8/la+gKAAUAAAGMwlH0AQIABgEAAA=="
)
RECORD_WITH_GAP = base64.b64decode(
    "gAEAAQAAAAxpbnNlcnRSZWNvcmQAAAAADAABCgABAAAAAAAAAE0LAAIAAAAXcm9vdC5iZW5jaG1hcmsud2hlcmUudzAPAAMLAAAABgAA"
    "AARub3RlAAAABXNtYWxsAAAAA2JpZwAAAAdtZWFzdXJlAAAABWV4YWN0AAAABHNlZW4LAAQAAAAqCwAAAAAB/////wL///8XK1rwAAM/"
    "QAAABD/wAAAAAAAACAAAAYvP5XO4CgAFAAABjMJR9AMCAAYBAAA="
)


def read_call(message: bytes) -> Fields:
    """The fields of the struct that a call is made with."""
    (length,) = struct.unpack_from("!i", message, 4)
    body = message[8 + length + 4 :]
    # An answer's result has the number 0, a call's argument the number 1.
    reply = struct.pack("!Ii", 0x80010002, 0) + bytes(4) + body[:1] + b"\0\0" + body[3:]
    fields: Fields = read_answer(reply)
    return fields


def encode(block: EventBlock, batch: int, **load: Any) -> list[bytes]:
    """The calls of a block, complete, for session 77."""
    job = Job(block.schema, Load(batch=batch, **load))
    payloads = TreeEncoder(job, "benchmark").encode(block)
    assert [payload.events for payload in payloads] == [
        min(batch or 1, len(block) - start) for start in range(0, len(block), batch or 1)
    ]
    return [
        b"".join(call) + put_i64(1, 77) + END_CALL for payload in payloads for call in payload.data
    ]


def tablets_of(request: Fields) -> Iterator[tuple[str, list[bytes], list[tuple[Any, ...]]]]:
    """Path, names and rows of each of a request's tablets."""
    lists = [request[number] for number in (2, 3, 4, 5, 6, 7)]
    for path, names, values, times, types, size in zip(*lists, strict=True):
        rows = rows_of({4: values, 5: times, 6: types, 7: size})
        yield path.decode(), names, rows


def all_rows(requests: list[bytes]) -> list[tuple[Any, ...]]:
    """Path, time and values of all events in tablets."""
    return [
        (path, *row)
        for request in requests
        for path, _, rows in tablets_of(read_call(request))
        for row in rows
    ]


def test_tablets_are_those_of_the_official_client() -> None:
    """Except for their order, which is free, for what is sent in place of a missing value, and for the bits
    of a column that has none missing in one of the tablets."""
    [message] = encode(official_block(), 100)
    ours, official = read_call(message), read_call(TABLETS)
    assert set(ours) == set(official)
    assert ours[1] == official[1]
    assert ours[8] is official[8] is True
    assert sorted(tablets_of(ours)) == sorted(tablets_of(official))
    assert sorted(zip(ours[2], ours[6], strict=True)) == sorted(
        zip(official[2], official[6], strict=True)
    )


def test_records_are_those_of_the_official_client() -> None:
    """A missing value isn't named."""
    records = [read_call(call) for call in encode(official_block(), 0)]
    assert records[1] == read_call(RECORD)
    assert records[3] == read_call(RECORD_WITH_GAP)


def expected_rows(block: EventBlock, tables: int) -> list[tuple[Any, ...]]:
    """The same as `all_rows`, from the events."""
    schema = block.schema
    measurements = [c.name for c in schema.columns if c.name not in (schema.time, schema.device)]
    if schema.device_path:
        measurements = [c.name for c in schema.columns if c.name != schema.time]
    columns = [block.columns[schema.time].tolist()]
    for name in measurements:
        values = block.columns[name].tolist()
        for row in np.flatnonzero(block.missing.get(name, False)):
            values[row] = None
        columns.append(values)
    names = [schema.table] if tables == 1 else [f"{schema.table}{n}" for n in range(tables)]
    paths = [
        f"{name_table('benchmark', names[number % tables])}.{device.decode()}"
        for number, device in enumerate(block.devices.tolist(), block.first)
    ]
    return list(zip(paths, *columns, strict=True))


@pytest.mark.parametrize("devices", [1, 3, 40])
@pytest.mark.parametrize("kind", [Cpu, Temperature, load_workload("machines"), Sundry])
def test_each_event_is_in_a_tablet_of_its_device(kind: type[Workload], devices: int) -> None:
    """With all values and gaps, whatever is sent together: texts of all lengths, late events."""
    spread = {} if kind is Sundry else {"device_spread": devices}
    block = kind(seed=3, **spread).block(1, 5, 130)
    for tables, count in ((Tables.SINGLE, 1), (Tables.MULTIPLE, 4)):
        for batch in (1, 7, 50, 1000):
            requests = encode(block, batch, tables=tables)
            sent, expected = all_rows(requests), expected_rows(block, count)
            assert sorted(sent, key=repr) == sorted(expected, key=repr)
            for request in requests:
                paths = [path for path, _, _ in tablets_of(read_call(request))]
                assert len(paths) == len(set(paths))
                for _, _, rows in tablets_of(read_call(request)):
                    assert rows == sorted(rows, key=lambda row: row[0])


NAMES = {
    "turns": [*"cab"] * 20,
    "but once": [*"cab"] * 19 + [*"acb"],
    "not at first": [*"acb"] + [*"cab"] * 19,
    "one twice": [*"abca"] * 15,
    "one twice in its turn": [*"cabb"] * 15,
    "ever new ones": [f"d{number:02}" for number in range(60)],
}


@pytest.mark.parametrize("batch", [1, 3, 12, 20, 30, 60])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_devices_that_take_turns_and_others(names: Sequence[str], batch: int) -> None:
    """Whether or not requests end with the last of them."""
    original = Cpu().block(0, 0, 60)
    devices = np.array(names).astype(np.bytes_)
    block = EventBlock(original.schema, 0, 0, original.columns, devices, original.missing)
    requests = encode(block, batch)
    begun = 0
    for request in requests:
        part = block.part(begun, begun + batch)
        assert sorted(all_rows([request])) == sorted(expected_rows(part, 1))
        tablets = list(tablets_of(read_call(request)))
        assert len(tablets) == len(set(part.devices.tolist()))
        assert all(rows == sorted(rows) for _, _, rows in tablets)
        begun += batch


def count_turns(block: EventBlock, batch: int) -> int:
    return find_runs(block, block.schema.time, batch, 1).turns


def encode_sorted(block: EventBlock, batch: int, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The calls of a block whose devices aren't found to take turns."""
    with monkeypatch.context() as patch:
        patch.setattr(tablets, "count_turns", lambda devices, batch: 0)
        assert count_turns(block, batch) == 0
        return encode(block, batch)


@pytest.mark.parametrize(
    ("devices", "first", "count", "batch", "turns"),
    [
        (1, 0, 3000, 100, 0),
        (2, 0, 3000, 100, 2),
        (10, 0, 6000, 100, 10),
        (10, 7, 6000, 100, 10),
        (10, 0, 6000, 20, 10),
        (10, 0, 200, 100, 10),
        (60, 0, 3000, 60, 60),
        (10, 0, 6003, 100, 0),
        (10, 0, 5975, 25, 0),
        (7, 0, 6000, 100, 0),
    ],
    ids=[
        "one", "two", "ten", "begun within a turn", "few events of each", "few requests", "an event of each",
        "a smaller request", "requests that end within a turn", "turns of other lengths",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gaps", [[], [2], [2, 5, 1999]])
@pytest.mark.parametrize("kind", [Cpu, Temperature])
def test_turns_give_the_bytes_that_sorting_gives(
    kind: type[Workload],
    gaps: list[int],
    devices: int,
    first: int,
    count: int,
    batch: int,
    turns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With texts of several lengths and without any, with gaps in these rows and without; what isn't whole
    turns is sorted."""
    original = kind(seed=3, device_spread=devices).block(1, first, count)
    missing = {original.schema.columns[-1].name: np.isin(np.arange(count), gaps)}
    block = EventBlock(original.schema, 1, first, original.columns, original.devices, missing)
    assert count_turns(block, batch) == turns
    assert encode(block, batch) == encode_sorted(block, batch, monkeypatch)


def test_what_only_begins_as_turns_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices change places in the last request; and in another block they keep their places, but the
    text that describes one of them gets longer."""
    rows = np.arange(3000)
    rows[[2995, 2996]] = 2996, 2995
    original = Cpu(device_spread=10).block(0, 0, 3000)
    columns = {**original.columns, "tags": original.columns["tags"][rows]}
    block = EventBlock(original.schema, 0, 0, columns, original.devices[rows])
    assert count_turns(block.part(0, 2900), 100) == 10
    assert count_turns(block, 100) == 0
    assert encode(block, 100) == encode_sorted(block, 100, monkeypatch)
    assert sorted(all_rows(encode(block, 100))) == sorted(expected_rows(block, 1))

    schema = make_schema("x", Column("tag", ColumnType.TEXT, tag=True))
    texts = np.array([b"a", b"bb"] * 1500, dtype="S4")
    texts[2901::2] = b"cccc"
    columns = {"at": np.arange(3000), "device": original.devices, "tag": texts}
    longer = EventBlock(schema, 0, 0, columns, np.array([b"y", b"x"] * 1500))
    assert count_turns(longer, 100) == 2
    assert encode(longer, 100) == encode_sorted(longer, 100, monkeypatch)
    assert sorted(all_rows(encode(longer, 100))) == sorted(expected_rows(longer, 1))


@pytest.mark.parametrize("width", [1, 12])
def test_turns_in_any_order_give_the_bytes_that_sorting_gives(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With names that differ in few places or in many; one name may be the beginning of another."""
    names = [
        *(letter * width for letter in "cab\N{LATIN SMALL LETTER U WITH DIAERESIS}"),
        "aa",
        "ba",
    ]
    original = Cpu(device_spread=len(names)).block(0, 0, 600 * len(names))
    devices = np.array([name.encode() for name in names] * 600)
    block = EventBlock(original.schema, 0, 0, original.columns, devices)
    for events in (1, 40):
        batch = events * len(names)
        assert count_turns(block, batch) == len(names)
        assert encode(block, batch) == encode_sorted(block, batch, monkeypatch)


def test_devices_whose_names_differ_everywhere() -> None:
    """More places than those that a number is made of; and names that have to be quoted in a path."""
    block = Temperature().block(0, 0, 6)
    devices = np.array([b"abcdefgh", b"ABCDEFGH", b"a.b`c", b"", b"12", b"abcdefgh"])
    mixed = EventBlock(block.schema, 0, 0, block.columns, devices)
    [request] = encode(mixed, 10)
    counts = {split_path(path)[3]: len(rows) for path, _, rows in tablets_of(read_call(request))}
    assert counts == {"abcdefgh": 2, "ABCDEFGH": 1, "a.b`c": 1, "": 1, "12": 1}


def test_paths() -> None:
    assert write_node("w00001d000000") == "w00001d000000"
    assert write_node("12") == "`12`"
    assert quote("a`b") == "`a``b`"
    assert split_path("root.x.`a.b``c`.y") == ["root", "x", "a.b`c", "y"]


def refuse(schema: Schema) -> str:
    """Why a job with such events is refused."""
    module = load_module("iotdb")
    values = {"host": "x", "password": "y", "model": "tree"}
    options = parse_options(module.options_model, values, str)
    with pytest.raises(OptionError) as refused:
        module(options, Job(schema))
    return str(refused.value)


def test_what_the_tree_has_not_is_refused_before_the_run() -> None:
    number = Column("Time", ColumnType.INT32)
    assert "model=tree can't have a measurement called Time: use model=table" in refuse(
        make_schema("x", number)
    )
    gone = Column("gone", ColumnType.INT32, nullable=True)
    assert "can't store events without a value" in refuse(make_schema("x", gone))
    apart = load_workload("machines")(tags="table").schema
    assert "tags=table" in refuse(apart)


def statements_of(bound: BoundQuery, answers: list[list[tuple[Any, ...]]]) -> tuple[list[str], Any]:
    """The statements that are asked if these are the answers, and the rows that are made from them."""
    compiled = compile_question(bound, SCHEMA, "root.b.x")
    if isinstance(compiled, Selection):
        [answer] = answers
        return [compiled.text], compiled.read(answer)
    steps = compiled.begin()
    statements = [next(steps)]
    for answer in answers:
        try:
            statements.append(steps.send(answer))
        except StopIteration as end:
            return statements, end.value
    raise AssertionError("more is asked than is answered")


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ({"column": "small", "above": 1.5}, "`small` > 1"),
        ({"column": "big", "below": 1.5}, "`big` < 2"),
        ({"column": "exact", "below": 1.5}, "`exact` < 1.5"),
        ({"column": "measure", "above": 0.1}, "`measure` > 0.10000000149011612"),
    ],
)
def test_conditions_are_of_the_columns_type(where: dict[str, object], condition: str) -> None:
    query = Query.model_validate({"name": "x", "events": ["at"], "where": where})
    statements, rows = statements_of(BoundQuery(query), [[(5, "root.b.x.w1", 7)]])
    assert statements == [f"SELECT `small` FROM root.b.x.* WHERE {condition} ALIGN BY DEVICE"]
    assert rows == [(5,)]


def test_all_devices_together_are_the_servers_work_where_it_can() -> None:
    mean = {"compute": [{"function": "avg", "column": "exact"}], "per": [{"every": "10s"}]}
    query = Query.model_validate({"name": "x", **mean})
    bound = BoundQuery(query, None, 12_000, 31_000)
    statements, rows = statements_of(bound, [[(10_000, 3, 9.0, 2), (30_000, 1, None, 0)]])
    [statement] = statements
    assert statement == (
        "SELECT count(`small`), sum(`exact`), count(`exact`) FROM root.b.x.* WHERE time >= 12000 AND"
        " time < 31000 GROUP BY ([10000, 31000), 10000ms), LEVEL = 2 HAVING count(`small`) > 0"
    )
    assert rows == [(10_000, 4.5), (30_000, None)]


def test_under_a_condition_parts_are_put_together() -> None:
    """And buckets begin and end with the events that there are."""
    functions = ("count", "min", "max", "sum")
    compute = [
        {"function": name} | ({} if name == "count" else {"column": "exact"}) for name in functions
    ]
    where = {"column": "small", "above": 3}
    described = {"name": "x", "compute": compute, "per": [{"every": "10s"}], "where": where}
    span = [("root.b.x.a", 12_000, 14_000), ("root.b.x.b", None, None)]
    parts = [
        (10_000, "root.b.x.a", 2, 1.0, 2.0, 3.0),
        (10_000, "root.b.x.b", 1, None, None, None),
        (10_000, "root.b.x.c", 1, 0.5, 0.5, 0.5),
    ]
    statements, rows = statements_of(BoundQuery(Query.model_validate(described)), [span, parts])
    assert "min_time(`small`), max_time(`small`)" in statements[0]
    assert "GROUP BY ([10000, 14001), 10000ms) HAVING" in statements[1]
    assert rows == [(10_000, 4, 0.5, 2.0, 3.5)]


def test_a_newest_value_that_is_missing_is_not_the_one_before() -> None:
    query = Query.model_validate({"name": "x", "events": ["at", "on", "exact"], "newest": True})
    last = [
        (9, "root.b.x.a.small", "5", "INT32"),
        (8, "root.b.x.a.on", "true", "BOOLEAN"),
        (9, "root.b.x.a.exact", "1.0E-7", "DOUBLE"),
    ]
    statements, rows = statements_of(BoundQuery(query), [last])
    assert statements == ["SELECT LAST `on`, `exact`, `small` FROM root.b.x.*"]
    assert rows == [("a", 9, None, 1e-7)]


def test_last_values_of_all_time_are_asked_for_as_such() -> None:
    """Those within a window, or beside something computed, aren't."""
    last = {"function": "last", "column": "exact"}
    described = {"name": "x", "compute": [last], "per": ["device"]}
    answer = [(9, "root.b.x.a.exact", "0.5", "DOUBLE"), (9, "root.b.x.a.small", "1", "INT32")]
    statements, rows = statements_of(BoundQuery(Query.model_validate(described)), [answer])
    assert statements == ["SELECT LAST `exact`, `small` FROM root.b.x.*"]
    assert rows == [("a", 0.5)]
    both = Query.model_validate(described | {"compute": [last, {"function": "count"}]})
    for bound in (BoundQuery(both), BoundQuery(Query.model_validate(described), None, 0, 9)):
        [statement], _ = statements_of(bound, [[("root.b.x.a", 0, None, None, None)]])
        assert "last_value(`exact`)" in statement
