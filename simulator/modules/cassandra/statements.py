"""What is asked in CQL: a statement with parameters, or several that follow from each other's answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...workloads.drawing import BoundQuery
from ...workloads.schema import ColumnType
from ..asking import carry_out
from ..kit.row_order import Row

_SHOWN = 2
"""How many rows of parameters are shown to a person."""


class Statement(NamedTuple):
    """A statement to be prepared."""

    text: str
    kinds: tuple[ColumnType, ...]
    """Types of its parameters."""

    @property
    def is_of_partition(self) -> bool:
        """Whether the first of its parameters is a partition's key."""
        return self.kinds[:1] == (ColumnType.TEXT,)


class Selection(NamedTuple):
    """A statement with each of several rows of parameters: a question whose answer is what it finds, or what
    a plan asks next, then with one row at least."""

    statement: Statement
    parameters: Sequence[Row]
    may_be_late: bool = False
    """Whether a plan can go on without what takes the server too long; otherwise that is an error."""

    def describe(self) -> str:
        """The statement with the first rows of its parameters, for a person to read."""
        shown = [f"  with {', '.join(map(repr, values))}" for values in self.parameters[:_SHOWN]]
        if len(self.parameters) > _SHOWN:
            shown.append(f"  and so on, {len(self.parameters)} times in all, several at once")
        return "\n".join([self.statement.text, *shown])


@dataclass(frozen=True)
class Plan:
    """A question in whose answer the client has a part: see `CassandraQueries.begin`."""

    bound: BoundQuery
    table: str


Parts = Sequence[list[Row] | None]
"""The rows of a statement with each row of parameters; None: it took the server too long."""
Steps = Generator[Selection, Parts, list[Row]]
"""The rows of an answer, by what is asked on the way."""


def ask(
    statement: Statement, parameters: Sequence[Row]
) -> Generator[Selection, Parts, list[list[Row]]]:
    """The rows of a statement with each of `parameters`."""
    if not parameters:
        return []
    answers = yield Selection(statement, parameters)
    return [rows for rows in answers if rows is not None]


def describe_steps(steps: Steps) -> str:
    """What a plan asks as long as nothing takes the server too long, for a person to read."""
    lines: list[str] = []

    def answer(step: Selection) -> Parts:
        lines.append(step.describe())
        answers: list[list[Row]] = [[] for _ in step.parameters]
        if step.statement.text.startswith("SELECT DISTINCT "):
            answers[0].append(("<each device>",))
        return answers

    carry_out(steps, answer)
    return "\n".join([*lines, "the client combines the results"])
