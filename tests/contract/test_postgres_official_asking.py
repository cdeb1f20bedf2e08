"""psycopg2 and psycopg 3 on a server: several questions in flight, refusals, lost connections, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from simulator.contract import Load, Role
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.sending import Asker, Completion, Request
from simulator.workloads.temperature import Temperature

from ..helpers import eventually, submit
from .postgres import PostgresUnderTest


@pytest.fixture
def postgres(embedded_postgres: tuple[str, Path]) -> Iterator[PostgresUnderTest]:
    """A plain PostgreSQL, empty."""
    dsn, home = embedded_postgres
    with PostgresUnderTest.started("postgres", dsn, home / "data") as adapter:
        yield adapter


@pytest.fixture(params=["official", "psycopg3"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_asker(server: PostgresUnderTest, client: str, in_flight: int = 1, **options: Any) -> Asker:
    job = Job(Temperature.schema, Load(role=Role.READ), run_id="asks")
    module = server.module(job, options={"client": client, **options})
    return module.asker(in_flight)


def end_connections(server: PostgresUnderTest) -> None:
    with psycopg2.connect(server.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name ="
            " 'iot-benchmark asks'"
        )


@contextmanager
def held_back(server: PostgresUnderTest, key: int) -> Iterator[Callable[[], int]]:
    """Makes questions that need this advisory lock wait until the end; yields what counts them."""
    with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:

        def count_waiting() -> int:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            )
            [(count,)] = cursor.fetchall()
            return int(count)

        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])
        yield count_waiting


def ask(asker: Asker, statement: str) -> list[tuple[Any, ...]]:
    received = asker.ask(asker.encode_statement(statement))
    rows = list(asker.decode(received))
    assert received.rows == len(rows)
    return rows


def collect(asker: Asker, count: int) -> list[Completion]:
    completions: list[Completion] = []
    until_s = time.monotonic() + 20
    while len(completions) < count and time.monotonic() < until_s:
        completions += asker.poll(1.0)
    return completions


def test_answers_are_decoded_and_a_refusal_leaves_the_connection_as_it_is(
    postgres: PostgresUnderTest, client: str
) -> None:
    asker = make_asker(postgres, client)
    with closing(asker):
        asker.open()
        assert ask(asker, "SELECT 7 % 4, 1.5::float8, 'a%s'") == [(3, 1.5, "a%s")]
        assert ask(asker, "SELECT 1 WHERE false") == []
        [before] = ask(asker, "SELECT pg_backend_pid()")
        with pytest.raises(SimulatorError, match="no_such_column"):
            ask(asker, "SELECT no_such_column")
        assert ask(asker, "SELECT pg_backend_pid()") == [before]


def test_several_in_flight_have_a_connection_each(postgres: PostgresUnderTest, client: str) -> None:
    asker = make_asker(postgres, client, in_flight=3)
    with closing(asker):
        asker.open()
        question = asker.encode_statement(
            "SELECT pg_backend_pid(), pg_advisory_xact_lock_shared(7)"
        )
        # They are answered once all of them are there.
        with held_back(postgres, 7) as count_waiting:
            for number in range(3):
                submit(asker, question, str(number))
            eventually(lambda: count_waiting() == 3, "three questions under way at once")
        ended = collect(asker, 3)
        assert sorted(completion.request.query for completion in ended) == ["0", "1", "2"]
        backends = {completion.answer.data[0][0] for completion in ended if completion.answer}
        assert len(backends) == 3


def test_a_lost_connection_is_made_again(postgres: PostgresUnderTest, client: str) -> None:
    asker = make_asker(postgres, client, in_flight=2)
    with closing(asker):
        asker.open()
        end_connections(postgres)
        for _ in range(2):
            with pytest.raises(Retryable):
                ask(asker, "SELECT 1")
        asker.recover(Request(None))
        for _ in range(3):
            assert ask(asker, "SELECT 1") == [(1,)]


def test_who_waits_too_long_is_told(postgres: PostgresUnderTest, client: str) -> None:
    asker = make_asker(postgres, client, query_timeout_s=0.3)
    with closing(asker):
        asker.open()
        with pytest.raises(Retryable, match=r"no answer within 0\.3 s"):
            ask(asker, "SELECT pg_sleep(20)")

        def is_answered() -> bool:
            asker.recover(Request(None))
            # A busy machine may take too long once more.
            with suppress(Retryable):
                return ask(asker, "SELECT 1") == [(1,)]
            return False

        eventually(is_answered, "an answer by a new connection")


@pytest.mark.usefixtures("postgres")
def test_what_is_under_way_at_the_end_is_cut_off(postgres: PostgresUnderTest, client: str) -> None:
    before = threading.active_count()
    asker = make_asker(postgres, client, in_flight=2)
    asker.open()
    submit(asker, asker.encode_statement("SELECT pg_sleep(20)"))
    assert not asker.poll(0.3)
    began = time.monotonic()
    asker.close()
    # It would take 20 s.
    assert time.monotonic() - began < 15
    eventually(lambda: threading.active_count() <= before, "all threads to end")
