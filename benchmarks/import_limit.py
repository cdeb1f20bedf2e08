"""One worker's writes to VictoriaMetrics against the thinnest client that sends the same bytes.

    eval "$(servers env victoriametrics)"; python -m benchmarks.import_limit [--quick]

Needs a server: VICTORIAMETRICS_URL says where. The thinnest client is Python's http.client; `limits` says
how the two are measured. Each has series of its own (the label db).

The goals: a ratio >= 0.9, and at batch 1,000 and 10,000 <= 0.8 µs per event of `temperature`, <= 1.2 µs of
`cpu`, whose event is ten samples. `--quick` takes few turns, for any machine, so its goals are >= 0.75 and
twice the CPU.

What a ratio below 1 at batch 10,000 is made of: client and server share two cores here. With requests
made beforehand, which the benchmark doesn't show, our path took 0.02 to 0.03 µs of CPU per event of
`temperature` where http.client took 0.03 to 0.05, at 0.76 to 1.22 of its rate (five series beside much
other work, median 0.98). Making the requests takes another 0.1 µs, while the server takes 0.75 µs in
the 0.53 to 0.79 µs until it answers, so more than one core.
"""

from __future__ import annotations

import http
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from simulator.contract import Load
from simulator.modules.base import Job, await_count
from simulator.modules.options import parse_options
from simulator.modules.victoriametrics import Victoriametrics
from simulator.workloads.cpu import Cpu

from .limits import COST_HEADERS, Line, Post, encode_all, http_client, judge, take_rounds
from .support import Turn, conclude, is_quick, show, temperature, worker_in_turns, worker_path

TURNS = 6
"""How many each client has in a round."""
EVENTS = {"temperature": 40_000, "cpu": 20_000}
"""In a turn."""
BATCHES = (1_000, 10_000)


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


def thinnest(module: Victoriametrics, line: Line) -> AbstractContextManager[Turn]:
    """http.client with a worker's requests."""
    encoder = module.writer(line.batch).encoder
    posts = [Post(data.target, data.body) for [data] in encode_all(encoder, line)]
    return http_client(module.options.endpoint[0], posts, {}, http.HTTPStatus.NO_CONTENT, line)


def one_round(line: Line, shift: int) -> None:
    """All turns; `shift` changes who begins."""
    workload, batch, total = line.workload, line.batch, line.round_events
    with series("ours", line) as module, series("thin", line) as other:
        writer = module.writer(batch)
        with (
            worker_in_turns(writer, workload, batch, line.requests, TURNS) as ours,
            thinnest(other, line) as by_thinnest,
        ):
            line.take_turns({"ours": ours, "thinnest": by_thinnest}, shift)
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
    lines = [
        Line(workload, batch, EVENTS[workload.name] // batch, TURNS)
        for workload in (temperature(), Cpu())
        for batch in BATCHES
    ]
    take_rounds(lines, one_round, quick)
    rows = [
        [
            line.workload.name,
            f"{line.batch:,}",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio():.2f}",
            *line.cost_cells,
        ]
        for line in lines
    ]
    show(["Workload", "Batch", "Ours/s", "http.client/s", "Ratio", *COST_HEADERS], rows)
    return judge("import_limit", lines, quick)


if __name__ == "__main__":
    sys.exit(main())
