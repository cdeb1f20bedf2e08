"""One worker's writes to InfluxDB against the thinnest client that sends the same bytes.

    eval "$(servers env influxdb)"; python -m benchmarks.line_limit [--quick]

Needs a server: INFLUXDB_URL, INFLUXDB_ORG and INFLUXDB_TOKEN say where. Ours is a worker's whole
path: generating, encoding, sending, recording. The thin client sends the same requests, built
beforehand, over one connection of Python's http.client: a POST, its answer read, nothing else. Each has a
bucket of its own, created again for each round. The two take turns of some batches, so that other
work on the machine slows both. A line's ratio is the median over all turns of our rate ÷ the thin
client's in the turn next to it.

The table also shows the CPU that a worker spends per event, in the round in which it was least: other
work on the machine can only add to it.

The goals: a ratio >= 0.9 and <= 0.8 µs per event at batch 1,000 and 10,000. `--quick` takes few turns,
for any machine, so its goals are >= 0.75 and <= 1.6 µs.
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
from simulator.modules.base import Job
from simulator.modules.influxdb import Influxdb
from simulator.modules.influxdb.server import Connection
from simulator.modules.options import parse_options
from simulator.worker import garbage_collection_paused
from simulator.workloads.base import Workload

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
GOAL_US, QUICK_GOAL_US = 0.8, 1.6
TURNS = 6
"""How many each client has in a round."""
BATCHES = {1_000: 40, 10_000: 5}
"""Batch size -> batches in a turn."""


@dataclass
class Line:
    """One line of the table."""

    batch: int
    compressed: bool
    turn_s: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "thin": []})
    costs: list[Cost] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events in a turn."""
        return self.batch * BATCHES[self.batch]

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
def bucket(name: str, line: Line) -> Iterator[Influxdb]:
    """The module on a new bucket, which is deleted at the end."""
    values = {
        "endpoint": os.environ["INFLUXDB_URL"],
        "org": os.environ["INFLUXDB_ORG"],
        "token": os.environ["INFLUXDB_TOKEN"],
        "bucket": f"bench-{os.getpid()}-{name}",
        "gzip": line.compressed,
    }
    options = parse_options(Influxdb.options_model, values, lambda key: f"option {key}")
    module = Influxdb(options, Job(temperature().schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.drop_bucket()
        module.close()


@contextmanager
def thin(module: Influxdb, payloads: Sequence[bytes], line: Line) -> Iterator[Turn]:
    """http.client alone."""
    count = BATCHES[line.batch]
    server = Connection(module.options, module.job)
    url = urlsplit(module.options.endpoint)
    target = url.path.rstrip("/") + server.write_target
    connection = http.client.HTTPConnection(url.hostname or "", url.port)

    def turn(number: int) -> None:
        for payload in payloads[number * count : (number + 1) * count]:
            connection.request("POST", target, payload, server.write_headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.NO_CONTENT:
                raise RuntimeError(f"the server answered {answer.status}")

    try:
        yield turn
    finally:
        connection.close()


def encode_payloads(module: Influxdb, workload: Workload, line: Line) -> list[bytes]:
    """The payloads that a worker sends."""
    encoder = module.writer(line.batch).encoder
    return [
        payload.data
        for first in range(0, TURNS * line.events, line.batch)
        for payload in encoder.encode(workload.block(0, first, line.batch), line.batch)
    ]


def one_round(line: Line, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    workload = temperature()
    with bucket("ours", line) as module, bucket("thin", line) as other:
        payloads = encode_payloads(module, workload, line)
        writer = module.writer(line.batch)
        with (
            worker_in_turns(writer, workload, line.batch, BATCHES[line.batch], TURNS) as ours,
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
        if (module.count(), other.count()) != (TURNS * line.events,) * 2:
            raise AssertionError("not all events are stored")
    with bucket("cost", line) as module:
        writer = module.writer(line.batch)
        line.costs.append(worker_path(writer, workload, TURNS * line.events // 2, line.batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    missing = [name for name in ("URL", "ORG", "TOKEN") if not os.environ.get(f"INFLUXDB_{name}")]
    if missing:
        names = ", ".join(f"INFLUXDB_{name}" for name in missing)
        return conclude(f"line_limit: no server: set {names}", met=False)
    lines = [Line(batch, False) for batch in BATCHES]
    if not quick:
        lines += [Line(batch, True) for batch in BATCHES]
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            "gzip" if line.compressed else "plain",
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
    headers = ["Body", "Batch", "Ours/s", "http.client/s", "Ratio", "Generate", "Encode", "All µs"]
    show(headers, rows)
    plain = [line for line in lines if not line.compressed]
    goal, goal_us = (QUICK_GOAL, QUICK_GOAL_US) if quick else (GOAL, GOAL_US)
    ratio, cost_us = min(line.ratio for line in plain), max(line.cost.us for line in plain)
    return conclude(
        f"line_limit: ratio {ratio:.2f} (goal >= {goal:g}), {cost_us:.2f} µs of CPU per event"
        f" (goal <= {goal_us:g})",
        ratio >= goal and cost_us <= goal_us,
    )


if __name__ == "__main__":
    sys.exit(main())
