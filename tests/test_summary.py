"""The end of a test session, which a reader sees last."""

from __future__ import annotations

from .conftest import MOST_LINES, summarize_skips


def test_skipped_tests_are_summed_up_by_reason() -> None:
    assert summarize_skips(["Skipped: no helm"] * 1204 + ["Skipped: only root"]) == [
        "1,204 tests: no helm",
        "1 test: only root",
    ]
    few = [f"Skipped: {number}" for number in range(MOST_LINES)]
    assert len(summarize_skips(few)) == MOST_LINES
    many = summarize_skips([*few, *few, "Skipped: rare", "Skipped: rarer"])
    assert len(many) == MOST_LINES
    assert many[-1] == "4 tests: 3 other reasons; pytest -rs lists them all"
