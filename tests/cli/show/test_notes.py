"""What weakens a result, as lines."""

from __future__ import annotations

from cli.results.store import read_result
from cli.show.notes import list_notes

from ..made import STORED, inserts


def test_a_line_names_kind_place_and_figure() -> None:
    result = read_result(STORED / "steps.json")
    late = "worker 1 started up to 0.70 s late"
    assert list_notes(result, terminal=False)[0] == f"invalid: level 2,000: ~~181,915~~ {late}"
    assert list_notes(result, terminal=True)[0] == (
        f"invalid: level 2,000: \x1b[9m181,915\x1b[29m {late}"
    )


def test_a_run_without_a_figure_has_none_struck_through() -> None:
    lines = list_notes(read_result(STORED / "insert.json"), terminal=False)
    assert "invalid: 12 workers, run 1: no word from worker 0 for 60 s" in lines


def test_what_concerns_all_has_no_place() -> None:
    (line,) = list_notes(inserts({1: [100.0 + n for n in range(6)]}, complete=False), False)
    assert line == "incomplete: the command ended before all its runs were done"
