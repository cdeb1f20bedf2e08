"""The live page in a real browser, on one run; what the command's server leaves behind."""

from __future__ import annotations

import json
import re
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import find_barriers
from .live import find_url
from .server import Server
from .tool import Tool, eventually


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page as wide as a phone."""
    context = browser.new_context(viewport={"width": 400, "height": 800}, color_scheme="dark")
    yield context.new_page()
    context.close()


class Relay(socketserver.ThreadingTCPServer):
    """Stands between the browser and the command's server, and can be broken."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.port = port
        self.own_port = self.server_address[1]
        self.broken = False
        self.open: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=[0.05], daemon=True).start()

    def break_off(self) -> None:
        """Cut all connections, and let no other pass."""
        self.broken = True
        for connection in self.open:
            connection.shutdown(socket.SHUT_RDWR)


class _Passing(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        head = self.request.recv(65536)
        if self.server.broken or not head:
            return
        own, real = (
            f"127.0.0.1:{port}".encode() for port in (self.server.own_port, self.server.port)
        )
        with socket.create_connection(("127.0.0.1", self.server.port)) as other:
            self.server.open.append(other)
            other.sendall(head.replace(own, real))
            with suppress(OSError):  # the browser is gone
                while part := other.recv(65536):
                    self.request.sendall(part)
            self.server.open.remove(other)


def read_number(page: Page, tile: str, part: str = ".value") -> float:
    """The first number of a tile."""
    text = page.locator(f"#tile-{tile} {part}").inner_text(timeout=60_000)
    match = re.search(r"[\d,.]+", text)
    return float(match[0].replace(",", "")) if match else float("nan")


def read_scrape(tool: Tool) -> Any:
    """What Prometheus is told."""
    return json.loads((tool.place / "scrape.yml").read_text())


def test_a_run_is_seen_in_a_browser(tool: Tool, server: Server, page: Page) -> None:
    """Figures move, a broken connection is mended, and the page ends with the command."""
    tool.add_target("users", **server.target())
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    running = tool.start(
        "mixed", "-t", "users", "-w", 1, "--batch", 10, "--rate", 500, "--runs", 1,
        "--readers", 1, "--queries", "count-events", "--query-rate", 60, "--prefill", 1000,
        "--limit", "p99=5s", "--limit", "query:count-events:p99=5s",
        "--duration", "60s", "--disturb", "1s run true", "--prometheus", "scrape.yml",
    )  # fmt: skip
    url = find_url(running)
    (scrape,) = read_scrape(tool)
    address, token = scrape["targets"][0], scrape["labels"]["__param_token"]
    assert url == f"http://{address}/?token={token}"
    relay = Relay(int(address.split(":")[1]))
    page.clock.install()
    page.goto(f"http://127.0.0.1:{relay.own_port}/?token={token}")

    def see_progress(progress: str) -> None:
        before = read_number(page, "write-rate", ".more")
        eventually(lambda: read_number(page, "write-rate", ".more") > before, progress)

    # They move.
    expect(page.locator("#tile-write-backlog")).to_be_visible(timeout=60_000)
    see_progress("more events")
    for tile in ("write-p99", "read-rate", "read-p99", "cpus"):
        number = page.locator(f"#tile-{tile} .value")
        expect(number).to_have_text(re.compile(r"[1-9]"), timeout=60_000)
    assert page.locator("#title").inner_text() == "mixed · users"
    assert page.locator("#label").inner_text() == "1 writer and 1 reader, run 1 of 1"
    assert "of 60 s" in page.locator("#words").inner_text()
    expect(page.locator("#marks li")).to_contain_text("1s run true: done after")
    for chart in ("events", "queries", "write-times", "read-times", "backlog", "cpus"):
        line = page.locator(f"#chart-{chart} path").first
        expect(line).to_have_attribute("d", re.compile(r"M.*L"))
    for chart in ("write-times", "read-times"):
        assert "p99=5s" in page.locator(f"#chart-{chart}").inner_text()
    assert page.evaluate("listPoints()[0].at >= state.since")
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert find_barriers(page) == []

    # Broken, and mended; what was missed is there.
    connection = page.locator("#connection")
    relay.break_off()
    expect(connection).to_contain_text("trying again")
    relay.broken = False
    expect(connection).to_have_text("live", timeout=60_000)
    see_progress("events after the break")
    times = page.evaluate("state.points.map((point) => point.at)")
    assert max(after - before for before, after in pairwise(times)) < 1.5

    # The lid was closed for a minute: whatever the connection says, it is made anew.
    request_count = len(requests)
    page.clock.fast_forward(60_000)
    eventually(lambda: page.title() and len(requests) > request_count, "a new connection")
    see_progress("events after the sleep")

    # Prometheus finds the same figures by its file.
    answer = httpx.get(f"http://{address}/metrics", params={"token": token})
    assert "iot_benchmark_database_cpus_used " in answer.text
    assert (tool.place / "scrape.yml").stat().st_mode & 0o77 == 0

    # The end of both.
    running.send(signal.SIGINT)
    assert running.wait().status == 130
    expect(connection).to_have_text("the command has ended: ended by SIGINT")
    assert read_scrape(tool) == []
    relay.shutdown()
    relay.server_close()
    assert problems == []
    assert {request.split("?")[0].split("/", 3)[3] for request in requests} == {"", "events"}
