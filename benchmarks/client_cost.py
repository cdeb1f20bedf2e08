"""Client CPU per event: generating, encoding and sending, without the server's, beside the usual way.

    python -m benchmarks.client_cost [--quick]

The real insert loop with the real writer, to PostgreSQL on an embedded server, to databases by HTTP on a
stand-in in a process of its own, so that no database is measured. Beside it the usual way (`usual_ways`), in
turns with it:

* PostgreSQL: a minimal program that works as the reference does: a generator of dataclass objects, then for
  COPY a formatted line per event in a StringIO and `copy_from`, for lists of values `execute_values`, for
  single statements `execute` with parameters;
* ArangoDB: `insert_many` of its client with a dictionary per event;
* CrateDB: a list per event, the standard library's JSON and HTTP;
* Azure Data Explorer: a line of CSV per event and `ingest_from_stream` of Microsoft's clients.

The best round of each counts, since other work on the machine (a busy sibling core, cold caches) can only add
to CPU time. Columns in µs of CPU per event; `Send` is the connection, the kernel's half and the loop. The
ratio is ours ÷ the usual way's.

Goals: COPY binary <= 0.35 µs at batch 1,000 and <= 0.12 µs at 10,000; of the workload cpu, whose events are
seven times as long, <= 0.5 µs, by text, too; by HTTP <= 0.8 µs at batch 1,000, where there are keys with
those that the server makes. They are for one machine, so `--quick`, meant for any, judges the ratios instead:
see `SYSTEMS`.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from simulator.contract import Load, PrimaryKey
from simulator.modules import load_module
from simulator.modules.base import AnyModule, Job
from simulator.modules.options import parse_options
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu

from . import usual_ways
from .support import (
    Cost,
    conclude,
    database,
    http_server,
    is_quick,
    new_table,
    show,
    start_embedded_server,
    temperature,
    worker_path,
)
from .usual_ways import Way, by_psycopg2

ROUNDS, QUICK_ROUNDS = 7, 2
GOAL_US = 0.8
"""For databases by HTTP."""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    mode: str
    batch: int
    options: Mapping[str, Any]
    usual: Way
    events: int = 100_000
    key: PrimaryKey = PrimaryKey.DB
    workload: Callable[[], Workload] = temperature
    goal_us: float = inf
    goal_ratio: float = inf
    """The goal of `--quick`."""


@dataclass(frozen=True)
class System:
    """A database, and the server that stands in for it."""

    server: Callable[[], AbstractContextManager[str]]
    """Its URL or connection string."""
    address: str
    """The option that takes it."""
    cases: Sequence[Case]
    options: Mapping[str, str] = field(default_factory=dict)


BINARY, TEXT = {"copy_format": "binary"}, {"copy_format": "text"}
_COPY, _COPY_CPU = by_psycopg2(usual_ways.copy), by_psycopg2(usual_ways.copy_cpu)
_STATEMENTS = by_psycopg2(usual_ways.statements)


def _list_cases(
    option: str, modes: Mapping[str, str], keys: Sequence[PrimaryKey], usual: Way, goal_ratio: float
) -> list[Case]:
    """The cases of a database by HTTP. `modes`: name -> the value of `option` for it. The goal is for the
    first key."""
    judged = 1_000, keys[0]
    return [
        Case(
            mode, batch, {option: value}, usual, key=key,
            goal_us=GOAL_US if (batch, key) == judged else inf, goal_ratio=goal_ratio,
        )
        for mode, value in modes.items()
        for key in keys
        for batch in (1_000, 10_000)
    ]  # fmt: skip


_KEYS = (PrimaryKey.DB, PrimaryKey.CLIENT)
SYSTEMS = {
    "postgres": System(
        start_embedded_server, "connection_string",
        [
            Case("copy binary", 1_000, BINARY, _COPY, 200_000, goal_us=0.35, goal_ratio=0.25),
            Case("copy binary", 10_000, BINARY, _COPY, 500_000, goal_us=0.12, goal_ratio=0.12),
            Case("copy text", 1_000, TEXT, _COPY, 200_000),
            Case("copy text", 10_000, TEXT, _COPY, 500_000),
            *(
                Case(
                    f"copy {name}, cpu", batch, options, _COPY_CPU, 50_000, workload=Cpu,
                    goal_us=0.5, goal_ratio=0.12,
                )
                for name, options in (("binary", BINARY), ("text", TEXT))
                for batch in (1_000, 10_000)
            ),
            Case(
                "values_lists", 1_000, {"insert_mode": "values_lists"},
                by_psycopg2(usual_ways.values_lists), 50_000,
            ),
            Case("transaction", 1_000, {"insert_mode": "transaction"}, _STATEMENTS, 10_000),
            Case("single", 0, {}, _STATEMENTS, 2_000),
        ],
    ),
    "arangodb": System(
        partial(http_server, usual_ways.answer_arangodb), "endpoint",
        _list_cases(
            "insert_method", {"document": "document", "import": "import"}, _KEYS,
            usual_ways.insert_many, goal_ratio=0.35,
        ),
    ),
    "cratedb": System(
        partial(http_server, usual_ways.answer_cratedb), "endpoint",
        _list_cases(
            "insert_mode", {"bulk": "bulk", "unnest": "unnest"}, _KEYS,
            usual_ways.execute_many, goal_ratio=0.5,
        ),
    ),
    "azure_data_explorer": System(
        partial(http_server, usual_ways.answer_azure), "kusto_uri",
        _list_cases(
            "batch", {"queued": "true", "streaming": "false"}, [PrimaryKey.NONE],
            usual_ways.ingest_from_stream, goal_ratio=0.15,
        ),
        {"kusto_db": "bench"},
    ),
}  # fmt: skip


@contextmanager
def open_module(name: str, address: str, case: Case, workload: Workload) -> Iterator[AnyModule]:
    """A worker's module; for PostgreSQL with an empty table, as a collector prepares it."""
    system = SYSTEMS[name]
    if name == "postgres":
        with database(address, workload, case.batch, case.key, **case.options) as module:
            new_table(module, address)
            yield module
        return
    kind = load_module(name)
    values = {system.address: address, **system.options, **case.options}
    options = parse_options(kind.options_model, values, str)
    yield kind(options, Job(workload.schema, Load(batch=case.batch, primary_key=case.key)))


def usual_path(address: str, case: Case, workload: Workload, events: int) -> Cost:
    """Generate and send events the usual way."""
    is_cpu = isinstance(workload, Cpu)
    generate = usual_ways.generate_measurements if is_cpu else usual_ways.generate_events
    with case.usual(address, case.mode) as send:
        cpu, wall = time.process_time(), time.perf_counter()
        generator: Iterator[Any] = generate(events)
        while chunk := list(islice(generator, case.batch or 1)):
            send(chunk)
        return Cost(events, time.perf_counter() - wall, time.process_time() - cpu)


def measure_pair(name: str, address: str, case: Case, quick: bool) -> tuple[Cost, Cost]:
    """Measure both ways once: ours and the usual one."""
    events = max(case.batch, case.events // 5) if quick else case.events
    workload = case.workload()
    with open_module(name, address, case, workload) as module:
        ours = worker_path(module.writer(), workload, events, case.batch)
    with open_module(name, address, case, workload):
        return ours, usual_path(address, case, workload, events)


def measure(name: str, quick: bool) -> int:
    """Measure all cases of a system; 0 if their goals are met."""
    system = SYSTEMS[name]
    costs: dict[int, list[tuple[Cost, Cost]]] = defaultdict(list)
    with system.server() as address:
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            for number, case in enumerate(system.cases):
                costs[number].append(measure_pair(name, address, case, quick))
    rows, judged, met = [], [], True
    for number, case in enumerate(system.cases):
        cost = min((ours for ours, _ in costs[number]), key=lambda cost: cost.us)
        usual_us = min(usual.us for _, usual in costs[number])
        generate, encode = (s / cost.events * 1e6 for s in (cost.generate_s, cost.encode_s))
        parts = (generate, encode, cost.us - generate - encode, cost.us, usual_us)
        ratio = cost.us / usual_us
        figures = [f"{figure:.3f}" for figure in (*parts, ratio)]
        rows.append([case.mode, str(case.key), f"{case.batch or 1:,}", *figures])
        if case.goal_us < inf:
            met &= ratio <= case.goal_ratio if quick else cost.us <= case.goal_us
            goal = f"ratio <= {case.goal_ratio:g}" if quick else f"<= {case.goal_us:g} µs"
            judged.append(f"{cost.us:.3f} µs, ratio {ratio:.2f} ({goal})")
    headers = ["Mode", "Key", "Batch", "Generate", "Encode", "Send", "All µs", "Usual µs", "Ratio"]
    show(headers, rows, texts=2)
    return conclude(f"client_cost {name}: {'; '.join(judged)}", met)


def main() -> int:
    """Measure all systems; 0 if all goals are met."""
    quick = is_quick(__doc__)
    return max([measure(name, quick) for name in SYSTEMS])


if __name__ == "__main__":
    sys.exit(main())
