"""A terminal's screen: what it shows after what was written to it."""

from __future__ import annotations

import re

_TOKENS = re.compile(r"\x1b\[([0-9?;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")


class Screen:
    """Lines without end, and a cursor. Knows the sequences that the tool may use; others are an error.

    A line is (characters, whether it goes on in the next).
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[tuple[str, bool]] = [("", False)]
        self._row = self._column = 0
        self.cursor_shown = True

    @property
    def lines(self) -> list[str]:
        """What the screen shows, without empty lines at the end."""
        lines = [text.rstrip() for text, _ in self._rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def feed(self, text: str) -> Screen:
        """Take what is written; returns itself. As on a terminal, a line feed also returns the carriage."""
        at = 0
        for token in _TOKENS.finditer(text):
            assert token.start() == at, text[at:]
            at = token.end()
            parameters, final, control, character = token.groups()
            if control == "\r":
                self._column = 0
            elif control == "\n":
                self._row, self._column = self._row + 1, 0
                self._reach()
            elif character:
                self._put(character)
            else:
                self._obey(parameters, final)
        assert at == len(text), text[at:]
        return self

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._rows[self._row] = (self._rows[self._row][0], True)
            self._row, self._column = self._row + 1, 0
            self._reach()
        text, goes_on = self._rows[self._row]
        text = text.ljust(self._column)
        text = text[: self._column] + character + text[self._column + 1 :]
        self._rows[self._row] = (text, goes_on)
        self._column += 1

    def _obey(self, parameters: str, final: str) -> None:
        match parameters, final:
            case "?25", "l" | "h":
                self.cursor_shown = final == "h"
            case "", "J":
                self._rows[self._row :] = [(self._rows[self._row][0][: self._column], False)]
            case _, "A":
                self._row = max(0, self._row - int(parameters))
            case _, "m":
                pass
            case _:
                raise AssertionError(f"unknown sequence {parameters}{final}")

    def _reach(self) -> None:
        while len(self._rows) <= self._row:
            self._rows.append(("", False))

    def resize(self, columns: int, wraps_anew: bool) -> None:
        """Set another width. Lines are wrapped anew, and the cursor stays with its character; or they are cut
        off."""
        self._columns = columns
        if not wraps_anew:
            self._rows = [(text[:columns], False) for text, _ in self._rows]
            self._column = min(self._column, columns - 1)
            return
        rows: list[tuple[str, bool]] = []
        row = column = 0
        paragraph, begun = "", 0
        for number, (text, goes_on) in enumerate(self._rows):
            if number == self._row:
                offset = len(paragraph) + self._column
                row, column = begun + offset // columns, offset % columns
            paragraph += text
            if not goes_on:
                pieces = [paragraph[at : at + columns] for at in range(0, len(paragraph), columns)]
                rows += [(piece, True) for piece in pieces[:-1]]
                rows.append((pieces[-1] if pieces else "", False))
                paragraph, begun = "", len(rows)
        self._rows, self._row, self._column = rows, row, column
        self._reach()
