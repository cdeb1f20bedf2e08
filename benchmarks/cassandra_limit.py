"""One worker's writes to Cassandra: its CPU per event, and its throughput against the thinnest client's.

    python -m benchmarks.cassandra_limit [--quick]

The server is that of CASSANDRA_CONTACT_POINTS (its first node) and CASSANDRA_PORT. Ours is a worker's
whole path: generating, encoding, sending, recording. The thinnest client is a program that knows only as
much of the protocol as it needs: it sends the same bodies of BATCH and EXECUTE messages, encoded
beforehand, in frames and segments with checksums, through one raw socket with as many requests under way,
and reads nothing but the kind of each answer. The two take turns of some requests each on connections of
their own; both write to the same table, so the second one overwrites the first one's rows, and they begin
alternately. A line's ratio is the median over all turns of our rate ÷ the thinnest client's. Turns are
short, so that the server's pauses (garbage collection, flushes, compaction) affect few of them.

Goals: CPU (of this process, the driver's threads included) <= 1.0 µs per event in batches of 1,000
one at a time, and a throughput of >= 0.9 of the thinnest client's in batches of 1,000 and 10,000.
`--quick` takes few rounds and is meant for any machine: <= 2 µs and >= 0.75. Single inserts are
shown as well.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from cassandra.segment import compute_crc24

from simulator.contract import Load
from simulator.modules.base import Job
from simulator.modules.cassandra import Cassandra
from simulator.modules.options import parse_options

from .limits import GOAL, QUICK_GOAL, Line, encode_all, take_rounds
from .support import Turn, conclude, is_quick, show, temperature, worker_in_turns

GOAL_US, QUICK_GOAL_US = 1.0, 2.0
_VERSION = 5
_ERROR, _STARTUP, _READY, _RESULT, _EXECUTE, _BATCH = 0x00, 0x01, 0x02, 0x08, 0x0A, 0x0D
_WRITE_TIMEOUT = (0x1100).to_bytes(4, "big")
_HEADER = struct.Struct("!BBhBi")
_MAX_SEGMENT = 0x1FFFF

# A server without memory loses requests.
_PATIENCE_S = 60

# A server on a busy machine may answer some writes late; either way sends them again.
_MAX_RETRIES = 8


@dataclass
class FlightLine(Line):
    """With requests in flight."""

    in_flight: int

    @property
    def cpu_us(self) -> float:
        """Per event: the least, since whatever else the machine does can only add to it."""
        return min(self.cpu_s["ours"]) / self.events * 1e6


def server() -> tuple[str, int]:
    """The first node that the variables name."""
    try:
        hosts, port = os.environ["CASSANDRA_CONTACT_POINTS"], os.environ["CASSANDRA_PORT"]
    except KeyError as missing:
        sys.exit(f"set {missing.args[0]}: the benchmark needs a Cassandra")
    return hosts.split(",")[0], int(port)


@contextmanager
def module_for(line: FlightLine) -> Iterator[Cassandra]:
    """The module with an empty table, as a collector has it."""
    host, port = server()
    values = {
        "contact_points": host, "port": port, "keyspace": "benchmark_limit",
        "replication_factor": 1, "max_sync_calls": line.in_flight,
    }  # fmt: skip
    options = parse_options(Cassandra.options_model, values, str)
    module = Cassandra(options, Job(line.workload.schema, Load(batch=line.batch)))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        module.close()


@contextmanager
def thinnest(bodies: Sequence[bytes], line: FlightLine) -> Iterator[Turn]:
    """A raw socket."""
    count, operation = line.requests, _BATCH if line.batch else _EXECUTE
    with socket.create_connection(server()) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of Python's would be a system call more for each answer.
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _PATIENCE_S, 0)
        )
        options = b"\0\1\0\x0bCQL_VERSION\0\x053.0.0"
        connection.sendall(_HEADER.pack(_VERSION, 0, 0, _STARTUP, len(options)) + options)
        *_, kind, length = _HEADER.unpack(answers.read(_HEADER.size))
        answers.read(length)
        if kind != _READY:
            raise RuntimeError("the server asks for more than the thinnest client knows")

        def turn(number: int) -> None:
            part = bodies[number * count : (number + 1) * count]
            waiting = list(reversed(range(len(part))))
            under_way = 0
            while waiting or under_way:
                if waiting and under_way < line.in_flight:
                    stream = waiting.pop()
                    body = part[stream]
                    frame = _HEADER.pack(_VERSION, 0, stream, operation, len(body)) + body
                    connection.sendall(_segments(frame))
                    under_way += 1
                    continue
                for stream, late in _read_answers(answers):
                    under_way -= 1
                    if late:
                        waiting.append(stream)

        yield turn


def _segments(frame: bytes) -> bytes:
    """The frame as segments: header, its checksum, payload, its checksum."""
    parts = []
    alone = len(frame) <= _MAX_SEGMENT
    for start in range(0, len(frame), _MAX_SEGMENT):
        payload = frame[start : start + _MAX_SEGMENT]
        header = len(payload) | alone << 17
        parts += [
            header.to_bytes(3, "little"),
            compute_crc24(header, 3).to_bytes(3, "little"),
            payload,
            zlib.crc32(payload, _CRC32_INITIAL).to_bytes(4, "little"),
        ]
    return b"".join(parts)


# The checksum of segments begins with that of these bytes (native_protocol_v5.spec, section 2.2).
_CRC32_INITIAL = zlib.crc32(b"\xfa\x2d\x55\xca")


def _read_answers(answers: BinaryIO) -> list[tuple[int, bool]]:
    """Read a segment; of each answer in it the stream, and whether the write timed out.

    Raises RuntimeError for any other error.
    """
    header = answers.read(6)
    if not header:
        raise RuntimeError("no answer comes any more: give the server more memory")
    length = int.from_bytes(header[:3], "little")
    payload = answers.read((length & _MAX_SEGMENT) + 4)[:-4]
    found = []
    while payload:
        _, _, stream, kind, size = _HEADER.unpack_from(payload)
        body = payload[_HEADER.size : _HEADER.size + size]
        late = kind == _ERROR and body[:4] == _WRITE_TIMEOUT
        if kind != _RESULT and not late:
            raise RuntimeError(f"refused: {body[:200]!r}")
        found.append((stream, late))
        payload = payload[_HEADER.size + size :]
    return found


def one_round(line: FlightLine, shift: int) -> None:
    """All turns on one new table; `shift` changes who begins."""
    with module_for(line) as module:
        writer, batch = module.writer(line.batch), line.batch
        with worker_in_turns(
            writer, line.workload, batch, line.requests, line.turns, _MAX_RETRIES
        ) as ours:
            # The encoder knows the prepared statement now.
            bodies = [request.body for request in encode_all(writer.encoder, line)]
            with thinnest(bodies, line) as raw:
                line.take_turns({"ours": ours, "thinnest": raw}, shift)
        # Both write the same rows.
        if module.count() != line.round_events:
            raise AssertionError("not all events are stored")


def main() -> int:
    """Run all lines; 0 if the goals are met."""
    quick = is_quick(__doc__)
    lines = [
        FlightLine(temperature(), 1_000, 12, 24, 1),
        FlightLine(temperature(), 1_000, 64, 6, 16),
        FlightLine(temperature(), 10_000, 3, 12, 1),
        FlightLine(temperature(), 10_000, 12, 4, 4),
        FlightLine(temperature(), 0, 300, 8, 1),
        FlightLine(temperature(), 0, 1_200, 8, 120),
    ]
    take_rounds(lines, one_round, quick)
    rows = [
        [
            f"{line.batch:,}" if line.batch else "single",
            f"{line.in_flight}",
            f"{line.rate('ours'):,.0f}",
            f"{line.rate('thinnest'):,.0f}",
            f"{line.ratio():.2f}",
            f"{line.cpu_us:.2f}",
        ]
        for line in lines
    ]
    show(["Batch", "In flight", "Ours/s", "Thinnest/s", "Ratio", "CPU µs/event"], rows)
    goal, goal_us = (QUICK_GOAL, QUICK_GOAL_US) if quick else (GOAL, GOAL_US)
    ratio = min(line.ratio() for line in lines if line.batch)
    cpu_us = lines[0].cpu_us
    return conclude(
        f"cassandra_limit: ratio {ratio:.2f} (goal >= {goal:g}),"
        f" {cpu_us:.2f} µs CPU per event at batch 1,000 (goal <= {goal_us:g})",
        ratio >= goal and cpu_us <= goal_us,
    )


if __name__ == "__main__":
    sys.exit(main())
