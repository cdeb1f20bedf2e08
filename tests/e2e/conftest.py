"""What the end-to-end tests share: the tool in a place of its own, and a server that isn't its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

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


PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium: `CHROMIUM` names its program, or it is found on the PATH. Without one its tests
    are skipped, unless REQUIRE_SERVERS names `chromium`."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        if "chromium" in os.environ.get("REQUIRE_SERVERS", "").split(","):
            pytest.fail("no chromium: set CHROMIUM (REQUIRE_SERVERS demands it)", pytrace=False)
        pytest.skip("no chromium: set CHROMIUM, or install one")
    # Root has no sandbox; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()
