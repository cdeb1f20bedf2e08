"""CPU that `--live` costs the command: its own process, not the workers' and not the reader's.

    python -m benchmarks.live_cost [--quick]

`insert` against the embedded server, in turns whose order changes: without `--live`; with it and nobody
who reads; with a reader of the page's events, as a browser is one; and with Prometheus besides, which asks
for `/metrics` once a second. What is measured begins when the run does. A share of one CPU, each with the
median and the range of all turns. The goal, <= 1 % of a CPU more with both readers than without
`--live`, allows for a machine that is busy otherwise; `--quick` makes a single turn and allows 3 %.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

import httpx
import psutil

from .support import ROOT, conclude, is_quick, scratch_folder, show

GOAL, QUICK_GOAL = 0.01, 0.03
TURNS = 6
_WINDOW_S, _MORE_S = 12.0, 3.0
_SCRAPE_S = 1.0


@dataclass(frozen=True)
class Way:
    """How the command is watched."""

    name: str
    live: bool = True
    reads: bool = False
    scrapes: bool = False


WAYS = (
    Way("without --live", live=False),
    Way("--live, nobody reads"),
    Way("--live, a reader", reads=True),
    Way("--live, a reader and Prometheus", reads=True, scrapes=True),
)


def measure(folder: Path, way: Way) -> float:
    """Share of a CPU that the command's process takes during its run."""
    command = [
        sys.executable, "-u", str(ROOT / "run.py"), "insert", "--target", "embedded", "--workers", "2",
        "--batch", "100", "--runs", "1", "--duration", f"{_WINDOW_S + _MORE_S:g}s",
        "--output", str(folder / "results"), *(["--live"] if way.live else []),
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"EMBEDDED_DATA_DIR": str(folder / "data")},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        if way.live:
            url = _await_line(running.stderr, r"^live: (\S+)$")
            for wanted, work in ((way.reads, _read), (way.scrapes, _scrape)):
                if wanted:
                    threading.Thread(target=work, args=[url], daemon=True).start()
        _await_line(running.stderr, r"(running)")
        process = psutil.Process(running.pid)
        began, before = time.monotonic(), process.cpu_times()
        time.sleep(_WINDOW_S)
        after, took_s = process.cpu_times(), time.monotonic() - began
        running.stderr.read()
    return (after.user + after.system - before.user - before.system) / took_s


def _await_line(stream: IO[str], pattern: str) -> str:
    for line in stream:
        if match := re.search(pattern, line):
            return match[1]
    raise RuntimeError(f"the command ended without {pattern!r}")


def _read(url: str) -> None:
    # The end comes with the command's.
    with (
        suppress(httpx.HTTPError),
        httpx.stream("GET", url.replace("/?", "/events?"), timeout=None) as events,  # noqa: S113
    ):
        for _ in events.iter_lines():
            pass


def _scrape(url: str) -> None:
    with suppress(httpx.HTTPError), httpx.Client() as client:
        while True:
            client.get(url.replace("/?", "/metrics?"))
            time.sleep(_SCRAPE_S)


def measure_in_turns(folder: Path, turns: int) -> dict[Way, list[float]]:
    """Way -> its shares of a CPU. Each turn begins with another way."""
    shares: dict[Way, list[float]] = {way: [] for way in WAYS}
    for turn in range(turns):
        for place in range(len(WAYS)):
            way = WAYS[(turn + place) % len(WAYS)]
            shares[way].append(measure(folder, way))
    return shares


def _describe(way: Way, own: Sequence[float]) -> list[str]:
    return [way.name, f"{median(own):.2%}", f"{min(own):.2%}", f"{max(own):.2%}"]


def main() -> int:
    quick = is_quick(__doc__)
    with scratch_folder() as folder:
        shares = measure_in_turns(folder, 1 if quick else TURNS)
    show(["Watched", "CPU", "least", "most"], [_describe(*pair) for pair in shares.items()])
    off, *_, most = shares.values()
    goal = QUICK_GOAL if quick else GOAL
    extra = median(most) - median(off)
    text = f"{extra:.2%} of a CPU more with both readers (goal <= {goal:.0%})"
    return conclude(text, extra <= goal)


if __name__ == "__main__":
    sys.exit(main())
