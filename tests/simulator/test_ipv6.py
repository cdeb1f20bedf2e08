"""Official clients reach a server at an address of IPv6; so does the lean path (`test_http.py`)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.modules import load_module
from simulator.modules.clickhouse import server as clickhouse
from simulator.modules.clickhouse import server as clickhouse_writing
from simulator.modules.options import parse_options

from .listening import NOT_FOUND, serving
from .test_tls_official import ASK, JOB


@contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A server's port, and what it was sent. It answers everybody with 404."""
    heard: list[bytes] = []

    def take(near: socket.socket) -> None:
        heard.append(near.recv(65536))
        near.sendall(NOT_FOUND)

    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(listener, take) as port:
        yield port, heard


def ask_clickhouse(options: Any) -> None:
    with closing(clickhouse.Connection(options, JOB)) as connection:
        clickhouse_writing.make_client(connection, 5.0)


def ask_questdb(options: Any) -> None:
    kind: Any = load_module("questdb")
    writer = kind(options, JOB).writer()
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
    assert any(f"[::1]:{port}".encode() in request for request in heard), heard
