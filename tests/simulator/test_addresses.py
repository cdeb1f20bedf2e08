"""Which servers the values of a target name, and at which addresses the collector listens."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from simulator.collector import listen
from simulator.modules import load_module, module_names
from simulator.modules.kit.options import server_name
from simulator.modules.options import Options, parse_options
from simulator.modules.postgres import Postgres


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("host=db1,db2 port=5433 dbname=x password='a host=b'", ["db1:5433", "db2:5433"]),
        ("host=db1,db2 port=1,2", ["db1:1", "db2:2"]),
        ("dbname=x user=y", ["localhost:5432"]),
        ("host='/tmp/socket' user=y", ["/tmp/socket:5432"]),
        ("postgresql://me:secret@127.0.0.1:5433,Other:1/db?sslmode=x", ["localhost:5433", "other:1"]),
        ("postgresql://[::1]/db", ["localhost:5432"]),
        ("no connection string", []),
        (None, []),
    ],
)  # fmt: skip
def test_addresses_of_a_connection_string(value: Any, addresses: list[str]) -> None:
    values = {"connection_string": value}
    assert Postgres.options_model.list_addresses(values) == addresses


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("http://user:secret@One:9200, http://[::1]:9200", ["one:9200", "localhost:9200"]),
        (["a", "b:9042", "A"], ["a", "b:9042"]),
        (None, []),
    ],
)
def test_addresses_of_an_endpoint(value: Any, addresses: list[str]) -> None:
    assert Options.list_addresses({"endpoint": value}) == addresses


@pytest.mark.parametrize("name", sorted(set(module_names()) - {"blackhole"}))
def test_each_module_says_where_its_servers_are(name: str) -> None:
    model = load_module(name).options_model
    assert model.ADDRESSES in model.model_fields


def test_addresses_of_ipv6_are_told_in_brackets() -> None:
    """As they must be written in a URL: https://www.rfc-editor.org/rfc/rfc3986#section-3.2.2"""
    assert server_name("https://[fd00::1]", 443) == "[fd00::1]:443"
    assert server_name("http://db:8086", 80) == "db:8086"
    values = {"contact_points": "fd00::1, db"}
    options: Any = parse_options(load_module("cassandra").options_model, values, str)
    assert options.servers == "[fd00::1]:9042, db:9042"


# --- where the collector listens ----------------------------------------------------------------------


def reach(listener: socket.socket, host: str) -> None:
    """Connect to the listener by this address."""
    socket.create_connection((host, listener.getsockname()[1]), 5).close()


def test_the_collector_listens_to_both_families() -> None:
    with listen("", 0) as listener:
        reach(listener, "127.0.0.1")
        if listener.family == socket.AF_INET6:
            reach(listener, "::1")
    with listen("127.0.0.1", 0) as listener:
        reach(listener, "127.0.0.1")


def test_without_ipv6_it_listens_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0) as listener:
        assert listener.family == socket.AF_INET
        reach(listener, "127.0.0.1")


def test_a_port_that_is_taken() -> None:
    with listen("", 0) as listener, pytest.raises(OSError, match="in use"):
        listen("", listener.getsockname()[1])
