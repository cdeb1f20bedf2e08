"""One worker's writes to VictoriaMetrics against the thinnest client that sends the same bytes.

    eval "$(servers env victoriametrics)"; python -m benchmarks.import_limit [--quick]

Needs a server: VICTORIAMETRICS_URL says where. Ours is a worker's whole path: generating, encoding, sending,
recording. The thin client sends the same requests, built beforehand, over one connection of Python's
http.client: a POST, its answer read, nothing else. Each has series of its own (the label db). The two take
turns of some batches, so that other work on the machine slows both. A line's ratio is the median over all
turns of our rate ÷ the thin client's in the turn next to it.

The table also shows the CPU that a worker spends per event, in the round in which it was least: other
work on the machine can only add to it.

The goals: a ratio >= 0.9, and at batch 1,000 and 10,000 <= 0.8 µs per event of `temperature`, <= 1.2 µs of
`cpu`, whose event is ten samples. `--quick` takes few turns, for any machine, so its goals are >= 0.75 and
twice the CPU.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

from simulator.contract import Load
from simulator.modules.base import Job, await_count
from simulator.modules.options import parse_options
from simulator.modules.victoriametrics import Victoriametrics
from simulator.modules.victoriametrics.encoding import Lines
from simulator.worker import garbage_collection_paused
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu

from .support import (
    Cost,
    Turn,
    conclude,
    is_quick,
    show,
    temperature,
    worker_in_turns,
    worker_path,
)

GOAL, QUICK_GOAL = 0.9, 0.75
GOALS_US = {"temperature": 0.8, "cpu": 1.2}
QUICK_SLACK = 2
TURNS = 6
"""How many each client has in a round."""
EVENTS = {"temperature": 40_000, "cpu": 20_000}
"""In a turn."""
BATCHES = (1_000, 10_000)


@dataclass
class Line:
    """One line of the table."""

    workload: Workload
    batch: int
    turn_s: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "thin": []})
    costs: list[Cost] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events in a turn."""
        return EVENTS[self.workload.name]

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])

    @property
    def ratio(self) -> float:
        return median(
            thin / ours for ours, thin in zip(self.turn_s["ours"], self.turn_s["thin"], strict=True)
        )

    @property
    def cost(self) -> Cost:
        """The cost of the cheapest round."""
        return min(self.costs, key=lambda cost: cost.us)


@contextmanager
def series(name: str, line: Line) -> Iterator[Victoriametrics]:
    """The module with series of its own, which are deleted at the end."""
    values = {"endpoint": os.environ["VICTORIAMETRICS_URL"], "db": f"bench-{os.getpid()}-{name}"}
    options = parse_options(Victoriametrics.options_model, values, str)
    module = Victoriametrics(options, Job(line.workload.schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.prepare()
        module.close()


@contextmanager
def thin(module: Victoriametrics, payloads: Sequence[Lines], line: Line) -> Iterator[Turn]:
    """http.client alone."""
    count = line.events // line.batch
    url = urlsplit(module.options.endpoint)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)

    def turn(number: int) -> None:
        for payload in payloads[number * count : (number + 1) * count]:
            connection.request("POST", payload.target, payload.body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.NO_CONTENT:
                raise RuntimeError(f"the server answered {answer.status}")

    try:
        yield turn
    finally:
        connection.close()


def one_round(line: Line, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    workload, batch, total = line.workload, line.batch, TURNS * line.events
    with series("ours", line) as module, series("thin", line) as other:
        encoder = other.writer(batch).encoder
        payloads = [
            payload.data
            for first in range(0, total, batch)
            for payload in encoder.encode(workload.block(0, first, batch), batch)
        ]
        with (
            worker_in_turns(
                module.writer(batch), workload, batch, line.events // batch, TURNS
            ) as ours,
            thin(other, payloads, line) as by_thin,
            garbage_collection_paused(),
        ):
            ways = [("ours", ours), ("thin", by_thin)]
            for number in range(TURNS):
                for position in range(len(ways)):
                    name, turn = ways[(position + number + shift) % len(ways)]
                    began = time.perf_counter()
                    turn(number)
                    line.turn_s[name].append(time.perf_counter() - began)
        counts = [await_count(one.count, total, one.settle_s) for one in (module, other)]
        if counts != [total, total]:
            raise AssertionError("not all events are stored")
    with series("cost", line) as module:
        line.costs.append(worker_path(module.writer(batch), workload, total // 2, batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    if not os.environ.get("VICTORIAMETRICS_URL"):
        return conclude("import_limit: no server: set VICTORIAMETRICS_URL", met=False)
    lines = [Line(workload, batch) for workload in (temperature(), Cpu()) for batch in BATCHES]
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            line.workload.name,
            f"{line.batch:,}",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thin")),
            f"{line.ratio:.2f}",
            *(
                f"{seconds / line.cost.events * 1e6:.3f}"
                for seconds in (line.cost.generate_s, line.cost.encode_s, line.cost.cpu_s)
            ),
        ]
        for line in lines
    ]
    headers = [
        "Workload",
        "Batch",
        "Ours/s",
        "http.client/s",
        "Ratio",
        "Generate",
        "Encode",
        "All µs",
    ]
    show(headers, rows)
    goal, slack = (QUICK_GOAL, QUICK_SLACK) if quick else (GOAL, 1)
    ratio = min(line.ratio for line in lines)
    costs = {
        name: max(line.cost.us for line in lines if line.workload.name == name) for name in GOALS_US
    }
    shown = ", ".join(
        f"{us:.2f} µs of CPU per event of {name} (goal <= {slack * GOALS_US[name]:g})"
        for name, us in costs.items()
    )
    return conclude(
        f"import_limit: ratio {ratio:.2f} (goal >= {goal:g}), {shown}",
        ratio >= goal and all(us <= slack * GOALS_US[name] for name, us in costs.items()),
    )


if __name__ == "__main__":
    sys.exit(main())
