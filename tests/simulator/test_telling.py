"""How workers tell the collector how far they are."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import pytest

from simulator.worker.telling import Teller

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def answer_posts(per_connection: int) -> Iterator[str]:
    """The URL of a server that closes a connection after so many answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, client.makefile("rb") as stream:
                    for _ in range(per_connection):
                        size = 0
                        while (line := stream.readline()) not in (b"\r\n", b""):
                            name, _, value = line.partition(b":")
                            size = int(value) if name.lower() == b"content-length" else size
                        if not line:
                            break
                        stream.read(size)
                        client.sendall(ANSWER)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_reports_leave_no_garbage() -> None:
    with answer_posts(1_000) as url:
        teller = Teller(url, {"x-run-id": "a"})
        teller.post("/progress", "{}")
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                teller.post("/progress", "{}")
            assert gc.collect() == 0
        finally:
            gc.enable()
            teller.close()


def test_connection_that_was_closed_is_opened_again() -> None:
    with answer_posts(1) as url:
        teller = Teller(url, {})
        assert [teller.post("/progress", "{}") for _ in range(3)] == [(200, b"{}")] * 3
        teller.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    teller = Teller(f"http://127.0.0.1:{port}", {})
    with pytest.raises((OSError, HTTPException)):
        teller.post("/progress", "{}")
