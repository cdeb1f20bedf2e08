"""Runs with up to 1,000 real worker processes, and their collector with a pod's limits.

    python -m benchmarks.worker_processes [--workers 1,10,100,300,1000] [--plot FILE.svg]

Each run is a command as a user gives it: `insert --target blackhole` by the local executor, in which each
worker inserts one event a second in an open loop, so that what is measured is the tool's own work. The
collector is put into a cgroup of one CPU and 512 MB as soon as it has been forked (as root; without that it
is only watched, which is said). 1,000 workers take about 17 GB.

What is shown of each count: how long processes take to start and to be ready, how late a worker began at
most (an upper bound, from its messages), the collector's CPU in the run and its peak memory, what of this
machine's memory the processes took, how long the report took, and the size of `result.json`.

The goals, for 1,000: 100 ms, one CPU and 512 MB, no report lost, ready within 3 minutes, 5 MB. All processes
share this machine's CPUs, which the pods of a cluster don't. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from cli.show.drawing import make_standalone_svg
from simulator.contract import Phase

from .support import ROOT, conclude, scratch_folder, show

COUNTS = "1,10,100,300,1000"
GOAL_LATE_MS, GOAL_CPUS, GOAL_COLLECTOR_MB, GOAL_READY_S, GOAL_RESULT_MB = (
    100.0,
    1.0,
    512,
    180.0,
    5.0,
)
DURATION_S = 20
_LOOK_S = 0.1
_CGROUPS = Path("/sys/fs/cgroup")
_NAME = "iotbench-collector"
_MB = 1e6


@dataclass(frozen=True)
class Scale:
    """A run with so many workers."""

    workers: int
    ready_s: float
    """From the first process's launch to the common start."""
    late_ms: float
    """Upper bound of how late a worker began."""
    collector_cpus: float
    """The collector's CPU time ÷ elapsed time, over the measured window."""
    collector_mb: float
    """Peak memory."""
    taken_mb: float
    """By how much the machine's available memory had fallen at the worst moment."""
    report_s: float
    """From the end of the window to the end of the run."""
    result_mb: float
    lost: int
    """Workers that the result lacks."""


# --- the collector's limits -----------------------------------------------------------------------


@contextmanager
def make_cgroup() -> Iterator[Sequence[Path]]:
    """Where to write a process's number, so that it has one CPU and 512 MB; empty if not allowed here."""
    v2 = (_CGROUPS / "cgroup.controllers").exists()
    limits = (
        {"": {"cpu.max": "100000 100000", "memory.max": f"{GOAL_COLLECTOR_MB}M"}}
        if v2
        else {
            "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"},
            "memory": {"memory.limit_in_bytes": f"{GOAL_COLLECTOR_MB}M"},
        }
    )
    folders = [_CGROUPS / controller / _NAME for controller in limits]
    try:
        try:
            for folder, values in zip(folders, limits.values(), strict=True):
                folder.mkdir(exist_ok=True)
                for name, value in values.items():
                    (folder / name).write_text(value)
        except OSError:
            yield []
        else:
            yield [folder / "cgroup.procs" for folder in folders]
    finally:
        for folder in folders:
            with suppress(OSError):
                folder.rmdir()


# --- a run ----------------------------------------------------------------------------------------


def measure(workers: int, folder: Path, processes: Sequence[Path]) -> Scale:
    """A run, watched from outside. `processes`: see `make_cgroup`."""
    copy = folder / f"{workers}.json"
    words = [
        sys.executable, ROOT / "run.py", "insert", "--target", "blackhole", "--workers", workers, "--runs", 1,
        "--rate", workers, "--duration", f"{DURATION_S}s", "--timeout", "30m", "--quiet",
        "--output", folder / "results", "--json", copy,
    ]  # fmt: skip
    available = psutil.virtual_memory().available
    least = available
    looks: list[tuple[float, float]] = []
    collector: psutil.Process | None = None
    peak_mb = 0.0
    with subprocess.Popen(list(map(str, words)), cwd=ROOT, stdout=subprocess.DEVNULL) as command:
        while command.poll() is None:
            if collector is None:
                collector = find_collector(psutil.Process(command.pid))
                if collector is not None:
                    for file in processes:
                        file.write_text(str(collector.pid))
            else:
                with suppress(psutil.Error, OSError):
                    used = collector.cpu_times()
                    looks.append((time.time(), used.user + used.system))
                    peak_mb = max(peak_mb, read_peak_mb(collector.pid))
            least = min(least, psutil.virtual_memory().available)
            # Nothing tells of a process's birth, nor of what it uses.
            with suppress(subprocess.TimeoutExpired):
                command.wait(_LOOK_S)
    if not copy.exists():
        raise RuntimeError(
            f"the command ended with status {command.returncode}, and without a result"
        )
    result = json.loads(copy.read_text())
    (run,) = result["runs"]
    (group,) = run["groups"]
    began, ended = (parse_instant(run[key]) for key in ("began_at", "ended_at"))
    within = [look for look in looks if began <= look[0] <= ended]
    spent_s = within[-1][1] - within[0][1]
    phases = run["phases_s"]
    before = (Phase.START, Phase.PREPARE, Phase.BARRIER)
    reported = len(group["per_worker"])
    return Scale(
        workers=workers,
        ready_s=sum(phases.get(phase, 0.0) for phase in before),
        late_ms=1e3 * max(worker["clock_offset_s"] for worker in group["per_worker"]),
        collector_cpus=spent_s / (within[-1][0] - within[0][0]),
        collector_mb=peak_mb,
        taken_mb=(available - least) / _MB,
        report_s=sum(
            phases.get(phase, 0.0) for phase in phases if phase not in (*before, Phase.RUN)
        ),
        result_mb=copy.stat().st_size / _MB,
        lost=workers - reported,
    )


def parse_instant(text: str) -> float:
    """An instant of a result, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def find_collector(command: psutil.Process) -> psutil.Process | None:
    """The process that the launcher forks first."""
    with suppress(psutil.Error, ValueError):
        (launcher,) = command.children()
        return min(launcher.children(), key=lambda process: float(process.create_time()))
    return None


def read_peak_mb(pid: int) -> float:
    """A process's peak memory, with what it shares with the launcher (VmHWM); 0 once it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peaks_kb = (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return next(peaks_kb, 0) * 1024 / _MB


# --- what is shown --------------------------------------------------------------------------------

_SHOWN = {
    "ready_s": "ready, s",
    "late_ms": "began late at most, ms",
    "collector_cpus": "collector, CPUs",
    "collector_mb": "collector, MB",
    "taken_mb": "all processes, MB",
    "report_s": "report, s",
    "result_mb": "result.json, MB",
}


def draw(scales: Sequence[Scale]) -> dict[str, Any]:
    """Each figure over the number of workers, both on logarithms (Vega-Lite)."""
    rows = [
        {"workers": scale.workers, "figure": title, "value": max(getattr(scale, name), 1e-3)}
        for scale in scales
        for name, title in _SHOWN.items()
    ]
    logarithmic = {"type": "log"}
    return {
        "data": {"values": rows},
        "facet": {"field": "figure", "type": "nominal", "title": None, "sort": list(_SHOWN.values())},
        "columns": 4,
        "spec": {
            "width": 150,
            "height": 130,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "workers", "type": "quantitative", "scale": logarithmic, "title": "workers"},
                "y": {"field": "value", "type": "quantitative", "scale": logarithmic, "title": None},
            },
        },
        "resolve": {"scale": {"y": "independent"}},
    }  # fmt: skip


def main() -> int:
    """Measure; 0 if the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default=COUNTS, help=f"how many (default: {COUNTS})")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the figures")
    arguments = parser.parse_args()
    counts = list(map(int, arguments.workers.split(",")))
    with scratch_folder() as folder, make_cgroup() as processes:
        scales = [measure(count, folder, processes) for count in counts]
    if arguments.plot:
        arguments.plot.write_text(make_standalone_svg(draw(scales), "auto"))
    rows = [
        [f"{scale.workers:,}", *(f"{getattr(scale, name):.3g}" for name in _SHOWN), str(scale.lost)]
        for scale in scales
    ]
    show(["workers", *_SHOWN.values(), "lost"], rows)
    most = scales[-1]
    limited = "one CPU and 512 MB" if processes else "no limits: not allowed here"
    return conclude(
        f"worker_processes: {most.workers:,} workers, collector ({limited}): began {most.late_ms:.0f} ms"
        f" late at most (goal <= {GOAL_LATE_MS:.0f}), collector {most.collector_cpus:.2f} CPUs and"
        f" {most.collector_mb:.0f} MB, ready in {most.ready_s:.0f} s, result.json {most.result_mb:.2f} MB,"
        f" {most.lost} lost; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
        most.late_ms <= GOAL_LATE_MS
        and most.collector_cpus <= GOAL_CPUS
        and most.collector_mb <= GOAL_COLLECTOR_MB * 1024 * 1024 / _MB
        and most.ready_s <= GOAL_READY_S
        and most.result_mb <= GOAL_RESULT_MB
        and not most.lost,
    )


if __name__ == "__main__":
    sys.exit(main())
