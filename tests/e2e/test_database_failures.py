"""Databases that aren't there, refuse, stop, restart, run out of connections or of disk."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from .server import LIMITED_USER, Server
from .test_runs import check_run, check_stored
from .tool import PASSWORD, Tool, eventually

ONE = ("insert", "-w", "1", "-r", "1", "--batch", "10", "--num-inserts", "100")


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def small_disk(folder: Path, kilobytes: int, *options: str) -> Iterator[Path]:
    """A disk of that size, mounted at `folder`; skips the test where that isn't allowed."""
    folder.mkdir()
    settings = ",".join([f"size={kilobytes}k", "mode=755", *options])
    command = ["mount", "-t", "tmpfs", "-o", settings, "e2e", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.mark.parametrize("command", ["insert", "query"])
def test_nobody_listens(tool: Tool, command: str) -> None:
    port = free_port()
    dsn = f"host=127.0.0.1 port={port} user=x dbname=x"
    tool.add_target("absent", module="postgres", connection_string=dsn)
    done = tool.run_here(command, "-t", "absent", "-w", 1, "-r", 1)
    error = done.error(1)
    assert f"127.0.0.1:{port}" in error
    assert "refused" in error
    assert "check that the server runs" in error
    assert done.seconds < 80
    (run,) = tool.runs("write" if command == "insert" else "read")
    assert run["valid"] is False
    assert run["rate_per_s"] is None
    assert "refused" in run["invalid_reasons"][0]
    assert tool.result()["complete"] is False
    # They say more than one line can.
    assert list((tool.folder() / "logs").rglob("collector.log"))


def test_host_that_does_not_exist(tool: Tool) -> None:
    dsn = "host=no-such-host.invalid user=x dbname=x"
    tool.add_target("absent", module="postgres", connection_string=dsn)
    error = tool.run_here(*ONE, "-t", "absent").error(1)
    assert "no-such-host.invalid" in error
    assert "connection_string" in error


def test_password_that_is_refused(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    done = tool.run_here(*ONE, "-t", "server", env={"E2E_PASSWORD": "wrong-4711"})
    error = done.error(1)
    assert "password authentication failed" in error
    assert "check user and password in connection_string" in error
    assert "wrong-4711" not in done.out + done.err
    assert "wrong-4711" not in (tool.folder() / "result.json").read_text()
    for log in tool.folder().rglob("*.log"):
        assert "wrong-4711" not in log.read_text()


def test_doctor_says_whether_the_database_answers(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    done = tool.run_here("doctor", "-t", "server").ok()
    assert done.out.startswith("ok ")
    assert "PostgreSQL" in done.out
    done = tool.run_here("doctor", "-t", "server", env={"E2E_PASSWORD": "wrong-4711"})
    assert done.status == 2
    assert "FAIL" in done.out
    assert "password authentication failed" in done.out
    assert "check user and password" in done.out
    assert "wrong-4711" not in done.out + done.err
    assert "Traceback" not in done.err
    assert tool.folders() == []


def test_database_that_does_not_exist(tool: Tool, server: Server) -> None:
    keys = server.target()
    dsn = str(keys["connection_string"]).replace("dbname=postgres", "dbname=nowhere")
    tool.add_target("server", **(keys | {"connection_string": dsn}))
    error = tool.run_here(*ONE, "-t", "server").error(1)
    assert '"nowhere" does not exist' in error
    assert "check dbname and user" in error


def test_query_without_data(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    error = tool.run_here("query", "-t", "server").error(1)
    assert "run insert first" in error
    (run,) = tool.runs("read")
    assert "run insert first" in run["invalid_reasons"][0]


def test_out_of_connections(tool: Tool, server: Server) -> None:
    # The collector gets one of the two that the user may have, one worker the other.
    dsn = f"host={server.home}/data dbname={LIMITED_USER} user={LIMITED_USER}"
    tool.add_target("limited", module="postgres", connection_string=dsn)
    done = tool.run_here(*ONE, "-t", "limited", "-w", 3)
    error = done.error(1)
    assert "too many connections" in error
    assert "fewer --workers" in error
    assert done.seconds < 80
    # And when there are enough, it works.
    tool.run_here(*ONE, "-t", "limited", "--output", tool.place / "second").ok()


def test_out_of_disk(tool: Tool, server: Server) -> None:
    with small_disk(tool.place / "disk", 2048) as disk:
        folder = disk / "tablespace"
        folder.mkdir()
        owner = (server.home / "data").stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        server.ask(f"CREATE TABLESPACE small LOCATION '{folder}'")
        tool.add_target("server", **server.target("-c default_tablespace=small"))
        try:
            done = tool.run_here(*ONE, "-t", "server", "--num-inserts", 1_000_000, "--batch", 1000)
            error = done.error(1)
            assert "no disk space left" in error
            assert "could not extend file" in error
            (run,) = tool.runs()
            assert run["valid"] is False
        finally:
            server.ask("DROP OWNED BY bench")
            eventually(lambda: drop_tablespace(server), "the tablespace to be empty")


def drop_tablespace(server: Server) -> bool:
    """Drop the tablespace, which works once nothing is left in it."""
    try:
        server.ask("DROP TABLESPACE small")
    except psycopg2.Error:
        return False
    return True


def test_embedded_server_out_of_disk(tool: Tool) -> None:
    with small_disk(tool.place / "disk", 4096) as disk:
        done = tool.run(*ONE, "-t", "embedded", env={"EMBEDDED_DATA_DIR": str(disk / "pg")})
        error = done.error(2)
        assert "No space left on device" in error
        assert str(disk) in error
        tool.check_nothing_runs()
        assert not (disk / "pg" / "data").exists()
        # With more room the next command creates the data again.
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        tool.run_here(*ONE, "-t", "embedded", env={"EMBEDDED_DATA_DIR": str(disk / "pg")}).ok()


def test_server_that_stops_for_good(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.slow_target(), max_retries=3)
    running = tool.start(*ONE, "-t", "server", "-w", 2, "--num-inserts", 100_000)
    running.await_err(": running")
    server.kill()
    done = running.wait()
    error = done.error(1)
    assert "gave up after 3 retries (connection_lost)" in error
    assert str(server.home) in error
    assert "check that the server runs" in error
    (run,) = tool.runs()
    assert run["valid"] is False
    assert run["rate_per_s"] is None
    assert "gave up after 3 retries" in run["invalid_reasons"][0]


def test_server_that_restarts_in_mid_run(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.slow_target())
    running = tool.start(*ONE, "-t", "server", "-w", 2, "--num-inserts", 1500)
    running.await_err(": running")
    eventually(lambda: int(server.value("SELECT count(*) FROM events")) > 100, "some events")
    server.stop()
    server.start()
    done = running.wait()
    assert done.status == 0, done
    (run,) = tool.runs()
    check_run(run, 1500, 10)
    check_stored(run, 0)
    # Each worker lost its connection and tried again at least once.
    assert run["retries"] >= 2
    assert run["errors"]["connection_lost"] >= 2
    assert set(run["errors"]) == {"connection_lost"}
    assert "retries: 2 workers, run 1: " in done.out
    assert server.ask(
        "SELECT device_id, count(*), count(DISTINCT sequence_number), max(sequence_number)"
        " FROM events GROUP BY 1 ORDER BY 1"
    ) == [("w00000d000000", 1500, 1500, 1499), ("w00001d000000", 1500, 1500, 1499)]


def test_embedded_server_killed_in_mid_run(tool: Tool) -> None:
    arguments = (*ONE, "-t", "embedded", "--extra-option", "max_retries=2")
    running = tool.start(*arguments, "--num-inserts", 10_000_000)
    running.await_err(": running")
    pid = int((tool.embedded_home / "data" / "postmaster.pid").read_text().split()[0])
    (server,) = [process for process in tool.processes() if process.pid == pid]
    server.kill()
    done = running.wait()
    assert "gave up after 2 retries (connection_lost)" in done.error(1)
    tool.check_nothing_runs()
    # The data recover from it.
    tool.run_here(*ONE, "-t", "embedded", "--output", tool.place / "second").ok()


def test_two_runs_on_one_database(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    tool.run_here(*ONE, "-t", "server", "--output", tool.place / "before").ok()
    with server.connection() as connection, connection.cursor() as cursor:
        # Keeps the first one's inserts waiting, and nothing else.
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE events IN EXCLUSIVE MODE")
        first = tool.start(*ONE, "-t", "server", "--no-clean")
        first.await_err(": running")
        for command in (ONE, ("query", "-r", "1")):
            done = tool.run_here(*command, "-t", "server", "--output", tool.place / "second")
            error = done.error(2)
            assert f"insert (process {first.process.pid}) of " in error
            assert error.endswith("wait for it to end, or use another database")
            # It has not waited for the first one's end.
            assert first.process.poll() is None
        shutil.rmtree(tool.place / "second")
    done = first.wait().ok()
    (run,) = tool.runs()
    check_run(run, 100, 10)
    check_stored(run, 100)


def test_two_runs_on_the_embedded_server(tool: Tool) -> None:
    first = tool.start(*ONE, "-t", "embedded", "--num-inserts", 10_000_000)
    first.await_err(": running")
    error = tool.run_here(*ONE, "-t", "embedded", "--output", tool.place / "second").error(2)
    assert str(tool.embedded_home) in error and "wait for it to end" in error
    assert list((tool.place / "second").iterdir()) == []
    # With another folder both run at once.
    other = tool.start(*ONE, "-t", "embedded", env={"EMBEDDED_DATA_DIR": str(tool.place / "pg")})
    other.wait().ok()
    assert first.process.poll() is None
    first.send_group(signal.SIGINT)
    assert first.wait().status == 130


def test_two_runs_on_different_targets(tool: Tool, server: Server) -> None:
    tool.add_target("slow", **server.slow_target())
    tool.add_target("other", module="blackhole", delay_ms=20)
    both = [tool.start(*ONE, "-t", name, "--num-inserts", 500) for name in ("slow", "other")]
    for running in both:
        running.wait().ok()
    assert PASSWORD not in "".join(running.err for running in both)
    targets = [folder.name.rpartition("-")[2] for folder in tool.folders()]
    assert sorted(targets) == ["other", "slow"]


def test_two_runs_that_begin_in_the_same_second(tool: Tool) -> None:
    several = [tool.start(*ONE, "-t", "blackhole") for _ in range(3)]
    for running in several:
        assert running.wait().status == 0
    assert len(tool.folders()) == 3
