"""The server of the live page: listens on loopback, requires the token."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .metrics import CONTENT_TYPE, write_metrics
from .state import LiveState

ADDRESS = "127.0.0.1"
BEAT_S = 2.0
"""After so long without anything new a reader is told that the connection stands."""

_PAGE = Path(__file__).parent / "page"
_MOST_CONNECTIONS = 32
_SILENT_S = 10.0
"""Idle timeout of a connection."""
_LAST_WORDS_S = 1.0
"""How long readers may take to hear of the end."""
_THREADS_PATIENCE_S = 2.0
_POLL_S = 0.1

_log = logging.getLogger(__name__)


class LiveServer:
    """Serves the page, its events and the metrics from threads, from `start` to `close`."""

    def __init__(self, state: LiveState) -> None:
        """It listens from here on, but answers from `start` on."""
        self._state = state
        self._token = secrets.token_urlsafe(24)
        self._server = _Server(state, self._token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[_POLL_S], name="live", daemon=True
        )

    @property
    def address(self) -> str:
        """Where it listens: address and port."""
        return f"{ADDRESS}:{self._server.server_address[1]}"

    @property
    def token(self) -> str:
        """What a request must have: `?token=…`, or a header `Authorization: Bearer …`."""
        return self._token

    @property
    def url(self) -> str:
        """Of the page, with the token."""
        return f"http://{self.address}/?token={self._token}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Tell all readers of the end, which the state must know by now; leave no thread and no socket."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.end_connections()


class _Server(TCPServer):
    # HTTPServer would look up a name for the address, and so need a network.
    request_queue_size = 16

    def __init__(self, state: LiveState, token: str) -> None:
        super().__init__((ADDRESS, 0), _Handler)
        self.state = state
        self.token = token
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        self._silent: dict[threading.Thread, socket.socket] = {}
        """Those of them that haven't shown the token, the oldest first."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many."""
        thread = threading.Thread(
            target=self._answer, args=[request, client_address], name="live request", daemon=True
        )
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS and not self._drop_silent():
                self.shutdown_request(request)
                return
            self._open[thread] = request
            self._silent[thread] = request
        thread.start()

    def _drop_silent(self) -> bool:
        """Break off the oldest connection that has not shown the token; whether there was one."""
        for thread, one in self._silent.items():
            del self._silent[thread]
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            return True
        return False

    def note_allowed(self) -> None:
        """The connection of this thread has shown the token."""
        with self._lock:
            self._silent.pop(threading.current_thread(), None)

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:
            _log.debug("a reader of the live page is gone: %s", error)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self._open.pop(threading.current_thread(), None)
                self._silent.pop(threading.current_thread(), None)

    def end_connections(self) -> None:
        """Wait a moment for those that are about to end, and break off the others."""
        self._join(_LAST_WORDS_S)
        with self._lock:
            for one in self._open.values():
                # Closed is a socket by its own thread; this wakes that up.
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError as error:
                    _log.debug("a reader of the live page was gone: %s", error)
        self._join(_THREADS_PATIENCE_S)

    def _join(self, within_s: float) -> None:
        until = time.monotonic() + within_s
        with self._lock:
            threads = list(self._open)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: a connection ends with its answer."""

    server: _Server
    timeout = _SILENT_S

    def do_GET(self) -> None:
        """The page, its events, or the metrics."""
        answers = {
            "/": self._send_page,
            "/events": self._send_events,
            "/metrics": self._send_metrics,
        }
        try:
            parts = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", b"not an address\n")
            return
        if not self._is_allowed(parse_qs(parts.query).get("token", [""])[0]):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"wrong or no token\n")
        elif parts.path in answers:
            self.server.note_allowed()
            answers[parts.path]()
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")

    def _is_allowed(self, token: str) -> bool:
        """Whether it has the token, and was sent to this address: a name that somebody has made to point
        here (DNS rebinding) must not read anything, even with a token."""
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return False
        scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
        given = credentials.strip() if scheme.lower() == "bearer" else token
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        page = (_PAGE / "live.html").read_text()
        page = page.replace("{style}", (_PAGE / "live.css").read_text())
        page = page.replace("{script}", (_PAGE / "live.js").read_text()).replace("{nonce}", nonce)
        self._send(
            HTTPStatus.OK,
            "text/html; charset=utf-8",
            page.encode(),
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}';"
            " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'",
        )

    def _send_metrics(self) -> None:
        text = write_metrics(self.server.state.read_figures())
        self._send(HTTPStatus.OK, CONTENT_TYPE, text.encode())

    def _send_events(self) -> None:
        """What the state tells, as server-sent events, until the end. Who is slow misses what is between,
        but for points: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
        self._send_head(HTTPStatus.OK, "text/event-stream")
        after = -1
        while True:
            if after < 0 or self.server.state.wait(after, BEAT_S):
                told = self.server.state.tell(after)
                after = told["serial"]
                self.wfile.write(b"data: " + json.dumps(told).encode() + b"\n\n")
                if told["ended"] is not None:
                    return
            else:
                self.wfile.write(b"event: beat\ndata:\n\n")

    def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str = "") -> None:
        self._send_head(status, kind, len(body), policy)
        self.wfile.write(body)

    def _send_head(
        self, status: HTTPStatus, kind: str, length: int | None = None, policy: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: its lines would have the token."""
