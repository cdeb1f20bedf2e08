"""Runs the suite on the servers chosen on the command line."""

from __future__ import annotations

import pytest

from ..fixtures import parametrize, server, servers
from ..server import CHOSEN

__all__ = ["server", "servers"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test with the parameter `server` runs on the servers of the module."""
    parametrize(metafunc, metafunc.config.stash[CHOSEN])
