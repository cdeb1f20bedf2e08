"""Disturbances that were not done as they were asked for: told once, with the runs of which it is true."""

from __future__ import annotations

from cli.results.caveats import Caveat, Kind, Place
from cli.results.model import Result
from cli.results.verdicts import find_skipped_faults, list_kinds, summarize_doubts
from simulator.contract import GroupResult, Mark, Role, RunResult, SkippedFault

from ..made import inserts

LATE = SkippedFault(due_s=60.0, action="60s kill-server", reason="the run ended first")
FAILED = Mark(at_s=10.2, ended_s=11.0, action="10s run upgrade", ok=False, said="no such release")


def of_two_runs() -> Result:
    return inserts({2: [100.0, 101.0]})


def test_what_was_done_is_no_caveat() -> None:
    result = of_two_runs()
    result.runs[0].marks = [FAILED.model_copy(update={"ok": True, "said": None})]
    assert list(find_skipped_faults(result)) == []


def test_in_one_run_it_is_told_with_the_run() -> None:
    result = of_two_runs()
    result.runs[1].undone = [LATE]
    text = "'60s kill-server' was not done in 1 of 2 runs: the run ended first"
    place = Place(workers=2, run=2)
    assert list(find_skipped_faults(result)) == [Caveat(Kind.DISTURBANCE, text, place)]


def test_in_several_runs_it_is_told_once() -> None:
    result = of_two_runs()
    for run in result.runs:
        run.marks, run.undone = [FAILED], [LATE]
    assert [(caveat.text, caveat.where) for caveat in find_skipped_faults(result)] == [
        ("'10s run upgrade' failed in 2 of 2 runs: no such release", None),
        ("'60s kill-server' was not done in 2 of 2 runs: the run ended first", None),
    ]


def test_of_readers_alone() -> None:
    result = of_two_runs()
    readers = GroupResult(role=Role.READ, workers=3)
    result.baseline = [RunResult(undone=[LATE], groups=[readers])]
    (caveat,) = find_skipped_faults(result)
    assert str(caveat.where) == "3 readers alone, run 1"


def test_it_makes_figures_others_and_is_said_in_comparisons() -> None:
    result = of_two_runs()
    result.runs[0].undone = [LATE]
    assert Kind.DISTURBANCE in list_kinds(result)
    assert any("'60s kill-server' was not done" in text for text in summarize_doubts(result))
