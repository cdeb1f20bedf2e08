"""Which servers the suite runs on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import entry_points

import pytest

from ..errors import OptionError, did_you_mean
from ..modules import load_module
from .server import ServerUnderTest

ENTRY_POINTS = "iot_database_benchmark.contract"
"""The group in which another package names an `Entry`, or several, by the name of its module."""


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
    thinned: bool = False
    """The same code is tried in all combinations of insert mode, key mode, tables, … on another
    server: here each value of each of them is tried, one at a time."""

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


CHOSEN = pytest.StashKey[Sequence[Entry]]()


class Choice:
    """A plugin that keeps the servers which the command line has chosen in pytest's configuration."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def pytest_configure(self, config: pytest.Config) -> None:
        """Called by pytest before it collects."""
        config.stash[CHOSEN] = self._entries


def find_entries(module: str) -> list[Entry]:
    """The servers that another package offers for its module; OptionError if there is none."""
    load_module(module)
    points = entry_points(group=ENTRY_POINTS)
    entries: list[Entry] = []
    for point in points:
        if point.name == module:
            offered = point.load()
            entries += [offered] if isinstance(offered, Entry) else offered
    if not entries:
        raise OptionError(
            f"no installed package offers a server for module {module}"
            f"{did_you_mean(module, points.names)}: name an Entry by an entry point {module!r} of the"
            f" group {ENTRY_POINTS}"
        )
    return entries
