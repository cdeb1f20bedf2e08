"""What differs between PostgreSQL and its relatives, on PostgreSQL in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from pydantic import ValidationError

from simulator.contract import Load, PrimaryKey, Tables
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.kit.libpq import Connection, list_parameters
from simulator.modules.options import InsertMode, parse_options, parse_payload_options
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.dialects import DIALECTS, DialectName, YugabyteDB, dialect_of
from simulator.modules.postgres.encoding import PostgresOptions
from simulator.testing.events import insert_with
from simulator.testing.server import ServerUnderTest, new_job
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from ..contract.cockroachdb import INDEX_BYTES, KEY_BYTES, VALUE_BYTES, CockroachStandIn
from ..contract.postgres import PostgresUnderTest
from ..contract.yugabytedb import Refused, YugabyteStandIn, translated

COCKROACH, YUGABYTE = DialectName.COCKROACHDB, DialectName.YUGABYTEDB
COLUMNS = '"timestamp" bigint, "device_id" varchar, "sequence_number" bigint, "temperature" real'


@pytest.fixture(scope="module")
def cockroach(postgres_dsn: str) -> Iterator[CockroachStandIn]:
    with CockroachStandIn.started("postgres", postgres_dsn, None) as server:
        assert isinstance(server, CockroachStandIn)
        yield server


@pytest.fixture(scope="module")
def yugabyte(postgres_dsn: str) -> Iterator[YugabyteStandIn]:
    with YugabyteStandIn.started("postgres", postgres_dsn, None) as server:
        assert isinstance(server, YugabyteStandIn)
        yield server


def prepare(server: ServerUnderTest, job: Job, **options: Any) -> None:
    module = server.module(job, options=options)
    module.open()
    module.prepare()
    module.close()


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "batch", "mode", "prefill"),
    [
        ({}, 10, InsertMode.VALUES_LISTS, InsertMode.VALUES_LISTS),
        ({}, 0, InsertMode.SINGLE, InsertMode.VALUES_LISTS),
        ({"insert_mode": "copy"}, 10, InsertMode.COPY, InsertMode.COPY),
        ({"insert_mode": "transaction"}, 10, InsertMode.TRANSACTION, InsertMode.VALUES_LISTS),
    ],
)
def test_cockroachdb_gets_lists_of_values_unless_asked_otherwise(
    values: dict[str, str], batch: int, mode: InsertMode, prefill: InsertMode
) -> None:
    options = parse_payload_options(PostgresOptions, {"dialect": "cockroachdb", **values}, str)
    assert options.mode(Load(batch=batch)) is mode
    assert options.for_prefill().mode(Load(batch=1000)) is prefill


def test_yugabytedb_takes_copy() -> None:
    options = parse_payload_options(PostgresOptions, {"dialect": "yugabytedb"}, str)
    assert options.mode(Load(batch=5)) is InsertMode.COPY


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"tablets": 3}, "options tablets and colocation need dialect=yugabytedb"),
        ({"colocation": True, "dialect": "cockroachdb"}, "need dialect=yugabytedb"),
        (
            {"colocation": True, "tablets": 3, "dialect": "yugabytedb"},
            "a colocated table has no tablets of its own",
        ),
        ({"tablets": 0, "dialect": "yugabytedb"}, "greater than or equal to 1"),
        ({"dialect": "oracle"}, "option dialect: input should be 'postgresql'"),
    ],
)
def test_what_the_server_can_not_do_is_refused_before_it_is_asked(
    values: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        Postgres(
            parse_options(PostgresOptions, {"connection_string": "host=x", **values}, str),
            Job(Temperature.schema),
        )


# --- which server is it? --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("PostgreSQL 18.4 on x86_64-pc-linux-musl, compiled by gcc", DialectName.POSTGRESQL),
        ("CockroachDB CCL v22.1.3 (x86_64-pc-linux-gnu, built 2022/07/11)", COCKROACH),
        ("PostgreSQL 11.2-YB-2.15.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang", YUGABYTE),
        ("PostgreSQL 15.12-YB-2025.1.0.0-b168 on x86_64-pc-linux-gnu", YUGABYTE),
        ("Something that speaks the protocol 1.0", None),
    ],
)
def test_servers_are_told_apart_by_their_version(version: str, name: DialectName | None) -> None:
    assert dialect_of(version) == name


@pytest.mark.parametrize(
    ("dialect", "right"), [("postgresql", "cockroachdb"), ("yugabytedb", "cockroachdb")]
)
def test_a_wrong_dialect_is_noticed(cockroach: CockroachStandIn, dialect: str, right: str) -> None:
    module = cockroach.module(new_job(Temperature.schema), options={"dialect": dialect})
    with pytest.raises(SimulatorError, match=f"is not {dialect} .*: set dialect={right}"):
        module.open()


# --- CockroachDB ----------------------------------------------------------------------------------


@pytest.mark.parametrize("copy_format", ["binary", "text"])
def test_a_copy_to_cockroachdb_is_a_transaction(
    cockroach: CockroachStandIn, copy_format: str
) -> None:
    """Alone it could be stored in part."""
    cockroach.clear()
    options = {"insert_mode": "copy", "copy_format": copy_format}
    job = new_job(Temperature.schema, batch=4)
    prepare(cockroach, job)
    cockroach.statements.clear()
    module = cockroach.module(job, options=options)
    insert_with(module, Temperature(), 8)
    sent = [
        text.split()[0]
        for text in cockroach.statements
        if not text.startswith((b"SHOW", b"SELECT set_config"))
    ]
    assert sent == [b"BEGIN", b"COPY", b"COMMIT"] * 2


def test_a_values_list_to_cockroachdb_needs_none(cockroach: CockroachStandIn) -> None:
    cockroach.clear()
    job = new_job(Temperature.schema, batch=4)
    prepare(cockroach, job)
    cockroach.statements.clear()
    insert_with(cockroach.module(job), Temperature(), 8)
    sent = [
        text.split()[0]
        for text in cockroach.statements
        if not text.startswith((b"SHOW", b"SELECT set_config"))
    ]
    assert sent == [b"INSERT"] * 2


def _make(columns: Schema, batch: int, **options: Any) -> Postgres:
    values = {"connection_string": "host=x", "dialect": "cockroachdb", **options}
    return Postgres(parse_options(PostgresOptions, values, str), new_job(columns, batch=batch))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"copy_format": "text"}, "use copy_format=binary, or insert_mode=values_lists"),
        ({"client": "official"}, "use insert_mode=values_lists"),
        ({"client": "psycopg3"}, "use insert_mode=transaction"),
    ],
)
def test_no_texts_are_copied_into_json_columns_of_cockroachdb(
    options: dict[str, str], remedy: str
) -> None:
    """It would store `\\n` and `\\\\` as they are sent, without an error."""
    with pytest.raises(OptionError, match=r"unescape JSON columns \(tags\), .*: " + remedy):
        _make(Cpu.schema, 10, insert_mode="copy", **options)
    # What has no JSON is copied as anywhere, and so is everything in PostgreSQL.
    _make(Temperature.schema, 10, insert_mode="copy", **options)
    _make(Cpu.schema, 10, insert_mode="copy", dialect="postgresql", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"insert_mode": "copy"},
        {"client": "official"},
        {"client": "psycopg3", "insert_mode": "transaction"},
    ],
)
def test_what_stores_json_rightly_in_cockroachdb_is_taken(options: dict[str, str]) -> None:
    _make(Cpu.schema, 10, **options)


def test_a_range_that_cockroachdb_tables_share_is_counted_once(cockroach: CockroachStandIn) -> None:
    cockroach.clear()
    job = new_job(Temperature.schema, tables=Tables.MULTIPLE)
    with cockroach.prepare(job) as module:
        size = module.storage()
    tables, copies = len(job.table_names), 3
    assert size.index_bytes == tables * copies * INDEX_BYTES
    assert size.total_bytes == tables * copies * (KEY_BYTES + VALUE_BYTES + INDEX_BYTES)
    assert (size.data_bytes, size.copies) == (size.total_bytes - size.index_bytes, copies)


def test_the_right_to_ask_for_cockroachdb_sizes_is_named(cockroach: CockroachStandIn) -> None:
    cockroach.clear()
    with cockroach.prepare(new_job(Temperature.schema)) as module:
        cockroach.refused = b"SHOW RANGES"
        with pytest.raises(SimulatorError, match="GRANT ZONECONFIG ON TABLE") as refused:
            module.storage()
        cockroach.refused = None
    assert "\n" not in str(refused.value)


def test_a_dead_node_of_cockroachdb_is_not_called(cockroach: CockroachStandIn) -> None:
    """Its sessions aren't listed, so nothing is to be ended: CANCEL SESSION alone would call it, and fail."""

    def nowhere(host: str, port: int) -> Connection:
        raise AssertionError

    with closing(Connection(list_parameters(cockroach.dsn, "run"), 10)) as connection:
        assert DIALECTS[COCKROACH].is_gone(connection, ("1-of a dead node",), 0.0, nowhere)


def test_the_replication_of_cockroachdb_is_told(cockroach: CockroachStandIn) -> None:
    module = cockroach.module(new_job(Temperature.schema))
    module.open()
    assert "num_replicas = 3" in module.server_info()["settings"]["zone_configuration"]
    module.close()


# --- YugabyteDB -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, ")"),
        ({"tablets": "12"}, ") SPLIT INTO 12 TABLETS"),
        ({"colocation": "true"}, ") WITH (COLOCATION = true)"),
        ({"colocation": False, "tablets": 3}, ") WITH (COLOCATION = false) SPLIT INTO 3 TABLETS"),
        (
            {"primary_key_constraint": "PRIMARY KEY (device_id HASH, timestamp ASC)", "tablets": 3},
            ", PRIMARY KEY (device_id HASH, timestamp ASC)) SPLIT INTO 3 TABLETS",
        ),
        (
            {"primary_key_constraint": "PRIMARY KEY ((device_id, timestamp) HASH)"},
            ", PRIMARY KEY ((device_id, timestamp) HASH))",
        ),
    ],
)
def test_tables_of_yugabytedb(yugabyte: YugabyteStandIn, options: dict[str, Any], end: str) -> None:
    yugabyte.clear()
    yugabyte.nodes[0].statements.clear()
    job = new_job(Temperature.schema, primary_key=PrimaryKey.NONE, tables=Tables.MULTIPLE)
    prepare(yugabyte, job, **options)
    statements = [text for text in yugabyte.nodes[0].statements if text.startswith(b"CREATE")]
    assert [text.decode() for text in statements] == [
        f'CREATE TABLE IF NOT EXISTS "{name}" ({COLUMNS}{end}' for name in job.table_names
    ]
    assert yugabyte.tables() == set(job.table_names)


@pytest.mark.parametrize(
    "statement",
    [
        b'CREATE TABLE "t" (id int) SPLIT INTO 0 TABLETS',
        b'CREATE TABLE "t" (id int) SPLIT INTO 3 TABLETS WITH (COLOCATION = false)',
        b'CREATE TABLE "t" (id int) WITH (COLOCATION = true) SPLIT INTO 3 TABLETS',
        b'CREATE TABLE "t" (id int, n int, PRIMARY KEY (id ASC, n HASH))',
        b'CREATE INDEX IF NOT EXISTS i ON "t" ("a", "b" ASC)',
    ],
)
def test_the_stand_in_is_strict(statement: bytes) -> None:
    with pytest.raises(Refused):
        translated(statement)


def test_ddl_is_tried_again_while_the_catalog_changes(yugabyte: YugabyteStandIn) -> None:
    yugabyte.clear()
    yugabyte.nodes[0].failure = b"Catalog Version Mismatch: A DDL occurred while processing this"
    prepare(yugabyte, new_job(Temperature.schema))
    assert yugabyte.nodes[0].failure is None
    assert yugabyte.tables() == {"events"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Query error: schema version mismatch for table 1: expected 2, got 1",
         "schema_version_mismatch"),
        ("Catalog Version Mismatch: A DDL occurred while processing this query. Try again.",
         "catalog_version_mismatch"),
        ("The catalog snapshot used for this transaction has been invalidated: expected: 2, got: 1",
         "catalog_version_mismatch"),
    ],
)  # fmt: skip
def test_mismatches_pass(text: str, kind: str) -> None:
    error = DIALECTS[YUGABYTE].find_passing_error(text)
    assert isinstance(error, Retryable)
    assert error.kind == kind
    assert DIALECTS[DialectName.POSTGRESQL].find_passing_error(text) is None
    assert (
        DIALECTS[YUGABYTE].find_passing_error("duplicate key value violates unique constraint")
        is None
    )


def test_a_node_out_of_reach_is_given_time_to_lose_its_transactions(
    yugabyte: YugabyteStandIn,
) -> None:
    def unreachable(host: str, port: int) -> Connection:
        assert (host, port) == ("192.0.2.1", 5433)
        raise ConnectionRefusedError("timeout expired")

    dialect = YugabyteDB()
    with closing(Connection(list_parameters(yugabyte.dsn, "run"), 10)) as connection:
        here = dialect.backend(connection)
        away = (*here[:2], "192.0.2.1", 5433)
        assert not dialect.is_gone(connection, away, 9.9, unreachable)
        assert dialect.is_gone(connection, away, 10.1, unreachable)


def test_the_nodes_of_yugabytedb_are_told(yugabyte: YugabyteStandIn) -> None:
    module = yugabyte.module(new_job(Temperature.schema))
    module.open()
    assert module.server_info()["settings"]["tablet_servers"] == "2"
    module.close()


def test_settings_in_the_connection_string_reach_the_session(
    postgres_dsn: str,
) -> None:
    """As yugabyte_sql of config.yaml has them; here with a setting that PostgreSQL knows."""
    with PostgresUnderTest.started("postgres", postgres_dsn, None) as server:
        dsn = psycopg2.extensions.make_dsn(server.dsn, options="-c jit=off -c work_mem=5MB")
        module = server.module(new_job(Temperature.schema), options={"connection_string": dsn})
        module.open()
        settings = module.server_info()["settings"]
        assert (settings["jit"], settings["work_mem"]) == ("off", "5MB")
        module.close()


@pytest.mark.parametrize("password", ["pa/ss-word", "12/34", "pa/ss@w"])
def test_a_password_that_ends_the_address_is_refused(password: str) -> None:
    """Of `postgresql://me:12/34@db/x` the host would be `me` and the database `34@db/x`, which is shown."""
    with pytest.raises(ValidationError) as refused:
        PostgresOptions(connection_string=f"postgresql://me:{password}@db/x")
    assert "write it as %2F" in str(refused.value)
    assert password.rpartition("/")[2] not in str(refused.value)
