"""One worker's bulk requests against the thinnest client that can send the same bytes.

    ELASTICSEARCH_URL=http://… python -m benchmarks.bulk_limit [--quick]

(or OPENSEARCH_URL). Ours is a worker's whole path: generating, encoding, sending, reading the answer,
recording. The thinnest client is http.client on one connection: it sends the same bodies, built
beforehand, with the same parameters, and only reads whether the answer is a success. Each has an index
of its own on one shard with the server's settings. They take turns of some batches, so that other work
of the machine and the server slows both; a line's ratio is the median over all turns of our rate ÷ the
thinnest client's in the turn next to it. For several requests in flight, the thinnest client has as
many threads, with a connection each.

`CPU µs` is our client's CPU per event (not the server's), of which generating and encoding are shown
apart. It's that of the best round, since other work on the machine can only add to it.

Goals: >= 0.9 of the thinnest client's throughput in each line, and <= 0.8 µs at batch 1,000. `--quick`
takes few turns, so its goal is >= 0.75; its CPU is shown only, as that goal is for one machine.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any, cast
from urllib.parse import urlsplit

from simulator.contract import Load, PrimaryKey
from simulator.modules.base import Job
from simulator.modules.elasticsearch import Elasticsearch
from simulator.modules.elasticsearch.encoding import Request
from simulator.modules.elasticsearch.options import ElasticsearchOptions
from simulator.modules.options import parse_options
from simulator.modules.sending import Payload
from simulator.worker import connect, garbage_collection_paused
from simulator.worker.feed import Feed
from simulator.worker.loop import insert_all
from simulator.worker.measure import Recorder
from simulator.workloads.base import Workload

from .support import Cost, conclude, is_quick, show, temperature, worker_path

GOAL, QUICK_GOAL = 0.9, 0.75
CPU_BATCH, CPU_GOAL_US = 1_000, 0.8
TURNS = 4
"""How many each client has in a round."""
BATCHES = {1_000: 24, 10_000: 3}
"""Batch size -> batches in a turn."""

RETRIES = 20
"""Each client tries again as often: a server with a small heap may be short of memory (429)."""

Turn = Callable[[int], None]
"""Sends the batches of one turn; its argument counts the turns of a round."""


@dataclass
class Line:
    """One line of the table: a case, each way's seconds in each turn, and our client's costs."""

    key: PrimaryKey
    batch: int
    in_flight: int
    turn_s: dict[str, list[float]] = field(default_factory=dict)
    costs: list[Cost] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events in a turn."""
        return self.batch * BATCHES[self.batch]

    @property
    def ratio(self) -> float:
        pairs = zip(self.turn_s["ours"], self.turn_s["thinnest"], strict=True)
        return median(other / ours for ours, other in pairs)

    @property
    def cost(self) -> Cost:
        """The cheapest."""
        return min(self.costs, key=lambda cost: cost.us)

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])


def server() -> dict[str, str]:
    """Endpoint and flavor of the server that the environment names."""
    for flavor in ("elasticsearch", "opensearch"):
        if url := os.environ.get(f"{flavor.upper()}_URL"):
            return {"endpoint": url, "flavor": flavor}
    sys.exit("bulk_limit: set ELASTICSEARCH_URL or OPENSEARCH_URL")


@contextmanager
def database(workload: Workload, line: Line) -> Iterator[Elasticsearch]:
    """The module on an index of its own, empty, which is deleted in the end."""
    options: dict[str, Any] = {
        **server(),
        "index_prefix": f"bench-{uuid.uuid4().hex[:8]}-",
        "shards": 1,
        "replicas": 0,
        "max_in_flight": line.in_flight,
    }
    parsed = parse_options(ElasticsearchOptions, options, lambda name: f"option {name}")
    module = Elasticsearch(
        parsed, Job(workload.schema, Load(batch=line.batch, primary_key=line.key))
    )
    try:
        module.open()
        module.prepare()
        yield module
    finally:
        module.drop()
        module.close()


@contextmanager
def worker(module: Elasticsearch, workload: Workload, line: Line) -> Iterator[Turn]:
    """A worker's path, which pauses when its turn is over."""
    with connect(module.writer(line.batch)) as writer:
        feed = Feed(
            lambda first, count: workload.block(0, first, count),
            writer.encoder,
            0,
            TURNS * line.events,
            line.batch,
        )
        payloads: Iterator[Payload] = iter(feed)
        recorder = Recorder()
        recorder.begin(time.perf_counter())

        def turn(_: int) -> None:
            # All that the loop asks of a feed is to be iterated over.
            part = cast(Feed, islice(payloads, BATCHES[line.batch]))
            insert_all(part, writer, recorder, RETRIES, lambda: None)

        yield turn


def encode_payloads(module: Elasticsearch, workload: Workload, line: Line) -> list[Request]:
    """The requests that a worker sends; of another worker's events, as both are stored."""
    encoder = module.writer(line.batch).encoder
    block = workload.block(1, 0, TURNS * line.events)
    return [payload.data for payload in encoder.encode(block, line.batch)]


@contextmanager
def thinnest(requests: Sequence[Request], line: Line) -> Iterator[Turn]:
    """http.client, as many connections as there are requests in flight."""
    parts = urlsplit(server()["endpoint"])
    assert parts.hostname is not None
    count = BATCHES[line.batch]
    headers = {"content-type": "application/x-ndjson"}

    def send(connection: http.client.HTTPConnection, part: Sequence[Request]) -> None:
        for request in part:
            for _ in range(RETRIES):
                connection.request(request.method, request.target, request.body, headers)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 429:
                    break
                time.sleep(0.1)
            if not body.startswith(b'{"errors":false'):
                raise RuntimeError(f"the server refused a request: {body[:300]!r}")

    with ExitStack() as stack, ThreadPoolExecutor(line.in_flight) as threads:
        connections = [
            stack.enter_context(closing(http.client.HTTPConnection(parts.hostname, parts.port)))
            for _ in range(line.in_flight)
        ]

        def turn(number: int) -> None:
            part = requests[number * count : (number + 1) * count]
            shares = [part[at :: line.in_flight] for at in range(line.in_flight)]
            list(threads.map(send, connections, shares))

        yield turn


def one_round(line: Line, shift: int) -> None:
    """All turns on one new index; `shift` changes who begins."""
    workload = temperature()
    with database(workload, line) as module:
        with (
            worker(module, workload, line) as ours,
            thinnest(encode_payloads(module, workload, line), line) as other,
        ):
            ways = [("ours", ours), ("thinnest", other)]
            with garbage_collection_paused():
                for number in range(TURNS):
                    for position in range(len(ways)):
                        name, turn = ways[(position + number + shift) % len(ways)]
                        began = time.perf_counter()
                        turn(number)
                        line.turn_s.setdefault(name, []).append(time.perf_counter() - began)
        if module.count() != TURNS * line.events * len(ways):
            raise AssertionError("not all events are stored")
    with database(workload, line) as module:
        writer = module.writer(line.batch)
        line.costs.append(worker_path(writer, workload, 2 * line.events, line.batch, RETRIES))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    lines = [Line(PrimaryKey.DB, batch, 1) for batch in BATCHES]
    if not quick:
        lines += [Line(PrimaryKey.CLIENT, CPU_BATCH, 1), Line(PrimaryKey.DB, CPU_BATCH, 4)]
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            line.key.value,
            f"{line.batch:,}",
            str(line.in_flight),
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio:.2f}",
            f"{line.cost.us:.2f}",
            f"{(line.cost.generate_s + line.cost.encode_s) / line.cost.events * 1e6:.2f}",
        ]
        for line in lines
    ]
    show(
        ["Key", "Batch", "In flight", "Ours/s", "Thinnest/s", "Ratio", "CPU µs", "to encode"],
        rows,
    )
    ratio = min(line.ratio for line in lines)
    cpu_us = lines[0].cost.us
    goal = QUICK_GOAL if quick else GOAL
    met = ratio >= goal and (quick or cpu_us <= CPU_GOAL_US)
    cpu_goal = "" if quick else f" (goal <= {CPU_GOAL_US:g})"
    return conclude(
        f"bulk_limit: ratio {ratio:.2f} (goal >= {goal:g}), {cpu_us:.2f} µs of CPU per event at"
        f" batch {CPU_BATCH:,}{cpu_goal}",
        met,
    )


if __name__ == "__main__":
    sys.exit(main())
