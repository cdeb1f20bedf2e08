"""What a database was sent, as results keep it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel

from simulator.contract import Bounded

MOST_CHARACTERS = 4000
"""Of each part in a result: a table with 2,000 columns would be most of it."""


class SentStatements(Bounded, BaseModel):
    """The schema, the indexes, or what a query is asked by; a query's with the parameters of an execution."""

    title: str
    """Which of them, in words."""
    lines: list[str]
    """The statements, or why there are none."""
    query: str | None = None
    """The query that is asked so."""
    own: bool = False
    """Whether the statement is the workload's own, and not the module's."""

    def shorten(self) -> Self:
        """The same for a result."""
        text = "\n".join(self.lines)
        more = len(text) - MOST_CHARACTERS
        if more > 0:
            text = (
                f"{text[:MOST_CHARACTERS]}… ({more:,} characters more: `workloads --show-queries`)"
            )
        return self.model_copy(update={"lines": text.split("\n")})


def pool_statements(results: Iterable[Iterable[SentStatements]]) -> list[SentStatements]:
    """Those of several results of one candidate, each once: a query's with the parameters of the first."""
    found: dict[object, SentStatements] = {}
    for one in results:
        for part in one:
            same = part.title if part.query else (part.title, *part.lines)
            found.setdefault(same, part)
    return sorted(found.values(), key=lambda part: part.query is not None)
