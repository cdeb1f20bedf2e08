"""The first answer that a reader gets to each query, kept to be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contract import GivenAnswer, WorkerAnswers
from ..workloads.answers import describe_answer
from ..workloads.comparing import Malformed, normalize
from ..workloads.queries import Bound
from ..workloads.schema import Schema
from .questions import Questions

KEPT_VALUES = 500_000
"""How many values of answers a reader keeps: with the Python objects that they are, 50 MB at most."""

_NOT_DESCRIBED = "no right answer is described"


class FirstAnswers:
    """The first answers of one reader. Noting one costs next to nothing, so that it can be done between
    two executions."""

    def __init__(self, wanted: bool) -> None:
        """Without being `wanted` they are not kept."""
        self._wanted = wanted
        self._kept: dict[str, tuple[int, Sequence[Sequence[Any]]]] = {}
        self._too_long: list[str] = []
        self._left = KEPT_VALUES

    def note(self, name: str, execution: int, rows: Sequence[Sequence[Any]]) -> None:
        """An answer to a query, of which the first is kept."""
        if not self._wanted or name in self._kept or name in self._too_long:
            return
        values = len(rows) * len(rows[0]) if rows else 0
        if values > self._left:
            self._too_long.append(name)
            return
        self._left -= values
        self._kept[name] = execution, rows

    def hand_in(self, worker: int, questions: Questions, schema: Schema) -> WorkerAnswers:
        """All that are kept, which are forgotten by that."""
        reason = f"answers of more than {KEPT_VALUES:,} values are too long to be kept"
        found = WorkerAnswers(
            worker=worker, answers=[], unchecked=dict.fromkeys(self._too_long, reason)
        )
        for name in list(self._kept):
            execution, rows = self._kept.pop(name)
            bound = questions.bind(name, execution)
            if bound is None:
                found.unchecked[name] = _NOT_DESCRIBED
            else:
                found.answers.append(_give(name, bound, rows, schema))
        return found


def _give(name: str, bound: Bound, rows: Sequence[Sequence[Any]], schema: Schema) -> GivenAnswer:
    given = GivenAnswer(
        query=name,
        devices=None if bound.devices is None else list(bound.devices),
        start_ms=bound.start_ms,
        end_ms=bound.end_ms,
    )
    kinds = [kind for _, kind in describe_answer(bound.query, schema)]
    try:
        given.columns = normalize(kinds, rows)
    except Malformed as error:
        given.malformed = str(error)
    return given
