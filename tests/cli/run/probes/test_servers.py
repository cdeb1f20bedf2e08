"""Servers on this machine, found by who is connected to them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.run.probes.database import Servers

from .connected import connected

_LISTEN = """
import socket, sys
family, address, port = sys.argv[1:]
listener = socket.socket(getattr(socket, family))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(address if family == "AF_UNIX" else (address, int(port)))
listener.listen()
print(listener.getsockname()[1], flush=True)
kept = []
while True:
    kept.append(listener.accept())
"""


@contextmanager
def server(family: str, address: str, port: int = 0) -> Iterator[tuple[int, int]]:
    """Another process that listens: its number and its port."""
    command = [sys.executable, "-c", _LISTEN, family, address, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        try:
            yield process.pid, int(line) if line.isdecimal() else 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("family", "bound", "address"),
    [
        ("AF_INET", "127.0.0.1", "127.0.0.1"),
        ("AF_INET", "0.0.0.0", "127.0.0.1"),
        ("AF_INET6", "::", "127.0.0.1"),
    ],
)
def test_a_server_is_found_by_a_connection_to_it(family: str, bound: str, address: str) -> None:
    with server(family, bound) as (pid, port), connected((address, port)) as own:
        servers = Servers([])
        assert servers.look([own])
        assert (servers.pids, servers.hidden) == ({pid}, False)
        assert not servers.look([own])


def test_processes_of_the_run_are_no_servers_to_each_other() -> None:
    with server("AF_INET", "127.0.0.1") as (pid, port), connected(("127.0.0.1", port)) as own:
        servers = Servers([])
        assert not servers.look([own, pid])
        assert (servers.pids, servers.hidden) == (set(), False)


def test_a_server_is_found_by_a_socket_in_a_folder_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / ".s.PGSQL.5432"
    with server("AF_UNIX", str(path)) as (pid, _), connected(str(path)) as own:
        servers = Servers([f"host='{tmp_path}' user=x", 3, None])
        assert servers.look([own])
        assert (servers.pids, servers.hidden) == ({pid}, False)


def test_a_server_above_a_folder_of_the_options_is_another(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with server("AF_UNIX", str(path)), connected(str(path)) as own:
        servers = Servers([f"host='{tmp_path}/below' user=x"])
        assert servers.look([own])
        assert (servers.pids, servers.hidden) == (set(), True)


def test_a_server_that_no_option_leads_to_can_not_be_told_from_others(tmp_path: Path) -> None:
    """libpq looks in a folder of its own if it is given none."""
    path = tmp_path / "socket"
    with server("AF_UNIX", str(path)), connected(str(path)) as own:
        servers = Servers(["dbname=x"])
        assert servers.look([own])
        assert (servers.pids, servers.hidden) == (set(), True)


def test_who_has_ended_is_connected_to_nothing() -> None:
    servers = Servers([])
    assert not servers.look([2**22 - 1])
    assert (servers.pids, servers.hidden) == (set(), False)


def test_one_of_two_servers_ends_and_another_takes_its_place() -> None:
    """The other is known meanwhile, and neither is said to be one that can't be told from others."""
    with server("AF_INET", "127.0.0.1") as (pid, port), connected(("127.0.0.1", port)) as client:
        servers = Servers([])
        with ExitStack() as stack:
            with server("AF_INET", "127.0.0.2") as (first, place):
                other = stack.enter_context(connected(("127.0.0.2", place)))
                assert servers.look([client, other])
                assert servers.pids == {pid, first}
            assert not servers.look([client, other])
            assert servers.pids == {pid}
        with (
            server("AF_INET", "127.0.0.2", place) as (second, _),
            connected(("127.0.0.2", place)) as other,
        ):
            assert servers.look([client, other])
            assert (servers.pids, servers.hidden) == ({pid, second}, False)


def test_a_server_at_a_socket_is_found_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    servers = Servers([str(tmp_path)])
    with server("AF_UNIX", str(path)) as (pid, _):
        servers.look([])
        assert servers.pids == {pid}
    assert not servers.look([])
    assert servers.pids == set()
    path.unlink()
    with server("AF_UNIX", str(path)) as (pid, _):
        assert servers.look([])
        assert (servers.pids, servers.hidden) == ({pid}, False)


_FORK = "import os, time; child = os.fork(); child and print(child, flush=True); time.sleep(60)"


def test_who_is_forked_by_a_server_is_no_server_of_its_own(tmp_path: Path) -> None:
    """As long as it hasn't closed what it has of its parent, it listens, too."""
    command = [sys.executable, "-c", _FORK]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        number = listener.fileno()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[number])
    with process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            servers = Servers([str(tmp_path)])
            assert servers.look([])
            assert servers.pids == {process.pid}
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()
