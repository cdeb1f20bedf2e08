"""The contract suite (simulator/testing/suite/) and tests of single modules, on the servers of entries.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.testing.fixtures import Servers, parametrize, server

from .entries import ENTRIES

__all__ = ["server"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for `server` runs on all of them."""
    parametrize(metafunc, ENTRIES)


# `embedded_postgres` is asked for so that it ends after what runs on it.
@pytest.fixture(scope="session")
def servers(embedded_postgres: object) -> Iterator[Servers]:
    """The servers that are running."""
    running = Servers()
    yield running
    running.close()
