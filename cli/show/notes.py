"""What weakens a result, as lines of text."""

from __future__ import annotations

from ..results.model import Result
from ..results.verdicts import Weakness, find_weaknesses
from .tables import format_rate, strike


def list_notes(result: Result, terminal: bool) -> list[str]:
    """One line for each weakness, the gravest first."""
    return [
        f"{weakness.kind}: {describe_weakness(weakness, terminal)}"
        for weakness in find_weaknesses(result)
    ]


def describe_weakness(weakness: Weakness, terminal: bool = False) -> str:
    """Where it is, the figure that doesn't count, and what is wrong."""
    place = "" if weakness.where is None else f"{weakness.where}: "
    rate = "" if weakness.rate is None else f"{strike(format_rate(weakness.rate), terminal)} "
    return f"{place}{rate}{weakness.text}"
