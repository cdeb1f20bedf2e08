"""Ends waiting for an answer that doesn't come.

libpq waits for an answer for as long as the connection lives, and a proxy that stalls keeps it alive.
So a thread shuts the connection's socket down when a request has taken too long, and the call that waits
for the answer ends with an error like that of any connection that is lost.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..waiting import limit_wait
from .dialects import Connection

_LONGEST_PAUSE_S = 1.0


class Watchdog:
    """Watches the requests of one connection at a time. `begin` and `end` cost next to nothing."""

    def __init__(self, limit_s: float) -> None:
        """`limit_s`: how long a request may take."""
        self._limit_s = self._waits_s = limit_s
        self._due_s = math.inf
        """When the request under way will have taken too long."""
        self._descriptor: int | None = None
        self._bit = False
        self._lock = threading.Lock()
        """A descriptor may mean something else once its connection is closed."""
        self._over: threading.Event | None = None

    @property
    def complaint(self) -> str | None:
        """What is to be said of the connection if it was shut down here."""
        return f"no answer within {self._waits_s:g} s" if self._bit else None

    def watch(self, connection: Connection) -> None:
        """From now on this connection, until `release`."""
        with self._lock:
            self._descriptor = connection.fileno()
            self._due_s, self._bit = math.inf, False
        if self._over is None:
            self._over = threading.Event()
            threading.Thread(None, self._run, "watchdog", [self._over], daemon=True).start()

    def release(self) -> None:
        """Before the connection is closed."""
        with self._lock:
            self._descriptor = None
            self._due_s = math.inf
        if self._over is not None:
            self._over.set()
            self._over = None

    def begin(self) -> None:
        """A request is sent."""
        self._waits_s = limit_wait(self._limit_s)
        self._due_s = time.monotonic() + self._waits_s

    def end(self) -> None:
        """It is answered, or failed."""
        self._due_s = math.inf

    @contextmanager
    def limit(self) -> Iterator[None]:
        """A request from its beginning to its end."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def _run(self, over: threading.Event) -> None:
        while not over.wait(min(_LONGEST_PAUSE_S, self._limit_s / 4)):
            if time.monotonic() >= self._due_s:
                self._bite()

    def _bite(self) -> None:
        with self._lock:
            if self._descriptor is None or time.monotonic() < self._due_s:
                return
            self._bit = True
            self._due_s = math.inf
            # The connection's own descriptor is libpq's affair.
            with suppress(OSError), socket.socket(fileno=os.dup(self._descriptor)) as stream:
                stream.shutdown(socket.SHUT_RDWR)
