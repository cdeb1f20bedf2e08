"""The live page's server: who may read, and that nobody who reads keeps the command waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.run.live import LiveOptions, live_page, serve_live
from cli.run.live import server as server_module
from cli.run.live.server import LiveServer
from cli.run.live.state import LiveState
from cli.system.errors import ConfigError, RunFailed
from cli.system.processes import Interrupted, Interrupts
from simulator.contract import Phase, Status


@pytest.fixture
def state() -> LiveState:
    return LiveState("insert", "somewhere")


@pytest.fixture
def server(state: LiveState) -> Iterator[LiveServer]:
    running = LiveServer(state)
    running.start()
    yield running
    state.end("done")
    running.close()
    check_ended(running.address)


def check_ended(address: str) -> None:
    """No thread is left, and nothing listens."""
    assert [thread for thread in threading.enumerate() if thread.name.startswith("live")] == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/")


@pytest.mark.parametrize("path", ["/", "/events", "/metrics", "/else"])
def test_nothing_without_the_token_or_under_another_name(server: LiveServer, path: str) -> None:
    url, right = f"http://{server.address}{path}", {"token": server.token}
    port = server.address.split(":")[1]
    for tried in (
        httpx.get(url),
        httpx.get(url, params={"token": ""}),
        httpx.get(url, params={"token": server.token[:-1]}),
        httpx.get(url, params={"token": "ö"}),
        httpx.get(url, headers={"Authorization": f"Basic {server.token}"}),
        httpx.get(url, params=right, headers={"Authorization": "Bearer x"}),
        # A page of somebody else, whose name was made to point here.
        httpx.get(url, params=right, headers={"Host": f"evil.example:{port}"}),
        httpx.get(url, params=right, headers={"Host": "127.0.0.1"}),
    ):
        assert (tried.status_code, tried.text) == (403, "wrong or no token\n")


def test_who_has_the_token_reads(server: LiveServer) -> None:
    page = httpx.get(server.url)
    assert page.status_code == 200
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert "no-store" in page.headers["Cache-Control"]
    assert "{" + "nonce}" not in page.text and server.token not in page.text
    # All is in it: nothing is loaded from anywhere.
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text
    bearer = {"Authorization": f"Bearer {server.token}"}
    metrics = httpx.get(f"http://{server.address}/metrics", headers=bearer)
    assert metrics.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "iot_benchmark_runs_total 0.0\n" in metrics.text
    assert (
        httpx.get(f"http://localhost:{server.address.split(':')[1]}/no", headers=bearer).status_code
        == 404
    )
    assert httpx.post(server.url).status_code == 405


def test_events_are_told_until_the_end(server: LiveServer, state: LiveState) -> None:
    state.begin_run("run 1 of 1")
    with httpx.stream("GET", server.url.replace("/?", "/events?")) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = (line for line in answer.iter_lines() if line)
        first = json.loads(next(lines).removeprefix("data: "))
        assert (first["whole"], first["run"]["label"]) == (True, "run 1 of 1")
        state.end("done")
        (last,) = lines
        news = json.loads(last.removeprefix("data: "))
        assert (news["whole"], news["ended"]) == (False, "done")


def test_silence_is_told_from_a_broken_connection(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "BEAT_S", 0.05)
    with httpx.stream("GET", server.url.replace("/?", "/events?")) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert [next(lines) for _ in range(4)] == ["", "event: beat", "data:", ""]


def test_who_never_reads_keeps_nobody_waiting(server: LiveServer, state: LiveState) -> None:
    """More is told than any buffer holds; the command goes on, and ends."""
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(
            f"GET /events?token={server.token} HTTP/1.0\r\nHost: {server.address}\r\n\r\n".encode()
        )
        state.begin_run("long " * 200_000)
        slowest = 0.0
        for _ in range(100):
            began = time.perf_counter()
            state.follow(Status(phase=Phase.RUN, age_s=1.0))
            slowest = max(slowest, time.perf_counter() - began)
            time.sleep(0.002)
        assert slowest < 5
        state.end("done")
        began = time.perf_counter()
        server.close()
        assert time.perf_counter() - began < 60


# --- begun and ended with a command ---------------------------------------------------------------


def test_who_says_nothing_keeps_nobody_out(server: LiveServer) -> None:
    """Nor from ending."""
    host, port = server.address.split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(40)]
    assert httpx.get(server.url, timeout=9).status_code == 200
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 9
    for connection in idle:
        connection.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET http://[x/ HTTP/1.0\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /?" + b"x" * 100_000 + b" HTTP/1.1\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
def test_a_wrong_request_is_answered(
    server: LiveServer, capfd: pytest.CaptureFixture[str], sent: bytes, status: int
) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        assert f" {status} ".encode() in connection.makefile("rb").readline()
    assert capfd.readouterr().err == ""


def read_url(output: str) -> str:
    (line,) = (line for line in output.splitlines() if line.startswith("live: "))
    return line.removeprefix("live: ")


@pytest.mark.parametrize("is_there", [True, False])
def test_it_is_there_as_long_as_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    file = tmp_path / "scrape.json"
    file.write_text("[] " * is_there * 100)
    file.chmod(0o640)
    if not is_there:
        file.unlink()
    with serve_live(LiveOptions(prometheus_file=file), "insert", "x", Interrupts()):
        url = httpx.URL(read_url(capsys.readouterr().err))
        (target_group,) = json.loads(file.read_text())
        assert target_group["targets"] == [f"127.0.0.1:{url.port}"]
        assert target_group["labels"] == {"__param_token": url.params["token"]}
        assert httpx.get(url).status_code == 200
        assert live_page.get() is not None
    assert live_page.get() is None
    assert file.read_text() == "[]\n"
    assert file.stat().st_mode & 0o777 == (0o640 if is_there else 0o600)
    assert list(tmp_path.iterdir()) == [file]
    check_ended(f"127.0.0.1:{url.port}")


def test_it_says_how_the_command_ended(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[LiveState] = []

    def fail(error: BaseException) -> None:
        with serve_live(LiveOptions(), "insert", "x", Interrupts()):
            live = live_page.get()
            assert live is not None
            seen.append(live)
            raise error

    for error, words in (
        (RunFailed("the disk is full"), "failed: the disk is full"),
        (Interrupted(15), "ended by SIGTERM"),
        (ZeroDivisionError("secret"), "failed: ZeroDivisionError"),
    ):
        with pytest.raises(type(error)):
            fail(error)
        assert seen[-1].describe()["ended"] == words


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    wish = LiveOptions(prometheus_file=tmp_path / "no" / "scrape.json")
    with (
        pytest.raises(ConfigError, match="--prometheus: can't write"),
        serve_live(wish, "a", "x", Interrupts()),
    ):
        pytest.fail("it began")
    assert [thread for thread in threading.enumerate() if thread.name.startswith("live")] == []


def test_it_is_opened_in_a_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def show(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", show)
    with serve_live(LiveOptions(open_it=True), "insert", "x", Interrupts()):
        assert opened == [read_url(capsys.readouterr().err)]
