"""PostgreSQL: how long each attempt to connect again may take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from simulator.collector.database import open_tables
from simulator.contract import Tables
from simulator.errors import Retryable
from simulator.modules.kit.libpq import Connection
from simulator.testing.server import as_observer, new_job
from simulator.worker import connect
from simulator.workloads.temperature import Temperature

from .postgres import PostgresUnderTest


@pytest.fixture
def postgres(embedded_postgres: tuple[str, Path]) -> Iterator[PostgresUnderTest]:
    """A plain PostgreSQL, empty."""
    dsn, home = embedded_postgres
    with PostgresUnderTest.started("postgres", dsn, home / "data") as adapter:
        yield adapter


def swallow_connections(monkeypatch: pytest.MonkeyPatch, refused: int = 0) -> list[str]:
    """Let no more connections be made: the first `refused` attempts end at once, and the others when their
    time is over, by a clock that is put forward. Returns the time limits of the attempts."""
    limits_s: list[str] = []
    monotonic, waited_s = time.monotonic, 0.0

    def swallow(connection: Connection, parameters: Mapping[str, str], *_: Any, **__: Any) -> None:
        nonlocal waited_s
        limits_s.append(parameters["connect_timeout"])
        if len(limits_s) <= refused:
            raise ConnectionRefusedError("Connection refused")
        waited_s += int(parameters["connect_timeout"])
        raise ConnectionRefusedError("timeout expired")

    monkeypatch.setattr(Connection, "__init__", swallow)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + waited_s)
    return limits_s


def end_connections(server: PostgresUnderTest, run_id: str) -> None:
    with psycopg2.connect(server.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
            [f"iot-benchmark {run_id}"],
        )


def test_a_writer_is_patient_by_and_by(
    postgres: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Temperature()
    job = new_job(workload.schema, batch=5)
    with postgres.prepare(job):
        pass
    writer = postgres.module(job).writer()
    with connect(writer):
        (payload,) = writer.encoder.encode(workload.block(0, 0, 5))
        end_connections(postgres, job.run_id)
        with pytest.raises(Retryable):
            writer.call(payload)
        with monkeypatch.context() as patched:
            limits_s = swallow_connections(patched, refused=3)
            for _ in range(8):
                with pytest.raises(Retryable):
                    writer.recover(payload)
        # What was refused at once has cost no time, and what comes next can be swallowed all the same.
        assert limits_s == ["2"] * 3 + ["2", "2", "4", "10", "10"]
        assert writer.recover(payload) is False
        assert writer.call(payload).done == 5


def test_a_reader_is_patient_by_and_by(
    postgres: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = as_observer(new_job(Temperature().schema))
    observer = postgres.module(job)
    observer.open()
    observer.prepare()
    end_connections(postgres, job.run_id)
    with pytest.raises(Retryable):
        observer.count()
    with monkeypatch.context() as patched:
        limits_s = swallow_connections(patched, refused=1)
        for _ in range(5):
            # It passes: whoever asks again may find the server back.
            with pytest.raises(Retryable, match=r"timeout expired|refused"):
                observer.count()
    assert limits_s == ["2", "2", "2", "4", "10"]
    assert observer.count() == 0
    observer.close()


def test_what_is_not_measured_is_asked_again_once_the_server_is_back(
    postgres: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by connections that are made when they are first needed, as for the look-up of events."""
    job = as_observer(new_job(Temperature().schema))
    observer = postgres.module(job)
    observer.open()
    for _ in range(2):
        with monkeypatch.context() as patched:
            swallow_connections(patched, refused=2)
            for _ in range(2):
                with pytest.raises(Retryable, match="refused"):
                    observer.fetch("SELECT 1")
        assert observer.fetch("SELECT 1") == [(1,)]
        end_connections(postgres, job.run_id)
        with pytest.raises(Retryable):
            observer.fetch("SELECT 1")
    observer.close()


def test_several_tables_are_asked_again_once_the_server_is_back(
    postgres: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = as_observer(new_job(Temperature().schema, tables=Tables.MULTIPLE))
    observer = postgres.module(job)
    observer.open()
    observer.prepare()
    with monkeypatch.context() as patched:
        swallow_connections(patched, refused=1)
        with pytest.raises(Retryable, match="refused"):
            next(open_tables(observer))
    assert [table.count() for table in open_tables(observer)] == [0, 0, 0, 0]
    observer.close()


def test_a_reader_that_waited_in_vain_connects_again_as_quickly(
    postgres: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that vanishes hangs up on nobody: the reader's own limit ends the query."""
    observer = postgres.module(
        as_observer(new_job(Temperature().schema)), options={"query_timeout_s": 0.3}
    )
    observer.open()
    observer.prepare()
    with postgres.another_connection() as other, other.cursor() as cursor:
        cursor.execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Retryable, match="no answer within"):
            observer.count()
        cursor.execute("ROLLBACK")
    with monkeypatch.context() as patched:
        limits_s = swallow_connections(patched)
        with pytest.raises(Retryable, match="timeout expired"):
            observer.count()
    assert limits_s == ["2"]
    assert observer.count() == 0
    observer.close()
