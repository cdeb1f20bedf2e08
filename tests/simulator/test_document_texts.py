"""What a stranger's text may not bring to a terminal or a figure."""

from __future__ import annotations

import pytest

from simulator.errors import make_printable, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x00\x07\r\x7f\x9b", r"\x00\x07\r\x7f\x9b"),
        ("\u202egnp.exe\u2066\u200f", r"\u202egnp.exe\u2066\u200f"),
        ("\uffff\ufffe\ufeff\ud800", r"\uffff\ufffe\ufeff\ud800"),
        ("\U0001ffff\U000e0041", r"\U0001ffff\U000e0041"),
        ("µ × 汉 🚀\n\tnext", "µ × 汉 🚀\n\tnext"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_texts_within_documents_are_lines() -> None:
    assert make_printable({"a\n": ["b\tc", 1, None, {"d": "\x1b"}]}) == {
        "a ": ["b c", 1, None, {"d": r"\x1b"}]
    }
