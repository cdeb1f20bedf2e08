"""Which databases a campaign keeps for itself, and that another one on this machine notices it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.campaign import claims
from cli.campaign.claims import Claim, claim_databases, read_addresses
from cli.errors import ConfigError
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


def test_a_database_is_one_campaigns_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "FOLDER", tmp_path / "claims")
    one, other = (Claim("target", address, None) for address in ("one:1", "other:1"))
    first, second = tmp_path / "first", tmp_path / "second"
    with claim_databases([one], first):
        with (
            pytest.raises(ConfigError, match="on the database of target target") as refused,
            claim_databases([other, one], second),
        ):
            pass
        assert str(first) in refused.value.message
        # What the refused one had by then is free again.
        with claim_databases([other], second):
            pass
    with claim_databases([one, other], second):
        pass
