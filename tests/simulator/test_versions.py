"""The oldest versions that modules support: declared by each, and checked before a run does anything."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.collector.database import Preparation
from simulator.errors import SimulatorError
from simulator.modules import check_versions, find_number, load_module, module_names
from simulator.modules.base import connect
from simulator.testing.server import new_job
from simulator.workloads.temperature import Temperature

from ..contract.cockroachdb import CockroachStandIn
from ..helpers import settings
from .collecting import FakeDatabase

UNVERSIONED = {"azure_data_explorer", "blackhole"}
"""A service that is always the newest, and no database at all."""


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("25.2.1", "25.2.1"),
        ("8.19.21", "8.19.21"),
        ("v24.1.0-beta", "24.1.0"),
        ("2.0.1-beta", "2.0.1"),
        ("PostgreSQL 18.4 (Debian 18.4-1.pgdg13+1) on x86_64-pc-linux-gnu", "18.4"),
        ("PostgreSQL 19beta1 on x86_64-pc-linux-gnu", "19"),
        ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)", "23.1.11"),
        ("2025.1.0.0-b168 on x86_64-pc-linux-gnu", "2025.1.0.0"),
        ("opensearch 2.19.4 (Lucene 9.12.1)", "2.19.4"),
        ("not reported, built with go1.24.1", None),
        ("victoria-metrics-20260101-120000-heads-master-0-gabcdef", None),
        ("not shown", None),
        ("dev", None),
        ("", None),
    ],
)
def test_versions_are_read_in_the_forms_that_servers_tell_them(
    version: str, number: str | None
) -> None:
    assert find_number(version) == number


class Told(FakeDatabase):
    """A database that tells its version."""

    OLDEST = {"Fake": "8.10"}  # noqa: RUF012

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version

    def server_info(self) -> dict[str, Any]:
        return {"version": self.version, "settings": {}}


@pytest.mark.parametrize("version", ["8.9.7", "Fake 7", "v8.2-rc1", "0.1"])
def test_an_older_one_is_refused(version: str) -> None:
    number = find_number(version)
    with pytest.raises(SimulatorError) as refused:
        check_versions(Told(version))
    assert str(refused.value) == (
        f"the server has Fake {number}, and module fake needs 8.10 or later: upgrade it"
    )


@pytest.mark.parametrize(
    "version", ["8.10", "8.10.0-beta", "8.11", "Fake v9", "8", "10.1", "snapshot"]
)
def test_a_newer_or_unknown_one_is_not(version: str) -> None:
    check_versions(Told(version))


def test_it_is_checked_before_anything_is_dropped() -> None:
    database = Told("8.9")
    preparation = Preparation(settings(), database, Temperature())
    with pytest.raises(SimulatorError, match=r"needs 8\.10 or later"):
        preparation.prepare()
    preparation.close()
    assert database.calls == ["open", "close"]


def test_every_module_says_which_is_its_oldest() -> None:
    for name in module_names():
        oldest = load_module(name).OLDEST
        assert bool(oldest) is (name not in UNVERSIONED), name
        assert all(find_number(version) == version for version in oldest.values()), name


@pytest.mark.parametrize(
    ("version", "oldest"),
    [("CockroachDB CCL v23.1.11 (x86_64)", "23.2"), ("CockroachDB CCL v22.2.0-beta.1", "23.2")],
)
def test_a_relative_of_postgresql_has_its_own(postgres_dsn: str, version: str, oldest: str) -> None:
    with CockroachStandIn.started("postgres", postgres_dsn, None) as server:
        assert isinstance(server, CockroachStandIn)
        with connect(server.module(new_job(Temperature.schema))) as module:
            check_versions(module)
            server.version = version
            with pytest.raises(SimulatorError, match=rf"CockroachDB .* needs {oldest} or later"):
                check_versions(module)
