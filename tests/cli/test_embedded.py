"""The embedded PostgreSQL, wherever a user's folder is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from cli.embedded import EmbeddedPostgres
from cli.probes.database import Servers
from cli.signals import Interrupts


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's tmp_path: its paths come near the length that a socket's may have.
    folder = Path(tempfile.mkdtemp(prefix="iot-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["it's\\ü\"=", "a, b's"])
def test_its_folder_may_have_any_name(home: Path, name: str) -> None:
    with EmbeddedPostgres(str(home / name), Interrupts()) as server:
        connection = psycopg2.connect(server.connection_string)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [(backend,)] = cursor.fetchall()
        servers = Servers([server.connection_string])
        servers.look([os.getpid()])
        assert servers.pids
        assert backend not in servers.pids
        assert not servers.hidden
        connection.close()
    assert (home / name / "data" / "PG_VERSION").exists()
