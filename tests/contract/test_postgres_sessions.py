"""What bytes, order and texts depend on is set by each session, whatever the database, the role and the
user's shell have for it: answers are right, and all clients store the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from simulator.contract import Role, StoredPart
from simulator.errors import SimulatorError
from simulator.modules.base import connect
from simulator.modules.kit.libpq import Connection, Connector
from simulator.modules.options import LEAN
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.encoding import CLIENTS
from simulator.oracle.answers import answer_all, compare_answers
from simulator.testing.events import Awkward, insert_with, rows_of
from simulator.testing.server import batch_of, new_job
from simulator.workloads.base import Workload
from simulator.workloads.defined import define
from simulator.workloads.definition import Definition
from simulator.workloads.drawing import BoundQuery, Stored, draw_block
from simulator.workloads.queries import Query
from simulator.workloads.schema import (
    FIRST_TIMESTAMP_MS,
    Column,
    ColumnType,
    EventBlock,
    Schema,
)
from simulator.workloads.temperature import Temperature

from ..conftest import LOCALES
from .postgres import PostgresUnderTest, ask, connected, quoted, with_options

COUNT = 90

TEXTS = (
    "apple", "Apple", "APPLE", "äpfel", "Zürich", "zurich", "Straße", "strasse", "résumé", "resume",
    "a-b", "ab", "a b", " ab", "a_b", "A.b", "", "10", "9", "~", "it's", 'a "b"', "back\\slash",
    "\\N", "tab\there", "line\nbreak\r", "100 %s", "ñ", "Ñ", "÷", "ÿ",
    # What LATIN1 can't hold.
    "温度", "温室", "Ωmega", "ﬁ", "😀", "\uffee", "€", "łódź",
)  # fmt: skip
"""By their bytes in another order than by any locale's."""

CHANGED = {
    "client_encoding": "LATIN1",
    "extra_float_digits": "0",
    "timezone": "Pacific/Chatham",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "statement_timeout": "50s",
    "lock_timeout": "51s",
    "idle_in_transaction_session_timeout": "52s",
    "idle_session_timeout": "53s",
    "transaction_timeout": "54s",
}
"""Each setting that a session depends on, otherwise than it needs it."""
NEEDED = {
    "client_encoding": "UTF8",
    "extra_float_digits": "3",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
MEASURED = ("synchronous_commit", "enable_mergejoin")
"""Settings that are the database's affair."""
SHELL = {
    "PGOPTIONS": " ".join(
        f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in CHANGED.items()
    ),
    "PGCLIENTENCODING": "LATIN1",
    "PGDATESTYLE": "German, DMY",
    "PGTZ": "Pacific/Chatham",
    "PGGEQO": "off",
    "PGAPPNAME": "someone else",
}


@dataclass(frozen=True)
class Place:
    """A database whose sessions begin with something else than they need."""

    name: str
    made: str = "ENCODING UTF8 LOCALE 'C'"
    """How it is made."""
    holds: str = "utf-8"
    """The codec of what it can hold."""
    locale: str | None = None
    """A locale of the system's that it needs."""


def make_workload(codec: str = "utf-8") -> Workload:
    """Events with the texts that a codec can hold, in columns, tags and documents, floats with all their
    digits, and queries in the order of the texts."""

    def can(text: str) -> bool:
        try:
            text.encode(codec)
        except UnicodeEncodeError:
            return False
        return True

    texts = list(filter(can, TEXTS))
    notes = {"kind": "choice", "values": texts}
    documents = {"kind": "choice", "values": [{text: [text, 1.5, None]} for text in texts]}
    by_note = {"events": ["note", "at"], "order": {"by": 0}, "limit": 40}
    statement = 'SELECT "note", "at" FROM :table ORDER BY "note" NULLS LAST LIMIT :limit'
    definition = Definition.read(
        {
            "name": "nasty",
            "about": "What depends on settings",
            "table": "nasty",
            "time": "at",
            "device": "name",
            "devices": 9,
            "interval": "10s",
            "jitter": "3s",
            "columns": [
                {"name": "at", "type": "timestamp_ms"},
                {"name": "name", "type": "text"},
                {"name": "place", "type": "text", "tag": True, "signal": notes},
                {"name": "note", "type": "text", "missing": "9%", "signal": notes},
                {"name": "document", "type": "json", "signal": documents},
                {"name": "short", "type": "float32", "signal": {"kind": "uniform", "low": -5, "high": 5}},
                {"name": "long", "type": "float64", "signal": {"kind": "normal", "mean": 0, "deviation": 1}},
                {"name": "tiny", "type": "float64",
                 "signal": {"kind": "uniform", "low": 1.0e-300, "high": 2.0e-300}},
            ],
            "queries": [
                {"name": "first-notes", **by_note},
                {"name": "own-statement", **by_note, "statement": {"postgres": statement}},
                {"name": "last-notes", "events": ["note", "place", "long"], "limit": 40,
                 "order": {"by": 0, "descending": True}},
                {"name": "places", "compute": [{"function": "max", "column": "tiny"}], "per": ["place"],
                 "order": {"by": 0}},
                {"name": "events", "events": ["at", "name", "place", "note", "short", "long", "tiny"]},
                {"name": "newest", "events": ["place", "note", "long"], "newest": True,
                 "order": {"by": 1}, "limit": 5},
            ],
        }
    )  # fmt: skip
    return define(definition)(seed=7)


PLACES = {
    place.name: place
    for place in (
        Place("en_us", "ENCODING UTF8 LOCALE 'en_US.UTF-8'", locale="en_US.UTF-8"),
        Place("latin1", "ENCODING LATIN1 LOCALE 'C'", holds="latin-1"),
        Place("changed_database"),
        Place("changed_role"),
        Place("changed_shell"),
        Place("sql_ascii", "ENCODING SQL_ASCII LOCALE 'C'", holds="ascii"),
    )
}
"""Databases and how their sessions begin."""


def make_locale(home: Path, name: str) -> None:
    """Compile a locale for the embedded server, whose C library looks for it here."""
    language, _, charset = name.partition(".")
    folder = home / LOCALES / name
    if folder.exists():
        return
    folder.parent.mkdir(exist_ok=True)
    try:
        subprocess.run(
            ["localedef", "--no-archive", "-i", language, "-f", charset, folder],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"no locale {name}: install Debian's package locales ({error})"
        if "locales" in os.environ.get("REQUIRE_SERVERS", "").split(","):
            pytest.fail(f"{reason} (REQUIRE_SERVERS demands it)", pytrace=False)
        pytest.skip(reason)


@contextmanager
def in_place(
    embedded: tuple[str, Path], place: Place, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresUnderTest]:
    """A new database there. The adapter's own connection has the server's defaults."""
    dsn, home = embedded
    if place.locale:
        make_locale(home, place.locale)
    database, role = f"iot_{place.name}", "changed"
    with closing(connected(dsn)) as administration:
        ask(administration, f"CREATE DATABASE {database} TEMPLATE template0 {place.made}")
        ask(administration, f"CREATE ROLE {role} SUPERUSER LOGIN")
        there = with_options(dsn, dbname=database)
        server = PostgresUnderTest("postgres", with_options(there, client_encoding="UTF8"), None)
        server.reach_by(there)
        try:
            if place.name == "changed_database":
                change(administration, f"DATABASE {database}")
            elif place.name == "changed_role":
                change(administration, f"ROLE {role}")
                server.reach_by(with_options(server.dsn, user=role))
            elif place.name == "changed_shell":
                for name, value in SHELL.items():
                    monkeypatch.setenv(name, value)
            yield server
        finally:
            server.close()
            ask(administration, f"DROP DATABASE {database} WITH (FORCE)")
            ask(administration, f"DROP ROLE {role}")


def change(administration: Any, whose: str) -> None:
    for name, value in CHANGED.items():
        ask(administration, f"ALTER {whose} SET {name} = %s", value)
    for name in MEASURED:
        ask(administration, f"ALTER {whose} SET {name} = 'off'")


@pytest.fixture
def placed(
    request: pytest.FixtureRequest,
    embedded_postgres: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PostgresUnderTest]:
    with in_place(embedded_postgres, PLACES[request.param], monkeypatch) as adapter:
        yield adapter


def in_places(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("placed", names, indirect=True)


def insert_by(server: PostgresUnderTest, client: str, workload: Workload) -> Iterator[list[str]]:
    """The rows as texts that a client stores, in each of its ways."""
    for encoding in server.module_type.ENCODINGS:
        mode = encoding.label.split()[0]
        if client != LEAN and (mode not in CLIENTS[client].ways or encoding.label == "copy text"):
            continue
        job = new_job(workload.schema, batch=batch_of(encoding, 25))
        with server.prepare(job, encoding) as module:
            recorder = insert_with(
                server.module(job, encoding, {"client": client}), workload, COUNT
            )
            assert (recorder.events, recorder.errors) == (COUNT, {})
            assert module.count() == COUNT
        assert server.rows(job.schema, "nasty") == sorted(rows_of(workload.block(0, 0, COUNT)))
        texts = server.ask('SELECT n::text, octet_length("note") FROM nasty AS n')
        yield sorted(map(str, texts))


def find_wrong(server: PostgresUnderTest, client: str, workload: Workload) -> dict[str, str]:
    """Query -> what is wrong with a client's answer."""
    stored = Stored(workload, [StoredPart(0, 0, COUNT)])
    job = new_job(workload.schema, role=Role.READ)
    module = server.module(job, options={"client": client})
    wrong = {}
    with connect(module), connect(module.asker(1)) as asker:
        module.prepare_queries()
        for query in workload.schema.descriptions:
            bounds = draw_block(query, stored, 0, 0, 2)
            requests = list(asker.encode(bounds))
            for right, request in zip(answer_all(list(bounds), stored), requests, strict=True):
                if problem := compare_answers(right, asker.decode(asker.ask(request))):
                    wrong[query.name] = problem
    return wrong


ALL = ("en_us", "latin1", "changed_database", "changed_role", "changed_shell")


@in_places(*ALL)
def test_answers_are_right_and_clients_store_the_same_wherever_a_session_begins(
    placed: PostgresUnderTest, request: pytest.FixtureRequest
) -> None:
    place = request.node.callspec.params["placed"]
    workload = make_workload(PLACES[place].holds)
    first: list[str] = []
    for client in (LEAN, *CLIENTS):
        for stored in insert_by(placed, client, workload):
            first = first or stored
            assert stored == first, client
        assert not find_wrong(placed, client, workload), client


@in_places("changed_database", "changed_role", "changed_shell")
def test_what_a_session_depends_on_is_set_in_those_of_every_client(
    placed: PostgresUnderTest, request: pytest.FixtureRequest
) -> None:
    names = ", ".join(f"current_setting('{name}')" for name in NEEDED)
    job = new_job(Temperature.schema, role=Role.READ)
    for client in (LEAN, *CLIENTS):
        module = placed.module(job, options={"client": client})
        with connect(module.asker(1)) as asker:
            assert dict(zip(NEEDED, *asker.fetch(f"SELECT {names}"), strict=True)) == NEEDED, client
            [[application]] = asker.fetch("SHOW application_name")
            assert application == f"iot-benchmark {job.run_id}"
    with connect(placed.module(job)) as module:
        assert isinstance(module, Postgres)
        [own] = module.connection.ask(f"SELECT {names}")
        # Whoever makes tables doesn't wait for ever for another session.
        assert dict(zip(NEEDED, own, strict=True)) == {**NEEDED, "lock_timeout": "30s"}
        reported = module.server_info()["settings"]
    if request.node.callspec.params["placed"] != "changed_shell":
        assert [reported[name] for name in MEASURED] == ["off", "off"]


def test_a_server_need_not_know_a_setting(postgres_dsn: str) -> None:
    settings = {"no_such_setting": "1", "extra_float_digits": "2"}
    with closing(
        Connector(postgres_dsn, "run", settings).connect(lambda given: Connection(given, 5.0))
    ) as connection:
        assert connection.ask("SHOW extra_float_digits") == [("2",)]


REFUSED: Sequence[tuple[str, str, str]] = [
    ("latin1", "utf-8", r"encoding LATIN1, which has no 'ł' \(column place\).*ENCODING 'UTF8'"),
    (
        "sql_ascii",
        "latin-1",
        r"encoding SQL_ASCII, which has no 'Ñ' \(column place\).*ENCODING 'UTF8'",
    ),
]


@pytest.mark.parametrize(("placed", "codec", "problem"), REFUSED, indirect=["placed"])
def test_what_the_databases_encoding_lacks_is_refused_before_anything_is_dropped(
    placed: PostgresUnderTest, codec: str, problem: str
) -> None:
    workload = make_workload(codec)
    placed.ask("CREATE TABLE nasty (kept int)")
    refusal = pytest.raises(SimulatorError, match=problem)
    with connect(placed.module(new_job(workload.schema))) as module, refusal:
        module.prepare()
    assert set(placed.columns("nasty")) == {"kept"}


@in_places("latin1")
def test_a_run_that_the_database_cant_store_ends_with_the_remedy(placed: PostgresUnderTest) -> None:
    job = new_job(Awkward.schema, batch=20)
    with placed.prepare(job), pytest.raises(SimulatorError, match="with ENCODING 'UTF8'"):
        insert_with(placed.module(job), Awkward(), 20)
    placed.reach_by(with_options(placed.dsn, options="-c default_transaction_read_only=on"))
    with pytest.raises(SimulatorError, match="set default_transaction_read_only to off"):
        insert_with(placed.module(job), Awkward(), 20)


@in_places("sql_ascii")
def test_a_database_without_an_encoding_holds_ascii_and_is_named(placed: PostgresUnderTest) -> None:
    workload = make_workload("ascii")
    for client in (LEAN, *CLIENTS):
        for _ in insert_by(placed, client, workload):
            pass
        assert not find_wrong(placed, client, workload)
    with connect(placed.module(new_job(workload.schema))) as module:
        assert module.server_info()["settings"]["server_encoding"] == "SQL_ASCII"


class Hosts(Workload):
    """Devices that a document names."""

    name = "hosts"
    schema = Schema(
        "hosts",
        (Column("at", ColumnType.TIMESTAMP_MS), Column("tags", ColumnType.JSON)),
        time="at",
        device="tags",
        key=("tags", "at"),
        device_path="host",
    )
    NAMES = ("b", "A", "a", "B", "ä", "a b", "a-b")

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        names = [self.NAMES[number % len(self.NAMES)] for number in range(first, first + count)]
        columns = {
            "at": FIRST_TIMESTAMP_MS + np.arange(first, first + count) * 1000,
            "tags": np.array([orjson.dumps({"host": name}) for name in names]),
        }
        devices = np.array([name.encode() for name in names])
        return EventBlock(self.schema, worker, first, columns, devices)


@in_places("en_us")
def test_names_in_documents_are_in_the_order_of_their_bytes(placed: PostgresUnderTest) -> None:
    workload = Hosts()
    job = new_job(workload.schema, batch=20)
    with placed.prepare(job) as module:
        insert_with(placed.module(job), workload, 70)
        description = {
            "name": "q", "compute": [{"function": "count"}], "per": ["tags"], "order": {"by": 0}
        }  # fmt: skip
        query = Query.model_validate(description)
        rows = module.fetch(module.compile(BoundQuery(query, None, None, None)))
    assert rows == [(name, 10) for name in sorted(Hosts.NAMES)]


@in_places("en_us")
def test_a_kept_table_in_the_order_of_a_locale_is_refused(placed: PostgresUnderTest) -> None:
    columns = {
        ColumnType.TIMESTAMP_MS: "bigint",
        ColumnType.INT64: "bigint",
        ColumnType.FLOAT32: "real",
    }
    definitions = ", ".join(
        f"{quoted(column.name)} {columns.get(column.type, 'varchar')}"
        for column in Temperature.schema.columns
    )
    placed.ask(f"CREATE TABLE events (id serial, {definitions})")
    job = new_job(Temperature.schema, clean=False)
    with connect(placed.module(job)) as module:
        with pytest.raises(SimulatorError, match=r"ALTER TABLE") as refused:
            module.prepare()
        with pytest.raises(SimulatorError, match=r"ALTER TABLE"):
            module.prepare_queries()
        placed.ask(str(refused.value).partition(": ")[2].partition(", or")[0])
        module.prepare()
        module.prepare_queries()
