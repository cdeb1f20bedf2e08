"""The parts of the PostgreSQL module that need no server."""

from __future__ import annotations

import psycopg2
import pytest

from simulator.contract import Load, PrimaryKey, Tables
from simulator.errors import OptionError
from simulator.modules.base import Job
from simulator.modules.kit.libpq import (
    ServerError,
    explain_refusal,
    list_parameters,
    lost,
    public_dsn,
    server_name,
)
from simulator.modules.options import InsertMode, parse_options, parse_payload_options
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.dialects import Dialect
from simulator.modules.postgres.encoding import PostgresOptions
from simulator.modules.postgres.server import translate
from simulator.workloads.temperature import Temperature

from ..helpers import SECRET


def options(**values: object) -> PostgresOptions:
    return parse_payload_options(PostgresOptions, values)


@pytest.mark.parametrize(
    ("values", "batch", "mode"),
    [
        ({}, 0, InsertMode.SINGLE),
        ({}, 1, InsertMode.COPY),
        ({"use_values_lists": "true"}, 100, InsertMode.VALUES_LISTS),
        ({"use_values_lists": True}, 0, InsertMode.SINGLE),
        ({"insert_mode": "transaction"}, 100, InsertMode.TRANSACTION),
        ({"insert_mode": "copy", "use_values_lists": True}, 100, InsertMode.COPY),
        ({"insert_mode": "single"}, 0, InsertMode.SINGLE),
    ],
)
def test_insert_mode(values: dict[str, object], batch: int, mode: InsertMode) -> None:
    assert options(**values).mode(Load(batch=batch)) is mode


@pytest.mark.parametrize(
    ("mode", "batch", "remedy"),
    [
        ("single", 10, "leave --batch out"),
        ("copy", 0, "needs --batch N"),
        ("transaction", 0, "needs --batch N"),
        ("values_lists", 0, "needs --batch N"),
    ],
)
def test_modes_that_do_not_fit_the_batch(mode: str, batch: int, remedy: str) -> None:
    with pytest.raises(OptionError, match=f"insert_mode={mode} .*{remedy}"):
        options(insert_mode=mode).mode(Load(batch=batch))
    values = {"insert_mode": mode, "connection_string": "host=x"}
    parsed = parse_options(PostgresOptions, values, str)
    with pytest.raises(OptionError, match=remedy):
        Postgres(parsed, Job(Temperature.schema, Load(batch=batch)))


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, InsertMode.COPY),
        ({"insert_mode": "single"}, InsertMode.COPY),
        ({"insert_mode": "transaction"}, InsertMode.COPY),
        ({"insert_mode": "values_lists"}, InsertMode.VALUES_LISTS),
        ({"use_values_lists": True}, InsertMode.VALUES_LISTS),
    ],
)
def test_prefill_takes_the_fastest_way_that_the_target_allows(
    values: dict[str, object], mode: InsertMode
) -> None:
    filling = options(**values).for_prefill()
    assert filling.mode(Load(batch=1000)) is mode


@pytest.mark.parametrize(
    "dsn",
    [
        f"host=db.example port=6000 user=me password={SECRET} dbname=x",
        f"host=db.example port=6000 user=me password='{SECRET}' sslpassword={SECRET}",
        f"postgresql://me:{SECRET}@db.example:6000/x",
        f"postgres://me:{SECRET}@db.example:6000/x?sslmode=require",
    ],
)
def test_passwords_are_starred_out(dsn: str) -> None:
    shown = public_dsn(dsn)
    assert SECRET not in shown
    assert "password=***" in shown
    assert "db.example" in shown
    assert server_name(dsn) == "db.example:6000"
    parsed = parse_options(PostgresOptions, {"connection_string": dsn}, str)
    assert SECRET not in repr(parsed)
    assert SECRET not in str(parsed.public())
    assert parsed.secrets() == [SECRET]


@pytest.mark.parametrize("dsn", ["host=x password=old", "postgresql://me:old@x/db", "host=x"])
def test_a_password_of_its_own(dsn: str) -> None:
    """As a Secret of the cluster gives it."""
    values = {"connection_string": dsn, "password": SECRET}
    parsed = parse_options(PostgresOptions, values, str)
    parts = psycopg2.extensions.parse_dsn(parsed.dsn)
    assert (parts["host"], parts["password"]) == ("x", SECRET)
    assert parsed.secrets() == [SECRET]
    shown = str(parsed.public()) + repr(parsed)
    assert SECRET not in shown and "old" not in shown
    assert parsed.public()["password"] == "***"


@pytest.mark.parametrize(
    "dsn", [f"host=x password={SECRET} =", f"host='x password={SECRET}", f"passwort={SECRET}", ""]
)
def test_a_malformed_connection_string_is_not_shown(dsn: str) -> None:
    with pytest.raises(OptionError, match="option connection_string:") as refused:
        parse_options(PostgresOptions, {"connection_string": dsn}, str)
    assert SECRET not in str(refused.value)


def test_no_password_no_secret() -> None:
    assert parse_options(PostgresOptions, {"connection_string": "host=x"}, str).secrets() == []


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ('FATAL:  password authentication failed for user "me"', "check user and password"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4"', "allow this host and user in"),
        ("FATAL:  sorry, too many clients already", "use fewer --workers"),
        ("FATAL:  remaining connection slots are reserved", "use fewer --workers"),
        ('FATAL:  database "x" does not exist', "check dbname and user"),
        ("timeout expired", "check that the server runs"),
        ("Connection refused\n\tIs the server running?", "check that the server runs"),
    ],
)
def test_remedies_of_failed_connections(reason: str, remedy: str) -> None:
    text = explain_refusal(f"host=db.example password={SECRET}", reason)
    assert remedy in text
    assert text.startswith("can't connect to the database at db.example:5432: ")
    assert reason.splitlines()[0].split()[-1] in text
    assert "\n" not in text
    assert SECRET not in text


def test_what_libpq_guesses_of_a_lost_connection_is_left_out() -> None:
    message = (
        "server closed the connection unexpectedly\n\tThis probably means the server terminated"
        " abnormally\n\tbefore or while processing the request.\n"
    )
    meaning = translate(lost(message), Dialect(), Job(Temperature.schema))
    assert str(meaning) == "server closed the connection unexpectedly"


def test_a_refused_statement_names_no_other_database() -> None:
    error = ServerError("42601", "syntax error")
    meaning = translate(error, Dialect(), Job(Temperature.schema))
    assert str(meaning) == "the database refused a statement (42601): syntax error"


def test_tables_of_a_job() -> None:
    single = Job(Temperature.schema)
    assert single.table_names == ["events"]
    multiple = Job(Temperature.schema, Load(tables=Tables.MULTIPLE, primary_key=PrimaryKey.NONE))
    assert multiple.table_names == ["events0", "events1", "events2", "events3"]
    everything = {"events", *multiple.table_names}
    assert set(single.all_table_names) == set(multiple.all_table_names) == everything


@pytest.mark.parametrize(
    ("key", "batch", "columns"),
    [
        (PrimaryKey.DB, 0, ["id serial"]),
        # A sequence that is asked once per batch, not once per event.
        (
            PrimaryKey.SQL,
            1000,
            ["id bigint GENERATED ALWAYS AS IDENTITY (START WITH 1 CACHE 1000)"],
        ),
        (PrimaryKey.SQL, 0, ["id bigint GENERATED ALWAYS AS IDENTITY (START WITH 1 CACHE 100)"]),
        (PrimaryKey.UUID, 0, ["id uuid NOT NULL DEFAULT gen_random_uuid()"]),
        (PrimaryKey.CLIENT, 0, ["id varchar"]),
        (PrimaryKey.NONE, 0, []),
    ],
)
def test_who_makes_the_key(key: PrimaryKey, batch: int, columns: list[str]) -> None:
    parsed = parse_options(PostgresOptions, {"connection_string": "host=x"}, str)
    definitions = Postgres(
        parsed, Job(Temperature.schema, Load(batch=batch, primary_key=key))
    ).define_columns("events")
    own = [f'"{column.name}"' for column in Temperature.schema.columns]
    constraint = ["PRIMARY KEY (id)"] if columns else []
    assert [text.split()[0] if text.startswith('"') else text for text in definitions] == [
        *columns,
        *own,
        *constraint,
    ]


@pytest.mark.parametrize(
    ("given", "timeout"), [("host=x", "10"), ("host=x connect_timeout=3", "3")]
)
def test_connecting_does_not_wait_for_ever(given: str, timeout: str) -> None:
    """Unless the target says how long."""
    parameters = list_parameters(given, "the-run")
    assert parameters["connect_timeout"] == timeout
    # So that an administrator sees whose connections these are.
    assert parameters["application_name"] == "iot-benchmark the-run"
