"""A connection is tried by several sockets: what one of them sends may go nowhere for good."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from simulator.modules._base import http_connection
from simulator.modules._base.http_connection import NotConnected, open_stream

from ..helpers import swallowing


def address_of(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()
    return host, port


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel repeats what it sends after a second: a test that takes less sees only what is here.
    monkeypatch.setattr(http_connection, "_FIRST_CONNECT_S", 0.1)


def test_a_new_socket_comes_through() -> None:
    with swallowing() as listener:

        def accept_all() -> None:
            accepted.extend(listener.accept()[0] for _ in range(3))

        accepted: list[socket.socket] = []
        accepting = threading.Timer(0.2, accept_all)
        began_s = time.monotonic()
        accepting.daemon = True
        accepting.start()
        stream = open_stream(*address_of(listener), None, 10.0)
        took_s = time.monotonic() - began_s
        assert stream.gettimeout() == 10.0
        accepting.join(5)
        for one in (stream, *accepted):
            one.close()
    assert 0.2 < took_s < 0.95


def test_all_attempts_together_take_no_longer_than_they_may() -> None:
    with swallowing() as listener:
        began_s = time.monotonic()
        with pytest.raises(NotConnected, match="timed out"):
            open_stream(*address_of(listener), None, 0.5)
        assert 0.5 <= time.monotonic() - began_s < 60


def test_a_refusal_is_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = address_of(listener)
    began_s = time.monotonic()
    with pytest.raises(NotConnected, match="refused"):
        open_stream(*address, None, 600.0)
    assert time.monotonic() - began_s < 60
