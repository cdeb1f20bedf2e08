"""One worker's inserts into ClickHouse against the thinnest client that sends the same bytes.

    eval "$(servers env clickhouse)"; python -m benchmarks.native_limit [--quick]

Needs a server: CLICKHOUSE_URL, CLICKHOUSE_USER and CLICKHOUSE_PASSWORD say where. The thinnest client is
Python's http.client; `limits` says how the two are measured. Each has a database of its own, whose tables
are made again for each round. CPU is the client's alone, and holds for any server; a ratio holds for the
server that was asked.

The goals: a ratio >= 0.9; <= 0.8 µs per event of `temperature` and <= 1.2 µs of `cpu`, at batch 1,000 and
10,000 without compression. `--quick` takes few turns, for any machine, so its goals are >= 0.75 and twice
the µs.
"""

from __future__ import annotations

import http
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from simulator.contract import Load
from simulator.modules.base import Job
from simulator.modules.clickhouse import Clickhouse
from simulator.modules.clickhouse.server import Connection
from simulator.modules.options import parse_options
from simulator.workloads.cpu import Cpu

from .limits import COST_HEADERS, Line, Post, encode_all, http_client, judge, take_rounds
from .support import Turn, conclude, is_quick, show, temperature, worker_in_turns, worker_path

TURNS = 6
"""How many each client has in a round."""
BATCHES = {1_000: 20, 10_000: 4}
"""Batch size -> batches in a turn."""
VARIABLES = ("CLICKHOUSE_URL", "CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD")


@dataclass
class NativeLine(Line):
    """With a compression."""

    compression: str = "none"


@contextmanager
def database(name: str, line: NativeLine) -> Iterator[Clickhouse]:
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


def thinnest(module: Clickhouse, line: Line) -> AbstractContextManager[Turn]:
    """http.client with a worker's requests."""
    server = Connection(module.options, module.job)
    posts = [
        Post(server.find_target(part), part.body)
        for parts in encode_all(module.writer(line.batch).encoder, line)
        for part in parts
    ]
    headers = server.headers | server.insert_headers
    return http_client(module.options.endpoint[0], posts, headers, http.HTTPStatus.OK, line)


def one_round(line: NativeLine, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    with database("ours", line) as module, database("thin", line) as other:
        writer = module.writer(line.batch)
        with (
            worker_in_turns(writer, line.workload, line.batch, line.requests, TURNS) as ours,
            thinnest(other, line) as by_thinnest,
        ):
            line.take_turns({"ours": ours, "thinnest": by_thinnest}, shift)
        if (module.count(), other.count()) != (line.round_events,) * 2:
            raise AssertionError("not all events are stored")
    with database("cost", line) as module:
        writer = module.writer(line.batch)
        line.costs.append(worker_path(writer, line.workload, line.round_events // 2, line.batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        return conclude(f"native_limit: no server: set {', '.join(missing)}", met=False)
    lines = [NativeLine(temperature(), batch, BATCHES[batch], TURNS) for batch in BATCHES]
    lines.append(NativeLine(Cpu(), 1_000, BATCHES[1_000], TURNS))
    if not quick:
        lines += [
            NativeLine(temperature(), 1_000, BATCHES[1_000], TURNS, one) for one in ("lz4", "gzip")
        ]
    take_rounds(lines, one_round, quick)
    rows = [
        [
            line.workload.name,
            line.compression,
            f"{line.batch:,}",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio():.2f}",
            *line.cost_cells,
        ]
        for line in lines
    ]
    headers = ["Workload", "Body", "Batch", "Ours/s", "http.client/s", "Ratio", *COST_HEADERS]
    show(headers, rows, texts=2)
    return judge("native_limit", [line for line in lines if line.compression == "none"], quick)


if __name__ == "__main__":
    sys.exit(main())
