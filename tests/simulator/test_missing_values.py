"""Events without a value in some columns, as each database's payload has them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.contract import Load
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.base import Job, Support
from simulator.modules.options import parse_payload_options
from simulator.testing.events import make_schema
from simulator.workloads.schema import Column, ColumnType, EventBlock

SCHEMA = make_schema(
    "things",
    Column("heat", ColumnType.FLOAT32, decimals=1, nullable=True),
    Column("note", ColumnType.TEXT, nullable=True),
    Column("open", ColumnType.BOOL, nullable=True),
    Column("exact", ColumnType.FLOAT64),
    device="thing",
)
THINGS = np.array([b"a", b"a", b"a"])
BLOCK = EventBlock(
    SCHEMA,
    0,
    0,
    {
        "at": np.array([1, 2, 3]),
        "thing": THINGS,
        "heat": np.array([0.5, 7, -2.5], np.float32),
        "note": np.array([b"x", b'say "o"', b"y"]),
        "open": np.array([True, False, True]),
        "exact": np.array([0.1, 1e300, -2]),
    },
    THINGS,
    {
        "heat": np.array([False, True, False]),
        "note": np.array([True, False, False]),
        "open": np.array([False, False, True]),
    },
)


def payload(module: str, **options: Any) -> Any:
    """The data of one request with all three events."""
    kind = load_module(module)
    parsed = parse_payload_options(kind.options_model, options)
    [request] = kind.encoder(parsed, Job(SCHEMA, Load(batch=3))).encode(BLOCK)
    return request.data


def test_line_protocol_leaves_the_field_out() -> None:
    body = payload("influxdb", gzip=False)
    assert body.decode().split("\n") == [
        "things,thing=a exact=0.10000000000000001,heat=0.5,open=true 1",
        'things,thing=a exact=1.0000000000000001e+300,note="say \\"o\\"",open=false 2',
        'things,thing=a exact=-2,heat=-2.5,note="y" 3',
    ]


def test_a_database_whose_events_need_a_value_says_so_before_the_run() -> None:
    can = load_module("influxdb").CAPABILITIES
    can.require_workload(SCHEMA, "things", "influxdb")
    schema = replace(SCHEMA, columns=SCHEMA.columns[:-1])
    assert can.workload(schema) is Support.MISSING
    with pytest.raises(OptionError, match="workload things: it has no column besides time, device"):
        can.require_workload(schema, "things", "influxdb")
    load_module("postgres").CAPABILITIES.require_workload(schema, "things", "postgres")


def test_documents_have_null() -> None:
    [request] = payload("arangodb")
    documents = json.loads(request.body)
    rows = [
        [document[name] for name in ("heat", "note", "open", "exact")] for document in documents
    ]
    assert rows == [[0.5, None, True, 0.1], [None, 'say "o"', False, 1e300], [-2.5, "y", None, -2]]


@pytest.mark.parametrize("mode", ["bulk", "unnest"])
def test_arguments_are_null(mode: str) -> None:
    [part] = payload("cratedb", insert_mode=mode)
    body = json.loads(part.body)
    columns = body["args"] if mode == "unnest" else list(zip(*body["bulk_args"], strict=True))
    assert [list(values) for values in columns[2:5]] == [
        [0.5, None, -2.5], [None, 'say "o"', "y"], [True, False, None],
    ]  # fmt: skip
    part.cut([1], payload_of("cratedb", mode))
    assert b"null" in part.body and b"say" in part.body and b'"y"' not in part.body


def payload_of(module: str, mode: str) -> Any:
    kind = load_module(module)
    options = parse_payload_options(kind.options_model, {"insert_mode": mode})
    return kind.encoder(options, Job(SCHEMA, Load(batch=3))).encode(BLOCK)[0]


def test_csv_is_empty() -> None:
    [part] = payload("azure_data_explorer")
    assert gzip.decompress(part.body).decode().split("\n") == [
        '1970-01-01T00:00:00.001Z,"a",0.5,,true,0.10000000000000001',
        '1970-01-01T00:00:00.002Z,"a",,"say ""o""",false,1.0000000000000001e+300',
        '1970-01-01T00:00:00.003Z,"a",-2.5,"y",,-2',
    ]


def test_cql_values_are_not_set_and_not_null() -> None:
    """NULL would be stored as a tombstone."""
    body = payload("cassandra").body
    assert body.count((-2).to_bytes(4, "big", signed=True)) == 3
    assert (-1).to_bytes(4, "big", signed=True) not in body
