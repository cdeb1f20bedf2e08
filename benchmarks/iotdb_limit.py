"""One worker's tablets to IoTDB: its CPU per event, and its throughput against the thinnest client's.

    eval "$(servers env iotdb)"; python -m benchmarks.iotdb_limit [--quick]

Needs a server: IOTDB_HOST, IOTDB_PORT, IOTDB_USER and IOTDB_PASSWORD say where. The thinnest client sends
the same frames of Thrift, built beforehand, by one raw socket on which a session was opened, and reads as
many bytes of each answer as the first had. Both write to one table, each rows of devices of its own: where
they overwrote each other's, 2.0.1-beta lost sight of a device (`is not in tsFileMetaData`) in the tree model
with 1,000 of them. `limits` says how the two are measured.

In the tree model a request is a tablet for each device, so there is a line in which each row is of another
device, too. For most of the time it waits for the server.

The goals: a ratio >= 0.9; CPU <= 0.8 µs per event and <= 1.2 µs per row of cpu at batch 1,000. `--quick`
takes few turns, for any machine: >= 0.75, <= 1.6 and <= 2.4 µs.

Client and server share what cores there are. On two, with nothing else at work, all of the CPU's goals were
met: the table model took 0.08 µs for temperature and 0.19 for cpu, the tree model 0.09, 0.38, and 1.04
where each row is of another device. The goal of 0.9 is missed: the table model's ratios were 0.79 for
temperature at batch 1,000, 0.97 at 10,000, 0.89 for cpu, 0.85 for single inserts; the tree model's 0.74,
0.59, and 1.07 with each row of another device. Where payloads were made beforehand a worker was as fast as
the thinnest client; a process beside the thinnest one that computed for as long slowed it nearly as much.
So it is the cores that are shared.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simulator.contract import Load
from simulator.modules.base import Job
from simulator.modules.iotdb import Iotdb
from simulator.modules.iotdb.connection import Connection
from simulator.modules.iotdb.options import Model
from simulator.modules.options import parse_options
from simulator.workloads.cpu import Cpu

from .limits import COST_HEADERS, Line, encode_all, judge, take_rounds
from .support import Turn, conclude, is_quick, show, temperature, worker_in_turns, worker_path

TURNS = 8
"""How many each client has in a round."""
_VARIABLES = ("IOTDB_HOST", "IOTDB_PORT", "IOTDB_USER", "IOTDB_PASSWORD")
_PATIENCE_S = 60.0


@dataclass
class ModelLine(Line):
    """A line, and how the database sees its events."""

    model: Model = Model.TABLE


@contextmanager
def module_for(line: ModelLine) -> Iterator[Iotdb]:
    """The module with an empty table, as a collector has it."""
    host, port, user, password = (os.environ[name] for name in _VARIABLES)
    values = {
        "host": host, "port": port, "username": user, "password": password,
        "database": "benchmark_limit", "model": line.model,
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
def thinnest(module: Iotdb, line: ModelLine) -> Iterator[Turn]:
    """A raw socket."""
    options = module.options
    configuration = {"version": "V_1_0", "sql_dialect": line.model.value}
    if line.model is Model.TABLE:
        configuration["db"] = options.database
    session = RawSession(
        (options.host[0], options.port),
        _PATIENCE_S,
        (options.username, options.password),
        configuration,
    )
    encoder = module.encoder(options, module.job, line.batch)
    bodies = [b"".join(call) for request in encode_all(encoder, line, worker=1) for call in request]
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


def one_round(line: ModelLine, shift: int) -> None:
    """All turns on one new table; `shift` changes who begins."""
    with module_for(line) as module:
        writer = module.writer(line.batch)
        with (
            worker_in_turns(writer, line.workload, line.batch, line.requests, TURNS) as ours,
            thinnest(module, line) as raw,
        ):
            line.take_turns({"ours": ours, "thinnest": raw}, shift)
        # Each writes rows of its own.
        if module.count() != 2 * line.round_events:
            raise AssertionError("not all events are stored")
        events = line.round_events // 2
        line.costs.append(worker_path(module.writer(line.batch), line.workload, events, line.batch))


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    if missing := [name for name in _VARIABLES if not os.environ.get(name)]:
        return conclude(f"iotdb_limit: no server: set {', '.join(missing)}", met=False)
    # In turns of some milliseconds a worker is measured with nothing of its own in the caches.
    times = 1 if quick else 8
    lines = [
        ModelLine(temperature(), 1_000, 40 * times, TURNS),
        ModelLine(temperature(), 10_000, 5 * times, TURNS),
        ModelLine(Cpu(seed=0, device_spread=10), 1_000, 20 * times, TURNS),
        ModelLine(temperature(), 0, 200 * times, TURNS),
        ModelLine(temperature(), 1_000, 40 * times, TURNS, Model.TREE),
        ModelLine(Cpu(seed=0, device_spread=10), 1_000, 20 * times, TURNS, Model.TREE),
        ModelLine(Cpu(seed=0, device_spread=1_000), 1_000, 5 * min(times, 2), TURNS, Model.TREE),
    ]
    take_rounds(lines, one_round, quick)
    rows = [
        [
            line.model.value,
            line.workload.name,
            str(line.workload.device_spread),
            f"{line.batch:,}" if line.batch else "single",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
            f"{line.ratio():.2f}",
            *line.cost_cells,
        ]
        for line in lines
    ]
    headers = ["Model", "Workload", "Devices", "Batch", "Ours/s", "Thinnest/s", "Ratio"]
    show([*headers, *COST_HEADERS], rows, texts=2)
    return judge("iotdb_limit", [line for line in lines if line.batch], quick)


if __name__ == "__main__":
    sys.exit(main())
