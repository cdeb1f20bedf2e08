"""Servers for the whole test session."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg2
import pytest

from cli.embedded import EmbeddedPostgres
from cli.signals import Interrupts


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays. To look through it for garbage again and again costs each process a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def embedded_postgres() -> Iterator[tuple[str, Path]]:
    """The embedded PostgreSQL, one per pytest process: (connection string, its data folder)."""
    # Not pytest's tmp_path: its paths come near the length that a socket's may have.
    home = Path(tempfile.mkdtemp(prefix="iot-"))
    try:
        # Interrupts is not entered: signals stay pytest's.
        with EmbeddedPostgres(str(home), Interrupts()) as server:
            connection = psycopg2.connect(server.connection_string)
            connection.autocommit = True
            with connection.cursor() as cursor:
                # The tests need no crash safety, but they share a disk with the other processes.
                cursor.execute("ALTER SYSTEM SET fsync = off")
                cursor.execute("SELECT pg_reload_conf()")
            connection.close()
            yield server.connection_string, home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_dsn(embedded_postgres: tuple[str, Path]) -> str:
    """Connection string of a PostgreSQL that nobody but this process uses."""
    return embedded_postgres[0]
