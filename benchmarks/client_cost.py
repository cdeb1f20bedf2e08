"""Client CPU per event: generating, encoding and sending to PostgreSQL, without the server's share.

    python -m benchmarks.client_cost [--quick]

The real insert loop with the real writer against an embedded server is compared with a minimal program
that works as the reference does: a generator of dataclass objects, then for COPY a formatted line per
event in a StringIO and `copy_from`, for lists of values `execute_values`, for single statements
`execute` with parameters. The two take turns; the best round of each counts, since other work on the
machine (a busy sibling core, cold caches) can only add to CPU time.

Columns in µs of CPU per event; `Send` is the driver, libpq, the kernel's half and the loop. The
ratio is ours ÷ the reference's way. Goals: COPY binary <= 0.35 µs at batch 1,000 and <= 0.12 µs at
10,000. They are for one machine, so `--quick`, meant for any, judges the ratios instead: <= 0.25
at batch 1,000 and <= 0.12 at 10,000.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 - it is a class
from psycopg2.extras import execute_values

from simulator.contract import PrimaryKey

from .support import (
    Cost,
    conclude,
    database,
    is_quick,
    new_table,
    show,
    start_embedded_server,
    temperature,
    worker_path,
)

GOALS_US = {1_000: 0.35, 10_000: 0.12}
QUICK_GOALS = {1_000: 0.25, 10_000: 0.12}


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


def batches(events: Iterator[Event], batch: int) -> Iterator[list[Event]]:
    while chunk := list(islice(events, batch)):
        yield chunk


_COLUMNS = ("timestamp", "device_id", "sequence_number", "temperature")
_INSERT = f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES"


def _copy(connection: Connection, events: Iterator[Event], batch: int) -> None:
    for chunk in batches(events, batch):
        file = StringIO()
        for e in chunk:
            file.write(f"{e.timestamp}\t{e.device_id}\t{e.sequence_number}\t{e.temperature}\n")
        file.seek(0)
        with connection.cursor() as cursor:
            cursor.copy_from(file, "events", columns=_COLUMNS)
        connection.commit()


def _values(events: Iterable[Event]) -> list[tuple[object, ...]]:
    return [(e.timestamp, e.device_id, e.sequence_number, e.temperature) for e in events]


def _values_lists(connection: Connection, events: Iterator[Event], batch: int) -> None:
    for chunk in batches(events, batch):
        with connection.cursor() as cursor:
            execute_values(cursor, f"{_INSERT} %s", _values(chunk), page_size=batch)
        connection.commit()


def _statements(connection: Connection, events: Iterator[Event], batch: int) -> None:
    for chunk in batches(events, batch or 1):
        with connection.cursor() as cursor:
            for values in _values(chunk):
                cursor.execute(f"{_INSERT} (%s, %s, %s, %s)", values)
        connection.commit()


def reference_way(
    dsn: str, send: Callable[[Connection, Iterator[Event], int], None], events: int, batch: int
) -> Cost:
    """Generate and send events the reference's way."""
    with closing(psycopg2.connect(dsn)) as connection:
        cpu, wall = time.process_time(), time.perf_counter()
        send(connection, generate_events(events), batch)
        return Cost(events, time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    batch: int
    options: dict[str, Any]
    reference: Callable[[Connection, Iterator[Event], int], None]
    events: int


CASES = [
    *(
        Case(f"copy {name}", batch, {"copy_format": name}, _copy, events)
        for name in ("binary", "text")
        for batch, events in ((1_000, 200_000), (10_000, 500_000))
    ),
    Case("values_lists", 1_000, {"insert_mode": "values_lists"}, _values_lists, 50_000),
    Case("transaction", 1_000, {"insert_mode": "transaction"}, _statements, 10_000),
    Case("single", 0, {}, _statements, 2_000),
]


def _round(dsn: str, case: Case, events: int) -> tuple[Cost, Cost]:
    """Both ways once: ours, the reference's."""
    workload = temperature()
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
    rows = []
    ours_us: dict[int, float] = {}
    ratios: dict[int, float] = {}
    for number, case in enumerate(CASES):
        ours = min((pair[0] for pair in found[number]), key=lambda cost: cost.us)
        theirs = min(pair[1].us for pair in found[number])
        if case.options.get("copy_format") == "binary":
            ours_us[case.batch], ratios[case.batch] = ours.us, ours.us / theirs
        generate, encode = (s / ours.events * 1e6 for s in (ours.generate_s, ours.encode_s))
        figures = (generate, encode, ours.us - generate - encode, ours.us, theirs)
        rows.append(
            [
                case.name,
                f"{case.batch or 1:,}",
                *(f"{figure:.3f}" for figure in figures),
                f"{ours.us / theirs:.3f}",
            ]
        )
    show(
        ["Mode", "Batch", "Generate", "Encode", "Send", "All µs", "Reference's way µs", "Ratio"],
        rows,
    )
    if quick:
        met = all(ratios[batch] <= goal for batch, goal in QUICK_GOALS.items())
        goal = " and ".join(f"<= {goal:g}" for goal in QUICK_GOALS.values())
    else:
        met = all(ours_us[batch] <= goal for batch, goal in GOALS_US.items())
        goal = " and ".join(f"<= {goal:g} µs" for goal in GOALS_US.values())
    measured = " and ".join(f"{ratios[batch]:.2f} ({ours_us[batch]:.3f} µs)" for batch in GOALS_US)
    return conclude(f"client_cost: ratio {measured} at batch 1,000 and 10,000 (goal {goal})", met)


if __name__ == "__main__":
    sys.exit(main())
