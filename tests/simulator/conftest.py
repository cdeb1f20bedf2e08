"""Fixtures that tests in several files use."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from simulator.workloads.temperature import Temperature

from .collecting import FakeDatabase


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakeDatabase:
    """The fake database that a test's collectors use."""
    fake = FakeDatabase()
    monkeypatch.setattr("simulator.collector.run.build", lambda _: (Temperature(), fake))
    return fake


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """A test leaves no thread behind."""
    before = set(threading.enumerate())
    yield
    # A thread of another test may end meanwhile.
    assert set(threading.enumerate()) <= before
