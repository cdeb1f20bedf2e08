"""One worker's inserts into ClickHouse against the thinnest client that sends the same bytes.

    eval "$(servers env clickhouse)"; python -m benchmarks.native_limit [--quick]

Needs a server: CLICKHOUSE_URL, CLICKHOUSE_USER and CLICKHOUSE_PASSWORD say where. Ours is a worker's whole
path: generating, encoding, sending, recording. The thin client sends the same requests, built beforehand,
over one connection of Python's http.client: a POST, its answer read, nothing else. Each has a database of
its own, whose tables are made again for each round. The two take turns of some batches, so that other work
on the machine slows both. A line's ratio is the median over all turns of our rate ÷ the thin client's in
the turn next to it.

The table also shows the CPU that a worker spends per event, in the round in which it was least: other
work on the machine can only add to it. That is the client's alone, and holds for any server; a ratio holds
for the server that was asked.

The goals: a ratio >= 0.9; <= 0.8 µs per event of `temperature` and <= 1.2 µs of `cpu`, at batch 1,000 and
10,000 without compression. `--quick` takes few turns, for any machine, so its goals are >= 0.75 and twice
the µs.
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
from simulator.modules.clickhouse import Clickhouse
from simulator.modules.clickhouse.encoding import Part
from simulator.modules.clickhouse.server import Connection
from simulator.modules.options import parse_options
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
TURNS = 6
"""How many each client has in a round."""
BATCHES = {1_000: 20, 10_000: 4}
"""Batch size -> batches in a turn."""
VARIABLES = ("CLICKHOUSE_URL", "CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD")


@dataclass
class Line:
    """One line of the table."""

    workload: Workload
    batch: int
    compression: str = "none"
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

    @property
    def slack(self) -> float:
        """The cost by its goal."""
        return self.cost.us / GOALS_US[self.workload.name]


@contextmanager
def database(name: str, line: Line) -> Iterator[Clickhouse]:
    """The module on new tables of a database of its own, which are dropped at the end."""
    url, user, password = (os.environ[variable] for variable in VARIABLES)
    values = {
        "endpoint": url,
        "user": user,
        "password": password,
        "database": f"bench_{os.getpid()}_{name}",
        "compression": line.compression,
    }
    options = parse_options(Clickhouse.options_model, values, lambda key: f"option {key}")
    module = Clickhouse(options, Job(line.workload.schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.drop_database()
        module.close()


@contextmanager
def thin(module: Clickhouse, parts: Sequence[Part], line: Line) -> Iterator[Turn]:
    """http.client alone."""
    count = BATCHES[line.batch]
    server = Connection(module.options, module.job)
    url = urlsplit(module.options.endpoint[0])
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    headers = server.headers | server.insert_headers

    def turn(number: int) -> None:
        for part in parts[number * count : (number + 1) * count]:
            connection.request("POST", server.find_target(part), part.body, headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise RuntimeError(f"the server answered {answer.status}: {body[:300]!r}")

    try:
        yield turn
    finally:
        connection.close()


def encode_parts(module: Clickhouse, line: Line) -> list[Part]:
    """The requests that a worker sends."""
    encoder = module.writer(line.batch).encoder
    return [
        part
        for first in range(0, TURNS * line.events, line.batch)
        for payload in encoder.encode(line.workload.block(0, first, line.batch), line.batch)
        for part in payload.data
    ]


def one_round(line: Line, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    with database("ours", line) as module, database("thin", line) as other:
        parts = encode_parts(module, line)
        writer = module.writer(line.batch)
        batches = BATCHES[line.batch]
        with (
            worker_in_turns(writer, line.workload, line.batch, batches, TURNS) as ours,
            thin(other, parts, line) as by_thin,
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
    with database("cost", line) as module:
        writer = module.writer(line.batch)
        line.costs.append(worker_path(writer, line.workload, TURNS * line.events // 2, line.batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        return conclude(f"native_limit: no server: set {', '.join(missing)}", met=False)
    lines = [Line(temperature(), batch) for batch in BATCHES]
    lines.append(Line(Cpu(), 1_000))
    if not quick:
        lines += [Line(temperature(), 1_000, one) for one in ("lz4", "gzip")]
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            line.workload.name,
            line.compression,
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
    show(
        [
            "Workload",
            "Body",
            "Batch",
            "Ours/s",
            "http.client/s",
            "Ratio",
            "Generate",
            "Encode",
            "All µs",
        ],
        rows,
        texts=2,
    )
    plain = [line for line in lines if line.compression == "none"]
    goal, slack = (QUICK_GOAL, 2.0) if quick else (GOAL, 1.0)
    ratio, worst = min(line.ratio for line in plain), max(plain, key=lambda line: line.slack)
    goal_us = slack * GOALS_US[worst.workload.name]
    return conclude(
        f"native_limit: ratio {ratio:.2f} (goal >= {goal:g}), {worst.cost.us:.2f} µs of CPU per event of"
        f" {worst.workload.name} (goal <= {goal_us:g})",
        ratio >= goal and worst.slack <= slack,
    )


if __name__ == "__main__":
    sys.exit(main())
