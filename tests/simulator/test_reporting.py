"""How workers report their progress to the collector."""

from __future__ import annotations

import gc
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import httpx
import pytest

from simulator.contract import Go, Progress, Stage
from simulator.worker import base
from simulator.worker.base import CollectorClient, ReportConnection

from ..helpers import settings

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def answer_posts(per_connection: int, answer: bytes = ANSWER) -> Iterator[str]:
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
                        client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_a_worker_that_can_not_read_how_far_it_is_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its run was given up after a minute, for want of a word."""
    monkeypatch.setattr(base, "_PROGRESS_INTERVAL_S", 0.01)
    said: list[Progress] = []
    arrived = threading.Semaphore(0)

    class Collector(CollectorClient):
        def progress(self, message: Progress) -> float | None:
            said.append(message)
            arrived.release()
            return super().progress(message)

    reads = itertools.count()

    def read() -> Progress:
        if next(reads) != 2:
            raise KeyError("latency")
        return Progress(worker=1, stage="prefill", elapsed_s=3, done=7)

    with answer_posts(1_000) as url:
        client = Collector(url, settings(), 1)
        with base.reporting(client, read, stage="prefill"):
            for _ in range(6):
                assert arrived.acquire(timeout=60)
        client.close()
    assert [message.done for message in said[:6]] == [0, 0, 7, 7, 7, 7]
    assert {(message.worker, message.stage) for message in said} == {(1, "prefill")}
    # Said once: a run may have hours of it.
    assert caplog.text.count("KeyError: 'latency'") == 1


def test_an_answer_that_is_none_is_no_end_of_reports() -> None:
    with answer_posts(1_000, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnone") as url:
        client = CollectorClient(url, settings(), 0)
        assert client.progress(Progress(worker=0, stage="run", elapsed_s=1, done=1)) is None
        client.close()


def test_a_worker_that_was_stopped_itself_asks_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience with the collector was over when it woke up."""
    monkeypatch.setattr(base, "_CONNECT_PATIENCE_S", 0.1)
    asked = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 1:
            time.sleep(0.3)
            raise httpx.ReadTimeout("timed out", request=request)
        return httpx.Response(200, content=Go(go=True).model_dump_json())

    client = CollectorClient("http://collector", settings(), 0)
    client._http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://collector")
    assert client.ready(Stage.RUN).go
    client.close()


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
