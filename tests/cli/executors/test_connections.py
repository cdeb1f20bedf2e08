"""What went over connections, as the kernel counts it."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack

import pytest

from cli.executors.connections import read_traffic
from cli.executors.database import summarize_use
from cli.executors.machine import look_at_database, take_snapshot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_what_went_over_each_connection_to_a_port(family: socket.AddressFamily) -> None:
    loopback = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((loopback, 0), family=family))
        port = listener.getsockname()[1]
        assert read_traffic([port]) == {}
        client = stack.enter_context(socket.create_connection((loopback, port)))
        server, _ = listener.accept()
        stack.enter_context(server)
        server.sendall(b"y" * 70)
        client.recv(70, socket.MSG_WAITALL)
        # With that the client says, too, that it has got the others: only then do they count.
        client.sendall(b"x" * 5000)
        server.recv(5000, socket.MSG_WAITALL)
        first = read_traffic([port])
        assert first is not None
        assert list(first.values()) == [(5000, 70)]
        # Another one counts by itself, and one that has ended is gone.
        with socket.create_connection((loopback, port)) as other:
            other.sendall(b"z")
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1)
                both = read_traffic([port, port])
        assert both is not None
        assert {**both, **first} == both
        assert sorted(both.values()) == [(1, 0), (5000, 70)]
        assert read_traffic([port]) == first


def test_a_server_of_this_machine_has_received_what_was_sent_to_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listener.accept()
            with server:
                own = [os.getpid()]
                uses = look_at_database(take_snapshot(), own, [port])
                client.sendall(b"x" * 3000)
                server.recv(3000, socket.MSG_WAITALL)
                uses += look_at_database(take_snapshot(), own, [port])
    began, ended = uses[0].at, uses[-1].at
    found = summarize_use(uses, began, ended, began, 2, 1)
    assert found is not None
    assert (found.received_bytes, found.sent_bytes) == (3000, 0)
