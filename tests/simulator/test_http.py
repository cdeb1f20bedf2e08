"""HTTP for requests that are measured: on a server that plays a script, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import trustme

from simulator.errors import Retryable, SimulatorError
from simulator.modules.kit import http, http_answer, http_connection
from simulator.modules.kit.http import HttpPool, Probe, basic_auth, interpret_no_answer
from simulator.modules.kit.http_answer import Answer, ConnectionLost, NoAnswer
from simulator.modules.kit.http_connection import AnswerTimeout, NotConnected, TlsRefused

from ..helpers import eventually
from .listening import Listening

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Scripted(Listening):
    """Plays one script per connection, in turn; what each connection's client sent is kept."""

    def __init__(
        self,
        *scripts: Script,
        tls: ssl.SSLContext | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        self.heard: list[bytearray] = []
        super().__init__(address)

    def serve(self) -> None:
        for script in self._scripts:
            with suppress(OSError):
                stream, _ = self.listener.accept()
                self.heard.append(bytearray())
                with self._tls.wrap_socket(stream, True) if self._tls else stream as peer:
                    script(self, peer)

    def reads(self, stream: socket.socket) -> bool:
        """Whether a whole request came."""
        heard = self.heard[-1]
        start = len(heard)
        while b"\r\n\r\n" not in heard[start:]:
            if not (piece := stream.recv(1 << 16)):
                return False
            heard += piece
        head, _, _ = bytes(heard[start:]).partition(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(heard) < start + len(head) + 4 + size:
            heard += stream.recv(1 << 16)
        return True


Script = Callable[[Scripted, socket.socket], None]


def answers(*texts: bytes) -> Script:
    """Answers one request with each text, in turn; then the connection stays until the client ends it."""

    def script(server: Scripted, stream: socket.socket) -> None:
        for text in texts:
            if server.reads(stream):
                stream.sendall(text)
        server.reads(stream)

    return script


def answers_each(text: bytes) -> Script:
    """Answers every request with this text until the client ends the connection."""

    def script(server: Scripted, stream: socket.socket) -> None:
        while server.reads(stream):
            stream.sendall(text)

    return script


def pool_to(
    *servers: Scripted, timeout_s: float = 20, tls: ssl.SSLContext | None = None
) -> HttpPool:
    scheme = "https" if tls else "http"
    urls = [f"{scheme}://{server.address}" for server in servers]
    return HttpPool(urls, 80, {"user-agent": "me"}, timeout_s, tls)


@dataclass(frozen=True)
class Trust:
    """A server's context, and that of a client that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def trust() -> Trust:
    authority = trustme.CA()
    contexts = Trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context())
    authority.issue_cert("127.0.0.1").configure_cert(contexts.server)
    authority.configure_trust(contexts.client)
    return contexts


def test_requests_go_over_one_connection() -> None:
    chunked = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    empty = b"HTTP/1.1 204 No Content\r\nRetry-After: 7\r\n\r\n"
    server = Scripted(answers(OK, chunked, empty))
    with closing(server), closing(pool_to(server)) as pool:
        first = pool.request("POST", "/a?b=c", b"body", {"content-type": "text/plain"})
        assert (first.status, first.body) == (200, b"ok")
        second = pool.request("PUT", "/d", b"z" * 3_000_000)
        assert (second.status, second.body) == (201, b"abcde")
        third = pool.request("GET", "/")
        assert (third.status, third.body, third.header("retry-after")) == (204, b"", "7")
        assert third.header("content-type") is None
        [heard] = server.heard
    begin = (
        f"POST /a?b=c HTTP/1.1\r\nhost: {server.address}\r\nuser-agent: me\r\n"
        "content-type: text/plain\r\ncontent-length: 4\r\n\r\nbodyPUT /d HTTP/1.1\r\n"
    )
    assert heard.startswith(begin.encode())
    assert heard.count(b"z") == 3_000_000
    assert heard.endswith(b"content-length: 0\r\n\r\n")


def test_an_answer_in_pieces_and_one_before_the_answer() -> None:
    def script(server: Scripted, stream: socket.socket) -> None:
        assert server.reads(stream)
        for byte in b"HTTP/1.1 100 Continue\r\n\r\n" + OK:
            stream.sendall(bytes([byte]))
        server.reads(stream)

    server = Scripted(script)
    with closing(server), closing(pool_to(server)) as pool:
        answer = pool.request("GET", "/")
        assert (answer.status, answer.body) == (200, b"ok")


def test_an_answer_whose_head_is_known_may_come_in_pieces() -> None:
    """An answer of another length has another head."""
    near, far = socket.socketpair()
    longer = OK.replace(b"length: 2", b"length: 3") + b"!"
    last = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    with near, far:
        connection = http_connection.Connection(near)
        pieces: list[list[bytes]] = [
            [OK], [OK], [OK[:-1], OK[-1:]], [OK[:9], OK[9:]], [longer], [OK], [longer], [last],
        ]  # fmt: skip
        for number, parts in enumerate(pieces):
            connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", 5.0)
            received = []
            for piece in parts:
                far.sendall(piece)
                received.append(connection.receive())
            answer = received.pop()
            assert answer is not None and received == [None] * len(received)
            assert answer.body == (b"ok!" if parts == [longer] else b"ok")
            assert answer.header("Content-Length") == str(len(answer.body))
            assert connection.keeps_alive is (number < len(pieces) - 1)


def test_a_connection_that_the_server_ends_is_replaced() -> None:
    last = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    ended = threading.Event()

    def hangs_up(server: Scripted, stream: socket.socket) -> None:
        assert server.reads(stream)
        stream.sendall(OK)
        stream.shutdown(socket.SHUT_RDWR)
        ended.set()

    server = Scripted(answers(last), hangs_up, answers(OK))
    with closing(server), closing(pool_to(server)) as pool:
        assert pool.request("GET", "/1").body == b"ok"
        assert pool.request("GET", "/2").body == b"ok"
        assert ended.wait(20)
        assert pool.request("GET", "/3").body == b"ok"
        assert [bytes(heard[:6]) for heard in server.heard] == [b"GET /1", b"GET /2", b"GET /3"]


def test_a_refusal_before_the_request_was_read() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig"

    def refuses(server: Scripted, stream: socket.socket) -> None:
        stream.recv(1000)
        stream.sendall(refusal)
        stream.shutdown(socket.SHUT_WR)
        # Until the client has seen that nobody reads on: a reset may take the answer with it.
        stream.recv(1 << 22)
        stream.recv(1 << 22)

    server = Scripted(refuses, answers(OK))
    with closing(server), closing(pool_to(server)) as pool:
        try:
            answer = pool.request("POST", "/", bytes(30_000_000))
        except ConnectionLost:
            # The kernel may drop what has come when the connection is reset.
            pass
        else:
            assert (answer.status, answer.body) == (413, b"big")
        assert pool.request("GET", "/").body == b"ok"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "the server closed the connection without an answer"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
            "closed the connection during its answer",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"),
    ],
)
def test_no_answer(answer: bytes, said: str) -> None:
    def script(server: Scripted, stream: socket.socket) -> None:
        assert server.reads(stream)
        stream.sendall(answer)

    server = Scripted(script, answers(OK))
    with closing(server), closing(pool_to(server)) as pool:
        with pytest.raises(ConnectionLost, match=said) as caught:
            pool.request("GET", "/")
        # It may have been the server's answer that got lost.
        assert not isinstance(caught.value, NotConnected)
        assert pool.request("GET", "/").body == b"ok"


def test_what_a_server_says_last_is_kept() -> None:
    """In the middle of an answer it can say in no other way that it failed."""

    def script(server: Scripted, stream: socket.socket) -> None:
        assert server.reads(stream)
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        stream.sendall(head + b"8\r\nrows and\r\n")
        stream.sendall(b"9\r\n an error\r\n")

    server = Scripted(script)
    with closing(server), closing(pool_to(server)) as pool:
        with pytest.raises(ConnectionLost) as caught:
            pool.request("GET", "/")
        assert caught.value.end.endswith(b" an error")


def test_an_answer_that_memory_does_not_hold_ends_its_own_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_answer, "most_answer_bytes", lambda: 1000)
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + bytes(2000)
    server = Scripted(answers(long), answers(OK))
    with closing(server), closing(pool_to(server)) as pool:
        with pytest.raises(SimulatorError, match="too much for this worker's memory"):
            pool.request("GET", "/")
        # By another connection: on that one the rest of the answer would come first.
        assert pool.request("GET", "/").body == b"ok"
        assert len(server.heard) == 2


def test_no_answer_in_time() -> None:
    server = Scripted(answers(b""), answers(OK))
    with closing(server), closing(pool_to(server, timeout_s=0.2)) as pool:
        with pytest.raises(AnswerTimeout, match=r"no answer within 0\.2 s"):
            pool.request("GET", "/")
        # What comes of it later must not be taken for the next one's answer.
        assert pool.request("GET", "/", timeout_s=20).body == b"ok"


def test_nodes_take_turns_without_those_that_are_down() -> None:
    first, second, down = (Scripted(answers(*[OK] * 9)) for _ in range(3))
    down.close()
    with closing(first), closing(second), closing(pool_to(first, second, down)) as pool:
        for _ in range(9):
            # Nothing was sent to the one that refuses the connection: the next one gets it at once.
            assert pool.request("GET", "/").body == b"ok"
        counts = [server.heard[0].count(b"GET /") for server in (first, second)]
        assert sorted(counts) == [4, 5] and len(first.heard) == len(second.heard) == 1
    with closing(pool_to(down)) as pool:
        for _ in range(2):  # the only one is asked, down or not
            with pytest.raises(NotConnected, match="refused"):
                pool.request("GET", "/")


def test_a_dead_node_gets_no_request_before_it_has_answered_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_FIRST_PROBE_S", 0.02)
    place = socket.create_server(("127.0.0.1", 0))
    address = place.getsockname()
    place.close()
    with closing(Scripted(answers_each(OK))) as living:
        urls = [f"http://{address[0]}:{address[1]}/base", f"http://{living.address}"]
        with closing(HttpPool(urls, 80, {"x-login": "me"}, 20)) as pool:
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                assert pool.request("GET", "/load").body == b"ok"
            with closing(Scripted(answers(*[OK] * 100), address=address)) as back:

                def load_reaches_it() -> bool:
                    assert pool.request("GET", "/load").body == b"ok"
                    return bool(back.heard) and b"GET /base/load" in back.heard[0]

                eventually(load_reaches_it, "request to the node that is back")
                # By the connection that the probe has made.
                assert back.heard[0].startswith(b"GET /base/ HTTP/1.1\r\n")
                assert b"x-login: me" in back.heard[0].split(b"\r\n\r\n")[0]
                assert len(back.heard) == 1


def test_a_node_that_says_nothing_is_dead_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_FIRST_PROBE_S", 0.02)
    monkeypatch.setattr(http, "_PROBES_APART_S", 0.02)
    speaks = threading.Event()

    def says_nothing(server: Scripted, stream: socket.socket) -> None:
        server.reads(stream)
        while not speaks.is_set() and server.reads(stream):
            pass

    silent = Scripted(*[says_nothing] * 3, answers(*[OK] * 100))
    living = Scripted(answers_each(OK))
    with closing(silent), closing(living), closing(pool_to(silent, living, timeout_s=0.6)) as pool:
        # The first request that meets it waits for the whole timeout. The load doesn't meet it again.
        with pytest.raises(AnswerTimeout):
            pool.request("GET", "/load")
        while len(silent.heard) < 3:
            assert pool.request("GET", "/load").body == b"ok"
        assert [b"GET /load" in heard for heard in silent.heard] == [True, False, False]
        speaks.set()

        def load_reaches_it() -> bool:
            assert pool.request("GET", "/load").body == b"ok"
            return len(silent.heard) == 4 and b"GET /load" in silent.heard[3]

        eventually(load_reaches_it, "request to the node that speaks again")


def test_a_node_is_back_when_it_serves_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it has opened its port, and says that it can't serve them yet."""
    monkeypatch.setattr(http, "_FIRST_PROBE_S", 0.02)
    monkeypatch.setattr(http, "_PROBES_APART_S", 0.02)
    place = socket.create_server(("127.0.0.1", 0))
    address = place.getsockname()
    place.close()
    down = b"HTTP/1.1 503 Not yet\r\ncontent-length: 0\r\n\r\n"
    unknown = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"

    def leads(answer: Answer) -> bool:
        """As one that looks for what an answer of another form doesn't have."""
        return {b"ok": True, b"": False}[answer.body]

    probe = Probe("POST", "/ask", b"who leads?", leads)
    with closing(Scripted(answers_each(OK))) as living:
        urls = [f"http://{address[0]}:{address[1]}", f"http://{living.address}"]
        with closing(HttpPool(urls, 80, {}, 20, probe=probe)) as pool:
            assert [pool.request("GET", "/load").body for _ in range(4)] == [b"ok"] * 4
            replies = [down, unknown, down, *[OK] * 100]
            with closing(Scripted(answers(*replies), address=address)) as back:

                def load_reaches_it() -> bool:
                    assert pool.request("GET", "/load").body == b"ok"
                    return bool(back.heard) and b"GET /load" in back.heard[0]

                eventually(load_reaches_it, "request to the node that is back")
                before, _, _ = bytes(back.heard[0]).partition(b"GET /load")
                assert before.count(b"POST /ask") == before.count(b"who leads?") == 4


def test_an_error_does_not_show_that_a_node_is_back() -> None:
    """While all are dead, requests try them."""
    refusal = b"HTTP/1.1 404 Unknown\r\ncontent-length: 0\r\n\r\n"
    first, second = (Scripted(answers(refusal, OK, OK)) for _ in range(2))
    with closing(first), closing(second), closing(pool_to(first, second)) as pool:
        for node in pool._nodes:
            pool._declare_dead(node, NotConnected("refused"))
        assert [pool.request("GET", "/").status for _ in range(2)] == [404, 404]
        assert not pool._live
        assert pool.request("GET", "/").status == 200
        assert len(pool._live) == 1


def test_a_connection_that_is_swallowed_goes_to_the_next_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.6)
    # A dead node is asked again by probes, which are none of the four.
    monkeypatch.setattr(http, "_FIRST_PROBE_S", 60.0)
    tried: list[int] = []
    connect = http_connection.open_stream

    def note_port(host: str, port: int, *rest: Any) -> socket.socket:
        tried.append(port)
        return connect(host, port, *rest)

    monkeypatch.setattr(http_connection, "open_stream", note_port)
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):
            # The kernel drops requests for a connection while this many wait to be accepted.
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        living = stack.enter_context(closing(Scripted(answers(*[OK] * 9))))
        urls = [f"http://127.0.0.1:{full.getsockname()[1]}", f"http://{living.address}"]
        with closing(HttpPool(urls, 80, {}, 20)) as pool:
            assert [pool.request("GET", "/").body for _ in range(4)] == [b"ok"] * 4
        # Once, and not once each.
        assert [port for port in tried if port == full.getsockname()[1]] == [full.getsockname()[1]]


def test_while_all_nodes_are_dead_each_is_tried() -> None:
    first, second = (Scripted(answers(OK, OK)) for _ in range(2))
    first.close()
    second.close()
    with closing(pool_to(first, second)) as pool:
        for _ in range(2):
            with pytest.raises(NotConnected, match="refused"):
                pool.request("GET", "/")
        host, _, port = second.address.partition(":")
        with closing(Scripted(answers(OK, OK), address=(host, int(port)))):
            # Before any probe, and though the other one's turn may be first.
            assert pool.request("GET", "/").body == b"ok"
            assert pool.request("GET", "/").body == b"ok"


def test_probes_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recording(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            apart.append(timeout)
            if len(apart) == 8:
                over.set()
            return len(apart) == 8

    apart: list[float | None] = []
    over = threading.Event()
    down = Scripted(answers(OK))
    down.close()
    with closing(pool_to(down, down)) as pool:
        monkeypatch.setattr(pool, "_closed", Recording())
        pool._declare_dead(pool._nodes[0], NotConnected("refused"))
        assert over.wait(20)
    assert apart == [0.5, 1, 2, 4, 8, 10, 10, 10]


def test_closing_ends_the_probes() -> None:
    down = Scripted(answers(OK))
    down.close()
    before = threading.active_count()
    with closing(Scripted(answers(OK))) as living, closing(pool_to(down, living)) as pool:
        assert pool.request("GET", "/").body == b"ok"
        assert any(thread.name.startswith("probe ") for thread in threading.enumerate())
    eventually(lambda: threading.active_count() <= before, "end of the probe")


def test_several_requests_at_once() -> None:
    together = threading.Barrier(2)

    def script(stream: socket.socket) -> None:
        """Answers once both requests are there."""
        stream.recv(1000)
        together.wait(20)
        stream.sendall(OK)
        stream.recv(1000)

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            threading.Thread(target=script, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    bodies: list[bytes] = []
    with closing(listener), closing(HttpPool([url], 80, {}, 20)) as pool:
        threads = [
            threading.Thread(target=lambda: bodies.append(pool.request("GET", "/").body))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert bodies == [b"ok", b"ok"]


def test_tls(trust: Trust) -> None:
    server = Scripted(answers(OK, OK), answers(OK), tls=trust.server)
    with closing(server):
        with closing(pool_to(server, tls=trust.client)) as pool:
            for size in (10, 1_000_000):
                assert pool.request("POST", "/", bytes(size)).body == b"ok"
        with (
            closing(pool_to(server, tls=ssl.create_default_context())) as pool,
            pytest.raises(TlsRefused, match="certificate verify failed"),
        ):
            pool.request("GET", "/")


def test_no_tls_where_tls_is_expected(trust: Trust) -> None:
    def greets(server: Scripted, stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        stream.recv(1 << 16)

    with (
        closing(Scripted(greets)) as server,
        closing(pool_to(server, tls=trust.client)) as pool,
        pytest.raises(TlsRefused),
    ):
        pool.request("GET", "/")


def test_a_server_that_hangs_up_in_the_handshake_may_come_back(trust: Trust) -> None:
    """That means no TLS only where there never was any."""
    last = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    accepted = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in (last, b""):
            stream, _ = accepted.accept()
            if answer:
                encrypted = trust.server.wrap_socket(stream, True)
                encrypted.recv(1000)
                encrypted.sendall(answer)
                encrypted.recv(1000)
            else:
                stream.recv(1 << 16)
            stream.close()

    threading.Thread(target=serve, daemon=True).start()
    url = f"https://127.0.0.1:{accepted.getsockname()[1]}"
    with closing(accepted), closing(HttpPool([url], 443, {}, 20, trust.client)) as pool:
        assert pool.request("GET", "/").body == b"ok"
        with pytest.raises(NotConnected):
            pool.request("GET", "/")


def test_an_idle_connection_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets: list[socket.socket] = []
    connect = socket.create_connection

    def remembered(address: tuple[str, int], timeout_s: float) -> socket.socket:
        sockets.append(connect(address, timeout_s))
        return sockets[0]

    monkeypatch.setattr(socket, "create_connection", remembered)
    server = Scripted(answers(OK))
    with closing(server), closing(pool_to(server)) as pool:
        pool.request("GET", "/")
        assert sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("value", ["ApiKey a\n", "Token \N{BULLET}"])
def test_headers_can_not_be_smuggled_in(value: str) -> None:
    with pytest.raises(
        SimulatorError, match="the value of authorization must be ASCII without line"
    ):
        HttpPool(["http://127.0.0.1"], 80, {"authorization": value}, 1)


def test_basic_auth() -> None:
    """The example of https://www.rfc-editor.org/rfc/rfc7617#section-2, and its one of UTF-8."""
    assert basic_auth("Aladdin", "open sesame") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert basic_auth("test", "123\u00a3") == "Basic dGVzdDoxMjPCow=="


def test_default_port_path_and_ipv6() -> None:
    listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    heard: list[bytes] = []

    def serve() -> None:
        stream, _ = listener.accept()
        heard.append(stream.recv(1000))
        stream.sendall(OK)

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    with closing(listener), closing(HttpPool(["http://[::1]/base/"], port, {}, 20)) as pool:
        assert pool.request("GET", "/x").status == 200
    assert heard[0].startswith(f"GET /base/x HTTP/1.1\r\nhost: [::1]:{port}\r\n".encode())


def test_what_it_means_for_a_run() -> None:
    def meaning(error: NoAnswer) -> Retryable | SimulatorError:
        return interpret_no_answer(error, "Thing", "host:1", "ca_certs")

    lost = meaning(ConnectionLost("gone"))
    assert isinstance(lost, Retryable) and lost.kind == "connection_lost"
    assert str(lost) == "host:1: gone"
    late = meaning(AnswerTimeout("late"))
    assert isinstance(late, Retryable) and late.kind == "timeout"
    refused = meaning(TlsRefused("who are you"))
    assert isinstance(refused, SimulatorError)
    assert "no TLS with Thing at host:1: who are you; check that endpoint says https" in str(
        refused
    )


def test_closing_leaves_no_connection_open() -> None:
    over = threading.Event()

    def script(server: Scripted, stream: socket.socket) -> None:
        answers(OK)(server, stream)
        over.set()

    with closing(Scripted(script)) as server:
        pool = pool_to(server)
        pool.request("GET", "/")
        assert not over.is_set()
        pool.close()
        assert over.wait(20)
