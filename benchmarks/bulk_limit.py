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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from simulator.contract import Load, PrimaryKey
from simulator.modules.base import Job
from simulator.modules.elasticsearch import Elasticsearch
from simulator.modules.elasticsearch.encoding import Request
from simulator.modules.elasticsearch.options import ElasticsearchOptions
from simulator.modules.options import parse_options

from .limits import GOAL, QUICK_GOAL, Line, encode_all, take_rounds
from .support import Turn, conclude, is_quick, show, temperature, worker_in_turns, worker_path

CPU_BATCH, CPU_GOAL_US = 1_000, 0.8
TURNS = 4
"""How many each client has in a round."""
BATCHES = {1_000: 24, 10_000: 3}
"""Batch size -> batches in a turn."""

RETRIES = 20
"""Each client tries again as often: a server with a small heap may be short of memory (429)."""


@dataclass
class BulkLine(Line):
    """With a key and requests in flight."""

    key: PrimaryKey
    in_flight: int


def server() -> dict[str, str]:
    """Endpoint and flavor of the server that the environment names."""
    for flavor in ("elasticsearch", "opensearch"):
        if url := os.environ.get(f"{flavor.upper()}_URL"):
            return {"endpoint": url, "flavor": flavor}
    sys.exit("bulk_limit: set ELASTICSEARCH_URL or OPENSEARCH_URL")


@contextmanager
def database(line: BulkLine) -> Iterator[Elasticsearch]:
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
        parsed, Job(line.workload.schema, Load(batch=line.batch, primary_key=line.key))
    )
    try:
        module.open()
        module.prepare()
        yield module
    finally:
        module.drop()
        module.close()


@contextmanager
def thinnest(requests: Sequence[Request], line: BulkLine) -> Iterator[Turn]:
    """http.client, as many connections as there are requests in flight."""
    parts = urlsplit(server()["endpoint"])
    assert parts.hostname is not None
    count = line.requests
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


def one_round(line: BulkLine, shift: int) -> None:
    """All turns on one new index; `shift` changes who begins."""
    workload, batch = line.workload, line.batch
    with database(line) as module:
        # Of another worker's events, as both are stored.
        encoded = encode_all(module.writer(batch).encoder, line, worker=1)
        requests = [request for [request] in encoded]
        writer = module.writer(batch)
        with (
            worker_in_turns(writer, workload, batch, line.requests, TURNS, RETRIES) as ours,
            thinnest(requests, line) as by_thinnest,
        ):
            line.take_turns({"ours": ours, "thinnest": by_thinnest}, shift)
        if module.count() != line.round_events * 2:
            raise AssertionError("not all events are stored")
    with database(line) as module:
        line.costs.append(
            worker_path(module.writer(batch), workload, 2 * line.events, batch, RETRIES)
        )


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    cases = [(PrimaryKey.DB, batch, 1) for batch in BATCHES]
    if not quick:
        cases += [(PrimaryKey.CLIENT, CPU_BATCH, 1), (PrimaryKey.DB, CPU_BATCH, 4)]
    lines = [
        BulkLine(temperature(), batch, BATCHES[batch], TURNS, key, in_flight)
        for key, batch, in_flight in cases
    ]
    take_rounds(lines, one_round, quick)
    rows = [
        [
            line.key.value,
            f"{line.batch:,}",
            str(line.in_flight),
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio():.2f}",
            f"{line.cost.us:.2f}",
            f"{(line.cost.generate_s + line.cost.encode_s) / line.cost.events * 1e6:.2f}",
        ]
        for line in lines
    ]
    show(
        ["Key", "Batch", "In flight", "Ours/s", "Thinnest/s", "Ratio", "CPU µs", "to encode"],
        rows,
    )
    ratio = min(line.ratio() for line in lines)
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
