"""What went over connections, as the kernel counts it."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

import pytest

from cli.run.probes.network import NetworkSnapshot, read_traffic, sum_traffic
from cli.run.probes.timeline import Window


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
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


def take_snapshot(at: float, traffic: dict[int, tuple[int, int]] | None) -> NetworkSnapshot:
    return NetworkSnapshot(100.0 + at, traffic)


def test_traffic_is_that_of_all_connections_in_the_window() -> None:
    counted = [take_snapshot(n, {1: (1000 + 100 * n, 7 * n), 2: (50 * n, 0)}) for n in range(11)]
    assert sum_traffic(counted, Window(102.0, 108.0, 102.0)) == (900, 42)
    # Of one that begins during the run all counts.
    later = [
        take_snapshot(n, {1: (0, 0), **({2: (70 * (n - 4), 0)} if n > 4 else {})})
        for n in range(11)
    ]
    assert sum_traffic(later, Window(100.0, 110.0, 100.0)) == (420, 0)


def test_the_last_bytes_of_a_connection_are_not_known() -> None:
    ended = [
        take_snapshot(n, {1: (100 * n, 0), **({2: (100 * n, 0)} if n < 5 else {})})
        for n in range(11)
    ]
    assert sum_traffic(ended, Window(100.0, 110.0, 100.0)) == (
        round((4 * 200 + 5 * 100) * 10 / 9),
        0,
    )
    short = [take_snapshot(n, {n: (100, 100)}) for n in range(11)]
    assert sum_traffic(short, Window(100.0, 110.0, 100.0)) == (None, None)


def test_too_little_is_known() -> None:
    assert sum_traffic([], Window(100.0, 110.0, 100.0)) == (None, None)
    unseen = [take_snapshot(n, None if n < 6 else {1: (n, n)}) for n in range(11)]
    assert sum_traffic(unseen, Window(100.0, 110.0, 100.0)) == (None, None)
    assert sum_traffic(unseen, Window(104.0, 110.0, 104.0)) == (6, 6)
