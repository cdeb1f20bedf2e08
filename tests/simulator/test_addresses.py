"""Which servers the values of a target name."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.modules import load_module, module_names
from simulator.modules.options import Options
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
