"""No secret gets into a log line."""

from __future__ import annotations

import logging
import sys

from simulator.logs import RedactingFormatter


def test_secrets_are_starred_out_of_messages_and_tracebacks() -> None:
    formatter = RedactingFormatter(["geheim", ""])
    try:
        raise ValueError("password=geheim refused")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "file", 1, "can't log in with %s", ("geheim",), sys.exc_info()
        )
    text = formatter.format(record)
    assert "geheim" not in text
    assert "can't log in with ***" in text
    assert "ValueError: password=*** refused" in text
