"""Memory over hours, and the size of what they leave: neither may grow with time.

    python -m benchmarks.soak [--duration 10m] [--rate 10000] [--simulate-only]

First a day by a compressed clock, in this process: every second of it goes through the looks of the command,
the collector's minutes and progress, its merge, the live page and what is kept of a run under way; a result
and a report are written, and their sizes are shown. Then a real run: `mixed` with an open loop of two writers
and one reader against the embedded server, with `--live`. Once a second the memory that is each process's own
is read; the growth in MB an hour is the slope of a line through all readings after the warm-up, a third of
the time. A line through ten minutes is only as good as the machine is quiet: give hours for a verdict.

The goals: < 2 MB an hour in each process, `result.json` < 5 MB and the report < 2 MB after a day. The growth
is only judged from half an hour on. Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from simulator.units import read_duration_s

from .soak_day import Day, measure_day
from .support import ROOT, conclude, scratch_folder, show

GOAL_MB_PER_HOUR, GOAL_RESULT_MB, GOAL_REPORT_MB = 2.0, 5.0, 2.0
SIMULATED = 4
"""Processes whose parts the simulated day has in one: two workers, collector and command."""
WARM_UP_SHARE = 1 / 3
LEAST_JUDGED_S = 1800.0
_INTERVAL_S = 1.0
_ROLES = ("worker", "collector", "launcher")
"""Words of a process's command line; what the launcher forks keeps the launcher's."""


@dataclass
class Growth:
    """Memory of a process over time."""

    name: str
    readings: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the command began, MB)."""

    def fit(self, duration_s: float) -> tuple[float, float, int] | None:
        """Slope in MB an hour, memory at the end, and readings after the warm-up; None if there are too few.
        What is needed once the run is over, for its result, is no growth."""
        begin = duration_s * WARM_UP_SHARE
        later = [reading for reading in self.readings if begin <= reading[0] <= duration_s]
        if len(later) < 10:
            return None
        seconds, sizes = np.array(later).T
        slope = float(np.polyfit(seconds, sizes, 1)[0])
        return slope * 3600, later[-1][1], len(later)


def name_process(process: psutil.Process, command: int) -> str | None:
    """Which of the run's processes it is; None: the database's, or another."""
    if process.pid == command:
        return "command with --live"
    words = process.cmdline()
    role = next((role for role in _ROLES if role in words), None)
    return None if role is None else f"{role} {process.pid}"


def read_memory_mb(process: psutil.Process) -> float:
    """What is this process's alone: pages that are shared with its parent don't count."""
    return float(process.memory_full_info().uss) / 1e6


def follow(command: subprocess.Popen[bytes]) -> list[Growth]:
    """Read all processes' memory until the command ends."""
    growths: dict[str, Growth] = {}
    began = time.monotonic()
    while True:
        try:
            command.wait(_INTERVAL_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic() - began
        else:
            return list(growths.values())
        try:
            root = psutil.Process(command.pid)
            for process in [root, *root.children(recursive=True)]:
                name = name_process(process, command.pid)
                if name is not None:
                    growth = growths.setdefault(name, Growth(name))
                    growth.readings.append((now, read_memory_mb(process)))
        except psutil.Error:
            continue  # it has just ended


def run_for_real(folder: Path, duration: str, rate: int) -> tuple[list[Growth], Path]:
    """Make the run; the growth of its processes, and its result."""
    words: Sequence[Any] = [
        sys.executable, ROOT / "run.py", "mixed", "--target", "embedded", "--workers", 2, "--readers", 1,
        "--rate", rate, "--batch", 100, "--query-rate", 5, "--runs", 1, "--duration", duration,
        "--timeout", "48h", "--output", folder / "results", "--live", "--no-check", "--quiet",
    ]  # fmt: skip
    with subprocess.Popen(
        list(map(str, words)),
        cwd=ROOT,
        env=os.environ | {"EMBEDDED_DATA_DIR": str(folder / "data")},
    ) as command:
        growths = follow(command)
    (result,) = (folder / "results").glob("*/result.json")
    return growths, result


def main() -> int:
    """Measure; 0 if the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duration", default="10m", help="of the real run (default: 10m)")
    parser.add_argument(
        "--rate", type=int, default=10_000, help="events/s of both writers together"
    )
    parser.add_argument("--simulate-only", action="store_true", help="make no real run")
    arguments = parser.parse_args()
    duration_s = read_duration_s(arguments.duration)
    with scratch_folder() as folder:
        day = measure_day(folder)
        show(["After a simulated day", "MB"], [[name, f"{mb:.2f}"] for name, mb in day.sizes_mb()])
        met = day.result_mb < GOAL_RESULT_MB and day.report_mb < GOAL_REPORT_MB
        met = met and day.growth_mb_per_hour < SIMULATED * GOAL_MB_PER_HOUR
        if arguments.simulate_only:
            return conclude(_describe_day(day), met)
        growths, result = run_for_real(folder, arguments.duration, arguments.rate)
        rows, slopes = [], []
        for growth in growths:
            if (fitted := growth.fit(duration_s)) is not None:
                slope, last, count = fitted
                slopes.append(slope)
                rows.append([growth.name, f"{slope:.1f}", f"{last:.0f}", str(count)])
        show(["Process", "MB an hour", "MB at the end", "Readings"], rows)
        size_mb = result.stat().st_size / 1e6
    if duration_s >= LEAST_JUDGED_S:
        met = met and bool(slopes) and max(slopes) < GOAL_MB_PER_HOUR
    return conclude(
        f"{_describe_day(day)}; after {arguments.duration} of real"
        f" time: steepest {max(slopes, default=0):.1f} MB an hour (goal < {GOAL_MB_PER_HOUR:g}),"
        f" result.json {size_mb:.2f} MB",
        met,
    )


def _describe_day(day: Day) -> str:
    return (
        f"soak: after a simulated day result.json {day.result_mb:.2f} MB (goal < {GOAL_RESULT_MB:g}), report"
        f" {day.report_mb:.2f} MB (goal < {GOAL_REPORT_MB:g}), two workers, collector and command together"
        f" {day.growth_mb_per_hour:.2f} MB an hour"
    )


if __name__ == "__main__":
    sys.exit(main())
