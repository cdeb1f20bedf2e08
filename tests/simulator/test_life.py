"""A worker's life: what it hands in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.errors import SimulatorError
from simulator.logs import hide
from simulator.worker.reading import execute


def test_what_a_failed_query_says_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """It goes into the result, into tables and reports."""

    def ask() -> Sequence[object]:
        raise SimulatorError("refused: postgresql://me:e@db/x with geheim-4711, as expected")

    hide(["geheim-4711", "e"])
    try:
        run = execute("count-events", 1, 0, ask)
    finally:
        hide([])
    assert run.error == "refused: postgresql://me:***@db/x with ***, as expected"
    assert "count-events" in caplog.text
