"""Texts from elsewhere in messages of ours."""

from __future__ import annotations

import pytest

from simulator.errors import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("FATAL:  no\n\tHINT: yes\r\n", "FATAL: no HINT: yes"),
        (OSError(" gone \n away"), "gone away"),
        (TimeoutError(), "TimeoutError"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (FileNotFoundError(2, "No such file", "x"), "[Errno 2] No such file: 'x'"),
        ("", ""),
        (None, "None"),
    ],
)
def test_one_line(text: object, shown: str) -> None:
    assert one_line(text) == shown


def test_one_line_of_a_page() -> None:
    assert one_line("<html>\n" + "x" * 1000, 10) == "<html> xxx"
