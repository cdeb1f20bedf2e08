"""`insert` beside TSBS' own loader, into hypertables of one TimescaleDB server, turn by turn.

    python -m benchmarks.tsbs --tools FOLDER --dsn STRING [--batch N …] [--turns N] [--events N]

FOLDER has `tsbs_generate_data` and `tsbs_load_timescaledb` (https://github.com/timescale/tsbs). STRING names
a superuser on a server that nobody else uses; TSBS is told its host, port and user, so a password
belongs into the password file, which both sides read.

In each turn every way loads as many events of 100 hosts with one worker into new tables, after a
checkpoint; the next turn begins with another way. Rates are those that the tools report: of TSBS without
making the database, of ours, a whole `run.py insert`, without storing the devices' tags. TSBS reads its
events from a file, ours are generated meanwhile.

Both fill a hypertable `cpu`, with their own defaults: TSBS with two indexes and chunks of 12 hours, ours
with the index on time that `create_hypertable` makes and chunks of a day. `TSBS, one index` has only the
one on time, too. TSBS' tables are made here and not by its loader, which gives `create_hypertable` an
argument that TimescaleDB no longer knows since 2.14. A row of TSBS has a time, the id of its tags, ten
64-bit floats and no further tags (NULL); one of ours a time, ten 32-bit integers and, with tags=table,
the id of its tags, with tags=row all of them as JSON.

The goal: with tags=table at least the rate of TSBS with one index.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg2
import yaml
from psycopg2.extensions import make_dsn, parse_dsn

from cli.results.store import read_result
from simulator.workloads.cpu import METRICS
from simulator.workloads.schema import Tags

from .support import ROOT, conclude, scratch_folder, show

HOSTS = 100
TSBS, ONE_INDEX = "TSBS", "TSBS, one index"
_BEGIN, _INTERVAL = datetime(2016, 1, 1, tzinfo=UTC), timedelta(seconds=10)
"""When TSBS' events begin, and how far each host's are apart: its own defaults."""

_NAMES = "region, datacenter, rack, os, arch, team, service, service_version, service_environment"
_METRICS = ", ".join(f"{name} double precision" for name in METRICS)
TABLES = (
    "CREATE EXTENSION IF NOT EXISTS timescaledb",
    f"CREATE TABLE tags (id serial PRIMARY KEY, hostname text, {_NAMES.replace(',', ' text,')} text)",
    f"CREATE UNIQUE INDEX ON tags (hostname, {_NAMES})",
    "CREATE INDEX ON tags (hostname)",
    f'CREATE TABLE cpu ("time" timestamptz, tags_id integer, {_METRICS}, additional_tags jsonb)',
    """SELECT create_hypertable(
        'cpu', 'time', chunk_time_interval => interval '12 hours', create_default_indexes => FALSE)""",
)
"""What TSBS' loader makes (pkg/targets/timescaledb/creator.go at 37fced7)."""
BY_TAGS, BY_TIME = '(tags_id, "time" DESC)', '("time" DESC)'


@dataclass(frozen=True)
class Turn:
    """The outcome of one turn of one way."""

    events_per_s: float
    bytes_per_event: float


@dataclass(frozen=True)
class Bench:
    """What the ways need, and where it is."""

    tools: Path
    dsn: str
    """How to connect to a database of our own; TSBS gets a new one for each turn."""
    folder: Path
    events: int

    @property
    def file(self) -> Path:
        """TSBS' events."""
        return self.folder / "events"

    @property
    def tsbs_database(self) -> str:
        return f"{parse_dsn(self.dsn)['dbname']}_loader"

    def generate(self) -> None:
        """Write TSBS' events."""
        end = _BEGIN + self.events // HOSTS * _INTERVAL
        _run(
            self.tools / "tsbs_generate_data", "--use-case=cpu-only", "--format=timescaledb",
            "--seed=1", f"--scale={HOSTS}", f"--timestamp-start={_BEGIN:%Y-%m-%dT%H:%M:%SZ}",
            f"--timestamp-end={end:%Y-%m-%dT%H:%M:%SZ}", f"--file={self.file}",
        )  # fmt: skip

    def load(self, batch: int, indexes: Sequence[str]) -> Turn:
        """Load by TSBS' loader."""
        parts = parse_dsn(self.dsn)
        dsn = str(make_dsn(self.dsn, dbname=self.tsbs_database))
        ask(
            self.dsn,
            f"DROP DATABASE IF EXISTS {self.tsbs_database}",
            f"CREATE DATABASE {self.tsbs_database}",
        )
        ask(dsn, *TABLES, *(f"CREATE INDEX ON cpu {index}" for index in indexes), "CHECKPOINT")
        file = self.folder / "loader.json"
        _run(
            self.tools / "tsbs_load_timescaledb", f"--file={self.file}", f"--results-file={file}",
            f"--host={parts['host']}", f"--port={parts.get('port', 5432)}", f"--user={parts['user']}",
            f"--db-name={self.tsbs_database}", f"--batch-size={batch}", "--workers=1",
            "--do-create-db=false", "--create-metrics-table=false",
        )  # fmt: skip
        rate = json.loads(file.read_bytes())["Totals"]["rowRate"]
        [(events, size)] = ask(
            dsn,
            "SELECT (SELECT count(*) FROM cpu), hypertable_size('cpu') + pg_total_relation_size('tags')",
        )
        if events != self.events:
            raise SystemExit(f"TSBS stored {events:,} of {self.events:,} events")
        return Turn(rate, size / events)

    def insert(self, batch: int, tags: Tags) -> Turn:
        """Insert by this tool."""
        ask(self.dsn, "CHECKPOINT")
        config, file = self.folder / "config.yaml", self.folder / "result.json"
        target = {"module": "timescaledb", "executor": "local", "connection_string": self.dsn}
        config.write_text(yaml.safe_dump({"targets": {"timescaledb": target}}))
        _run(
            sys.executable, ROOT / "run.py", "insert", "--config", config, "--target", "timescaledb",
            "--workload", "cpu", "--workload-option", f"device_spread={HOSTS}", "--workload-option",
            f"tags={tags}", "--workers", "1", "--runs", "1", "--batch", str(batch), "--num-inserts",
            str(self.events), "--output", self.folder / "results", "--json", file,
        )  # fmt: skip
        run = read_result(file).runs[0].writers
        assert run and run.rate_per_s and run.storage and run.storage.total_bytes
        # As for the other loader: both have the same number of events.
        return Turn(run.rate_per_s, run.storage.total_bytes / self.events)


def _run(*command: Any) -> None:
    """Run a command; SystemExit with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{Path(command[0]).name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def ask(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement, if it has any; each is a transaction of its own."""
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def start_bench(tools: Path, dsn: str, events: int) -> Iterator[Bench]:
    """A database of our own, and TSBS' events; both are removed afterwards."""
    name = f"tsbs_{secrets.token_hex(4)}"
    ask(dsn, f"CREATE DATABASE {name}")
    with scratch_folder() as folder:
        bench = Bench(tools, str(make_dsn(dsn, dbname=name)), folder, events)
        try:
            bench.generate()
            yield bench
        finally:
            ask(dsn, *(f"DROP DATABASE IF EXISTS {d}" for d in (name, bench.tsbs_database)))


def take_turns(bench: Bench, batch: int, turns: int) -> dict[str, list[Turn]]:
    """Way -> the outcomes of its turns."""
    ways: dict[str, Callable[[], Turn]] = {
        TSBS: lambda: bench.load(batch, [BY_TAGS, BY_TIME]),
        ONE_INDEX: lambda: bench.load(batch, [BY_TIME]),
        **{tags: lambda tags=tags: bench.insert(batch, tags) for tags in Tags},  # type: ignore[misc]
    }
    names = list(ways)
    results: dict[str, list[Turn]] = {name: [] for name in names}
    for number in range(turns):
        for position in range(len(names)):
            # Forward and backward, so that no way is always after the same other one.
            step = position if number % 2 == 0 else -position
            name = names[(number // 2 + step) % len(names)]
            turn = ways[name]()
            results[name].append(turn)
            line = f"turn {number + 1}, batch {batch:,}, {_label(name)}: {turn.events_per_s:,.0f} events/s"
            print(line, file=sys.stderr, flush=True)
    return results


def _label(way: str) -> str:
    return way if way in (TSBS, ONE_INDEX) else f"tags={way}"


def ratio(results: dict[str, list[Turn]], own: str, other: str) -> tuple[float, str]:
    """The median over the turns, and a text of it with their range."""
    pairs = zip(results[own], results[other], strict=True)
    ratios = [a.events_per_s / b.events_per_s for a, b in pairs]
    return median(ratios), f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=Path, required=True, help="folder with TSBS' programs")
    parser.add_argument("--dsn", required=True, help="connection string with host and user")
    parser.add_argument("--batch", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--turns", type=int, default=8, help="turns of each way and batch size")
    parser.add_argument("--events", type=int, default=400_000, help="events of a turn")
    return parser.parse_args()


def main() -> int:
    """Run all turns; 0 if the goal is met."""
    arguments = parse_arguments()
    rows, least = [], float("inf")
    with start_bench(arguments.tools, arguments.dsn, arguments.events) as bench:
        for batch in arguments.batch:
            results = take_turns(bench, batch, arguments.turns)
            for way, turns in results.items():
                rows.append(
                    [
                        f"{batch:,}",
                        _label(way),
                        f"{median(turn.events_per_s for turn in turns):,.0f}",
                        f"{median(turn.bytes_per_event for turn in turns):.0f}",
                        *(ratio(results, way, other)[1] for other in (ONE_INDEX, TSBS)),
                    ]
                )
            least = min(least, ratio(results, Tags.TABLE, ONE_INDEX)[0])
    headers = ["Batch", "Way", "Events/s", "B/event", "÷ TSBS, one index", "÷ TSBS"]
    show(headers, rows, texts=2)
    return conclude(f"tsbs: ratio {least:.2f} (goal >= 1)", least >= 1)


if __name__ == "__main__":
    sys.exit(main())
