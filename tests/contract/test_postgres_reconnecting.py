"""PostgreSQL: how long each attempt to connect again may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from simulator.errors import Retryable, SimulatorError
from simulator.testing.server import as_observer, new_job
from simulator.worker import connect
from simulator.workloads.temperature import Temperature

from .postgres import PostgresUnderTest


@pytest.fixture
def postgres(embedded_postgres: tuple[str, Path]) -> Iterator[PostgresUnderTest]:
    """A PostgreSQL as such, empty."""
    dsn, home = embedded_postgres
    with PostgresUnderTest.started("postgres", dsn, home / "data") as found:
        yield found


def swallow_connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No connection is made any more; the limits of the attempts."""
    limits_s: list[str] = []

    def swallow(**parameters: str) -> None:
        limits_s.append(parameters["connect_timeout"])
        raise psycopg2.OperationalError("timeout expired")

    monkeypatch.setattr(psycopg2, "connect", swallow)
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
    observer = postgres.module(as_observer(job))
    observer.open()
    observer.prepare()
    observer.close()
    writer = postgres.module(job).writer(job.load.batch)
    with connect(writer):
        (payload,) = writer.encoder.encode(workload.block(0, 0, 5), 5)
        end_connections(postgres, job.run_id)
        with pytest.raises(Retryable):
            writer.send(payload)
        with monkeypatch.context() as patched:
            limits_s = swallow_connections(patched)
            for _ in range(5):
                with pytest.raises(Retryable):
                    writer.recover(payload)
        assert limits_s == ["2", "2", "4", "10", "10"]
        assert writer.recover(payload) is False
        assert writer.send(payload) == 5


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
        limits_s = swallow_connections(patched)
        for _ in range(4):
            with pytest.raises(SimulatorError, match="timeout expired"):
                observer.count()
    assert limits_s == ["2", "2", "4", "10"]
    assert observer.count() == 0
    observer.close()
