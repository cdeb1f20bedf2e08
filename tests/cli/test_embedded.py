"""The embedded PostgreSQL, wherever a user's folder is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from cli.run.embedded import EmbeddedPostgres
from cli.run.probes.database import Servers
from cli.system.errors import NotStarted
from cli.system.processes import Interrupts


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


@pytest.mark.parametrize(
    ("files", "is_taken"),
    [
        ((), False),
        (("server.log",), False),
        (("data/PG_VERSION", "data/postmaster.pid"), True),
        (("lock", "mine.txt"), True),
        (("data/PG_VERSION", "server.log", "conf.d/mine"), True),
    ],
)
def test_a_folder_of_somebody_else_is_left_alone(
    home: Path, files: tuple[str, ...], is_taken: bool
) -> None:
    """Whatever lies there: another PostgreSQL's data, whose server would be ended, too."""
    for file in files:
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_text("keep me")
    server = EmbeddedPostgres(str(home), Interrupts())
    if not is_taken:
        for _ in range(2):
            with server:
                pass
        return
    with pytest.raises(
        NotStarted, match=r"did not make .*set EMBEDDED_DATA_DIR to an empty folder"
    ):
        server.__enter__()
    there = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert there == set(files)
    assert all((home / file).read_text() == "keep me" for file in files)
