"""A connection is tried by several sockets: what one of them sends may go nowhere for good."""

from __future__ import annotations

import socket
import time

import pytest

from simulator.modules.kit import http_connection
from simulator.modules.kit.http_connection import NotConnected, open_stream

from ..helpers import make_room_later, swallowing


def address_of(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()
    return host, port


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than the second after which the kernel repeats what a socket has sent.
    monkeypatch.setattr(http_connection, "_FIRST_CONNECT_S", 0.1)


def test_a_new_socket_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with swallowing() as listener:
        tried = make_room_later(listener, monkeypatch)
        with open_stream(*address_of(listener), None, 10.0) as stream:
            assert stream.gettimeout() == 10.0
    # One socket alone would come through as well, after seconds.
    assert len(tried) > 1
    assert tried == [0.1 * 2**number for number in range(len(tried))]


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
