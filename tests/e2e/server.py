"""A PostgreSQL server that the tool under test has not started, to be stopped, killed and filled."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

from cli.run.embedded import MARK, EmbeddedPostgres
from cli.system.processes import Interrupts

from .tool import PASSWORD, PASSWORD_VARIABLE, eventually

USER = "bench"
"""A superuser who must give a password."""
LIMITED_USER = "limited"
"""May connect, but only so often, and owns a database of that name."""


def make_home(home: Path) -> None:
    """Make a server's data with users; copies of it are quicker than making it again."""
    with EmbeddedPostgres(str(home), Interrupts()) as postgres:
        connection = psycopg2.connect(postgres.connection_string)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD %s", [PASSWORD])
            cursor.execute(f"CREATE ROLE {LIMITED_USER} LOGIN CONNECTION LIMIT 2")
            cursor.execute(f"CREATE DATABASE {LIMITED_USER} OWNER {LIMITED_USER}")
        connection.close()
    rules = home / "data" / "pg_hba.conf"
    rules.write_text(f"local all {USER} scram-sha-256\n" + rules.read_text())


def copy_home(template: Path, home: Path) -> None:
    """A copy of a stopped server's data, owners included."""
    home.mkdir()
    shutil.copytree(template / "data", home / "data", copy_function=_copy_with_owner)
    for folder in (template / "data").rglob("*"):
        if folder.is_dir():
            _take_owner(folder, home / "data" / folder.relative_to(template / "data"))
    _take_owner(template / "data", home / "data")
    (home / MARK).touch()


def _copy_with_owner(source: str, target: str) -> None:
    shutil.copy2(source, target)
    _take_owner(Path(source), Path(target))


def _take_owner(source: Path, target: Path) -> None:
    if os.geteuid() == 0:
        owner = source.stat()
        os.chown(target, owner.st_uid, owner.st_gid)


class Server:
    """One server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._postgres: EmbeddedPostgres | None = None

    def start(self) -> None:
        """Start it, again if need be. In the main thread: it ends with the thread that started it."""
        if self._postgres is None:
            self._postgres = EmbeddedPostgres(str(self.home), Interrupts()).__enter__()

    def stop(self) -> None:
        """Stop it as an administrator would: connections are cut, all is kept."""
        if self._postgres is not None:
            self._postgres.stop()
            self._postgres = None

    def kill(self) -> None:
        """Kill it as the kernel would when memory runs out."""
        pid = int((self.home / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        self.stop()

    def target(self, settings: str = "", **more: object) -> dict[str, object]:
        """Keys of a target with this server, its password in a variable; `settings`: `-c x=y …`."""
        options = f" options='{settings}'" if settings else ""
        dsn = f"host={self.home}/data dbname=postgres user={USER} password=${{{PASSWORD_VARIABLE}}}"
        return {"module": "postgres", "connection_string": dsn + options, **more}

    def slow_target(self, seconds: float = 0.02) -> dict[str, object]:
        """A target on which every commit takes at least `seconds`."""
        delay = f"-c commit_delay={round(seconds * 1e6)} -c commit_siblings=0"
        return self.target(delay)

    @contextmanager
    def connection(self) -> Iterator[psycopg2.extensions.connection]:
        """A connection, closed afterwards."""
        connection = psycopg2.connect(
            host=f"{self.home}/data", dbname="postgres", user="postgres", connect_timeout=5
        )
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def value(self, statement: str) -> Any:
        """The only value of a statement's answer."""
        return self.ask(statement)[0][0]

    def clear(self) -> None:
        """Back to how it was made, whatever a test did to it."""
        self.start()

        def nobody_else() -> bool:
            with suppress(psycopg2.Error):
                self.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
                self.ask("DROP OWNED BY bench")
                return True
            return False

        eventually(nobody_else, "an idle server")
