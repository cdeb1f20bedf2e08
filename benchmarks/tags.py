"""Tags in a table of their own beside tags in each row: bytes on disk and rates of COPY.

    python -m benchmarks.tags [--quick]

One worker inserts events of `cpu` and of `machines` in batches, with tags=row and tags=table, in turns on
one server with default settings, each into a table of its own. Beside it, the same rows by libpq alone,
encoded beforehand: what no client could exceed. Rates are medians over all turns, ratios medians over
ratios of neighbouring turns. Bytes are those of tables and indexes (pg_total_relation_size), of the
tags' table too, by the number of events; without a primary key.

The goal: with tags=table at least the rate of tags=row, in fewer bytes.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from statistics import median

import psycopg2

from simulator.contract import PrimaryKey
from simulator.encoding.postgres_rows import copy_binary
from simulator.modules.postgres.encoding import PostgresEncoder
from simulator.worker import garbage_collection_paused
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.schema import Tags

from .support import (
    Turn,
    conclude,
    database,
    is_quick,
    new_table,
    show,
    start_embedded_server,
    worker_in_turns,
)
from .thinnest import libpq

CASES = (("cpu", 1), ("cpu", 100), ("cpu", 4000), ("machines", 4000))
"""Workload and its devices."""
BATCHES = {1_000: 40, 10_000: 6}
"""Batch size -> batches in a turn."""
TURNS = 4


@dataclass
class Line:
    """A case and what was measured: the seconds of each way's turns, and bytes for each way to store tags."""

    workload: str
    devices: int
    batch: int
    turn_s: dict[str, list[float]] = field(default_factory=dict)
    bytes_per_event: dict[Tags, float] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """Events in a turn."""
        return self.batch * BATCHES[self.batch]

    def make_workload(self, tags: Tags) -> Workload:
        """The workload, with a table of its own."""
        workload = load_workload(self.workload)(device_spread=self.devices, tags=tags)
        workload.schema = replace(workload.schema, table=f"{workload.schema.table}_{tags}")
        return workload

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])

    def ratio(self, way: str, to: str) -> float:
        pairs = zip(self.turn_s[way], self.turn_s[to], strict=True)
        return median(other / own for own, other in pairs)


def measure(line: Line, dsn: str) -> None:
    """Take all turns of a case."""
    batches, events = BATCHES[line.batch], TURNS * line.events
    ways: list[tuple[str, Turn]] = []
    with ExitStack() as stack:
        for tags in Tags:
            workload = line.make_workload(tags)
            module = stack.enter_context(database(dsn, workload, line.batch, PrimaryKey.NONE))
            new_table(module, dsn)
            if tags is Tags.TABLE:
                module.store_devices(workload.device_rows(0))
            writer = module.writer()
            assert isinstance(writer.encoder, PostgresEncoder)
            statement = writer.encoder.copy_statement(0).encode()
            block = workload.block(0, 0, events)
            payloads = copy_binary(
                (workload.schema.row, block.row_columns), line.batch, missing=block.missing
            )
            ours = worker_in_turns(writer, workload, line.batch, batches, TURNS)
            thin = libpq(dsn, [(statement, data) for data in payloads], batches)
            ways += [
                (str(tags), stack.enter_context(ours)),
                (f"libpq {tags}", stack.enter_context(thin)),
            ]
        with garbage_collection_paused():
            for number in range(TURNS):
                for position in range(len(ways)):
                    name, turn = ways[(position + number) % len(ways)]
                    began = time.perf_counter()
                    turn(number)
                    line.turn_s.setdefault(name, []).append(time.perf_counter() - began)
        for tags in Tags:
            line.bytes_per_event[tags] = count_bytes(dsn, line.make_workload(tags)) / (2 * events)


def count_bytes(dsn: str, workload: Workload) -> int:
    """The bytes of the workload's tables with their indexes."""
    schema = workload.schema
    tables = [schema.table] + [schema.tags_table] * (schema.tags is Tags.TABLE)
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(%s) t", [tables]
        )
        ((size,),) = cursor.fetchall()
    return int(size)


def main() -> int:
    """Run all lines; 0 if the goal is met."""
    quick = is_quick(__doc__)
    cases, batches = (CASES[1:2], [1_000]) if quick else (CASES, list(BATCHES))
    lines = [Line(*case, batch) for case in cases for batch in batches]
    with start_embedded_server() as dsn:
        for _ in range(1 if quick else 4):
            for line in lines:
                measure(line, dsn)
    rows = [
        [
            line.workload,
            f"{line.devices:,}",
            f"{line.batch:,}",
            *(f"{line.bytes_per_event[tags]:.0f}" for tags in Tags),
            *(f"{line.rate(way):,.0f}" for way in line.turn_s),
            *(f"{line.ratio(f'{tags}', f'libpq {tags}'):.2f}" for tags in Tags),
            f"{line.ratio('table', 'row'):.2f}",
        ]
        for line in lines
    ]
    headers = [
        "Workload", "Devices", "Batch", "Row bytes", "Table bytes", *(f"{w}/s" for w in lines[0].turn_s),
        "Row ÷ libpq", "Table ÷ libpq", "Table ÷ row",
    ]  # fmt: skip
    show(headers, rows)
    least = min(line.ratio("table", "row") for line in lines)
    fewer = all(line.bytes_per_event[Tags.TABLE] < line.bytes_per_event[Tags.ROW] for line in lines)
    return conclude(
        f"tags: ratio {least:.2f} (goal >= 1), fewer bytes: {fewer}", least >= 1 and fewer
    )


if __name__ == "__main__":
    sys.exit(main())
