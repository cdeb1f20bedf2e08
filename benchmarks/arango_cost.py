"""Client CPU per event: generating, encoding and sending to ArangoDB, without the server's.

    python -m benchmarks.arango_cost [--quick]

The real insert loop with the real writer against a server in a process of its own that reads each
request and answers that everything is stored, so no database is measured. It's compared with the
official client's own way: `insert_many` with a dictionary per event. The best round of each counts,
since other work on the machine can only add to CPU time.

Goal: <= 0.8 µs at batch 1,000 with keys made by the server. That is for one machine, so `--quick`, meant
for any, judges the ratio to the official client's way instead: <= 0.35.
"""

from __future__ import annotations

import sys
import time

from arango.client import ArangoClient

from simulator.contract import Load, PrimaryKey
from simulator.modules.arangodb import Arangodb
from simulator.modules.arangodb.options import ArangoOptions
from simulator.modules.base import Job
from simulator.modules.options import parse_options

from .client_cost import batches, generate_events
from .support import (
    Cost,
    conclude_cost,
    figures,
    http_server,
    is_quick,
    show,
    temperature,
    worker_path,
)

GOAL_US, QUICK_GOAL = 0.8, 0.35
EVENTS = 100_000
CASES = [
    (method, key, batch)
    for method in ("document", "import")
    for key in (PrimaryKey.DB, PrimaryKey.CLIENT)
    for batch in (1_000, 10_000)
]


def answer(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each request that all of it is stored."""
    if b"/_api/import" in request:
        found = 201, b'{"created":%d,"ignored":0}' % (body.count(b"\n") + 1)
    else:
        found = 200 if b"/_api/version" in request else 202, b"{}"
    return found[0], "application/json", found[1]


def ours(url: str, method: str, key: PrimaryKey, batch: int, events: int) -> Cost:
    """A worker's own path."""
    values = {"endpoint": url, "insert_method": method}
    options = parse_options(ArangoOptions, values, str)
    module = Arangodb(options, Job(temperature().schema, Load(batch=batch, primary_key=key)))
    return worker_path(module.writer(batch), temperature(), events, batch)


def official_way(url: str, batch: int, events: int) -> Cost:
    """`insert_many` with a dictionary per event."""
    client = ArangoClient(hosts=url)
    collection = client.db("_system").collection("events")
    cpu, wall = time.process_time(), time.perf_counter()
    for chunk in batches(generate_events(events), batch):
        collection.insert_many([vars(event) for event in chunk], silent=True)
    cost = Cost(events, time.perf_counter() - wall, time.process_time() - cpu)
    client.close()
    return cost


def main() -> int:
    """Run all cases; 0 if the goal is met."""
    quick = is_quick(__doc__)
    events, rounds = (EVENTS // 5, 2) if quick else (EVENTS, 5)
    rows = []
    judged = ratio = 0.0
    with http_server(answer) as url:
        theirs = {
            batch: min(official_way(url, batch, events).us for _ in range(rounds))
            for batch in (1_000, 10_000)
        }
        for method, key, batch in CASES:
            costs = [ours(url, method, key, batch, events) for _ in range(rounds)]
            cost = min(costs, key=lambda found: found.us)
            if (key, batch) == (PrimaryKey.DB, 1_000) and cost.us > judged:
                judged, ratio = cost.us, cost.us / theirs[batch]
            rows.append([method, str(key), f"{batch:,}", *figures(cost, theirs[batch])])
    show(
        ["Method", "Key", "Batch", "Generate", "Encode", "Send", "All µs", "insert_many µs"],
        rows,
        texts=2,
    )
    return conclude_cost("arango_cost", judged, GOAL_US, ratio, QUICK_GOAL, quick)


if __name__ == "__main__":
    sys.exit(main())
