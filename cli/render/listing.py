"""The list of what is stored, as wide as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.naming import find_changed_options, format_options
from ..results.store import StoredResult
from . import words
from .tables import Table

_LABEL, _HEADLINE, _OPTIONS = "Label", "Headline", "Options"
_IN_ID = ("When", "Command", "Target")
"""What the ID says, too."""
_LEAST = {_OPTIONS: 12, _LABEL: 12, _HEADLINE: 24}
"""Down to how many characters a text is cut before a column is left out."""


def tabulate_results(stored: Sequence[StoredResult], width: int | None = None) -> Table:
    """One line for each result. `width`: what a terminal has room for, in characters; None: no limit."""
    rows = [
        {
            "ID": one.id,
            "When": one.result.started_at[:16].replace("T", " "),
            "Command": one.result.command,
            "Target": one.result.target,
            "Database": words.name_database(one.result) or one.result.module,
            _LABEL: one.result.label or "-",
            _HEADLINE: words.write_headline(one.result),
            "Valid": words.describe_validity(one.result),
            "Stable": words.describe_stability(one.result),
            _OPTIONS: format_options(find_changed_options(one.result)) or "-",
        }
        for one in stored
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    if all(label == "-" for label in columns.get(_LABEL, ())):
        columns.pop(_LABEL, None)
    if width is not None:
        _fit(columns, width)
    return Table(list(columns), list(zip(*columns.values(), strict=True)), left=tuple(columns))


def _fit(columns: dict[str, list[str]], width: int) -> None:
    """Shorten texts, and leave columns out, until a line has at most `width` characters or nothing is
    left to shorten."""

    def measure() -> dict[str, int]:
        # tabulate pads a header by two characters.
        return {name: max(len(name) + 2, *map(len, cells)) for name, cells in columns.items()}

    def find_excess() -> int:
        return sum(measure().values()) + 2 * (len(columns) - 1) - width

    def cut(name: str) -> None:
        excess = find_excess()
        if excess > 0 and name in columns:
            room = max(_LEAST[name], measure()[name] - excess)
            columns[name] = [_shorten(text, room) for text in columns[name]]

    def leave_out(name: str) -> None:
        if find_excess() > 0:
            columns.pop(name, None)

    for name in (*_IN_ID, "Database"):
        # What the options may lose comes first.
        if find_excess() > max(0, measure().get(_OPTIONS, 0) - _LEAST[_OPTIONS]):
            columns.pop(name, None)
    cut(_OPTIONS)
    leave_out(_OPTIONS)
    cut(_LABEL)
    cut(_HEADLINE)
    leave_out("Stable")


def _shorten(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"
