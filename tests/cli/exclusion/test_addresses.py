"""Which databases a command keeps for itself."""

from __future__ import annotations

from typing import Any

import pytest

from cli.exclusion.addresses import read_addresses
from simulator.modules import load_module, module_names


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("host=db1,db2 port=5433 dbname=x password='a host=b'", ["db1:5433", "db2:5433"]),
        ("dbname=x user=y", ["localhost:5432"]),
        ("host='/tmp/socket' user=y", ["/tmp/socket:5432"]),
        ("postgresql://me:secret@127.0.0.1:5433,Other:1/db?sslmode=x", ["localhost:5433", "other:1"]),
        ("http://user:secret@One:9200, http://[::1]:9200", ["one:9200", "localhost:9200"]),
        (["a", "b:9042", "A"], ["a", "b:9042"]),
        (None, []),
    ],
)  # fmt: skip
def test_addresses_of_an_option(value: Any, addresses: list[str]) -> None:
    assert read_addresses(value) == addresses


@pytest.mark.parametrize("name", sorted(set(module_names()) - {"blackhole"}))
def test_each_module_says_where_its_servers_are(name: str) -> None:
    model = load_module(name).options_model
    assert model.ADDRESSES in model.model_fields
