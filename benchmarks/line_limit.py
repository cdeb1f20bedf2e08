"""One worker's lines to InfluxDB and QuestDB against the thinnest client that sends the same bytes.

    eval "$(servers env influxdb)"; python -m benchmarks.line_limit [--quick]
    eval "$(servers env questdb)"; python -m benchmarks.line_limit [--quick]

Needs a server: INFLUXDB_URL, INFLUXDB_ORG and INFLUXDB_TOKEN say where, or QUESTDB_URL; with both, both are
measured. Ours is a worker's whole path: generating, encoding, sending, recording. The thin client sends
the same requests, built beforehand, over one connection of Python's http.client: a POST, its answer
read, nothing else. Each has a bucket, or a table, of its own, created again for each round. The two take
turns of some batches, so that other work on the machine slows both. A line's ratio is the median over
all turns of our rate ÷ the thin client's in the turn next to it.

The table also shows the CPU that a worker spends per event, in the round in which it was least: other
work on the machine can only add to it.

The goals: a ratio >= 0.9, and at batch 1,000 and 10,000 <= 0.8 µs per event, of `cpu` with its ten values
<= 1.2 µs. Compressed lines have none. `--quick` takes few turns, for any machine, so its goals are a ratio
>= 0.75 and twice the time.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from simulator.contract import Load
from simulator.modules.base import AnyModule, Job
from simulator.modules.influxdb import Influxdb
from simulator.modules.influxdb.server import Connection as InfluxConnection
from simulator.modules.options import parse_options
from simulator.modules.questdb import Questdb
from simulator.modules.questdb.server import WRITE_TARGET
from simulator.modules.shared.sql import quote_name
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
QUICK_SLACK = 2.0
TURNS = 6
"""How many each client has in a round."""
BATCHES = {1_000: 40, 10_000: 5}
"""Batch size -> batches in a turn."""


def cpu() -> Cpu:
    """The workload of ten values, as `insert` has it by default."""
    return Cpu(seed=0)


class Kind(NamedTuple):
    """What is sent, and what it may cost."""

    workload: Callable[[], Workload]
    goal_us: float


KINDS = {"temperature": Kind(temperature, 0.8), "cpu": Kind(cpu, 1.2)}


class Post(NamedTuple):
    """How a write request begins."""

    url: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """A database that takes lines."""

    variables: Sequence[str]
    """Say where it is."""
    bodies: Mapping[str, Mapping[str, str]]
    """How lines are written -> the options for it, the usual one first."""
    quick_bodies: Sequence[str]
    kinds: Sequence[str]
    make: Callable[[str, Line], AbstractContextManager[AnyModule]]
    """The module on a bucket or a table of that name, which is deleted at the end."""
    post: Callable[[AnyModule], Post]

    @property
    def is_there(self) -> bool:
        return all(os.environ.get(name) for name in self.variables)


@dataclass
class Line:
    """One line of the table."""

    server: str
    kind: str
    batch: int
    body: str
    turn_s: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "thin": []})
    costs: list[Cost] = field(default_factory=list)

    def workload(self) -> Workload:
        """What is sent."""
        return KINDS[self.kind].workload()

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

    def meets(self, goal: float, slack: float) -> bool:
        """Whether it reaches its goals, if it has any."""
        if self.body == "gzip":
            return True
        return self.ratio >= goal and self.cost.us <= KINDS[self.kind].goal_us * slack


@contextmanager
def influxdb(name: str, line: Line) -> Iterator[AnyModule]:
    """On a new bucket."""
    values = {
        "endpoint": os.environ["INFLUXDB_URL"],
        "org": os.environ["INFLUXDB_ORG"],
        "token": os.environ["INFLUXDB_TOKEN"],
        "bucket": f"bench-{os.getpid()}-{name}",
        **SERVERS["influxdb"].bodies[line.body],
    }
    options = parse_options(Influxdb.options_model, values, lambda key: f"option {key}")
    module = Influxdb(options, Job(line.workload().schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.drop_bucket()
        module.close()


def post_to_influxdb(module: AnyModule) -> Post:
    """As the module writes."""
    server = InfluxConnection(module.options, module.job)
    return Post(module.options.endpoint, server.write_target, server.write_headers)


@contextmanager
def questdb(name: str, line: Line) -> Iterator[AnyModule]:
    """On a new table."""
    values = {
        "endpoint": os.environ["QUESTDB_URL"],
        "table_prefix": f"bench_{os.getpid()}_{name}_",
        **SERVERS["questdb"].bodies[line.body],
    }
    options = parse_options(Questdb.options_model, values, lambda key: f"option {key}")
    module = Questdb(options, Job(line.workload().schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.connection.ask(f"DROP TABLE {quote_name(module.job.schema.table)}")
        module.close()


def post_to_questdb(module: AnyModule) -> Post:
    """As the module writes."""
    return Post(module.options.endpoint[0], WRITE_TARGET, {"user-agent": "thin"})


SERVERS = {
    "influxdb": Server(
        ("INFLUXDB_URL", "INFLUXDB_ORG", "INFLUXDB_TOKEN"),
        {"text": {}, "gzip": {"gzip": "true"}},
        ("text",),
        ("temperature",),
        influxdb,
        post_to_influxdb,
    ),
    "questdb": Server(
        ("QUESTDB_URL",),
        {"text": {}, "binary": {"line_format": "binary"}},
        ("text", "binary"),
        ("temperature", "cpu"),
        questdb,
        post_to_questdb,
    ),
}


@contextmanager
def thin(module: AnyModule, payloads: Sequence[bytes], line: Line) -> Iterator[Turn]:
    """http.client alone."""
    count = BATCHES[line.batch]
    post = SERVERS[line.server].post(module)
    url = urlsplit(post.url)
    target = url.path.rstrip("/") + post.target
    connection = http.client.HTTPConnection(url.hostname or "", url.port)

    def turn(number: int) -> None:
        for payload in payloads[number * count : (number + 1) * count]:
            connection.request("POST", target, payload, post.headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.NO_CONTENT:
                raise RuntimeError(f"the server answered {answer.status}")

    try:
        yield turn
    finally:
        connection.close()


def encode_payloads(module: AnyModule, workload: Workload, line: Line) -> list[bytes]:
    """The payloads that a worker sends."""
    encoder = module.writer(line.batch).encoder
    return [
        payload.data
        for first in range(0, TURNS * line.events, line.batch)
        for payload in encoder.encode(workload.block(0, first, line.batch), line.batch)
    ]


def one_round(line: Line, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    workload, make = line.workload(), SERVERS[line.server].make
    with make("ours", line) as module, make("thin", line) as other:
        payloads = encode_payloads(other, workload, line)
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
    with make("cost", line) as module:
        writer = module.writer(line.batch)
        line.costs.append(worker_path(writer, workload, TURNS * line.events // 2, line.batch))


def list_lines(quick: bool) -> list[Line]:
    """Those of the servers that are there."""
    return [
        Line(name, kind, batch, body)
        for name, server in SERVERS.items()
        if server.is_there
        for body in (server.quick_bodies if quick else server.bodies)
        for kind in server.kinds
        for batch in BATCHES
        if kind == "temperature" or batch == min(BATCHES)
    ]


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    lines = list_lines(quick)
    if not lines:
        names = " or ".join(", ".join(server.variables) for server in SERVERS.values())
        return conclude(f"line_limit: no server: set {names}", met=False)
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            line.server,
            line.kind,
            line.body,
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
        "Server",
        "Workload",
        "Body",
        "Batch",
        "Ours/s",
        "http.client/s",
        "Ratio",
        "Generate",
    ]
    show([*headers, "Encode", "All µs"], rows, texts=3)
    goal, slack = (QUICK_GOAL, QUICK_SLACK) if quick else (GOAL, 1.0)
    judged = [line for line in lines if line.body != "gzip"]
    found = "; ".join(
        f"{kind} {max(line.cost.us for line in own):.2f} µs of CPU per event (goal <= {limit * slack:g})"
        for kind, (_, limit) in KINDS.items()
        if (own := [line for line in judged if line.kind == kind])
    )
    ratio = min(line.ratio for line in judged)
    return conclude(
        f"line_limit: ratio {ratio:.2f} (goal >= {goal:g}), {found}",
        all(line.meets(goal, slack) for line in lines),
    )


if __name__ == "__main__":
    sys.exit(main())
