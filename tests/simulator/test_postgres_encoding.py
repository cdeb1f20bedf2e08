"""Payloads for PostgreSQL, taken apart again by parsers of their own."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
import pytest

from simulator.contract import Load, PrimaryKey, Tables
from simulator.encoding.columns import client_keys, quote_name
from simulator.encoding.postgres_rows import (
    ValueCutter,
    bind_rows,
    copy_binary,
    text_rows,
    value_rows,
)
from simulator.modules.base import Job
from simulator.modules.options import InsertMode
from simulator.modules.postgres.encoding import CopyFormat, PostgresEncoder
from simulator.modules.sending import Request
from simulator.testing.events import TEXTS, Row, normalise, rows_of
from simulator.workloads import WORKLOADS
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import Column, ColumnType, EventBlock, Schema
from simulator.workloads.temperature import Temperature

from .encoded import each_kind

# --- parsers --------------------------------------------------------------------------------------


def parsed_binary(stream: bytes, schema: Schema, key: bool = False) -> list[tuple[Any, ...]]:
    """Rows of a binary COPY stream (https://www.postgresql.org/docs/current/sql-copy.html)."""
    assert stream.startswith(b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0))
    at = 19
    types = [ColumnType.TEXT] * key + [column.type for column in schema.columns]
    rows: list[tuple[Any, ...]] = []
    while True:
        (fields,) = struct.unpack_from("!h", stream, at)
        at += 2
        if fields == -1:
            assert at == len(stream), "data behind the trailer"
            return rows
        assert fields == len(types)
        row = []
        for kind in types:
            (length,) = struct.unpack_from("!i", stream, at)
            at += 4
            row.append(_field(kind, stream[at : at + length]))
            at += length
        rows.append(tuple(row))


def _field(kind: ColumnType, data: bytes) -> Any:
    if kind is ColumnType.JSON:
        assert data[:1] == b"\x01", "version of jsonb's binary form"
        return data[1:]
    if kind is ColumnType.TEXT:
        return data
    form = {ColumnType.INT32: "!i", ColumnType.FLOAT32: "!f"}.get(kind, "!q")
    return struct.unpack(form, data)[0]


_UNESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


def parsed_text(data: bytes) -> list[tuple[bytes, ...]]:
    """Rows of a text COPY as texts."""
    assert data.endswith(b"\n")

    def value(field: bytes) -> bytes:
        assert field != b"\\N", "a NULL"
        return re.sub(rb"\\(.)", lambda match: _UNESCAPED[match[1]], field)

    return [tuple(map(value, line.split(b"\t"))) for line in data[:-1].split(b"\n")]


def parsed_values(text: bytes) -> list[tuple[bytes, ...]]:
    """`(v, …),(v, …)` as texts; only strings are quoted."""
    literal = rb"'(?:[^']|'')*'|[^',()]+"
    assert re.fullmatch(
        rb"\((?:%b)(?:,(?:%b))*\)(?:,\((?:%b)(?:,(?:%b))*\))*" % ((literal,) * 4), text
    )
    values = [
        field[1:-1].replace(b"''", b"'") if field.startswith(b"'") else field
        for field in re.findall(literal, text)
    ]
    row = re.match(rb"\((?:%b)(?:,(?:%b))*\)" % ((literal,) * 2), text)
    assert row
    width = len(re.findall(literal, row[0]))
    return [tuple(values[start : start + width]) for start in range(0, len(values), width)]


def to_values(schema: Schema, rows: list[tuple[Any, ...]]) -> list[Row]:
    """Rows of texts or numbers as values that can be compared."""

    def value(kind: ColumnType, field: Any) -> Any:
        if kind in (ColumnType.TEXT, ColumnType.JSON):
            return field
        return float(field) if kind is ColumnType.FLOAT32 else int(field)

    kinds = [column.type for column in schema.columns]
    return normalise(
        schema, ([value(*pair) for pair in zip(kinds, row, strict=True)] for row in rows)
    )


def columns_of(block: EventBlock) -> tuple[Any, Any]:
    return block.schema.columns, block.columns


# --- rows -----------------------------------------------------------------------------------------


@each_kind
def test_binary_rows_are_the_events(kind: type[Workload]) -> None:
    block = kind(device_spread=3).block(1, 5, 90)
    streams = copy_binary(columns_of(block), 25)
    assert len(streams) == 4
    parsed = [row for stream in streams for row in parsed_binary(stream, block.schema)]
    assert to_values(block.schema, parsed) == rows_of(block)


@each_kind
def test_text_rows_are_the_events(kind: type[Workload]) -> None:
    block = kind(device_spread=3).block(1, 5, 90)
    data = text_rows(columns_of(block), 25)
    assert len(data) == 4
    parsed = [row for part in data for row in parsed_text(part)]
    assert to_values(block.schema, parsed) == rows_of(block)


@each_kind
def test_value_rows_are_the_events(kind: type[Workload]) -> None:
    block = kind(device_spread=3).block(1, 5, 90)
    lists = value_rows(columns_of(block), 25, b"", b",")
    assert len(lists) == 4
    parsed = [row for part in lists for row in parsed_values(part)]
    assert to_values(block.schema, parsed) == rows_of(block)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinite_numbers_are_texts_that_the_server_reads(dtype: Any) -> None:
    """As many as numpy would format at once."""
    kind = ColumnType(np.dtype(dtype).name)
    for decimals, one in ((2, b"1.50"), (None, b"1.5")):
        columns = (Column("odd", kind, decimals, not_finite=3),)
        values = {"odd": np.resize(np.array([1.5, np.nan, np.inf, -np.inf], dtype), 800)}
        [copied] = text_rows((columns, values), 800)
        assert copied == b"\n".join([one, b"nan", b"inf", b"-inf"] * 200) + b"\n"
        [listed] = value_rows((columns, values), 800, b"", b",")
        quoted = b",".join([b"('%b')" % one, b"('nan')", b"('inf')", b"('-inf')"] * 200)
        assert listed == quoted


@pytest.mark.parametrize(
    ("seed", "worker", "hosts", "extra_tags", "binary", "text"),
    [
        (0, 0, 1, 0, "fefb2e56783c68ba", "c7585cbb639d309e"),
        (42, 7, 3, 2, "520d34757947f67d", "97e9cfe93ca2d845"),
        (2**64 - 1, 99_999, 1800, 0, "95247405255aa6bd", "83593696965c00fa"),
        (5, 12, 4000, 1, "7b20cbb3eb23ac68", "d56a31835d934dc6"),
    ],
)
def test_what_is_copied_stays_the_same(
    seed: int, worker: int, hosts: int, extra_tags: int, binary: str, text: str
) -> None:
    """Frozen: whoever changes a byte makes every earlier result incomparable."""
    workload = Cpu(seed=seed, device_spread=hosts, extra_tags=extra_tags)
    columns = columns_of(workload.block(worker, 1_000_003, 2500))
    for make, digest in ((copy_binary, binary), (text_rows, text)):
        assert sha256(b"".join(make(columns, 1000))).hexdigest()[:16] == digest
        whole = b"".join(make(columns, 500))
        firsts = range(1_000_003, 1_002_503, 500)
        blocks = [columns_of(workload.block(worker, first, 500)) for first in firsts]
        assert b"".join(data for block in blocks for data in make(block, 500)) == whole


def test_floats_are_sent_with_their_columns_decimals() -> None:
    """So that no database gets a longer payload than another."""
    block = Temperature().block(0, 0, 200)
    for row in parsed_text(text_rows(columns_of(block), 200)[0]):
        assert re.fullmatch(rb"-?\d+\.\d\d", row[3])


def texts(*values: str) -> EventBlock:
    column = np.array([value.encode() for value in values])
    schema = Schema("t", (Column("a", ColumnType.TEXT),), time="a", device="a", key=("a",))
    return EventBlock(schema, 0, 0, {"a": column}, column)


@pytest.mark.parametrize(
    "values",
    [TEXTS, ("", "", ""), ("same", "wide"), ("ü", "x"), ("one",), ("a", "bb", "")],
    ids=["all", "empty", "full width", "several bytes", "one row", "rising"],
)
def test_binary_texts_are_cut_to_their_own_length(values: tuple[str, ...]) -> None:
    block = texts(*values)
    for size in (1, 2, len(values)):
        streams = copy_binary(columns_of(block), size)
        parsed = [row[0].decode() for s in streams for row in parsed_binary(s, block.schema)]
        assert parsed == list(values)


def test_a_template_is_not_changed_by_its_users() -> None:
    """It is kept from one chunk to the next."""
    first, second = texts("long text", "short"), texts("short", "long text")
    for block in (first, second, first):
        (stream,) = copy_binary(columns_of(block), 2)
        assert to_values(block.schema, parsed_binary(stream, block.schema)) == rows_of(block)


def test_identifiers_are_quoted() -> None:
    assert quote_name('a "b" %') == '"a ""b"" %"'
    block = texts("100 %")
    schema = Schema('t "%d"', (Column('c "%s"', ColumnType.TEXT),), "c", "c", ())
    named = EventBlock(schema, 0, 0, {'c "%s"': block.columns["a"]}, block.devices)
    insert = b'INSERT INTO "t ""%d""" ("c ""%s""") VALUES '
    for mode, batch in ((InsertMode.VALUES_LISTS, 1), (InsertMode.SINGLE, 0)):
        job = Job(schema, Load(batch=batch, primary_key=PrimaryKey.NONE))
        encoder = PostgresEncoder(job, mode, CopyFormat.TEXT, prepared=False)
        (payload,) = encoder.encode(named)
        assert payload.data == ([(insert + b"('100 %')", None)], False)
        assert encoder.list_prepared() == []
    encoder = PostgresEncoder(
        Job(schema, Load(primary_key=PrimaryKey.NONE)), InsertMode.SINGLE, CopyFormat.TEXT
    )
    assert encoder.list_prepared() == [(b"insert0", insert + b"($1)", [1043])]


# --- requests -------------------------------------------------------------------------------------


def messages_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and body of each message."""
    messages, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("!cI", data, at)
        messages.append((kind, data[at + 5 : at + 1 + length]))
        at += 1 + length
    assert at == len(data), "the end of a message is missing"
    return messages


def parsed_bind(body: bytes, schema: Schema) -> tuple[bytes, tuple[Any, ...]]:
    """The prepared statement's name and the row of a Bind, all binary:
    https://www.postgresql.org/docs/current/protocol-message-formats.html"""
    portal, name, rest = body.split(b"\0", 2)
    assert portal == b""
    assert struct.unpack_from("!hhh", rest) == (1, 1, len(schema.columns))
    at, row = 6, []
    for column in schema.columns:
        (length,) = struct.unpack_from("!i", rest, at)
        at += 4
        row.append(None if length < 0 else _field(column.type, rest[at : at + length]))
        at += max(length, 0)
    assert rest[at:] == b"\0\0", "formats of the result's columns, of which there are none"
    return name, tuple(row)


def parsed_inserts(data: bytes, schema: Schema) -> list[tuple[bytes, tuple[Any, ...]]]:
    """What prepared INSERTs up to one synchronisation insert."""
    messages = messages_of(data)
    kinds = b"".join(kind for kind, _ in messages)
    assert kinds == b"BE" * (len(messages) // 2) + b"S"
    assert all(body == bytes(5) for kind, body in messages if kind == b"E")
    rows = [parsed_bind(body, schema) for kind, body in messages if kind == b"B"]
    # As libpq is given them over TLS.
    cut = [
        (
            name,
            tuple(None if value is None else _field(column.type, value) for column, value in pairs),
        )
        for name, values in ValueCutter().cut(data)
        for pairs in [list(zip(schema.columns, values, strict=True))]
    ]
    assert cut == rows
    return rows


_COLUMN_LIST = '("timestamp", "device_id", "sequence_number", "temperature")'


def table_of(statement: bytes, verb: str) -> int:
    """The number of the table that a statement is about, after checking the rest of its beginning."""
    match = re.match(rf'{verb} "events([0-3]?)" {re.escape(_COLUMN_LIST)}', statement.decode())
    assert match, statement
    return int(match[1] or 0)


def parse_payload(
    encoder: PostgresEncoder, payload: Request
) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """What a payload holds: (table, its rows), in the order of sending."""
    inserts, in_transaction = payload.data
    assert in_transaction or len(inserts) == 1
    assert in_transaction or encoder.mode is not InsertMode.TRANSACTION
    prepared = {
        name: table_of(statement, "INSERT INTO") for name, statement, _ in encoder.list_prepared()
    }
    parts: list[tuple[int, list[tuple[Any, ...]]]] = []
    for statement, data in inserts:
        if encoder.mode is InsertMode.COPY:
            is_binary = encoder.copy_format is CopyFormat.BINARY
            rows = parsed_binary(data, Temperature.schema) if is_binary else parsed_text(data)
            parts.append((table_of(statement, "COPY"), list(rows)))
        elif prepared:
            assert not statement
            parts += [
                (prepared[name], [row]) for name, row in parsed_inserts(data, Temperature.schema)
            ]
        else:
            assert data is None
            head, _, values = statement.partition(b" VALUES ")
            parts.append((table_of(head, "INSERT INTO"), list[Any](parsed_values(values))))
    return parts


MODES: list[tuple[InsertMode, CopyFormat, dict[str, bool]]] = [
    (InsertMode.COPY, CopyFormat.BINARY, {}),
    (InsertMode.COPY, CopyFormat.TEXT, {}),
    (InsertMode.COPY, CopyFormat.TEXT, {"copy_is_atomic": False}),
    (InsertMode.VALUES_LISTS, CopyFormat.BINARY, {}),
    (InsertMode.TRANSACTION, CopyFormat.BINARY, {}),
    (InsertMode.TRANSACTION, CopyFormat.BINARY, {"prepared": False}),
    (InsertMode.SINGLE, CopyFormat.BINARY, {}),
    (InsertMode.SINGLE, CopyFormat.BINARY, {"prepared": False}),
]


@pytest.fixture(params=MODES, ids=lambda param: "-".join([*param[:2], *param[2]]))
def make(request: pytest.FixtureRequest) -> Callable[[Tables, int], PostgresEncoder]:
    """Makes an encoder of each mode and format, for batches of so many events if it takes any."""
    mode, copy_format, how = request.param

    def encoder(tables: Tables, batch: int) -> PostgresEncoder:
        single = mode is InsertMode.SINGLE
        job = Job(Temperature.schema, Load(tables=tables, batch=0 if single else batch))
        return PostgresEncoder(job, mode, copy_format, **how)

    return encoder


@pytest.mark.parametrize("size", [1, 25])
@each_kind
def test_bound_rows_are_the_events(kind: type[Workload], size: int) -> None:
    block = kind(device_spread=3).block(1, 5, 90)
    parts = bind_rows(columns_of(block), size, b"name")
    assert len(parts) == {1: 90, 25: 4}[size]
    rows = []
    for part in parts:
        names, own = zip(*parsed_inserts(part, block.schema), strict=True)
        assert set(names) == {b"name"}
        rows += own
    assert to_values(block.schema, rows) == rows_of(block)


@pytest.mark.parametrize("size", [1, 4])
def test_a_missing_value_is_bound_as_none(size: int) -> None:
    block = Temperature().block(0, 0, 4)
    missing = {"temperature": np.array([False, True, False, False])}
    parts = bind_rows(columns_of(block), size, b"name", missing)
    rows = [row for part in parts for _, row in parsed_inserts(part, block.schema)]
    assert [row[3] is None for row in rows] == [False, True, False, False]


@pytest.mark.parametrize("multiple", [False, True])
def test_what_needs_a_transaction_has_one(multiple: bool) -> None:
    block = Temperature().block(0, 0, 8)
    tables = Tables.MULTIPLE if multiple else Tables.SINGLE
    for mode, copy_format, how in MODES:
        batch = 0 if mode is InsertMode.SINGLE else 8
        job = Job(Temperature.schema, Load(batch=batch, tables=tables))
        encoder = PostgresEncoder(job, mode, copy_format, **how)
        (payload, *_) = encoder.encode(block)
        needed = mode is InsertMode.TRANSACTION or how == {"copy_is_atomic": False}
        needed = needed or (multiple and mode is not InsertMode.SINGLE)
        assert payload.data[1] is needed


def test_a_block_is_split_into_requests(make: Callable[[Tables, int], PostgresEncoder]) -> None:
    encoder = make(Tables.SINGLE, 4)
    block = Temperature(device_spread=2).block(3, 10, 11)
    payloads = encoder.encode(block)
    sizes = [1] * 11 if encoder.mode is InsertMode.SINGLE else [4, 4, 3]
    assert [payload.events for payload in payloads] == sizes
    assert [payload.last for payload in payloads] == [int(end) - 1 for end in np.cumsum(sizes)]
    assert all(payload.block is block for payload in payloads)

    rows = rows_of(block)
    for payload in payloads:
        parts = parse_payload(encoder, payload)
        stored = to_values(block.schema, [row for _, part in parts for row in part])
        assert stored == rows[payload.last + 1 - payload.events : payload.last + 1]
        assert len(parts) == (payload.events if encoder.mode is InsertMode.TRANSACTION else 1)


@pytest.mark.parametrize("first", [0, 1, 6, 7])
def test_events_are_dealt_to_tables_by_their_number(
    make: Callable[[Tables, int], PostgresEncoder], first: int
) -> None:
    encoder = make(Tables.MULTIPLE, 5)
    block = Temperature(device_spread=2).block(0, first, 11)
    payloads = encoder.encode(block)
    rows = rows_of(block)
    for payload in payloads:
        stored = []
        for table, part in parse_payload(encoder, payload):
            for row in to_values(block.schema, part):
                number = row[2]
                assert isinstance(number, int)
                assert table == number % 4
                stored.append(row)
        assert sorted(stored) == rows[payload.last + 1 - payload.events : payload.last + 1]
        # Each table is written to once in a request.
        if encoder.mode is not InsertMode.TRANSACTION:
            tables = [table for table, _ in parse_payload(encoder, payload)]
            assert len(tables) == len(set(tables)) == min(4, payload.events)
    assert sum(payload.events for payload in payloads) == 11


def test_batches_of_one_in_several_tables(make: Callable[[Tables, int], PostgresEncoder]) -> None:
    encoder = make(Tables.MULTIPLE, 1)
    block = Temperature().block(0, 2, 6)
    payloads = encoder.encode(block)
    tables = []
    for payload, row in zip(payloads, rows_of(block), strict=True):
        ((table, part),) = parse_payload(encoder, payload)
        assert to_values(block.schema, part) == [row]
        tables.append(table)
    assert tables == [2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("copy_format", CopyFormat)
@pytest.mark.parametrize("tables", Tables)
def test_the_clients_key_comes_first(copy_format: CopyFormat, tables: Tables) -> None:
    load = Load(batch=100, primary_key=PrimaryKey.CLIENT, tables=tables)
    encoder = PostgresEncoder(Job(Temperature.schema, load), InsertMode.COPY, copy_format)
    name = "events" if tables is Tables.SINGLE else "events0"
    assert encoder.copy_statement(0) == (
        f'COPY "{name}" ("id", "timestamp", "device_id", "sequence_number", "temperature")'
        f" FROM STDIN{' WITH BINARY' if copy_format is CopyFormat.BINARY else ''}"
    )
    block = Temperature().block(0, 3, 9)
    (payload,) = encoder.encode(block)
    rows = []
    for _, data in payload.data[0]:
        if copy_format is CopyFormat.BINARY:
            rows += parsed_binary(data, block.schema, key=True)
        else:
            rows += parsed_text(data)
    by_number = {int(row[3]): row[0] for row in rows}
    assert [by_number[number] for number in range(3, 12)] == client_keys(block).tolist()


def test_a_json_column_keeps_its_text() -> None:
    """jsonb is parsed by the server; what is sent is the workload's document, byte by byte."""
    block = WORKLOADS["cpu"](device_spread=2).block(0, 0, 3)
    (stream,) = copy_binary(columns_of(block), 3)
    documents = [row[0] for row in parsed_binary(stream, block.schema)]
    assert documents == block.columns["tags"].tolist()
    assert all(orjson.loads(document) for document in documents)
