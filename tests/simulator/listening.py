"""A server that official clients can reach, and that knows nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@contextmanager
def serving(listener: socket.socket, take: Callable[[socket.socket], None]) -> Iterator[int]:
    """Pass each connection to `take`, one after the other; yields the port. `take` may raise OSError."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                with suppress(OSError), near:
                    take(near)

    with closing(listener):
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing alone doesn't wake a thread that waits in accept.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
