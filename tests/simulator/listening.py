"""Servers of tests: one that official clients reach and that knows nothing; a base of others."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
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


class Listening(ABC):
    """A server on this machine, in a thread of its own."""

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.listener = socket.create_server(address)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    @abstractmethod
    def serve(self) -> None:
        """Take connections from `listener`, which raises OSError when it is closed."""

    def close(self) -> None:
        # close() alone would not wake the thread that waits in accept().
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
