"""A PostgreSQL server that lets everybody in, and then says nothing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

# https://www.postgresql.org/docs/current/protocol-message-formats.html: AuthenticationOk, ReadyForQuery
_WELCOME = b"R" + struct.pack("!II", 8, 0) + b"Z" + struct.pack("!I", 5) + b"I"


def log_in(client: socket.socket) -> None:
    """Log a client in, whoever it is."""
    (size,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
    client.recv(size - 4, socket.MSG_WAITALL)
    client.sendall(_WELCOME)


@contextmanager
def let_in(listener: socket.socket, at_most: int = 1) -> Iterator[SimpleQueue[socket.socket]]:
    """Log in up to `at_most` clients; yields their connections. Later clients are kept waiting."""
    clients: SimpleQueue[socket.socket] = SimpleQueue()

    def accept() -> None:
        for _ in range(at_most):
            try:
                client, _ = listener.accept()
            except OSError:
                return  # nobody came until the end
            log_in(client)
            clients.put(client)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield clients
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        while not clients.empty():
            clients.get().close()
