"""What a module makes and sends for a workload, as text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from ..results.model import SentStatements


def describe_statements(sent: Sequence[SentStatements], heading: str | None = None) -> str:
    """The statements, each with its title; `heading`: the title of the schema, which is the first."""
    titles = [part.title for part in sent]
    if heading is not None:
        titles[0] = heading
    return "\n\n".join(
        "\n".join([title, *(indent(line, "  ") for line in part.lines)])
        for title, part in zip(titles, sent, strict=True)
    )
