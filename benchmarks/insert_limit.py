"""One worker's inserts against the thinnest client that can send the same bytes, on every system with a case.

    python -m benchmarks.insert_limit [--quick] [SYSTEM…]

Without SYSTEM all whose variables say where a server is, and PostgreSQL, whose server comes with the Python
packages. For the variables see `SYSTEMS` and docs/contributing.md.

Ours is a worker's whole path: generating, encoding, sending, reading the answer, recording. The thinnest
client (`thinnest`) sends the same requests, built beforehand, with as many in flight: Python's
http.client, a raw socket (Cassandra, IoTDB), libpq (COPY), pgbench -M prepared (single inserts), psql
(texts; shown beside COPY, too). The two take turns of some requests each on connections of their own, so
that other work on the machine and on the server slows both, and they begin alternately. A line's ratio is
the median over all turns of our rate ÷ the thinnest client's in the turn next to it. Turns are short, so
that a server's pauses (garbage collection, flushes, compaction) affect few of them. Each way has a
database of its own or, with `shares`, both write to one, rows of different devices: where rows overwrote
each other, IoTDB 2.0.1-beta lost sight of a device (`is not in tsFileMetaData`).

A round of each line that isn't counted comes first, except with --quick: a server in Java spent 40 % of its
CPU on compiling in its first ten seconds of load, on cores that the clients need.

`All µs` is the CPU that a worker's path takes per event, threads of client libraries included, not the
server's; generating and encoding, which are part of it, are shown apart. It's that of the best round:
other work on the machine can only add to it.

Goals: a ratio >= 0.9, and at batches of 1,000 and 10,000 <= 0.8 µs of CPU per event of `temperature`,
<= 1.2 of `cpu` with its ten values (Elasticsearch <= 0.8 and Cassandra <= 1.0 at batch 1,000 with one in
flight; PostgreSQL's CPU is judged by `client_cost`). Lines without a goal are shown: compressed requests,
single inserts except PostgreSQL's, and what PostgreSQL does with synchronous_commit=off, where the server
doesn't wait for the disk and a client's own time is harder to hide. `--quick` takes few turns and is for
any machine: a ratio >= 0.75 (PostgreSQL's inserts >= 0.7) and twice the CPU; Elasticsearch's CPU is then
shown only.

What a ratio below 1 is made of: docs/measurements/what-the-tool-costs.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter

from simulator.contract import Load
from simulator.modules import load_module
from simulator.modules.base import AnyModule, Job, await_count
from simulator.modules.options import parse_options
from simulator.worker import connect, garbage_collection_paused

from .insert_cases import GOAL, SYSTEMS, Line, System
from .support import (
    conclude,
    database,
    new_table,
    run_systems,
    show,
    worker_in_turns,
    worker_path,
)
from .thinnest import TimedTurn

ROUNDS, QUICK_ROUNDS = 6, 2
SLACK = 2
"""Factor for the allowed CPU with --quick."""


@contextmanager
def open_module(system: System, dsn: str, name: str, line: Line) -> Iterator[AnyModule]:
    """The module on an empty database, as a collector prepares it; the database is deleted in the end."""
    case = line.case
    if dsn:
        dsn += f" options='-c synchronous_commit={case.commit}'"
        arguments = line.workload, case.batch, case.key, case.in_flight
        with database(dsn, *arguments, **case.options) as postgres:
            new_table(postgres, dsn)
            yield postgres
        return
    kind = load_module(system.module)
    values = {**system.addresses, **system.options, **case.options, system.named: f"bench_{name}_"}
    options = parse_options(kind.options_model, values, lambda key: f"option {key}")
    load = Load(batch=case.batch, primary_key=case.key, in_flight=case.in_flight)
    module = kind(options, Job(line.workload.schema, load))
    module.open()
    try:
        module.prepare()
        yield module
    finally:
        system.drop(module)
        module.close()


def take_turns(line: Line, ways: Mapping[str, TimedTurn], shift: int) -> None:
    """Take all turns of a round; `shift` changes which way begins."""
    order = list(ways.items())
    with garbage_collection_paused():
        for number in range(line.case.turns):
            for position in range(len(order)):
                name, turn = order[(position + number + shift) % len(order)]
                began = perf_counter()
                known_s = turn(number)
                took_s = perf_counter() - began
                line.turn_s[name].append(took_s if known_s is None else known_s)


def measure_turn(system: System, dsn: str, line: Line, shift: int) -> None:
    """Measure a round on new tables; `shift` changes which way begins."""
    workload, case, retries = line.workload, line.case, system.retries
    with ExitStack() as stack:
        names = ["ours"] if system.shares else ["ours", "thin"]
        modules = [stack.enter_context(open_module(system, dsn, name, line)) for name in names]
        # An encoder may have to know what its connection has prepared.
        with connect(modules[-1].writer()) as writer:
            thin = system.thin(modules[-1], writer.encoder, line)
        writer = modules[0].writer()
        own = worker_in_turns(writer, workload, case.batch, line.requests, case.turns, retries)
        with own as ours, thin as by_thinnest:
            take_turns(line, {"ours": ours, "thinnest": by_thinnest}, shift)
        events = 2 * line.round_events // len(modules)
        counts = [await_count(module.count, events, module.settle_s) for module in modules]
        if counts != [events] * len(modules):
            raise AssertionError(f"not all events are stored: {counts}, not {events} each")
    with open_module(system, dsn, "ours" if system.shares else "cost", line) as module:
        writer, events = module.writer(), line.round_events // 2
        line.costs.append(worker_path(writer, workload, events, case.batch, retries))


def judge(name: str, lines: Sequence[Line], quick: bool) -> int:
    """Hold the lines that have goals against them, and print the last line; the exit status."""
    system = SYSTEMS[name]
    goal, slack = (system.quick_goal, SLACK) if quick else (GOAL, 1)
    ratio = min(line.ratio for line in lines if line.case.judged)
    met = ratio >= goal
    texts = [f"{name}: ratio {ratio:.2f} (goal >= {goal:g})"]
    costs: dict[tuple[str, float], float] = {}
    for line in lines:
        if line.case.goal_us is not None:
            key = line.workload.name, slack * line.case.goal_us
            costs[key] = max(line.cost.us, costs.get(key, 0.0))
    for (workload, goal_us), us in costs.items():
        shown = f"{us:.2f} µs of CPU per event of {workload}"
        if system.judges_cpu_quickly or not quick:
            shown += f" (goal <= {goal_us:g})"
            met &= us <= goal_us
        texts.append(shown)
    return conclude(", ".join(texts), met)


HEADERS = (
    "Workload", "How", "Key", "Beside", "Devices", "In flight", "Batch", "Ours/s", "Thinnest/s", "Ratio",
    "Generate", "Encode", "All µs",
)  # fmt: skip


def list_cells(line: Line) -> list[str]:
    """The cells under `HEADERS`; costs in µs per event."""
    case, cost = line.case, line.cost
    return [
        line.workload.name,
        f"{case.how}, commit {case.commit}" if case.commit else case.how,
        case.key.value,
        case.beside,
        f"{line.workload.device_spread:,}",
        str(case.in_flight),
        f"{case.batch:,}" if case.batch else "single",
        *(f"{line.rate(way):,.0f}" for way in ("ours", "thinnest")),
        f"{line.ratio:.2f}",
        *(f"{s / cost.events * 1e6:.3f}" for s in (cost.generate_s, cost.encode_s, cost.cpu_s)),
    ]


def measure(name: str, quick: bool) -> int:
    """Measure all lines of a system; 0 if its goals are met."""
    system = SYSTEMS[name]
    if system.missing:
        return conclude(f"{name}: no server: set {', '.join(system.missing)}", met=False)
    lines = [
        Line(case, case.requests * (1 if quick else case.longer))
        for case in system.cases
        if case.quick or not quick
    ]
    with system.server() as dsn:
        if not quick:
            for line in lines:
                measure_turn(system, dsn, line, 0)
                line.turn_s.clear()
        for shift in range(QUICK_ROUNDS if quick else ROUNDS):
            for line in lines:
                measure_turn(system, dsn, line, shift)
    show(HEADERS, list(map(list_cells, lines)), texts=4)
    return judge(name, lines, quick)


def main() -> int:
    """Measure the systems; 0 if all goals are met."""
    return run_systems(__doc__, SYSTEMS, measure)


if __name__ == "__main__":
    sys.exit(main())
