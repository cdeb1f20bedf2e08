"""Something else than the database answers at its address: a redirect, a page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

import pytest

from simulator.errors import SimulatorError
from simulator.modules import load_module
from simulator.modules.kit.http_answer import Answer
from simulator.modules.kit.http_database import find_stranger
from simulator.modules.options import Job, parse_options
from simulator.workloads.temperature import Temperature

PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome to\n nginx!</title></head></html>"
NEEDED: dict[str, dict[str, Any]] = {
    "arangodb": {"username": "root", "password": "x"}, "clickhouse": {}, "cratedb": {}, "elasticsearch": {},
    "influxdb": {"org": "o", "bucket": "b", "token": "t"}, "questdb": {}, "victoriametrics": {},
}  # fmt: skip


@contextmanager
def stranger(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """A server that answers everything like this; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def refusal(name: str, url: str) -> str:
    """What a module's connection says of what is there."""
    options = parse_options(
        load_module(name).options_model, {"endpoint": url, **NEEDED[name]}, lambda _: name
    )
    connection: Any = import_module(f"simulator.modules.{name}.server").Connection
    with pytest.raises(SimulatorError) as refused:
        connection.connect(options, Job(Temperature.schema)).close()
    return str(refused.value)


@pytest.mark.parametrize("name", NEEDED)
def test_who_redirects_or_is_a_page_is_named(name: str) -> None:
    moved = {"Location": "https://user:hush@db.example.com:8443/there?token=hush"}
    with stranger(301, moved, b"") as url:
        text = refusal(name, url)
    assert "redirect to https://db.example.com:8443/there: use that address" in text
    assert "hush" not in text
    with stranger(200, {"Content-Type": "text/html"}, PAGE) as url:
        text = refusal(name, url)
    assert "it answers with an HTML page (Welcome to nginx!)" in text
    assert url.removeprefix("http://") in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("status", "body", "stranger"),
    [(404, PAGE, True), (200, b"<html>", True), (502, PAGE, False), (401, PAGE, False), (200, b"{}", False),
     (204, b"", False), (304, b"", False)],
)  # fmt: skip
def test_a_proxys_page_of_an_error_may_pass(status: int, body: bytes, stranger: bool) -> None:
    assert bool(find_stranger(Answer(status, body, []), "Thing")) is stranger


def test_a_redirect_to_nowhere() -> None:
    answer = Answer(302, b"", [(b"Location", b"/login")])
    assert find_stranger(answer, "Thing") == ("answers with a redirect to /login: use that address")
    assert "redirect to nowhere" in (find_stranger(Answer(302, b"", []), "Thing") or "")
