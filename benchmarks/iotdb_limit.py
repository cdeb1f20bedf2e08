"""One worker's tablets to IoTDB: its CPU per event, and its throughput against the thinnest client's.

    eval "$(servers env iotdb)"; python -m benchmarks.iotdb_limit [--quick]

Needs a server: IOTDB_HOST, IOTDB_PORT, IOTDB_USER and IOTDB_PASSWORD say where. Ours is a worker's whole
path: generating, encoding, sending, recording. The thinnest client sends the same frames of Thrift, built
beforehand, by one raw socket on which a session was opened, and reads as many bytes of each answer as the
first had. The two take turns of some requests each on one table, so the second one overwrites the
first one's rows, and they begin alternately. A line's ratio is the median over all turns of our rate ÷
the thinnest client's.

The table also shows the CPU that a worker spends per event, in the round in which it was least: other
work on the machine can only add to it.

The goals: a ratio >= 0.9; CPU <= 0.8 µs per event and <= 1.2 µs per row of cpu at batch 1,000. `--quick`
takes few turns, for any machine: >= 0.75, <= 1.6 and <= 2.4 µs.

Where client and server share two busy cores, the CPU goals are met (0.11 and 0.83 µs), the ratio is not: 0.7
to 1.1 for temperature, 0.4 to 0.6 for cpu, of which the server takes 400,000 rows a second.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from simulator.contract import Load
from simulator.modules.base import Job
from simulator.modules.iotdb import Iotdb
from simulator.modules.iotdb.connection import Connection
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
SLACK = 2
"""So many times the CPU is allowed with --quick."""
TURNS = 8
"""How many each client has in a round."""
_VARIABLES = ("IOTDB_HOST", "IOTDB_PORT", "IOTDB_USER", "IOTDB_PASSWORD")
_PATIENCE_S = 60.0


@dataclass
class Line:
    """One line of the table."""

    workload: Workload
    batch: int
    requests: int
    """How many a turn has."""
    turn_s: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "thinnest": []})
    costs: list[Cost] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events in a turn."""
        return (self.batch or 1) * self.requests

    @property
    def cpu_us(self) -> float:
        """Per event, in the cheapest round."""
        return min(cost.us for cost in self.costs)

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])

    @property
    def ratio(self) -> float:
        pairs = zip(self.turn_s["ours"], self.turn_s["thinnest"], strict=True)
        return median(other / ours for ours, other in pairs)


@contextmanager
def module_for(line: Line) -> Iterator[Iotdb]:
    """The module with an empty table, as a collector has it."""
    host, port, user, password = (os.environ[name] for name in _VARIABLES)
    values = {
        "host": host, "port": port, "username": user, "password": password,
        "database": "benchmark_limit",
    }  # fmt: skip
    options = parse_options(Iotdb.options_model, values, str)
    module = Iotdb(options, Job(line.workload.schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.close()


class RawSession(Connection):
    """A session's socket, and what ends each of its frames."""

    def frames(self, bodies: list[bytes]) -> list[bytes]:
        """The frames of these calls."""
        ends = ((body, len(body) + len(self._end)) for body in bodies)
        return [size.to_bytes(4, "big") + body + self._end for body, size in ends]

    @property
    def socket(self) -> socket.socket:
        return self._stream


@contextmanager
def thinnest(module: Iotdb, line: Line) -> Iterator[Turn]:
    """A raw socket."""
    options = module.options
    session = RawSession(
        (options.host[0], options.port),
        _PATIENCE_S,
        (options.username, options.password),
        {"version": "V_1_0", "sql_dialect": "table", "db": options.database},
    )
    encoder = module.encoder(options, module.job, line.batch)
    chunk = max(line.batch, 1_000)
    bodies = [
        body
        for first in range(0, TURNS * line.events, chunk)
        for payload in encoder.encode(line.workload.block(0, first, chunk), line.batch)
        for body in payload.data
    ]
    frames = session.frames(bodies)
    stream = session.socket
    stream.settimeout(None)
    answer_bytes = 0

    def turn(number: int) -> None:
        nonlocal answer_bytes
        for frame in frames[number * line.requests : (number + 1) * line.requests]:
            stream.sendall(frame)
            answer = stream.recv(1 << 16)
            answer_bytes = answer_bytes or len(answer)
            if len(answer) != answer_bytes:
                raise RuntimeError(f"the server answered otherwise than before: {answer[:200]!r}")

    try:
        yield turn
    finally:
        session.close()


def one_round(line: Line, shift: int) -> None:
    """All turns on one new table; `shift` changes who begins."""
    with module_for(line) as module:
        writer = module.writer(line.batch)
        with (
            worker_in_turns(writer, line.workload, line.batch, line.requests, TURNS) as ours,
            thinnest(module, line) as raw,
            garbage_collection_paused(),
        ):
            ways = [("ours", ours), ("thinnest", raw)]
            for number in range(TURNS):
                for position in range(len(ways)):
                    name, turn = ways[(position + number + shift) % len(ways)]
                    began = time.perf_counter()
                    turn(number)
                    line.turn_s[name].append(time.perf_counter() - began)
        # Both write the same rows.
        if module.count() != TURNS * line.events:
            raise AssertionError("not all events are stored")
        events = TURNS * line.events // 2
        line.costs.append(worker_path(module.writer(line.batch), line.workload, events, line.batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    if missing := [name for name in _VARIABLES if not os.environ.get(name)]:
        return conclude(f"iotdb_limit: no server: set {', '.join(missing)}", met=False)
    lines = [
        Line(temperature(), 1_000, 40),
        Line(temperature(), 10_000, 5),
        Line(Cpu(seed=0, device_spread=10), 1_000, 20),
        Line(temperature(), 0, 200),
    ]
    for shift in range(2 if quick else 6):
        for line in lines:
            one_round(line, shift)
    rows = [
        [
            line.workload.name,
            f"{line.batch:,}" if line.batch else "single",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio:.2f}",
            f"{line.cpu_us:.2f}",
        ]
        for line in lines
    ]
    show(["Workload", "Batch", "Ours/s", "Thinnest/s", "Ratio", "CPU µs/event"], rows)
    batched = [line for line in lines if line.batch]
    ratio = min(line.ratio for line in batched)
    slack = SLACK if quick else 1
    goal = QUICK_GOAL if quick else GOAL
    within = all(line.cpu_us <= slack * GOALS_US[line.workload.name] for line in batched)
    costs = {line.workload.name: line.cpu_us for line in lines if line.batch == 1_000}
    told = ", ".join(
        f"{cost:.2f} µs per event of {name} (goal <= {slack * GOALS_US[name]:g})"
        for name, cost in costs.items()
    )
    return conclude(
        f"iotdb_limit: ratio {ratio:.2f} (goal >= {goal:g}), CPU {told}", ratio >= goal and within
    )


if __name__ == "__main__":
    sys.exit(main())
