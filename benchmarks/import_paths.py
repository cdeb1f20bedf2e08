"""VictoriaMetrics' import paths against each other: which one the module should take.

    eval "$(servers env victoriametrics)"; python -m benchmarks.import_paths [--quick]

Needs a server on this machine: VICTORIAMETRICS_URL says where. The same events go in by
`/api/v1/import/csv`, `/api/v1/import/prometheus` (text), `/api/v1/import` (a line of JSON per series) and
`/write` (Influx line protocol), in batches of 1,000 over one connection, in turns. Bodies are built by numpy.
Shown are medians over all turns, in µs per event: the client's CPU for building a body, the time until its
answer, and the server's CPU in that time (what it does later to merge is the same for all). The last column
is what one worker reaches that builds and sends by turns.

There is no goal: the table is in docs/measurements/import-paths.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

import numpy as np
import psutil

from simulator.contract import Load
from simulator.encoding.columns import text_format
from simulator.encoding.rows import format_requests
from simulator.modules.base import Job, await_count
from simulator.modules.influxdb.encoding import LineEncoder
from simulator.modules.kit.series import field_columns
from simulator.modules.options import parse_options
from simulator.modules.victoriametrics import Victoriametrics
from simulator.modules.victoriametrics.encoding import CsvEncoder, SeriesEncoder
from simulator.worker import garbage_collection_paused
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from .support import conclude, is_quick, show

BATCH = 1_000
WORKLOADS: dict[str, Workload] = {
    "temperature, 1 device": Temperature(),
    "temperature, 1,000 devices": Temperature(device_spread=1_000),
    "cpu, 1 host": Cpu(),
    "cpu, 100 hosts": Cpu(device_spread=100),
}

Request = tuple[str, bytes]
"""Target and body."""
Build = Callable[[EventBlock], list[Request]]
"""The requests of a block."""


def csv(job: Job) -> Build:
    """Requests as the module makes them."""
    encoder = CsvEncoder(job, False, None)
    return lambda block: [
        (data.target, data.body) for p in encoder.encode(block) for data in p.data
    ]


def line_protocol(job: Job) -> Build:
    """Requests as the module for InfluxDB makes them."""
    encoder = LineEncoder(job, False)
    return lambda block: [("/write?precision=ms", p.data) for p in encoder.encode(block)]


def _labels(block: EventBlock) -> list[bytes]:
    """The labels of each event as JSON has them, without the braces."""
    schema = block.schema
    if schema.device_path:
        texts: list[bytes] = np.asarray(block.columns[schema.device]).tolist()
        return [text[1:-1] for text in texts]
    name = schema.device.encode()
    return [b'"%b":"%b"' % (name, device) for device in block.devices.tolist()]


def prometheus(job: Job) -> Build:
    """A line for each value, with its labels and time."""
    schema = job.schema
    fields = field_columns(schema)
    lines = [
        b"%s_%s{%%b} %s %%d" % (schema.table.encode(), column.name.encode(), text_format(column))
        for column in fields
    ]

    def build(block: EventBlock) -> list[Request]:
        converted: dict[bytes, bytes] = {}
        for text in set(texts := _labels(block)):
            converted[text] = text.replace(b'":"', b'="').replace(b',"', b",")[1:]
        labels = np.array([converted[text] for text in texts])
        times = block.columns[schema.time]
        columns = [column for f in fields for column in (labels, block.columns[f.name], times)]
        bodies = format_requests(b"\n".join(lines), b"\n", columns, BATCH)
        return [("/api/v1/import/prometheus", body) for body in bodies]

    return build


def json_lines(job: Job) -> Build:
    """Requests as the module makes them with import_format=json."""
    encoder = SeriesEncoder(job, False, None)
    return lambda block: [
        (data.target, data.body) for p in encoder.encode(block) for data in p.data
    ]


PATHS = {"csv": csv, "json by series": json_lines, "prometheus": prometheus, "line": line_protocol}


@dataclass
class Line:
    """One line of the table: seconds per event, a figure for each turn."""

    encode_s: list[float] = field(default_factory=list)
    send_s: list[float] = field(default_factory=list)
    server_s: list[float] = field(default_factory=list)
    octets: float = 0.0


def find_server(url: str) -> psutil.Process:
    """The process that listens at this URL."""
    port = urlsplit(url).port
    for connection in psutil.net_connections("tcp"):
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr[1:] == (port,)
            and connection.pid
        ):
            return psutil.Process(connection.pid)
    raise SystemExit("the server must be a process of this machine")


def measure(module: Victoriametrics, workload: Workload, turns: int, events: int) -> Iterator[Line]:
    """The lines of all paths for a workload."""
    server = find_server(module.options.endpoint[0])
    builders = [make(module.job) for make in PATHS.values()]
    lines = [Line() for _ in PATHS]
    with garbage_collection_paused():
        for turn in range(turns + 1):
            for place in range(len(PATHS)):
                chosen = (place + turn) % len(PATHS)
                # Times go on, so that no path meets data of another.
                block = workload.block(0, (turn * len(PATHS) + place) * events, events)
                cpu = time.process_time()
                requests = builders[chosen](block)
                cpu = time.process_time() - cpu
                used, began = server.cpu_times(), time.perf_counter()
                for target, body in requests:
                    module.connection.write(target, body)
                took = time.perf_counter() - began
                now = server.cpu_times()
                # The first turn makes the series.
                if turn:
                    line = lines[chosen]
                    line.encode_s.append(cpu / events)
                    line.send_s.append(took / events)
                    line.server_s.append((now.user + now.system - used.user - used.system) / events)
                    line.octets = sum(len(body) for _, body in requests) / events
        total = (turns + 1) * len(PATHS) * events
        stored = await_count(module.count, total, module.settle_s)
    if stored != total:
        raise AssertionError(f"{stored:,} events are stored")
    yield from lines


def list_rows(quick: bool) -> Iterator[Sequence[str]]:
    """The rows of the table."""
    for name, workload in WORKLOADS.items():
        options = parse_options(
            Victoriametrics.options_model, {"endpoint": os.environ["VICTORIAMETRICS_URL"]}, str
        )
        module = Victoriametrics(options, Job(workload.schema, Load(batch=BATCH)))
        module.open()
        module.prepare()
        turns, events = (2, 10_000) if quick else (12, 40_000)
        for path, line in zip(PATHS, measure(module, workload, turns, events), strict=True):
            medians_us = [
                median(times_s) * 1e6 for times_s in (line.encode_s, line.send_s, line.server_s)
            ]
            rate = 1e6 / (medians_us[0] + medians_us[1])
            yield [
                name,
                path,
                f"{line.octets:,.0f}",
                *(f"{us:.2f}" for us in medians_us),
                f"{rate:,.0f}",
            ]
        module.prepare()
        module.close()


def main() -> int:
    """Print the table."""
    quick = is_quick(__doc__)
    if not os.environ.get("VICTORIAMETRICS_URL"):
        return conclude("import_paths: no server: set VICTORIAMETRICS_URL", met=False)
    headers = ["Workload", "Path", "Bytes", "Build µs", "Answer µs", "Server µs", "Events/s"]
    show(headers, list(list_rows(quick)), texts=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
