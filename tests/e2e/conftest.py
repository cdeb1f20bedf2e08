"""What the end-to-end tests share: the tool in a place of its own, and a server that isn't its own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Server, copy_home, make_home
from .tool import Tool

if not sys.platform.startswith("linux"):
    # Processes are told apart by what /proc says of them.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def workshop() -> Iterator[Path]:
    """A folder for all tests of this process. pytest's own would be too deep for a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def template(workshop: Path) -> Path:
    """The data of a PostgreSQL server that isn't running."""
    home = workshop / "template"
    make_home(home)
    return home


@pytest.fixture(scope="session")
def embedded_home(workshop: Path, template: Path) -> Path:
    """The data folder of target `embedded`, for all tests that don't want to see it made."""
    home = workshop / "embedded"
    copy_home(template, home)
    return home


@pytest.fixture(scope="session")
def _server(workshop: Path, template: Path) -> Iterator[Server]:
    home = workshop / "server"
    copy_home(template, home)
    server = Server(home)
    yield server
    server.stop()


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """A running server without tables."""
    _server.start()
    yield _server
    _server.clear()


@pytest.fixture
def tool(workshop: Path, embedded_home: Path) -> Iterator[Tool]:
    """The command line, watched: whatever a test does with it, it must leave nothing behind."""
    place = Path(tempfile.mkdtemp(prefix="t", dir=workshop))
    tool = Tool(place, embedded_home)
    try:
        yield tool
        tool.check_left_behind()
    finally:
        tool.end_all()
        shutil.rmtree(place)
