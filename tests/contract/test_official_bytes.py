"""A lean path sends what the vendor's client sends for the same events, byte by byte, except for what
each writes in its own way: the order of fields, the digits of a float, blanks.

For Cassandra see tests/simulator/test_cassandra_encoding.py. Azure Data Explorer's client takes files as they
are: the messages about them are in tests/simulator/test_azure_data_explorer.py.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Callable
from typing import Any

import lz4.frame
import numpy as np
import psycopg
import pytest
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter

from simulator.modules.base import Encoding
from simulator.modules.kit.official import RowsEncoder
from simulator.modules.options import LEAN
from simulator.testing.events import insert_with
from simulator.testing.server import batch_of, new_job
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.schema import ColumnType

from .http_proxy import HttpRequest, Refuse
from .http_server import HttpServerUnderTest
from .postgres import PostgresUnderTest

COUNT = 12


def _read_body(request: HttpRequest) -> bytes:
    """The body without its compression."""
    kind = request.headers.get("content-encoding", "")
    if kind == "lz4":
        return bytes(lz4.frame.decompress(request.body))
    return gzip.decompress(request.body) if kind == "gzip" else request.body


def _read_json(body: bytes) -> list[Any]:
    """Documents, whether an array or lines. A missing value may be null or absent."""
    is_array = body.startswith(b"[")
    documents = json.loads(body) if is_array else [json.loads(line) for line in body.splitlines()]
    return [_without_nulls(document) for document in documents]


def _read_actions(body: bytes) -> list[Any]:
    """Elasticsearch's: documents, and before each its action, whose index ours names in the path."""
    lines = _read_json(body)
    for line in lines:
        line.get("index", {}).pop("_index", None)
    return lines


def _without_nulls(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if value is not None}


_PART = re.compile(rb"(?:\\.|\"(?:\\.|[^\"\\])*\"|[^ ,\\])+")


def _read_lines(body: bytes) -> list[Any]:
    """Lines of InfluxDB's protocol: names and tags, fields, time. Fields and tags have no order."""
    points = []
    for line in body.splitlines():
        parts = re.match(rb"((?:\\.|[^ \\])+) ((?:\\.|\"(?:\\.|[^\"\\])*\"|[^ \\])+) (\d+)$", line)
        assert parts is not None, line
        tags, fields = (_PART.findall(parts[place]) for place in (1, 2))
        points.append((tags[0], sorted(tags[1:]), sorted(map(_read_field, fields)), parts[3]))
    return points


def _read_field(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.partition(b"=")
    value = {b"t": b"true", b"f": b"false"}.get(value, value)
    is_float = re.fullmatch(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", value) is not None
    return name, b"%r" % float(value) if is_float else value


def _read_statement(body: bytes) -> list[Any]:
    """CrateDB's: the statement without its blanks, and the rows."""
    document = json.loads(body)
    return ["".join(document.pop("stmt").split()), document]


_DOUBLE = re.compile(rb"==\x10(.{8})", re.DOTALL)


def _read_binary_lines(body: bytes) -> list[Any]:
    """QuestDB's: a float that is stored in 32 bits may be sent as any double that is rounded to it."""
    numbers = _DOUBLE.sub(
        lambda match: b"=%r" % float(np.float32(struct.unpack("<d", match[1])[0])), body
    )
    # The client sends times in nanoseconds; ours tells the server to read them as milliseconds.
    return _read_lines(re.sub(rb"(?m)( \d{13})000000n?$", rb"\1", numbers))


def _read_block(body: bytes) -> bytes:
    """ClickHouse's: the client has the statement before the block, ours in the request's parameters."""
    statement, end, block = body.partition(b" FORMAT Native\n")
    return block if end and statement.startswith(b"INSERT") else body


READERS: dict[str, Callable[[bytes], Any]] = {
    "arangodb": _read_json,
    "clickhouse": _read_block,
    "cratedb": _read_statement,
    "elasticsearch": _read_actions,
    "influxdb": _read_lines,
    "questdb": _read_binary_lines,
}
OPTIONS: dict[str, dict[str, Any]] = {
    # The client asks for the column's type and sends that; the server converts what ours sends.
    "clickhouse": {"low_cardinality": False},
    # The client chooses it by itself.
    "questdb": {"line_format": "binary"},
}


def _list_bodies(
    server: HttpServerUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    workload: Workload,
    encoding: Encoding,
    client: str,
) -> list[bytes]:
    """The bodies of the requests that store events."""
    requests: list[HttpRequest] = []
    answer = server.proxy.instead

    def keep(request: HttpRequest) -> Refuse | None:
        if server.proxy.writes(request):
            requests.append(request)
        return answer(request)

    options = {**OPTIONS.get(server.module_type.name, {}), "client": client}
    job = new_job(workload.schema, batch=batch_of(encoding, COUNT))
    with server.prepare(job, encoding, options):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(server.proxy, "instead", keep)
        recorder = insert_with(server.module(job, encoding, options), workload, COUNT)
    assert recorder.events == COUNT
    return [_read_body(request) for request in requests]


@pytest.mark.module(*READERS)
def test_a_lean_path_sends_what_the_vendors_client_sends(
    server: HttpServerUnderTest,
    official: tuple[str, Encoding],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, encoding = official
    module = server.module_type.name
    if module == "elasticsearch" and (client != "official" or not encoding.batched):
        pytest.skip("each makes an index, which takes its time: bulk by helpers.bulk is enough")
    workload = load_workload("machines")(seed=3)
    lean, other = (
        _list_bodies(server, monkeypatch, workload, encoding, name) for name in (LEAN, client)
    )
    assert lean
    read = READERS[module]
    assert [read(body) for body in lean] == [read(body) for body in other]


_TYPES = {
    ColumnType.TIMESTAMP_MS: "int8",
    ColumnType.INT64: "int8",
    ColumnType.INT32: "int4",
    ColumnType.FLOAT32: "float4",
    ColumnType.FLOAT64: "float8",
    ColumnType.BOOL: "bool",
    ColumnType.TEXT: "varchar",
}


class _Kept(LibpqWriter):
    """Notes what a COPY sends."""

    kept = b""

    def write(self, data: Buffer) -> None:
        self.kept += data
        super().write(data)


@pytest.mark.module("postgres")
def test_a_binary_copy_has_what_psycopg_3_sends(server: PostgresUnderTest) -> None:
    if "dialect" in server.options:
        pytest.skip("its COPY has another syntax, and the same data")
    workload = load_workload("machines")(seed=3)
    job = new_job(workload.schema, batch=COUNT)
    module = server.module(job, options={"insert_mode": "copy", "copy_format": "binary"})
    module.open()
    module.prepare()
    module.close()
    block = workload.block(0, 0, COUNT)
    (payload,) = module.writer().encoder.encode(block)
    names = ", ".join(f'"{column.name}"' for column in job.schema.row)
    with psycopg.connect(server.dsn) as connection, connection.cursor() as cursor:
        writer = _Kept(cursor)
        statement = f'COPY "{job.schema.table}" ({names}) FROM STDIN (FORMAT BINARY)'
        with cursor.copy(statement, writer=writer) as copy:
            copy.set_types([_TYPES[column.type] for column in job.schema.row])
            for row in RowsEncoder(job).list_values(block):
                copy.write_row(row)
    ((_, data),), _ = payload.data
    assert len(writer.kept) > COUNT * 50 and writer.kept == data
