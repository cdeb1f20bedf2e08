"""The servers under test. A new module joins here: its name, where its server is, its adapter."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from .postgres import PostgresUnderTest
from .server import ServerUnderTest


@dataclass(frozen=True)
class Entry:
    """A module on a server. `variables` say where the server is; without them it is skipped, or
    fails if `REQUIRE_SERVERS` (names of entries, separated by commas) demands it."""

    name: str
    module: str
    adapter: type[ServerUnderTest]
    start: Callable[[pytest.FixtureRequest, list[str]], AbstractContextManager[ServerUnderTest]]
    """(to ask for fixtures, values of the variables) -> the server, which is tidied up at the end."""
    variables: Sequence[str] = ()

    @property
    def is_there(self) -> bool:
        """Whether all variables are set."""
        return all(os.environ.get(name) for name in self.variables)

    def values(self) -> list[str]:
        """The variables' values; skips or fails the test that asks if one isn't set."""
        missing = [name for name in self.variables if not os.environ.get(name)]
        if missing:
            required = os.environ.get("REQUIRE_SERVERS", "").split(",")
            reason = f"no server {self.name}: set {', '.join(missing)}"
            if self.name in [name.strip() for name in required]:
                pytest.fail(f"{reason} (REQUIRE_SERVERS demands it)", pytrace=False)
            pytest.skip(reason)
        return [os.environ[name] for name in self.variables]


def _embedded(request: pytest.FixtureRequest, _: list[str]) -> Any:
    dsn, home = request.getfixturevalue("embedded_postgres")
    return PostgresUnderTest.started("postgres", dsn, home / "data")


def _given(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return PostgresUnderTest.started("postgres", values[0], None)


ENTRIES = (
    Entry("postgres-embedded", "postgres", PostgresUnderTest, _embedded),
    Entry("postgres", "postgres", PostgresUnderTest, _given, ("POSTGRES_DSN",)),
)
