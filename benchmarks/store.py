"""How long commands take that look at a large store: the list, a comparison, a report.

    python -m benchmarks.store [--results N] [--compared N] [FILE]

The store is made in a temporary folder of one stored result, with other names, seeds and
rates. Each command is timed as a user has it, with the start of Python, in a home of its own. *Cold* is the
first list, which reads all results; *warm* one after it. Files that a command has to read from a disk are
in the cache of the system already. Goals, with 10,000 results of which 200 are compared: a warm list < 1 s,
a comparison and a report < 5 s.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from cli.results.store import FILE_NAME, read_result

from .support import ROOT, conclude, scratch_folder, show

DEFAULT = ROOT / "img" / "results" / "demo-insert.json"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SPREAD = 0.05
"""How far rates are apart, so that no comparison can use what another has computed."""
LIST_S, OTHERS_S = 1.0, 5.0


def make_store(folder: Path, source: Path, results: int) -> list[str]:
    """Write so many results; their IDs."""
    document: dict[str, Any] = orjson.loads(read_result(source).model_dump_json())
    groups = [group for run in document["runs"] for group in run["groups"]]
    rates = [group["rate_per_s"] for group in groups]
    ids = []
    for number in range(results):
        started = BEGAN + timedelta(minutes=number)
        draw = random.Random(number)
        document["started_at"] = started.isoformat()
        document["label"] = f"night {number}"
        document["tags"] = {"build": str(number // 100)}
        document["options"]["seed"] = number
        for group, rate in zip(groups, rates, strict=True):
            group["rate_per_s"] = rate and rate * draw.uniform(1 - SPREAD, 1 + SPREAD)
        ids.append(f"{started:%Y%m%dT%H%M%SZ}-{document['command']}-{document['target']}")
        path = folder / ids[-1]
        path.mkdir(parents=True)
        (path / FILE_NAME).write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return ids


def measure(home: Path, *arguments: str) -> tuple[float, float]:
    """Seconds that a command of the tool takes, and of CPU that it uses."""
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    environment = os.environ | {"HOME": str(home)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, cwd=home, check=True, stdout=subprocess.DEVNULL)
    took_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took_s, cpu_s


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, default=10_000, metavar="N", help="in the store")
    parser.add_argument("--compared", type=int, default=200, metavar="N", help="of them")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT, metavar="FILE")
    arguments = parser.parse_args()
    with scratch_folder() as home:
        store = home / "results"
        ids = make_store(store, arguments.file, arguments.results)
        compared = ids[-arguments.compared :]
        labels = [f"night {arguments.results - 1 - number}" for number in range(arguments.compared)]
        at = ["--results", str(store)]
        commands = {
            "--help": ["--help"],
            "results list, cold": ["results", "list", *at],
            "results list, warm": ["results", "list", *at],
            "results show latest": ["results", "show", "latest", *at],
            f"compare of {len(compared)}": ["compare", *compared, *at],
            f"compare of {len(compared)}, by label": ["compare", *labels, *at],
            f"report of {len(compared)}": [
                "report",
                *compared,
                *at,
                "--output",
                str(home / "report.html"),
            ],
        }
        took = {name: measure(home, *words) for name, words in commands.items()}
        page_mb = (home / "report.html").stat().st_size / 1e6
        (index,) = home.glob(".cache/*/results/*.json")
        index_mb = index.stat().st_size / 1e6
    print(f"{arguments.results:,} results of {arguments.file.name}")
    rows = [[name, f"{took_s:.2f}", f"{cpu_s:.2f}"] for name, (took_s, cpu_s) in took.items()]
    show(["Command", "s", "CPU s"], rows)
    print(f"The index has {index_mb:.1f} MB, the report {page_mb:.1f} MB.")
    met = all(
        took_s < (LIST_S if name.endswith("warm") else OTHERS_S)
        for name, (took_s, _) in took.items()
        if not name.endswith("cold")
    )
    return conclude(f"Goals: a warm list < {LIST_S:g} s, all after it < {OTHERS_S:g} s.", met)


if __name__ == "__main__":
    sys.exit(main())
