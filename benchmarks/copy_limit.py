"""One worker's COPY against the fastest that PostgreSQL can be sent the same rows.

    python -m benchmarks.copy_limit [--quick]

Ours is a worker's whole path: generating, encoding, sending, recording. The others send the same rows,
encoded beforehand, in the same batches, each of which is committed:

* libpq: PQexec("COPY …"), PQputCopyData, PQputCopyEnd, PQgetResult, nothing else;
* psql: \\copy, from a file per batch (in memory where the system has a place for it).

All insert into the same table, as the module makes it, with a key (`db`) and without (`none`), in a
server with default settings, and again with `synchronous_commit=off`, where the server doesn't wait
for the disk and a client's own time is harder to hide. The three take turns of some batches each, each
on its own connection, so that other work on the machine and the state of the server affect all of
them; a line's ratio is the median over all turns of our rate ÷ libpq's in the turn next to it.

The goal, >= 0.9, is for the least of the lines with default settings. `--quick` takes few turns, so
its goal is >= 0.75.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cli.embedded import find_programs
from simulator.contract import PrimaryKey
from simulator.modules.postgres.encoding import PostgresEncoder, copy_binary
from simulator.workloads.base import Workload

from .libpq import connect
from .limits import GOAL, QUICK_GOAL, Line
from .support import (
    Turn,
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

TURNS = 4
"""How many each client has in a round."""
BATCHES = {1_000: 64, 10_000: 10}
"""Batch size -> batches in a turn: enough to make it negligible that a worker encodes ahead, and so has
the first batches of a turn ready and spends its end on those of the next."""


@dataclass
class CopyLine(Line):
    """With a server's setting and a key."""

    commit: str
    key: PrimaryKey


def encode_streams(workload: Workload, events: int, batch: int) -> list[bytes]:
    """What a worker sends in its COPYs."""
    block = workload.block(0, 0, events)
    columns = block.schema.columns, block.columns
    return copy_binary(columns, batch)


@contextmanager
def libpq(dsn: str, statement: str, payloads: Sequence[bytes], line: Line) -> Iterator[Turn]:
    """libpq alone."""
    count = line.requests
    with connect(find_programs().parent / "lib", dsn) as connection:

        def turn(number: int) -> None:
            connection.copy(statement, payloads[number * count : (number + 1) * count])

        yield turn


@contextmanager
def psql(dsn: str, statement: str, payloads: Sequence[bytes], line: Line) -> Iterator[Turn]:
    """A psql that gets its commands through a pipe."""
    count = line.requests
    target, _, source = statement.removeprefix("COPY ").partition(" FROM STDIN ")
    with scratch_folder(in_memory=True) as folder:
        for number, payload in enumerate(payloads):
            (folder / str(number)).write_bytes(payload)
        process = subprocess.Popen(
            [find_programs() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", dsn],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdin is not None and process.stdout is not None
            commands, answers = process.stdin, process.stdout

            def turn(number: int) -> None:
                lines = [
                    f"\\copy {target} from '{folder / str(batch)}' {source}\n"
                    for batch in range(number * count, (number + 1) * count)
                ]
                commands.write("".join([*lines, "\\echo done\n"]).encode())
                commands.flush()
                if answers.readline() != b"done\n":
                    raise RuntimeError("psql failed")

            yield turn
            commands.close()


def one_round(line: CopyLine, dsn: str, shift: int) -> None:
    """All turns on one new table; `shift` changes who begins."""
    workload = line.workload
    dsn += f" options='-c synchronous_commit={line.commit}'"
    events = line.round_events
    with database(dsn, workload, line.batch, line.key) as module:
        payloads = encode_streams(workload, events, line.batch)
        writer = module.writer(line.batch)
        assert isinstance(writer.encoder, PostgresEncoder)
        statement = writer.encoder.copy_statement(0)
        new_table(module, dsn)
        with (
            worker_in_turns(writer, workload, line.batch, line.requests, TURNS) as ours,
            libpq(dsn, statement, payloads, line) as by_libpq,
            psql(dsn, statement, payloads, line) as by_psql,
        ):
            ways = {"ours": ours, "libpq": by_libpq, "psql": by_psql}
            line.take_turns(ways, shift)
        if module.count() != events * len(ways):
            raise AssertionError("not all events are stored")


def main() -> int:
    """Run all lines; 0 if the goal is met."""
    quick = is_quick(__doc__)
    keys = [PrimaryKey.NONE] if quick else [PrimaryKey.DB, PrimaryKey.NONE]
    commits = ["on"] if quick else ["on", "off"]
    lines = [
        CopyLine(temperature(), batch, requests, TURNS, commit, key)
        for commit in commits
        for key in keys
        for batch, requests in BATCHES.items()
    ]
    with start_embedded_server() as dsn:
        for shift in range(1 if quick else 6):
            for line in lines:
                one_round(line, dsn, shift)
    rows = [
        [
            line.commit,
            line.key.value,
            f"{line.batch:,}",
            *(f"{line.rate(way):,.0f}" for way in ("ours", "libpq", "psql")),
            f"{line.ratio('psql'):.2f}",
            f"{line.ratio('libpq'):.2f}",
        ]
        for line in lines
    ]
    headers = ["Commit waits", "Key", "Batch", "Ours/s", "libpq/s", "psql/s", "÷ psql", "÷ libpq"]
    show(headers, rows, texts=2)
    goal = QUICK_GOAL if quick else GOAL
    ratio = min(line.ratio("libpq") for line in lines if line.commit == "on")
    return conclude(f"copy_limit: ratio {ratio:.2f} (goal >= {goal:g})", ratio >= goal)


if __name__ == "__main__":
    sys.exit(main())
