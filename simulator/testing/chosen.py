"""How the command line tells pytest which servers to run on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .entries import Entry

CHOSEN = pytest.StashKey[Sequence[Entry]]()


class Choice:
    """A plugin that keeps the chosen servers in pytest's configuration."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def pytest_configure(self, config: pytest.Config) -> None:
        """Called by pytest before it collects."""
        config.stash[CHOSEN] = self._entries
