"""A worker's life: what it hands in."""

from __future__ import annotations

import pytest

from simulator.errors import SimulatorError, hide
from simulator.worker.reading import QueryStats


def test_what_a_failed_query_says_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """It goes into the result, into tables and reports."""

    error = SimulatorError("refused: postgresql://me:e@db/x with geheim-4711, as expected")
    stats = QueryStats("count-events", worker=0)
    hide(["geheim-4711", "e"])
    try:
        stats.note_error(0, error)
    finally:
        hide([])
    assert stats.error == stats.each[0].error
    assert stats.error == "refused: postgresql://me:***@db/x with ***, as expected"
    assert "count-events" in caplog.text
