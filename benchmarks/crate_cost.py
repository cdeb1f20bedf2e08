"""Client CPU per event: generating, encoding and sending to CrateDB, without the server's.

    python -m benchmarks.crate_cost [--quick]

The real insert loop with the real writer against a server in a process of its own that reads each
request and answers that everything is stored, so no database is measured. It's compared with the program
that one would write first: a list of values per event, the standard library's JSON and HTTP. The best
round of each counts, since other work on the machine can only add to CPU time.

Goal: <= 0.8 µs at batch 1,000. That is for one machine, so `--quick`, meant for any, judges the ratio to
the other way instead: <= 0.5.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from urllib.parse import urlsplit

from simulator.contract import Load, PrimaryKey
from simulator.modules.base import Job
from simulator.modules.cratedb import Cratedb
from simulator.modules.cratedb.encoding import InsertMode
from simulator.modules.cratedb.options import CratedbOptions
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

GOAL_US, QUICK_GOAL = 0.8, 0.5
EVENTS = 100_000
CASES = [
    (mode, key, batch)
    for mode in (InsertMode.BULK, InsertMode.UNNEST)
    for key in (PrimaryKey.DB, PrimaryKey.CLIENT)
    for batch in (1_000, 10_000)
]
_INSERT = (
    'INSERT INTO "events" ("timestamp", "device_id", "sequence_number", "temperature")'
    " VALUES (?, ?, ?, ?)"
)


def answer(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each statement that all of it is stored."""
    asked = json.loads(body)
    found: dict[str, object] = {"cols": ["1"], "rows": [[1]], "rowcount": 1}
    if "bulk_args" in asked:
        found = {"cols": [], "results": [{"rowcount": 1}] * len(asked["bulk_args"])}
    elif "args" in asked:
        found = {"cols": [], "rows": [], "rowcount": len(asked["args"][0])}
    return 200, "application/json", json.dumps(found, separators=(",", ":")).encode()


def ours(url: str, mode: InsertMode, key: PrimaryKey, batch: int, events: int) -> Cost:
    """A worker's own path."""
    options = parse_options(CratedbOptions, {"endpoint": url, "insert_mode": str(mode)}, str)
    module = Cratedb(options, Job(temperature().schema, Load(batch=batch, primary_key=key)))
    return worker_path(module.writer(batch), temperature(), events, batch)


def usual_way(url: str, batch: int, events: int) -> Cost:
    """A list per event, as a client's `executemany` takes them."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    cpu, wall = time.process_time(), time.perf_counter()
    for chunk in batches(generate_events(events), batch):
        rows = [[e.timestamp, e.device_id, e.sequence_number, e.temperature] for e in chunk]
        body = json.dumps({"stmt": _INSERT, "bulk_args": rows})
        connection.request("POST", "/_sql", body, {"content-type": "application/json"})
        stored = json.loads(connection.getresponse().read())["results"]
        if any(result["rowcount"] != 1 for result in stored):
            raise AssertionError("not all rows are stored")
    cost = Cost(events, time.perf_counter() - wall, time.process_time() - cpu)
    connection.close()
    return cost


def main() -> int:
    """Run all cases; 0 if the goal is met."""
    quick = is_quick(__doc__)
    events, rounds = (EVENTS // 5, 2) if quick else (EVENTS, 5)
    rows = []
    judged = ratio = 0.0
    with http_server(answer) as url:
        usual = {
            batch: min(usual_way(url, batch, events).us for _ in range(rounds))
            for batch in (1_000, 10_000)
        }
        for mode, key, batch in CASES:
            costs = [ours(url, mode, key, batch, events) for _ in range(rounds)]
            cost = min(costs, key=lambda found: found.us)
            if (key, batch) == (PrimaryKey.DB, 1_000) and cost.us > judged:
                judged, ratio = cost.us, cost.us / usual[batch]
            rows.append([str(mode), str(key), f"{batch:,}", *figures(cost, usual[batch])])
    show(
        ["Mode", "Key", "Batch", "Generate", "Encode", "Send", "All µs", "Usual µs"], rows, texts=2
    )
    return conclude_cost("crate_cost", judged, GOAL_US, ratio, QUICK_GOAL, quick)


if __name__ == "__main__":
    sys.exit(main())
