"""Official clients reach a server at an address of IPv6; so does the lean path (`test_http.py`)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.modules import load_module
from simulator.modules.clickhouse import server as clickhouse
from simulator.modules.clickhouse import writing as clickhouse_writing
from simulator.modules.options import parse_options

from .test_tls_official import ASK, JOB


@contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A server's port, and what it was sent. It answers everybody with 404."""
    heard: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                with suppress(OSError), near:
                    heard.append(near.recv(65536))
                    near.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with closing(listener):
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            # One that waits in accept isn't woken by close.
            listener.shutdown(socket.SHUT_RDWR)
            serving.join(20)


def ask_clickhouse(options: Any) -> None:
    with closing(clickhouse.Connection(options, JOB)) as connection:
        clickhouse_writing.make_client(connection, 5.0)


def ask_questdb(options: Any) -> None:
    kind: Any = load_module("questdb")
    writer = kind(options, JOB).writer(10)
    writer._connection = SimpleNamespace(options=options)
    writer.make_client()


CLIENTS = {name: (ask, values) for name, (ask, values) in ASK.items()} | {
    "clickhouse": (ask_clickhouse, {}),
    "questdb": (ask_questdb, {"client": "official"}),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_an_address_in_brackets(name: str) -> None:
    ask, values = CLIENTS[name]
    with listening() as (port, heard):
        values = {**values, "endpoint": f"http://[::1]:{port}"}
        # What it makes of such an answer doesn't matter here.
        with suppress(Exception):
            ask(parse_options(load_module(name).options_model, values, str))
    assert any(f"[::1]:{port}".encode() in one for one in heard), heard
