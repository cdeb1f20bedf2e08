"""Cells of the published comparison, asked again with other tools.

    python -m benchmarks.second_opinion --config CONFIG [--turns N] [CELL…]

A target of the config file holds a million events of `temperature` from one worker, 100 devices, as for the
reference's table. In each turn our `query` (or `insert`), and then the other tool, do the same, on the same
tables: the statement is the one that our result lists. The first execution is left out, but not by pgbench.

* `postgresql-query`: pgbench asks `temperature-stats-per-device`, simply.
* `postgresql-insert`: psql sends COPY of 1,000 rows at a time from a file; ours are one worker's inserts.
* `questdb-query`: its REST API answers `temperature-stats-per-device`; ours speak PostgreSQL's protocol.
* `influxdb-query`: influxdb-client asks for `temperature-stats-per-device`.

The goal: times within 15 %, or an interval that contains 1.
"""

from __future__ import annotations

import argparse
import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import urlencode, urlsplit

from cli.plan.config import load_config
from cli.results.model import Result
from cli.results.statistics import estimate_ratio
from cli.results.store import read_result
from simulator.units import format_digits
from simulator.workloads.temperature import Temperature

from .support import ROOT, conclude, open_service, show

QUERY = "temperature-stats-per-device"
DEVICES, EVENTS, EXECUTIONS = 100, 1_000_000, 20
INSERTED, BATCH = 400_000, 1000
ALLOWED = 0.15
_COLUMNS = ("timestamp", "device_id", "sequence_number", "temperature")

Options = Mapping[str, Any]


def time_all(ask: Callable[[], object]) -> float:
    """The mean time in ms of all executions but the first."""
    times = []
    for _ in range(EXECUTIONS):
        start_s = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start_s)
    return 1000 * fmean(times[1:])


def run_pgbench(options: Options, statement: str) -> float:
    """What pgbench calls the average latency, in ms."""
    with open_service(options["connection_string"]) as service:
        script = service.folder / "script"
        script.write_text(f"{statement};\n")
        return service.run_pgbench("latency average", "-f", script, "-t", EXECUTIONS)


def run_psql(options: Options, _: str) -> float:
    """The ms that psql takes for all events, by COPY of a batch at a time, without its start."""
    block = Temperature(seed=0, device_spread=DEVICES).block(7, 0, INSERTED)
    columns = [block.columns[name].tolist() for name in _COLUMNS]
    rows = [
        f"{at}\t{device.decode()}\t{number}\t{value:.2f}\n"
        for at, device, number, value in zip(*columns, strict=True)
    ]
    head = f"COPY events ({', '.join(_COLUMNS)}) FROM STDIN;\n"
    with open_service(options["connection_string"]) as service:
        file = service.folder / "script"
        with file.open("w") as script:
            for first in range(0, len(rows), BATCH):
                script.writelines([head, *rows[first : first + BATCH], "\\.\n"])

        def run_it(*words: str) -> float:
            command = service.command("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *words)
            start_s = time.perf_counter()
            subprocess.run(command, env=service.environment, check=True, capture_output=True)
            return time.perf_counter() - start_s

        connecting_s = run_it("-c", "SELECT 1")
        return 1000 * (run_it("-f", str(file)) - connecting_s)


def run_rest(options: Options, statement: str) -> float:
    """The time of QuestDB's REST API: https://questdb.com/docs/reference/api/rest/"""
    address = urlsplit(options["endpoint"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    target = f"/exec?{urlencode({'query': statement})}"

    def ask() -> None:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(body[:200].decode())

    try:
        return time_all(ask)
    finally:
        connection.close()


def run_influxdb_client(options: Options, statement: str) -> float:
    """The time of the official client, which reads the rows of the answer as CSV."""
    from influxdb_client.client.influxdb_client import InfluxDBClient

    with InfluxDBClient(options["endpoint"], options["token"], org=options["org"]) as client:
        api = client.query_api()
        return time_all(lambda: list(api.query_csv(statement)))


@dataclass(frozen=True)
class Cell:
    """A figure of the comparison, and who else tells it."""

    target: str
    tool: str
    run: Callable[[Options, str], float]
    inserts: bool = False


CELLS = {
    "postgresql-query": Cell("postgresql", "pgbench", run_pgbench),
    "postgresql-insert": Cell("postgresql", "psql", run_psql, inserts=True),
    "questdb-query": Cell("questdb", "REST API", run_rest),
    "influxdb-query": Cell("influxdb", "influxdb-client", run_influxdb_client),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=", ".join(CELLS))
    arguments = parser.parse_args()
    if unknown := set(arguments.cells) - set(CELLS):
        parser.error(f"no cell {', '.join(sorted(unknown))}; there are: {', '.join(CELLS)}")
    rows, right = [], True
    for name in arguments.cells or CELLS:
        ours, theirs = measure(CELLS[name], arguments.config, arguments.turns)
        ratio = estimate_ratio(ours, theirs)
        low, high = ratio.interval or (0.0, 0.0)
        right &= abs(ratio.value - 1) <= ALLOWED or low <= 1 <= high
        means = [f"{format_digits(fmean(side))} ms" for side in (ours, theirs)]
        rows.append(
            [name, CELLS[name].tool, *means, f"{ratio.value:.2f} ({low:.2f} to {high:.2f})"]
        )
    show(["Cell", "Other tool", "Ours", "Its", "Ours ÷ its"], rows, texts=2)
    return conclude(f"The goal is within {ALLOWED:.0%}, or an interval with 1.", right)


def measure(cell: Cell, config: Path, turns: int) -> tuple[Sequence[float], Sequence[float]]:
    """The times in ms of ours and of the other tool, one for each turn."""
    options = load_config(config).target(cell.target).options
    base = ["--config", config, "--target", cell.target]
    load = ["--workload-option", f"device_spread={DEVICES}", "--workers", "1", "--runs", "1",
            "--batch", BATCH, "--num-inserts"]  # fmt: skip
    # The server has just started: how fast it stores them doesn't matter.
    run(["insert", *base, *load, EVENTS], check=False)
    ours, theirs = [], []
    for _ in range(turns):
        if cell.inserts:
            done = run(["insert", *base, *load, INSERTED])
            [group] = [one.group for one in done.writers]
            ours.append(1000 * INSERTED / (group.rate_per_s or 0.0))
            statement = ""
        else:
            done = run(["query", *base, "--runs", EXECUTIONS, "--queries", QUERY])
            [asked] = done.asked
            ours.append(1000 * fmean(asked.warm_s))
            [sent] = [one for one in done.statements if one.query == QUERY]
            statement = "\n".join(sent.lines)
        theirs.append(cell.run(options, statement))
    return ours, theirs


def run(words: Iterable[object], check: bool = True) -> Result:
    """The result of one of our commands. `check`: it must be valid."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        command = [sys.executable, "run.py", *words, "--output", folder, "--json", file]
        subprocess.run([*map(str, command)], cwd=ROOT, check=check, stdout=sys.stderr)
        return read_result(file)


if __name__ == "__main__":
    sys.exit(main())
