"""Sentences on a terminal: broken between words."""

from __future__ import annotations

import pytest

from cli.output import wrap_lines

TEXT = "short: runs of 2.0 s measure much of\n\nfile: /a/folder/with-a-name/that-is-long"


def test_lines_are_broken_between_words() -> None:
    assert wrap_lines(TEXT, 20).splitlines() == [
        "short: runs of 2.0 s", "  measure much of", "", "file:", "  /a/folder/with-a-name/that-is-long",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [None, 200])
def test_lines_that_have_room_stay(width: int | None) -> None:
    assert wrap_lines(TEXT, width) == TEXT
