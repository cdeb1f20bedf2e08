"""What is said of answers that were checked."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.model import Result
from cli.show.notes import describe_answers
from cli.show.tables import describe_durations
from simulator.contract import Answers, GroupResult, Role, RunResult, WrongAnswer


def asked(answers: Answers | None, run: int = 1, **more: Any) -> RunResult:
    group = GroupResult(role=Role.READ, workers=1, answers=answers, **more)
    return RunResult(run=run, fill_level=1000, groups=[group])


def result_of(*runs: RunResult, **more: Any) -> Result:
    return Result.model_validate(
        {
            "command": "query", "target": "t", "module": "m", "executor": "local", "runs": runs,
            "started_at": "2026-01-01T00:00:00+00:00", "options": {}, "environment": {}, **more,
        }
    )  # fmt: skip


WRONG = WrongAnswer(query="a", workers=[0, 1], parameters="all", difference="x is 1 instead of 2")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, None),
        (Answers(checked=0), "Answers: none to check."),
        (Answers(checked=1200), "Answers: 1,200 checked, all right."),
        (Answers(checked=5, wrong=[WRONG]), "Answers: 5 checked, 2 of them wrong."),
        (
            Answers(checked=0, unchecked=4, reasons={"no": ["a", "b"]}),
            "Answers: 4 not checked: no.",
        ),
        (
            Answers(checked=1, unchecked=5, reasons={"long": ["a"], "grew": ["b", "c", "d", "e"]}),
            "Answers: 1 checked, all right; 5 not checked: a (long); b, c, d and 1 more (grew).",
        ),
    ],
)
def test_how_many_were_checked_and_why_others_were_not(
    answers: Answers | None, said: str | None
) -> None:
    assert describe_answers(result_of(asked(answers))) == said


def test_those_of_all_runs_are_added_up() -> None:
    runs = [
        asked(Answers(checked=run, unchecked=1, reasons={"grew": ["a"]}), run) for run in (1, 2)
    ]
    result = result_of(*runs, command="mixed", baseline=runs[:1])
    assert describe_answers(result) == "Answers: 4 checked, all right; 3 not checked: a (grew)."


def test_queries_per_second_stand_beside_the_times() -> None:
    text = describe_durations(result_of(asked(None, rate_per_s=12.345)))
    assert text.endswith(
        "; 1,000 events in the database. All executions together: 12.3 queries per second."
    )
    assert describe_durations(result_of()).endswith("of each worker.")
