"""What is asked, for a person to read: each statement, and its parameters."""

from __future__ import annotations

from ...workloads.schema import Schema
from .._base.row_order import Row
from .options import CassandraOptions
from .queries import BUCKETS_SINCE, CassandraQueries
from .statements import Plan, Selection, Step

_DEVICE = "<each device>"
"""Stands for the devices that a statement finds."""
_SHOWN = 2
"""How many of the rows of parameters of a statement are shown."""


def describe_statement(
    statement: Selection | Plan, options: CassandraOptions, schema: Schema
) -> str:
    """The statements of a question. Of a plan, those that are asked as long as none takes the server too
    long, by a Cassandra that groups by buckets of time."""
    if isinstance(statement, Selection):
        return _describe(Step(*statement, may_be_late=False))
    queries = CassandraQueries(options, schema, lambda: BUCKETS_SINCE)
    steps, lines = queries.begin(statement), list[str]()
    answers: list[list[Row]] = []
    while True:
        try:
            step = steps.send(answers) if lines else next(steps)
        except StopIteration:
            return "\n".join([*lines, "the client combines the results"])
        lines.append(_describe(step))
        answers = [[] for _ in step.parameters]
        if step.statement.text.startswith("SELECT DISTINCT "):
            answers[0].append((_DEVICE,))


def _describe(step: Step) -> str:
    """A statement with the first values of its parameters."""
    shown = [f"  with {', '.join(map(repr, values))}" for values in step.parameters[:_SHOWN]]
    if len(step.parameters) > _SHOWN:
        shown.append(f"  and so on, {len(step.parameters)} times in all, several at once")
    return "\n".join([step.statement.text, *shown])
