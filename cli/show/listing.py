"""The list of stored results, as columns that fit a terminal. It imports little, so that a list appears at
once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..results.index import ResultLine

LABEL, HEADLINE, OPTIONS = "Label", "Headline", "Options"
_IN_ID = ("When", "Command", "Target")
"""Columns whose content is also in the ID."""
_LEAST = {OPTIONS: 12, LABEL: 12, HEADLINE: 15}
"""The shortest that a text is cut to; a narrower column is left out."""


def write_list(lines: Sequence[ResultLine], width: int | None = None) -> str:
    """A line for each result that has cells, below the headings. `width`: columns of the terminal; None: no
    limit."""
    columns = choose_columns(lines, width)
    # As tabulate would format them, in a tenth of the time.
    widths = _measure(columns).values()
    padded = [
        [f"{text:<{most}}" for text in (name, *cells)]
        for (name, cells), most in zip(columns.items(), widths, strict=True)
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*padded, strict=True))


def choose_columns(lines: Sequence[ResultLine], width: int | None = None) -> dict[str, list[str]]:
    """Heading -> texts, for the columns that fit."""
    rows = [line.cells for line in lines if line.cells]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    if all(label == "-" for label in columns.get(LABEL, ())):
        columns.pop(LABEL, None)
    if width is not None:
        _fit(columns, width)
    return columns


def _measure(columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The width of each column: at least two characters more than its heading."""
    return {name: max(len(name) + 2, *map(len, cells)) for name, cells in columns.items()}


def _fit(columns: dict[str, list[str]], width: int) -> None:
    """Shorten texts and leave columns out until a line fits `width` characters or nothing is left to
    shorten."""

    def find_excess() -> int:
        return sum(_measure(columns).values()) + 2 * (len(columns) - 1) - width

    def cut(name: str) -> None:
        excess = find_excess()
        if excess > 0 and name in columns:
            room = max(_LEAST[name], _measure(columns)[name] - excess)
            columns[name] = [
                text if len(text) <= room else f"{text[: room - 1].rstrip()}…"
                for text in columns[name]
            ]

    def leave_out(name: str) -> None:
        if find_excess() > 0:
            columns.pop(name, None)

    for name in (*_IN_ID, "Database"):
        # Options are shortened before any column goes.
        if find_excess() > max(0, _measure(columns).get(OPTIONS, 0) - _LEAST[OPTIONS]):
            columns.pop(name, None)
    cut(OPTIONS)
    leave_out(OPTIONS)
    leave_out("Stable")
    if set(columns.get("Valid", ())) == {"yes"}:
        leave_out("Valid")
    cut(HEADLINE)
    cut(LABEL)
