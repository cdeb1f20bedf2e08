"""Client CPU per event: generating, encoding and sending to PostgreSQL, without the server's share.

    python -m benchmarks.client_cost [--quick]

The real insert loop with the real writer against an embedded server is compared with a minimal program
that works as the reference does: a generator of dataclass objects, then for COPY a formatted line per
event in a StringIO and `copy_from`, for lists of values `execute_values`, for single statements
`execute` with parameters. The two take turns; the best round of each counts, since other work on the
machine (a busy sibling core, cold caches) can only add to CPU time.

Columns in µs of CPU per event; `Send` is the connection, the kernel's half and the loop. The ratio is ours
÷ the reference's way. Goals: COPY binary <= 0.35 µs at batch 1,000 and <= 0.12 µs at 10,000; of
the workload cpu, whose events are seven times as long, <= 0.5 µs, by text, too. They are for one
machine, so `--quick`, meant for any, judges the ratios instead: <= 0.25 at batch 1,000, <= 0.12 at
10,000 and for cpu.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from math import inf
from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 - it is a class
from psycopg2.extras import execute_values

from simulator.contract import PrimaryKey
from simulator.workloads.base import Workload
from simulator.workloads.cpu import METRICS, Cpu
from simulator.workloads.temperature import Temperature

from .support import (
    Cost,
    conclude,
    database,
    figures,
    is_quick,
    new_table,
    show,
    start_embedded_server,
    worker_path,
)

_AnyEvent = TypeVar("_AnyEvent")


@dataclass
class Event:
    """An event as an object, as the reference has it."""

    timestamp: int
    device_id: str
    sequence_number: int
    temperature: float


def generate_events(count: int) -> Iterator[Event]:
    """Events one by one."""
    timestamp = 1_704_067_200_000
    for number in range(count):
        timestamp += random.randint(300, 600)
        yield Event(timestamp, "w00000d000000", number, random.uniform(-20, 35))


@dataclass
class Measurement:
    """An event of the workload cpu as an object."""

    tags: dict[str, str]
    ts: int
    metrics: list[int]


def generate_measurements(count: int) -> Iterator[Measurement]:
    """Events of the workload cpu one by one."""
    document = Cpu().block(0, 0, 1).columns["tags"].tolist()[0]
    for number in range(count):
        metrics = [random.randint(0, 100) for _ in METRICS]
        yield Measurement(json.loads(document), 1_704_067_200_000 + number * 1000, metrics)


def batches(events: Iterator[_AnyEvent], batch: int) -> Iterator[list[_AnyEvent]]:
    while chunk := list(islice(events, batch)):
        yield chunk


_COLUMNS = ("timestamp", "device_id", "sequence_number", "temperature")
_INSERT = f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES"


def _copy(connection: Connection, count: int, batch: int) -> None:
    for chunk in batches(generate_events(count), batch):
        file = StringIO()
        for e in chunk:
            file.write(f"{e.timestamp}\t{e.device_id}\t{e.sequence_number}\t{e.temperature}\n")
        _copy_file(connection, file, "events", _COLUMNS)


def _copy_cpu(connection: Connection, count: int, batch: int) -> None:
    for chunk in batches(generate_measurements(count), batch):
        file = StringIO()
        for e in chunk:
            values = "\t".join(map(str, e.metrics))
            file.write(f"{json.dumps(e.tags)}\t{e.ts}\t{values}\n")
        _copy_file(connection, file, "cpu", ("tags", "ts", *METRICS))


def _copy_file(
    connection: Connection, file: StringIO, table: str, columns: tuple[str, ...]
) -> None:
    file.seek(0)
    with connection.cursor() as cursor:
        cursor.copy_from(file, table, columns=columns)
    connection.commit()


def _values(events: Iterable[Event]) -> list[tuple[object, ...]]:
    return [(e.timestamp, e.device_id, e.sequence_number, e.temperature) for e in events]


def _values_lists(connection: Connection, count: int, batch: int) -> None:
    for chunk in batches(generate_events(count), batch):
        with connection.cursor() as cursor:
            execute_values(cursor, f"{_INSERT} %s", _values(chunk), page_size=batch)
        connection.commit()


def _statements(connection: Connection, count: int, batch: int) -> None:
    for chunk in batches(generate_events(count), batch or 1):
        with connection.cursor() as cursor:
            for values in _values(chunk):
                cursor.execute(f"{_INSERT} (%s, %s, %s, %s)", values)
        connection.commit()


Reference = Callable[[Connection, int, int], None]
"""Generates and sends so many events in batches of such a size."""


def reference_way(dsn: str, send: Reference, events: int, batch: int) -> Cost:
    """Generate and send events the reference's way."""
    with closing(psycopg2.connect(dsn)) as connection:
        cpu, wall = time.process_time(), time.perf_counter()
        send(connection, events, batch)
        return Cost(events, time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    batch: int
    options: dict[str, Any]
    reference: Reference
    events: int
    workload: type[Workload] = Temperature
    goal_us: float = inf
    goal_ratio: float = inf
    """The goal of `--quick`."""


_BINARY, _TEXT = {"copy_format": "binary"}, {"copy_format": "text"}

CASES = [
    Case("copy binary", 1_000, _BINARY, _copy, 200_000, goal_us=0.35, goal_ratio=0.25),
    Case("copy binary", 10_000, _BINARY, _copy, 500_000, goal_us=0.12, goal_ratio=0.12),
    Case("copy text", 1_000, _TEXT, _copy, 200_000),
    Case("copy text", 10_000, _TEXT, _copy, 500_000),
    *(
        Case(f"copy {name}, cpu", batch, options, _copy_cpu, 50_000, Cpu, 0.5, 0.12)
        for name, options in (("binary", _BINARY), ("text", _TEXT))
        for batch in (1_000, 10_000)
    ),
    Case("values_lists", 1_000, {"insert_mode": "values_lists"}, _values_lists, 50_000),
    Case("transaction", 1_000, {"insert_mode": "transaction"}, _statements, 10_000),
    Case("single", 0, {}, _statements, 2_000),
]


def _round(dsn: str, case: Case, events: int) -> tuple[Cost, Cost]:
    """Both ways once: ours, the reference's."""
    workload = case.workload(seed=0, device_spread=1)
    with database(dsn, workload, case.batch, PrimaryKey.DB, **case.options) as module:
        new_table(module, dsn)
        ours = worker_path(module.writer(case.batch), workload, events, case.batch)
        new_table(module, dsn)
        return ours, reference_way(dsn, case.reference, events, case.batch)


def main() -> int:
    """Run all cases; 0 if the goals are met."""
    quick = is_quick(__doc__)
    found: dict[int, list[tuple[Cost, Cost]]] = {}
    with start_embedded_server() as dsn:
        for _ in range(2 if quick else 7):
            for number, case in enumerate(CASES):
                events = max(case.batch, case.events // 5) if quick else case.events
                found.setdefault(number, []).append(_round(dsn, case, events))
    rows, measured, met = [], [], True
    for number, case in enumerate(CASES):
        ours = min((pair[0] for pair in found[number]), key=lambda cost: cost.us)
        theirs = min(pair[1].us for pair in found[number])
        ratio = ours.us / theirs
        rows.append([case.name, f"{case.batch or 1:,}", *figures(ours, theirs), f"{ratio:.3f}"])
        if case.goal_us < inf:
            met &= ratio <= case.goal_ratio if quick else ours.us <= case.goal_us
            goal = f"ratio <= {case.goal_ratio:g}" if quick else f"<= {case.goal_us:g} µs"
            measured.append(f"{ours.us:.3f} µs, ratio {ratio:.2f} ({goal})")
    show(
        ["Mode", "Batch", "Generate", "Encode", "Send", "All µs", "Reference's way µs", "Ratio"],
        rows,
    )
    return conclude(f"client_cost: {'; '.join(measured)}", met)


if __name__ == "__main__":
    sys.exit(main())
