"""Questions to a database whose connections may have broken since it was asked last."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import Retryable

_log = logging.getLogger(__name__)
_RESULT = TypeVar("_RESULT")

_TRIES = 5
"""Before the last."""


def ask(question: Callable[[], _RESULT]) -> _RESULT:
    """The answer of a database whose connections may have broken since it was asked last: then it is asked
    again."""
    for attempt in range(_TRIES):
        try:
            return question()
        except Retryable as error:
            _log.warning("asking failed: %s", error)
            time.sleep(0.1 * 2**attempt)
    return question()
