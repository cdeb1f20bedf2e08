"""What the tests of the command line share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Undo that a command which has ended ignores signals, since its process is about to end, too: programs
    that later tests start would ignore them as well."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
