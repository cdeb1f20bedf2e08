"""A stand-in for the API server, which says what it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kubernetes.client import Configuration

from .stand_in import QuietHandler, StandIn


class Api(StandIn):
    """An API server: `answer` is given method and path, and makes status and body."""

    def __init__(self) -> None:
        self.answer: Callable[[str, str], tuple[int, bytes]] = lambda method, path: (200, b"{}")
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        api = self

        class Handler(QuietHandler):
            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                is_json = length and "json" in self.headers.get("Content-Type", "")
                api.bodies.append(json.loads(body) if is_json else body or None)
                api.headers.append(self.headers)
                api.asked.append((self.command, self.path))
                status, content = api.answer(self.command, self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                # Whoever asked may be gone.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = do_CONNECT = handle_any  # noqa: N815

        super().__init__(Handler)
        self.configuration = Configuration(host=self.url)
        self.configuration.retries = 0
