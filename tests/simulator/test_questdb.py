"""QuestDB without a server: lines byte by byte, what is refused, statements."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.contract import Load, PrimaryKey, Role, Tables
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import Job
from simulator.modules.kit.sql_queries import compile_query
from simulator.modules.options import InsertMode, parse_options
from simulator.modules.questdb import Questdb
from simulator.modules.questdb.encoding import LineEncoder, LineFormat, QuestdbOptions
from simulator.modules.questdb.official import SenderEncoder
from simulator.modules.questdb.queries import QuestdbDialect, StatementEncoder
from simulator.modules.questdb.server import Connection
from simulator.testing.events import make_schema
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Aggregate, Every, Function, Order, Query
from simulator.workloads.schema import Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

TYPES = make_schema(
    "things",
    Column("site", ColumnType.TEXT, tag=True),
    Column("warm", ColumnType.FLOAT32, decimals=1, nullable=True),
    Column("level", ColumnType.FLOAT64),
    Column("big", ColumnType.INT64),
    Column("small", ColumnType.INT32),
    Column("open", ColumnType.BOOL),
    Column("maybe", ColumnType.BOOL, nullable=True),
    Column("note", ColumnType.TEXT),
    Column("seen", ColumnType.TIMESTAMP_MS),
)


def two_events(**changes: NDArray[Any]) -> EventBlock:
    """The first lacks what may be missing."""
    columns: dict[str, NDArray[Any]] = {
        "at": np.array([1000, 2000]),
        "device": np.array([b"a b", b"c"]),
        "site": np.array([b"x,y=z", b""]),
        "warm": np.array([0, 21.5], np.float32),
        "level": np.array([0.5, 10.0]),
        "big": np.array([-(2**63) + 1, 7]),
        "small": np.array([-(2**31) + 1, 7], np.int32),
        "open": np.array([True, False]),
        "maybe": np.array([True, True]),
        "note": np.array([b'say "\\"', b"two\nlines"]),
        "seen": np.array([0, 5]),
        **changes,
    }
    missing = {name: np.array([True, False]) for name in ("warm", "maybe")}
    return EventBlock(TYPES, 0, 0, columns, columns["device"], missing)


def test_lines_of_text() -> None:
    (payload,) = LineEncoder(Job(TYPES, Load(batch=5)), LineFormat.TEXT).encode(two_events())
    assert payload.data == (
        b"things,device=a\\ b,site=x\\,y\\=z level=0.5,big=-9223372036854775807i,small=-2147483647i,"
        b'open=true,note="say \\"\\\\\\"",seen=0000t 1000\n'
        b"things,device=c,site= level=10,big=7i,small=7i,"
        b'open=false,note="two\\\nlines",seen=5000t,warm=21.5,maybe=1i 2000'
    )


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_lines_with_binary_floats(batch: int) -> None:
    payloads = LineEncoder(Job(TYPES, Load(batch=batch)), LineFormat.BINARY).encode(two_events())
    body = b"\n".join(payload.data for payload in payloads)
    # 10.0 ends with bytes that would mean something in a text; a float that is missing leaves no room.
    assert struct.pack("<d", 10.0).endswith(b"$@")
    assert body == (
        b"things,device=a\\ b,site=x\\,y\\=z level==\x10" + struct.pack("<d", 0.5) +
        b",big=-9223372036854775807i,small=-2147483647i,"
        b'open=true,note="say \\"\\\\\\"",seen=0000t 1000\n'
        b"things,device=c,site= level==\x10" + struct.pack("<d", 10.0) + b",big=7i,small=7i,"
        b'open=false,note="two\\\nlines",seen=5000t,warm==\x10' + struct.pack("<d", 21.5) +
        b",maybe=1i 2000"
    )  # fmt: skip


def test_many_binary_floats_are_those_that_were_generated() -> None:
    """More rows than are formatted one by one."""
    block = Temperature(seed=3).block(0, 0, 1000)
    job = Job(Temperature.schema, Load(batch=1000))
    (payload,) = LineEncoder(job, LineFormat.BINARY).encode(block)
    rest, temperatures = payload.data, []
    while rest:
        _, _, rest = rest.partition(b"temperature==\x10")
        temperatures.append(struct.unpack("<d", rest[:8])[0])
        rest = rest[8:].partition(b"\n")[2]
    assert temperatures == block.columns["temperature"].tolist()


def test_a_line_goes_to_its_table_with_its_key() -> None:
    load = Load(batch=2, tables=Tables.MULTIPLE, primary_key=PrimaryKey.CLIENT)
    block = Temperature().block(0, 6, 2)
    (payload,) = LineEncoder(Job(Temperature.schema, load), LineFormat.TEXT).encode(block)
    first, second = payload.data.split(b"\n")
    assert first.startswith(b'events2,device_id=w00000d000000 id="w00000d000000')
    assert second.startswith(b"events3,")


@pytest.mark.parametrize(
    ("name", "values"),
    [("big", np.array([0, -(2**63)])), ("small", np.array([0, -(2**31)], np.int32))],
)
def test_a_number_that_would_become_null_is_refused(name: str, values: NDArray[Any]) -> None:
    block = two_events(**{name: values})
    encoders = (
        LineEncoder(Job(TYPES), LineFormat.TEXT),
        StatementEncoder(Job(TYPES), InsertMode.TRANSACTION),
    )
    for encoder in encoders:
        with pytest.raises(SimulatorError, match=f"column {name}: .* means no value"):
            encoder.encode(block)


def parsed(**values: object) -> QuestdbOptions:
    return parse_options(QuestdbOptions, {"endpoint": "http://here:9000", **values}, str)


def test_the_password_goes_with_pgwire_unless_that_has_its_own() -> None:
    for dsn, password in (("host=x user=y", "over-http"), ("host=x password=own-word", "own-word")):
        options = parsed(username="y", password="over-http", connection_string=dsn)
        assert f"password={password}" in options.pgwire("it").dsn
        assert password in options.secrets()
        assert password not in str(options.public()) + repr(options)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="give a token, or username and password"):
        parsed(token="t" * 9, username="y", password="word")
    with pytest.raises(OptionError, match="insert_mode=statement needs the option connection_s"):
        Questdb(parsed(insert_mode="statement"), Job(Temperature.schema))
    readers = Job(Temperature.schema, Load(role=Role.READ))
    with pytest.raises(OptionError, match="client=official needs the option connection_string"):
        Questdb(parsed(client="official"), readers)
    Questdb(parsed(client="official", connection_string="host=x"), readers)
    with pytest.raises(OptionError, match="is not a libpq connection string") as refused:
        parsed(connection_string="host=x password='hush")
    assert "hush" not in str(refused.value)
    for lag in ("10", "5 s", "-1s"):
        with pytest.raises(OptionError, match="option o3_max_lag"):
            parsed(o3_max_lag=lag)


def test_statements() -> None:
    schema = Temperature.schema
    dialect = QuestdbDialect(schema)
    count = Aggregate(function=Function.COUNT)

    def compiled(query: Query, start_ms: int | None = None, end_ms: int | None = None) -> str:
        return compile_query(BoundQuery(query, None, start_ms, end_ms), schema, dialect)

    buckets = Query(name="q", compute=(count,), per=(Every(every=600_000), "device_id"))
    assert compiled(buckets, start_ms=1000, end_ms=2000) == (
        'SELECT "timestamp" AS "_v0", "device_id" AS "_v1", count(*) AS "_v2" FROM "events"'
        ' WHERE "timestamp" >= 1000000 AND "timestamp" < 2000000'
        " SAMPLE BY 10m ALIGN TO CALENDAR"
    )
    newest = Query(name="q", newest=True, events=("temperature",), order=Order(by=1), limit=2)
    assert compiled(newest) == (
        'SELECT * FROM (SELECT "device_id" AS "_v0", "temperature" AS "_v1" FROM "events"'
        ' LATEST ON "timestamp" PARTITION BY "device_id")'
        ' ORDER BY "_v1" IS NULL, "_v1" ASC, "_v0" ASC LIMIT 2'
    )


def test_a_partition_without_times_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(parsed(partition_by="hour"), Job(Temperature.schema))
    partitions = [(True, 4096, 0, None, None), (False, 65536, 7200, 0, 3_600_000)]
    columns = [("at",), ("value",)]
    monkeypatch.setattr(
        connection, "ask", lambda statement: columns if statement.startswith("SHOW") else partitions
    )
    storage = connection.read_storage()
    assert storage.total_bytes == 69632
    assert storage.allocation is not None and (storage.allocation.enough_events or 0) % 7200 == 0


def test_rows_for_the_vendors_client() -> None:
    pytest.importorskip("questdb.ingress")
    ((first, second),) = (
        payload.data for payload in SenderEncoder(Job(TYPES, Load(batch=2))).encode(two_events())
    )
    assert (first.table, first.time_ms) == ("things", 1000)
    assert first.symbols == {"device": "a b", "site": "x,y=z"}
    assert first.columns["warm"] is first.columns["maybe"] is None
    assert (second.columns["warm"], second.columns["maybe"]) == (21.5, 1)
    assert second.columns["seen"].value == 5000


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("row", """ WHERE "device_id" = 'a' LATEST ON "timestamp" PARTITION BY "device_id\""""),
        ("table", ' ORDER BY "timestamp" DESC LIMIT 1) AS e JOIN '),
    ],
)
def test_the_newest_event_of_a_device_is_looked_for_by_its_own_column_alone(
    tags: str, words: str
) -> None:
    """With tags in a table of their own the device is a subquery, which LATEST ON takes three times as long
    for."""
    schema = Temperature(tags=tags).schema
    query = schema.description("last-value")
    assert query is not None
    statement = compile_query(BoundQuery(query, ("a",)), schema, QuestdbDialect(schema))
    assert words in statement
