"""How workers report their progress to the collector."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import pytest

from simulator.worker import base
from simulator.worker.base import ReportConnection

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
        reports = ReportConnection(url, {"x-run-id": "a"})
        reports.post("/progress", "{}")
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                reports.post("/progress", "{}")
            assert gc.collect() == 0
        finally:
            gc.enable()
            reports.close()


def test_connection_that_was_closed_is_opened_again() -> None:
    with answer_posts(1) as url:
        reports = ReportConnection(url, {})
        assert [reports.post("/progress", "{}") for _ in range(3)] == [(200, b"{}")] * 3
        reports.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    reports = ReportConnection(f"http://127.0.0.1:{port}", {})
    with pytest.raises((OSError, HTTPException)):
        reports.post("/progress", "{}")


def test_who_waited_in_vain_does_not_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's end waits for its last report: with a collector that hangs, once."""
    monkeypatch.setattr(base, "_REPORT_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reports = ReportConnection(f"http://127.0.0.1:{listener.getsockname()[1]}", {})
        with pytest.raises(TimeoutError):
            reports.post("/progress", "{}")
        listener.settimeout(0.2)
        with listener.accept()[0], pytest.raises(TimeoutError):
            listener.accept()
