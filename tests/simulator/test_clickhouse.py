"""What is specific to ClickHouse: the Native format, tables as options want them, tokens, errors."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from simulator.contract import PrimaryKey
from simulator.encoding.columns import is_constant
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.clickhouse import Clickhouse
from simulator.modules.clickhouse.encoding import (
    ClickhouseOptions,
    NativeBlock,
    Part,
    write_number,
    write_text,
)
from simulator.modules.clickhouse.queries import (
    NotNative,
    compile_statement,
    count_rows,
    quote_text,
    read_rows,
)
from simulator.modules.clickhouse.server import Connection, read_table_settings
from simulator.modules.kit.http_answer import Answer
from simulator.modules.kit.official import list_columns
from simulator.modules.options import parse_options
from simulator.testing.events import Awkward, Sundry, insert_with, rows_of
from simulator.testing.server import as_observer, new_job
from simulator.worker import connect
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Aggregate, Function, Query
from simulator.workloads.schema import Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

from ..contract.clickhouse import ClickhouseUnderTest
from ..contract.entries import server_fixtures

JOB = new_job(Temperature.schema, batch=10)


def options_of(**values: Any) -> ClickhouseOptions:
    return parse_options(ClickhouseOptions, {"endpoint": "http://nowhere:8123", **values}, str)


# --- the Native format, read by other means -------------------------------------------------------

_NUMBERS = {"Int64": "q", "Int32": "i", "Float32": "f", "Float64": "d", "Bool": "?"}


class Reader:
    """Reads a block as its documentation says."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, size: int) -> bytes:
        piece = self._body[self._at : self._at + size]
        assert len(piece) == size
        self._at += size
        return piece

    def number(self) -> int:
        number, shift = 0, 0
        while True:
            (octet,) = self.take(1)
            number |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return number

    def text(self) -> bytes:
        return self.take(self.number())

    def block(self) -> dict[str, list[Any]]:
        columns, rows = self.number(), self.number()
        values = {}
        for _ in range(columns):
            name, kind = self.text().decode(), self.text().decode()
            values[name] = self._values(kind, rows)
        assert self._at == len(self._body)
        return values

    def _values(self, kind: str, rows: int) -> list[Any]:
        if kind.startswith("Nullable("):
            nulls = self.take(rows)
            values = self._values(kind[len("Nullable(") : -1], rows)
            return [
                None if is_null else value for is_null, value in zip(nulls, values, strict=True)
            ]
        if kind == "String":
            return [self.text() for _ in range(rows)]
        form = _NUMBERS.get(kind.replace("DateTime64(3, 'UTC')", "Int64"), "")
        size = struct.calcsize(f"<{form}")
        return list(struct.unpack(f"<{rows}{form}", self.take(rows * size)))


def read_block(block: EventBlock, body: bytes) -> list[tuple[object, ...]]:
    """The rows of a body, as `rows_of` has them."""
    columns = Reader(body).block()
    data, missing = {}, {}
    for column in block.schema.columns:
        values = columns[column.name]
        missing[column.name] = np.array([value is None for value in values])
        kind = block.columns[column.name].dtype
        filler: Any = b"{}" if kind.kind == "S" else 0
        data[column.name] = np.array(
            [filler if value is None else value for value in values],
            None if kind.kind == "S" else kind,
        )
    devices = block.devices[: len(columns[block.schema.time])]
    return rows_of(EventBlock(block.schema, 0, 0, data, devices, missing))


@pytest.mark.parametrize("workload", [Awkward(device_spread=3), Sundry(device_spread=3), Cpu()])
@pytest.mark.parametrize(("start", "stop"), [(0, 90), (7, 8), (50, 90)])
def test_a_block_of_any_rows_holds_what_was_generated(workload: Any, start: int, stop: int) -> None:
    block = workload.block(0, 0, 90)
    body = NativeBlock(block.schema.row, block.row_columns, block.missing).join(start, stop)
    assert read_block(block, body) == rows_of(block.part(start, stop))


@pytest.mark.parametrize("width", [1, 63, 64, 127, 128, 5000, 20_000])
def test_texts_of_every_length(width: int) -> None:
    """The length takes one byte or more, and texts are joined in three ways."""
    column = Column("note", ColumnType.TEXT)
    alike = np.array([b"x" * width, b"y" * width, b"z" * width])
    differing = np.array([b"x" * width, b"", b"y" * (width // 2)])
    constant = np.broadcast_to(np.array(b"x" * width), 3)
    assert is_constant(constant)
    for texts in (alike, differing, constant):
        body = NativeBlock([column], {"note": texts}, {}).join(0, 3)
        assert Reader(body).block() == {"note": texts.tolist()}


@pytest.mark.parametrize("kind", [Awkward, Sundry])
def test_answers_are_counted_and_read(kind: Any) -> None:
    """Blocks of all types but LowCardinality; and nothing that is cut off is taken for an answer."""
    block = kind(device_spread=3).block(0, 0, 90)
    native = NativeBlock(block.schema.row, block.row_columns, block.missing)
    first, second = native.join(0, 50), native.join(50, 90)
    assert count_rows(first + second) == 90
    columns = list_columns(block.schema.row, block.row_columns, block.missing)
    expected = list(zip(*columns, strict=True))
    for place, column in enumerate(block.schema.row):
        if column.type is ColumnType.FLOAT32:
            # As it is stored, and not as it was written.
            floats = block.row_columns[column.name].tolist()
            expected = [
                (*row[:place], None if row[place] is None else floats[number], *row[place + 1 :])
                for number, row in enumerate(expected)
            ]
    assert read_rows(first + second) == expected
    for size in range(1, len(first)):
        with pytest.raises(NotNative):
            count_rows(first[:size])


def test_an_answer_with_a_dictionary() -> None:
    """Each text is stored once; the first stands for null if the column is nullable."""
    head = b"\x01\x04" + write_text(b"device")
    version, count = struct.pack("<Q", 1), struct.pack("<Q", 4)
    texts = b"".join(map(write_text, [b"", b"one", b"two" * 50]))
    small = struct.pack("<QQ", 0x600, 3) + texts + count + bytes([1, 2, 0, 1])
    wide = struct.pack("<QQ", 0x601, 3) + texts + count + struct.pack("<4H", 1, 2, 0, 1)
    for kind, nothing in (
        (b"LowCardinality(String)", ""),
        (b"LowCardinality(Nullable(String))", None),
    ):
        for data in (small, wide):
            body = head + write_text(kind) + version + data
            assert count_rows(body * 2) == 8
            assert read_rows(body) == [("one",), ("two" * 50,), (nothing,), ("one",)]
            for size in range(1, len(body)):
                with pytest.raises(NotNative):
                    count_rows(body[:size])


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2**32])
def test_numbers_of_every_length(number: int) -> None:
    assert Reader(write_number(number)).number() == number


def test_every_request_has_a_token_of_its_own() -> None:
    """This holds for all encoders, even those of the same run and worker."""
    job = new_job(Temperature.schema, batch=4, tables="multiple")
    block = Temperature().block(0, 0, 30)
    tokens = []
    for _ in range(2):
        encoder = Clickhouse.encoder(options_of(), job)
        for _ in range(2):
            tokens += [part.token for payload in encoder.encode(block) for part in payload.data]
    assert len(set(tokens)) == len(tokens) == 4 * 30


# --- tables ---------------------------------------------------------------------------------------


def made(job: Job = JOB, **values: Any) -> str:
    return Clickhouse(options_of(**values), job).create_table("events")


def test_a_table_is_sorted_by_device_and_time() -> None:
    assert made() == (
        'CREATE TABLE IF NOT EXISTS "default"."events" ("timestamp" DateTime64(3, \'UTC\'),'
        ' "device_id" LowCardinality(String), "sequence_number" Int64, "temperature" Float32)'
        ' ENGINE = MergeTree ORDER BY ("device_id", "timestamp")'
        " SETTINGS non_replicated_deduplication_window = 100000"
        " COMMENT 'made by iot-database-benchmark'"
    )
    assert '"tags" JSON("hostname" String)' in made(new_job(Cpu.schema))
    assert ' ORDER BY ("tags"."hostname", "ts")' in made(new_job(Cpu.schema))
    assert ' ORDER BY ("tags_id", "ts")' in made(new_job(Cpu(tags="table").schema))


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"partition": "day"}, ' PARTITION BY toYYYYMMDD("timestamp") ORDER BY'),
        ({"partition": "week"}, ' PARTITION BY toMonday("timestamp") ORDER BY'),
        ({"partition": "month"}, ' PARTITION BY toYYYYMM("timestamp") ORDER BY'),
        ({"codecs": "series"}, '"temperature" Float32 CODEC(Gorilla, ZSTD)'),
        ({"codecs": "series"}, "\"timestamp\" DateTime64(3, 'UTC') CODEC(Delta, ZSTD)"),
        ({"codecs": "series"}, '"device_id" LowCardinality(String) CODEC(ZSTD)'),
        ({"codecs": "zstd"}, '"temperature" Float32 CODEC(ZSTD)'),
        ({"low_cardinality": False}, '"device_id" String,'),
        ({"fsync_after_insert": True}, ", fsync_after_insert = 1, fsync_part_directory = 1"),
        ({"deduplication_window": 7}, "non_replicated_deduplication_window = 7"),
        ({"replicated": True}, "ENGINE = ReplicatedMergeTree ORDER BY"),
        ({"replicated": True}, " SETTINGS replicated_deduplication_window = 100000"),
        ({"replicated": True, "cluster": "c"}, '"default"."events" ON CLUSTER "c" ('),
    ],
)
def test_options_say_how_a_table_is_made(values: dict[str, Any], part: str) -> None:
    assert part in made(**values)
    assert part not in made()


def test_replicas_are_waited_for_and_tags_replicated_too() -> None:
    """There are no replicas here: the engine parses these statements, and more isn't known."""
    module = Clickhouse(options_of(replicated=True, cluster="c"), new_job(Cpu(tags="table").schema))
    assert module.fetch_all("events") == 'SYSTEM SYNC REPLICA ON CLUSTER "c" "default"."events"'
    [tags] = module.job.tags_tables
    assert "ENGINE = ReplicatedReplacingMergeTree ORDER" in module.create_table(tags)
    # The target's options with one node, by `db install`.
    assert "ON CLUSTER" not in made(replicated=False, cluster="c")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"insert_quorum": 2}, "insert_quorum goes with replicated=true"),
        (
            {"endpoint": "http://a,http://b"},
            "several nodes have the same table only with replicated",
        ),
        ({"wait_for_async_insert": False}, "wait_for_async_insert goes with async_insert=true"),
        ({"endpoint": "clickhouse:8123"}, "option endpoint: must be a URL like http://"),
    ],
)
def test_options_that_do_not_go_together(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        options_of(**values)


def test_settings_in_a_tables_definition() -> None:
    engine = "MergeTree ORDER BY (a, b) SETTINGS fsync_after_insert = 1, storage_policy = 'hot'"
    settings = {"fsync_after_insert": "1", "storage_policy": "hot"}
    assert read_table_settings(engine) == settings
    assert read_table_settings("MergeTree ORDER BY tuple()") == {}


# --- queries --------------------------------------------------------------------------------------


def test_no_events_have_no_lowest_value_rather_than_0() -> None:
    lowest = Aggregate(function=Function.MIN, column="temperature")
    alone = Query(name="lowest", compute=(lowest,))
    per_device = Query(name="lowest", compute=(lowest,), per=("device_id",))
    statements = [
        compile_statement(BoundQuery(query), Temperature.schema) for query in (alone, per_device)
    ]
    assert ["null_for_empty" in statement for statement in statements] == [True, False]


def test_the_last_value_of_a_device_may_be_missing() -> None:
    """It costs something only then."""
    statements = {}
    for workload, column in ((Temperature, "temperature"), (Sundry, "by")):
        last = Aggregate(function=Function.LAST, column=column)
        schema = workload.schema
        statements[column] = compile_statement(
            BoundQuery(Query(name="last", compute=(last,), per=(schema.device,))), schema
        )
    assert 'argMax("temperature", "timestamp")' in statements["temperature"]
    assert 'argMax(tuple("by"), "timestamp").1' in statements["by"]


def test_newest_events_are_read_in_the_tables_order() -> None:
    query = Query(name="newest", newest=True, events=("temperature",))
    assert compile_statement(BoundQuery(query), Temperature.schema).endswith(
        ' ORDER BY "device_id" DESC, "timestamp" DESC LIMIT 1 BY "device_id"'
    )


# --- what errors mean -----------------------------------------------------------------------------


class Answers:
    """An HTTP layer that has one answer to everything."""

    def __init__(self, status: int, body: bytes, code: int) -> None:
        headers = [(b"X-ClickHouse-Exception-Code", b"%d" % code)] if code else []
        self._answer = Answer(status, body, headers)

    def begin(self, *_: object) -> None:
        """Nothing is sent."""

    def finish(self, *_: object) -> Answer:
        return self._answer


def connection_after(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, code: int = 0
) -> Connection:
    """A connection that gets this answer, which no server gives at will."""
    answers = Answers(status, body, code)
    monkeypatch.setattr(Connection, "begin", answers.begin)
    monkeypatch.setattr(Connection, "finish", answers.finish)
    return Connection(options_of(), JOB)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, 252, "too_many_parts"),
        (500, 241, "out_of_memory"),
        (503, 202, "too_many_requests"),
        (500, 242, "unavailable"),
        (500, 999, "unavailable"),
        (503, 0, "unavailable"),
        (429, 0, "too_many_requests"),
    ],
)
def test_what_passes_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int, kind: str
) -> None:
    connection = connection_after(monkeypatch, status, b"Code: 1. DB::Exception: why\n", code)
    with pytest.raises(Retryable, match=r"nowhere:8123: Code: 1\. DB::Exception: why") as refused:
        connection.insert(Part(0, b"", ""))
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (403, 516, "check user and password"),
        (500, 497, r'as an administrator, GRANT ALL ON "default"\.\* TO default'),
        (404, 60, "run insert first"),
        (404, 81, "run insert first"),
        (404, 115, "a newer server knows it"),
        (404, 50, "a newer server knows it"),
        (400, 53, "why$"),
        (500, 0, "why$"),
        (404, 0, "why; check that endpoint names ClickHouse's HTTP server"),
    ],
)
def test_what_ends_a_run_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int, text: str
) -> None:
    body = b"Code: 1. DB::Exception: why (version 26.9.2.1)\n"
    connection = connection_after(monkeypatch, status, body, code)
    with pytest.raises(SimulatorError, match=text) as refused:
        connection.insert(Part(0, b"", ""))
    assert "\n" not in str(refused.value)


def test_an_answer_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle comes behind what was sent, with the status of a success."""
    body = b'{"meta": [], "data": [[1], [2\nCode: 241. DB::Exception: Memory limit exceeded\n'
    connection = connection_after(monkeypatch, 200, body)
    with pytest.raises(
        SimulatorError, match=r"unreadable or incomplete answer.*Memory limit exceeded"
    ):
        connection.ask("SELECT 1")


def test_asynchronous_inserts_need_a_server_that_knows_their_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a setting deduplicate_insert, one that is sent again could be stored twice."""
    connection_after(monkeypatch, 200, b'{"data": []}')
    module = Clickhouse(options_of(async_insert=True), JOB)
    with pytest.raises(SimulatorError, match="leave async_insert out, or use replicated=true"):
        module.prepare()


# --- the real engine ------------------------------------------------------------------------------


_server, server = server_fixtures("clickhouse")


def prepare(server: ClickhouseUnderTest, job: Job = JOB, **options: Any) -> dict[str, Any]:
    """Prepare as the collector does; returns the settings that the module reports afterwards."""
    module = server.module(as_observer(job), options=options)
    module.open()
    module.prepare()
    settings: dict[str, Any] = module.server_info()["settings"]
    module.close()
    return settings


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip", "codecs": "series", "partition": "day"},
        {"codecs": "zstd", "low_cardinality": False, "fsync_after_insert": True},
        {"async_insert": True},
        {"async_insert": True, "wait_for_async_insert": False},
    ],
    ids=str,
)
def test_events_are_stored_with_every_option(
    server: ClickhouseUnderTest, options: dict[str, Any]
) -> None:
    """The stand-in stores asynchronous inserts at once: the test shows only that they are asked for."""
    workload = Sundry(seed=3, device_spread=3)
    job = new_job(workload.schema, batch=10, primary_key=PrimaryKey.UUID)
    settings = prepare(server, job, **options)
    insert_with(server.module(job, options=options), workload, 25)
    observer = server.module(as_observer(job), options=options)
    assert observer.count() == 25
    observer.close()
    assert server.rows(job.schema, job.schema.table) == sorted(rows_of(workload.block(0, 0, 25)))
    assert settings["async_insert"] is options.get("async_insert", False)
    assert settings["fsync_after_insert"] == str(int(options.get("fsync_after_insert", False)))
    assert settings["non_replicated_deduplication_window"] == "100000"
    assert settings["engine"] == "MergeTree"


def test_an_insert_is_remembered_as_long_as_the_window_says(server: ClickhouseUnderTest) -> None:
    """Sent again after too many others, it is stored twice, so the window must be large enough."""
    for window, stored in ((1, 50), (100, 40)):
        prepare(server, deduplication_window=window)
        module = server.module(JOB)
        with connect(module.writer()) as writer:
            payloads = writer.encoder.encode(Temperature().block(0, 0, 40))
            for payload in (*payloads, payloads[0]):
                for part in payload.data:
                    part.is_stored = False
                assert writer.call(payload).done == 10
        assert module.count() == stored
        module.close()


def test_a_table_that_was_there_is_made_to_remember(server: ClickhouseUnderTest) -> None:
    prepare(server, deduplication_window=5)
    job = new_job(Temperature.schema, batch=10, clean=False)
    assert prepare(server, job)["non_replicated_deduplication_window"] == "100000"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("MODIFY COLUMN temperature Float64", "temperature is Float64, not Float32"),
        ("MODIFY COLUMN temperature Nullable(Float32)", r"is Nullable\(Float32\), not Float32"),
        ("DROP COLUMN temperature", "it has no column temperature"),
    ],
)
def test_a_table_with_other_columns_is_refused(
    server: ClickhouseUnderTest, change: str, problem: str
) -> None:
    prepare(server)
    server.sql(f"ALTER TABLE `{server.database}`.`events` {change}")
    job = new_job(Temperature.schema, batch=10, clean=False)
    with pytest.raises(SimulatorError, match=problem):
        prepare(server, job)


def test_a_table_without_replicas_is_no_replicated_one(server: ClickhouseUnderTest) -> None:
    prepare(server)
    job = new_job(Temperature.schema, batch=10, clean=False)
    prepare(server, job, low_cardinality=False)
    module = server.module(job, options={"replicated": True})
    module.open()
    with pytest.raises(SimulatorError, match=r"is a MergeTree: .* or with replicated=false"):
        module.check_tables()  # type: ignore[attr-defined]
    module.close()


def test_texts_are_what_they_say(server: ClickhouseUnderTest) -> None:
    for text in ("it's", "back\\slash \\n", "'; SELECT 1 --", "\\'"):
        assert server.sql(f"SELECT {quote_text(text)} AS text") == [{"text": text}]


def test_devices_of_any_name_can_be_asked_for(server: ClickhouseUnderTest) -> None:
    prepare(server)
    insert_with(server.module(JOB), Temperature(), 10)
    query = Query(name="some", devices=("it's \\", "w00000d000000"), events=("sequence_number",))
    module = server.module(JOB)
    rows = module.fetch(module.compile(BoundQuery(query, ("it's \\", "w00000d000000"))))
    assert sorted(rows) == [(number,) for number in range(10)]
    module.close()
