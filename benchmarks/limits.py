"""What the limit benchmarks share: a worker's path beside the thinnest client's, in turns, and the goals.

Ours is a worker's whole path: generating, encoding, sending, recording. The thinnest client sends the same
requests, built beforehand. The two take turns of some requests each, so that other work on the machine
slows both, and they begin alternately. A line's ratio is the median over all turns of our rate ÷ the thinnest
client's in the turn next to it.

A round of each line that isn't counted comes first, but with --quick: a server in Java spent 40 % of its CPU
on compiling in its first ten seconds of load, on cores that the clients need.

The CPU that a worker spends per event is that of the round in which it was least: other work on the machine
can only add to it.
"""

from __future__ import annotations

import http.client
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from simulator.modules.sending import Encoder
from simulator.worker import garbage_collection_paused
from simulator.worker.feed import Feed
from simulator.workloads.base import Workload

from .support import Cost, Turn, conclude

GOAL, QUICK_GOAL = 0.9, 0.75
"""Of the thinnest client's rate, and for any machine with --quick."""
GOALS_US = {"temperature": 0.8, "cpu": 1.2}
"""CPU per event of a workload."""
ROUNDS, QUICK_ROUNDS = 6, 2
SLACK = 2
"""So many times the CPU is allowed with --quick."""
COST_HEADERS = ("Generate", "Encode", "All µs")


def _lists() -> dict[str, list[float]]:
    return defaultdict(list)


@dataclass
class Line:
    """One line of a table: what is sent, and what each way took for it."""

    workload: Workload
    batch: int
    """0: single events."""
    requests: int
    """How many a turn has."""
    turns: int
    """How many each way has in a round."""
    turn_s: dict[str, list[float]] = field(default_factory=_lists, init=False)
    """Seconds of each way's turns."""
    cpu_s: dict[str, list[float]] = field(default_factory=_lists, init=False)
    """The same of this process' CPU."""
    costs: list[Cost] = field(default_factory=list, init=False)
    """Of each round, what a worker's path cost by itself."""

    @property
    def events(self) -> int:
        """Events in a turn."""
        return (self.batch or 1) * self.requests

    @property
    def round_events(self) -> int:
        """Events that each way sends in a round."""
        return self.turns * self.events

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])

    def ratio(self, to: str = "thinnest") -> float:
        """Our rate by another way's."""
        pairs = zip(self.turn_s["ours"], self.turn_s[to], strict=True)
        return median(other / ours for ours, other in pairs)

    @property
    def cost(self) -> Cost:
        """The cheapest round's."""
        return min(self.costs, key=lambda cost: cost.us)

    @property
    def cost_cells(self) -> list[str]:
        """Those of `COST_HEADERS`, in µs per event."""
        cost = self.cost
        return [
            f"{seconds / cost.events * 1e6:.3f}"
            for seconds in (cost.generate_s, cost.encode_s, cost.cpu_s)
        ]

    def forget_turns(self) -> None:
        """Count from here on."""
        self.turn_s.clear()
        self.cpu_s.clear()

    def take_turns(self, ways: Mapping[str, Turn], shift: int) -> None:
        """A round; `shift` changes who begins."""
        order = list(ways.items())
        with garbage_collection_paused():
            for number in range(self.turns):
                for position in range(len(order)):
                    name, turn = order[(position + number + shift) % len(order)]
                    cpu, began = time.process_time(), time.perf_counter()
                    turn(number)
                    self.turn_s[name].append(time.perf_counter() - began)
                    self.cpu_s[name].append(time.process_time() - cpu)


_Line = TypeVar("_Line", bound=Line)


def take_rounds(
    lines: Sequence[_Line], one_round: Callable[[_Line, int], None], quick: bool
) -> None:
    """All rounds of all lines: `one_round(line, shift)`, of which `shift` changes who begins."""
    if not quick:
        for line in lines:
            one_round(line, 0)
            line.forget_turns()
    for shift in range(QUICK_ROUNDS if quick else ROUNDS):
        for line in lines:
            one_round(line, shift)


def encode_all(encoder: Encoder, line: Line, worker: int = 0) -> list[Any]:
    """The data of the payloads that a worker sends in a round."""

    def generate(first: int, count: int) -> Any:
        return line.workload.block(worker, first, count)

    feed = Feed(generate, encoder, 0, line.round_events, line.batch)
    return [payload.data for payload in feed]


class Post(NamedTuple):
    """A request."""

    target: str
    """Path and query."""
    body: bytes


@contextmanager
def http_client(
    url: str, posts: Sequence[Post], headers: Mapping[str, str], status: int, line: Line
) -> Iterator[Turn]:
    """Python's http.client alone, by one connection: a POST, its answer read, nothing else.

    A turn raises RuntimeError if an answer has not this status.
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    posts = [Post(path + target, body) for target, body in posts]
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def turn(number: int) -> None:
        for target, body in posts[number * line.requests : (number + 1) * line.requests]:
            connection.request("POST", target, body, headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != status:
                raise RuntimeError(f"the server answered {answer.status}: {said[:300]!r}")

    try:
        yield turn
    finally:
        connection.close()


def judge(name: str, lines: Sequence[Line], quick: bool) -> int:
    """Hold lines against the goals, each by its workload's, and print the last line; the exit status."""
    goal, slack = (QUICK_GOAL, SLACK) if quick else (GOAL, 1)
    ratio = min(line.ratio() for line in lines)
    costs: dict[str, float] = {}
    for line in lines:
        workload = line.workload.name
        costs[workload] = max(line.cost.us, costs.get(workload, 0.0))
    told = ", ".join(
        f"{us:.2f} µs of CPU per event of {workload} (goal <= {slack * GOALS_US[workload]:g})"
        for workload, us in costs.items()
    )
    within = all(us <= slack * GOALS_US[workload] for workload, us in costs.items())
    return conclude(
        f"{name}: ratio {ratio:.2f} (goal >= {goal:g}), {told}", ratio >= goal and within
    )
