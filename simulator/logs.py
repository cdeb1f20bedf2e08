"""Logs of collector and workers: one line per event on standard error, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Sequence

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RedactingFormatter(logging.Formatter):
    """Stars out secrets, in tracebacks too. No library is known to log one; this is for the day
    when one does."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__(FORMAT)
        self._secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record), self._secrets)


def redacted(text: str, secrets: Sequence[str]) -> str:
    """The text with each secret starred out."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def configure_logging() -> None:
    """Log to standard error."""
    logging.basicConfig(level=logging.INFO, format=FORMAT, force=True)
    # They report each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)


def hide(secrets: Sequence[str]) -> None:
    """From now on, no log line shows one of these."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(RedactingFormatter(secrets))
