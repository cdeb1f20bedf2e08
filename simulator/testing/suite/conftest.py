"""Runs the suite on the servers that the command line has chosen."""

from __future__ import annotations

import pytest

from ..fixtures import parametrize, server, servers
from ..server import CHOSEN

__all__ = ["server", "servers"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for `server` runs on those of the module."""
    parametrize(metafunc, metafunc.config.stash[CHOSEN])
