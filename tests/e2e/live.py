"""A command's live page as a program reads it."""

from __future__ import annotations

import json
import re
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx

from .tool import Running


def find_url(running: Running) -> str:
    """The URL of the page, as the command prints it."""
    running.await_err("live: http")
    match = re.search(r"^live: (\S+)$", running.err, re.MULTILINE)
    assert match is not None
    return match[1]


class Reader:
    """Reads all that the page is told until the command ends, and with each update within a run's window the
    metrics, too."""

    def __init__(self, running: Running) -> None:
        parts = urlsplit(find_url(running))
        self._address, self._query = f"http://{parts.netloc}", parts.query
        self.told: list[dict[str, Any]] = []
        self.metrics: list[dict[str, float]] = []
        """Of each scrape, by name and labels."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the page has ended, as it does with its command."""
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        with (
            httpx.Client(base_url=self._address, timeout=20) as client,
            client.stream("GET", f"/events?{self._query}") as events,
        ):
            for line in events.iter_lines():
                if not line.startswith("data: "):
                    continue
                self.told.append(json.loads(line.removeprefix("data: ")))
                run = self.told[-1]["run"]
                if run is not None and run["phase"] == "running":
                    text = client.get(f"/metrics?{self._query}").raise_for_status().text
                    self.metrics.append(_read_metrics(text))

    @property
    def points(self) -> list[dict[str, Any]]:
        """The points of the figures over time."""
        return [point for update in self.told for point in update["points"]]

    def latest(self, section: str) -> Any:
        """The last state of a section that is only sent when it has changed."""
        return next(update[section] for update in reversed(self.told) if section in update)


def _read_metrics(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
