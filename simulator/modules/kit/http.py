"""HTTP/1.1 for measured requests: a pool of connections to the nodes of one server.

Requests go to the nodes in turn. A node that can't be reached, or that received a request and didn't answer
in time, is dead: it gets no requests until it passes a probe, which a thread sends meanwhile. Not every
answer counts: a node opens its port before it has joined the others, and then refuses requests. A request
that couldn't be sent goes to the next node at once, since no node has any part of it. One that was sent is
never repeated here, since only the module knows whether it may be. While all nodes are dead (or the only one
is), requests themselves try them.
"""

from __future__ import annotations

import base64
import itertools
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from ...errors import Retryable, SimulatorError
from ..waiting import limit_wait
from .http_answer import Answer, NoAnswer
from .http_connection import (
    AnswerTimeout,
    Connection,
    HandshakeCut,
    HttpRequest,
    NotConnected,
    TlsRefused,
    connect,
)
from .module import CONNECTION_LOST

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
"""Limit for connecting, and for the answer to a request that needs no data."""

_FIRST_PROBE_S, _PROBES_APART_S = 0.5, 10.0
"""When a dead node is first probed; the time between probes doubles up to the second value."""

_BAD_REQUEST, _SERVER_ERROR = 400, 500


def interpret_no_answer(
    error: NoAnswer, system: str, server: str, remedy: str
) -> Retryable | SimulatorError:
    """What the error means for a run; `remedy`: the options for certificates."""
    if isinstance(error, TlsRefused):
        return SimulatorError(
            f"no TLS with {system} at {server}: {error}; check that endpoint says https where the"
            f" server does, and {remedy}"
        )
    kind = "timeout" if isinstance(error, AnswerTimeout) else CONNECTION_LOST
    return Retryable(kind, f"{server}: {error}")


def scheme_port(url: str) -> int:
    """The port of a URL without one."""
    return 443 if urlsplit(url).scheme == "https" else 80


def basic_auth(user: str, password: str) -> str:
    """The value of the header `authorization`: https://www.rfc-editor.org/rfc/rfc7617"""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def parse_body(body: bytes) -> Any:
    """An answer's JSON, or its text if it isn't JSON (a proxy's error page)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Probe:
    """A request to a dead node, and the answers which mean that it serves requests again."""

    method: str = "GET"
    target: str = "/"
    body: bytes = b""
    passes: Callable[[Answer], bool] = lambda answer: answer.status < _SERVER_ERROR


class HttpPool:
    """Connections to the nodes of a server, which are used in turn; as many as threads need at once. Each
    request is sent once; any answer of a server is returned."""

    def __init__(
        self,
        urls: Sequence[str],
        default_port: int,
        headers: Mapping[str, str],
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        stamped: bool = False,
        probe: Probe = Probe(),
    ) -> None:
        """Connects to nothing yet. `headers`: of each request; `timeout_s`: for a server to take a request,
        or to answer; `tls`: for https:// in `urls`; `stamped`: the kernel timestamps answers.

        Raises SimulatorError if a header has a line break, as a secret from a file may have, or a character
        outside ASCII.
        """
        self._nodes = [_Node(url, default_port, tls, stamped) for url in urls]
        self._live = tuple(self._nodes)
        self._turn = itertools.count()
        self._headers = _lines(headers)
        self._timeout_s = timeout_s
        self.probe = probe
        """The request for a dead node."""
        self._lock = threading.Lock()
        """Guards the nodes' state; requests to live ones don't need it."""
        self._probed: set[_Node] = set()
        self._closed = threading.Event()

    def close(self) -> None:
        """Close all idle connections, and stop the probes."""
        with self._lock:
            self._closed.set()
            for node in self._nodes:
                node.close_idle()

    def begin(self, request: HttpRequest, timeout_s: float | None = None) -> Connection:
        """Send a request on a connection, which then belongs to the caller; NoAnswer if it can't be sent.
        `timeout_s`: for a server to take it, and for each part of its answer."""
        timeout_s = limit_wait(timeout_s or self._timeout_s)
        live = self._live
        node = live[next(self._turn) % len(live)] if live else self._choose(())
        connection = node.take() or self._connect(node, timeout_s)
        try:
            connection.begin(self._head(connection.owner, request), request.body, timeout_s)
        except NoAnswer as error:
            raise self.drop(connection, error)  # noqa: B904 - it may be this very error
        except BaseException:
            connection.close()
            raise
        return connection

    def receive(self, connection: Connection) -> Answer | None:
        """Wait for something to read, and read it. Returns the answer once it is complete; NoAnswer if there
        is none. After an answer or an error, the connection no longer belongs to the caller."""
        try:
            answer = connection.receive()
        except NoAnswer as error:
            raise self.drop(connection, error)  # noqa: B904 - it may be this very error
        except BaseException:
            connection.close()
            raise
        if answer is not None:
            node: _Node = connection.owner
            if node not in self._live and answer.status < _BAD_REQUEST:
                self._declare_live(node)
            node.give_back(connection)
        return answer

    def finish(self, connection: Connection) -> Answer:
        """Wait for the complete answer to a request."""
        while (answer := self.receive(connection)) is None:
            pass
        return answer

    def exchange(self, request: HttpRequest, timeout_s: float | None = None) -> Answer:
        """Send a request and wait for its answer."""
        return self.finish(self.begin(request, timeout_s))

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """As `exchange`, with a request built here."""
        return self.exchange(HttpRequest(method, target, body, headers), timeout_s)

    def drop(self, connection: Connection, error: NoAnswer | None = None) -> Exception:
        """Stop waiting for an answer, which is late (None) or can't come; returns the error. A node that is
        late is dead until it passes a probe."""
        connection.close()
        error = error or connection.explain_delay()
        if isinstance(error, AnswerTimeout):
            self._declare_dead(connection.owner, error)
        return self.explain_silence(error)

    def explain_silence(self, error: NoAnswer) -> Exception:
        """The error for a missing answer."""
        return error

    def _head(self, node: _Node, request: HttpRequest) -> bytes:
        """What precedes the body."""
        method, target, body, headers = request
        known_method, known_target, known_headers, lines = node.head
        # Requests of one sender mostly have the same headers.
        if target is not known_target or headers is not known_headers or method != known_method:
            lines = (
                f"{method} {node.path}{target} HTTP/1.1\r\nhost: {node.authority}\r\n"
                f"{self._headers}{_lines(headers) if headers else ''}content-length: "
            ).encode()
            node.head = method, target, headers, lines
        return b"%b%d\r\n\r\n" % (lines, len(body))

    def _connect(self, node: _Node, timeout_s: float) -> Connection:
        """A connection to this node, or to the next one that can be reached; the last one's error if none
        can."""
        deadline = time.monotonic() + timeout_s
        tried: list[_Node] = []
        while True:
            try:
                return node.connect(timeout_s)
            except NoAnswer as error:
                if isinstance(error, NotConnected):
                    self._declare_dead(node, error)
                    tried.append(node)
                    if len(tried) < len(self._nodes) and time.monotonic() < deadline:
                        node = self._choose(tried)
                        continue
                raise self.explain_silence(error)  # noqa: B904 - it may be this very error

    def _choose(self, tried: Sequence[_Node]) -> _Node:
        """The next live node, or a dead one if there is no other, but none of `tried`."""
        nodes = [node for node in self._live if node not in tried]
        if not nodes:
            nodes = [node for node in self._nodes if node not in tried]
        return nodes[next(self._turn) % len(nodes)]

    # --- nodes that are dead ----------------------------------------------------------------------

    def _declare_dead(self, node: _Node, error: NoAnswer) -> None:
        """Send nothing more to a node until it passes a probe, unless it is the only one."""
        if len(self._nodes) == 1:
            return
        with self._lock:
            if node not in self._live:
                return
            self._live = tuple(other for other in self._live if other is not node)
            # The route to it may be gone, and these connections with it, without notice.
            node.close_idle()
            remaining = len(self._live)
            if node not in self._probed and not self._closed.is_set():
                self._probed.add(node)
                name = f"probe {node.authority}"
                threading.Thread(None, self._probe, name, [node], daemon=True).start()
        _log.warning(
            "%s gets no requests until it passes a probe (%s); %d of %d nodes remain",
            node.authority, error, remaining, len(self._nodes),
        )  # fmt: skip

    def _declare_live(self, node: _Node) -> None:
        with self._lock:
            if node in self._live:
                return
            # In the nodes' order, so that all pools take the same turns.
            self._live = tuple(
                other for other in self._nodes if other is node or other in self._live
            )
        _log.warning("%s serves requests again", node.authority)

    def _probe(self, node: _Node) -> None:
        """Probe a dead node until it is alive again, or the pool is closed."""
        apart_s = _FIRST_PROBE_S
        while not self._closed.wait(apart_s):
            with self._lock:
                if node in self._live:
                    self._probed.discard(node)
                    return
            try:
                passes = self._passes_probe(node)
            except Exception:  # noqa: BLE001 - it would end this thread unseen
                _log.exception("the probe of %s failed unexpectedly", node.authority)
                passes = False
            if passes:
                self._declare_live(node)
                apart_s = _FIRST_PROBE_S
            else:
                apart_s = min(2 * apart_s, _PROBES_APART_S)

    def _passes_probe(self, node: _Node) -> bool:
        """Whether a node serves requests. The connection is kept for the next one."""
        probe, limit_s = self.probe, min(self._timeout_s, CONNECT_TIMEOUT_S)
        try:
            connection = node.connect(limit_s)
        except NoAnswer:
            return False
        try:
            request = HttpRequest(probe.method, probe.target, probe.body)
            connection.begin(self._head(node, request), probe.body, limit_s)
            while (answer := connection.receive()) is None:
                pass
        except NoAnswer:
            connection.close()
            return False
        with self._lock:
            if self._closed.is_set():
                connection.close()
            else:
                node.give_back(connection)
        return probe.passes(answer)


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if "\r" in value or "\n" in value or not value.isascii():
            raise SimulatorError(f"the value of {name} must be ASCII without line breaks")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class _Node:
    """One server's address, and its idle connections."""

    def __init__(
        self, url: str, default_port: int, tls: ssl.SSLContext | None, stamped: bool
    ) -> None:
        self._stamped = stamped
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host = parts.hostname
        self._port = parts.port or default_port
        self._tls = tls if parts.scheme == "https" else None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.authority = f"{host}:{self._port}"
        self.path = parts.path.rstrip("/")
        self.head: tuple[str, str, Mapping[str, str] | None, bytes] = "", "", None, b""
        """The last request's method, target and headers, and their bytes."""
        self._idle: list[Connection] = []
        self._reached = False

    def take(self) -> Connection | None:
        """An idle connection that appears to be open, which then belongs to the caller."""
        while True:
            try:
                # No check first: another thread could take the last connection in between.
                connection = self._idle.pop()
            except IndexError:
                return None
            if not connection.find_events(0):
                return connection
            connection.close()

    def connect(self, timeout_s: float) -> Connection:
        """A connection that appears to be open: an idle one, or a new one."""
        if connection := self.take():
            return connection
        limit_s = min(timeout_s, CONNECT_TIMEOUT_S)
        try:
            opened = connect(self._host, self._port, self._tls, limit_s, self._stamped)
        except HandshakeCut as error:
            # A server that was reachable and closes the connection now is shutting down.
            if self._reached:
                raise NotConnected(str(error)) from error
            raise
        self._reached = True
        opened.owner = self
        return opened

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, if the server allows that."""
        if connection.keeps_alive:
            self._idle.append(connection)
        else:
            connection.close()

    def close_idle(self) -> None:
        """Close the idle connections."""
        while connection := self.take():
            connection.close()
