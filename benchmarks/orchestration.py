"""What orchestration costs: the time of a sweep on Kubernetes that is not the runs' own windows.

    python -m benchmarks.orchestration [--quick] [--target blackhole|postgres] [--connection STRING]

The default sweep (1, 4, 8, 12 and 16 workers, three runs of 10,000 inserts each) by the command line
as a user has it, on the cluster of the current kubeconfig, in a namespace of its own that is removed
afterwards. Without a database (`blackhole`, each request 1 ms) the window is known beforehand; with
`--target postgres` the workers insert into the server of `--connection`. $E2E_IMAGE names the image.

Per run, in s: phases as the result has them (install and schedule: until the collector's process
began; prepare, barrier, verify, clean-up: its own), and per worker count what no run shows (removal,
and waiting for the pods' end). Goal: <= 4 s per run beyond its window. The pods are small, so that
all of them fit on a node with two cores; other work on the machine makes every phase longer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from cli.run.cluster import Place
from simulator import __version__

from .support import ROOT, conclude, scratch_folder, show

GOAL_S = 4.0
PHASES = ("start", "prepare", "barrier", "run", "verify", "clean_up")


@contextmanager
def namespace() -> Iterator[str]:
    """A namespace for the time of the benchmark."""
    core: Any = client.CoreV1Api(Place("default").make_client())
    name = f"iotb-bench-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    try:
        yield name
    finally:
        core.delete_namespace(name)


def make_config(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A config file with small pods."""
    image, _, tag = os.environ.get("E2E_IMAGE", f"iot-database-benchmark:{__version__}").rpartition(
        ":"
    )
    targets: dict[str, Any] = {
        "blackhole": {"module": "blackhole", "encoder": "postgres", "delay_ms": 1},
        "postgres": {"module": "postgres", "connection_string": arguments.connection},
    }
    return {
        "namespace": name,
        "kubernetes": {
            "image": {"name": image, "tag": tag},
            "resources": {"cpu": arguments.cpu, "memory": "128Mi"},
            "collectorResources": {"cpu": arguments.collector_cpu, "memory": "192Mi"},
        },
        "targets": targets,
    }


def sweep(folder: Path, arguments: argparse.Namespace) -> tuple[float, Mapping[str, Any]]:
    """Run the command; how long it took, and its result."""
    with namespace() as name:
        file, copy = folder / "config.yaml", folder / "result.json"
        file.write_text(yaml.safe_dump(make_config(name, arguments)))
        workers = "1,4" if arguments.quick else "1,4,8,12,16"
        began = time.monotonic()
        done = subprocess.run(
            [
                sys.executable, ROOT / "run.py", "insert", "--target", arguments.target,
                "--config", file, "--workers", workers, "--runs", "3", "--output", folder / "results",
                "--json", copy,
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        took = time.monotonic() - began
    if not copy.exists():
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(copy.read_bytes())
    if not result["complete"]:
        raise SystemExit(done.stderr)
    return took, result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="1 and 4 workers only")
    parser.add_argument("--target", choices=["blackhole", "postgres"], default="blackhole")
    parser.add_argument(
        "--connection", default="", help="connection string, with --target postgres"
    )
    parser.add_argument("--cpu", default="100m", help="CPU of a worker")
    parser.add_argument("--collector-cpu", default="300m", help="CPU of the collector")
    return parser.parse_args()


def main() -> int:
    """Measure; 0 if the goal is met."""
    arguments = parse_arguments()
    with scratch_folder() as folder:
        took, result = sweep(folder, arguments)
    rows = []
    windows = 0.0
    for run in result["runs"]:
        phases = run["phases_s"]
        windows += run["window_s"]
        beyond = sum(phases.values()) - run["window_s"]
        figures = (*(phases.get(phase, 0.0) for phase in PHASES), run["window_s"], beyond)
        rows.append([str(run["workers"]), str(run["run"]), *(f"{f:.2f}" for f in figures)])
    show(["Workers", "Run", *PHASES, "window", "beyond"], rows, texts=2)
    runs = len(result["runs"])
    within = sum(sum(run["phases_s"].values()) for run in result["runs"])
    invalid = sum(not run["valid"] for run in result["runs"])
    print(
        f"\nin all {took:.1f} s, windows {windows:.1f} s; beyond all phases (the command's own start,"
        f" installing, removing) {took - within:.1f} s; {invalid} of {runs} runs invalid"
    )
    print(f"pods: {result['environment']['kubernetes']['pods']}")
    per_run = (took - windows) / runs
    line = f"orchestration: {per_run:.1f} s per run beyond its window (goal <= {GOAL_S:g})"
    return conclude(line, per_run <= GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
