"""The contract suite (simulator/testing/suite/) and tests of single modules, on the servers of entries.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.testing.fixtures import StartServer, parametrize, run_servers, server
from simulator.testing.server import Entry

from .entries import ENTRIES

__all__ = ["server"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for `server` runs on all of them."""
    parametrize(metafunc, ENTRIES)


# `embedded_postgres` is asked for so that it ends after what runs on it.
@pytest.fixture(scope="session")
def servers(embedded_postgres: object) -> Iterator[StartServer]:
    """The servers that are running."""
    with run_servers() as start:
        yield start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Repeat what a server has refused falsely."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            entry = item.callspec.params.get("server")
            if isinstance(entry, Entry) and entry.adapter.false_refusals:
                patterns = list(entry.adapter.false_refusals)
                item.add_marker(pytest.mark.flaky(reruns=4, only_rerun=patterns))
