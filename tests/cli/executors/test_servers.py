"""Servers on this machine, found by who is connected to them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.executors.servers import Servers

_LISTEN = """
import socket, sys
family, address = sys.argv[1:]
listener = socket.socket(getattr(socket, family))
listener.bind(address if family == "AF_UNIX" else (address, 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
kept = []
while True:
    kept.append(listener.accept())
"""


@contextmanager
def server(family: str, address: str) -> Iterator[tuple[int, int]]:
    """Another process that listens: its number and its port."""
    command = [sys.executable, "-c", _LISTEN, family, address]
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
    with server(family, bound) as (pid, port), socket.create_connection((address, port)):
        servers = Servers([])
        assert servers.look([os.getpid()])
        assert (servers.pids, servers.hidden) == ({pid}, False)
        assert not servers.look([os.getpid()])


def test_processes_of_the_run_are_no_servers_to_each_other() -> None:
    with (
        server("AF_INET", "127.0.0.1") as (pid, port),
        socket.create_connection(("127.0.0.1", port)),
    ):
        servers = Servers([])
        assert not servers.look([os.getpid(), pid])
        assert (servers.pids, servers.hidden) == (set(), False)


def test_a_server_is_found_by_a_socket_in_a_folder_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / ".s.PGSQL.5432"
    with server("AF_UNIX", str(path)) as (pid, _), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        servers = Servers([f"host='{tmp_path}' user=x", 3, None])
        assert servers.look([os.getpid()])
        assert (servers.pids, servers.hidden) == ({pid}, False)


def test_a_server_that_no_option_leads_to_can_not_be_told_from_others(tmp_path: Path) -> None:
    """libpq looks in a folder of its own if it is given none."""
    path = tmp_path / "socket"
    with server("AF_UNIX", str(path)), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        servers = Servers(["dbname=x"])
        assert servers.look([os.getpid()])
        assert (servers.pids, servers.hidden) == (set(), True)


def test_who_has_ended_is_connected_to_nothing() -> None:
    servers = Servers([])
    assert not servers.look([2**22 - 1])
    assert (servers.pids, servers.hidden) == (set(), False)
