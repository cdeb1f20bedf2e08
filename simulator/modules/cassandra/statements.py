"""What is asked in CQL: a statement with parameters, or several that follow from each other's answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...workloads.drawing import BoundQuery
from ...workloads.schema import ColumnType
from .._base.row_order import Row


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
    """A question whose answer is what a statement finds, with each of several rows of parameters."""

    statement: Statement
    parameters: Sequence[Row]


@dataclass(frozen=True)
class Plan:
    """A question in whose answer the client has a part: see `CassandraQueries.begin`."""

    bound: BoundQuery
    table: str


class Step(NamedTuple):
    """What a plan asks next, with one row of parameters at least."""

    statement: Statement
    parameters: Sequence[Row]
    may_be_late: bool
    """Whether the plan can go on without what takes the server too long; otherwise that is an error."""


Parts = Sequence[list[Row] | None]
"""The rows of a statement with each row of parameters; None: it took the server too long."""
Steps = Generator[Step, Parts, list[Row]]
"""The rows of an answer, by what is asked on the way."""


def ask(statement: Statement, parameters: Sequence[Row]) -> Generator[Step, Parts, list[list[Row]]]:
    """The rows of a statement with each of `parameters`."""
    if not parameters:
        return []
    answers = yield Step(statement, parameters, may_be_late=False)
    return [rows for rows in answers if rows is not None]
