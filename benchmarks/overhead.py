"""Wall time that a local run costs beyond its measured window, and CPU of `run.py --help`.

    python -m benchmarks.overhead [--quick]

Real `insert` commands against the embedded server, with a data folder of their own: one that also has
to create the folder, one of five runs of 4 workers, one of three of 16. A run's cost is the sum of its
phases less its window, both from result.json; a command's own cost, which all its runs share, is its
wall time less its runs' phases: imports, starting and stopping the server, the result.

What a run costs depends on what else the machine does. The ratio compares it with starting as many
fresh Python processes, one per worker and one for a collector, that only import what they need; these
starts alternate with the commands. The goal, <= 1.5 s, is for the best of the
runs of 4 workers, and <= 0.3 s of CPU for `--help`. `--quick` makes fewer runs and allows 3 s and
0.6 s, for a machine that is busy otherwise.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cli.results.model import Result
from cli.results.store import read_result
from simulator.contract import RunResult

from .support import ROOT, conclude, is_quick, scratch_folder, show

GOAL_S, HELP_GOAL_S = 1.5, 0.3
QUICK_FACTOR = 2
WORKERS = 4
_PHASES = ("start", "prepare", "prefill", "barrier", "run", "verify", "clean_up")


@dataclass(frozen=True)
class Command:
    """One `insert`: its wall time in seconds and its runs."""

    wall_s: float
    runs: list[RunResult]

    def own_s(self) -> float:
        """What the runs share."""
        return self.wall_s - sum(sum(run.phases_s.values()) for run in self.runs)


def insert(folder: Path, workers: int, runs: int, events: int) -> Command:
    """Run an `insert` command; its data stay in `folder`."""
    file = folder / "result.json"
    began = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable, ROOT / "run.py", "insert", "--target", "embedded", "--batch", "1000",
            "--workers", str(workers), "--runs", str(runs), "--num-inserts", str(events),
            "--output", folder / "results", "--json", file,
        ],
        cwd=ROOT, env=os.environ | {"EMBEDDED_DATA_DIR": str(folder / "data")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - began
    if not file.exists():
        raise RuntimeError(f"insert failed:\n{done.stderr}")
    result: Result = read_result(file)
    completed = result.runs
    file.unlink()
    # Exit status 1 may only mean that a busy machine kept the workers from overlapping.
    if any(run.writers is None or not run.writers.verification for run in completed):
        raise RuntimeError(f"a run failed: {[run.invalid_reasons for run in completed]}")
    return Command(wall, completed)


def window_s(run: RunResult) -> float:
    """The writers' window."""
    assert run.writers is not None and run.writers.window_s is not None
    return run.writers.window_s


def beyond_s(run: RunResult) -> float:
    """What a run took beyond its window."""
    return sum(run.phases_s.values()) - window_s(run)


def fresh_processes_s(count: int) -> float:
    """Wall time of starting processes that import what a worker needs, and ending them."""
    code = "import simulator.collector, simulator.worker, simulator.modules.postgres"
    began = time.perf_counter()
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(count)]
    for process in processes:
        if process.wait():
            raise RuntimeError("a process failed")
    return time.perf_counter() - began


def help_cpu_s() -> float:
    """CPU of `run.py --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, ROOT / "run.py", "--help"], check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _row(name: str, runs: Sequence[RunResult], own_s: float | None) -> list[str]:
    """Medians of some runs; the run phase without the window."""
    spent = {
        phase: median(run.phases_s.get(phase, 0.0) for run in runs)
        for phase in _PHASES
    }  # fmt: skip
    spent["run"] = median(run.phases_s["run"] - window_s(run) for run in runs)
    all_s = [beyond_s(run) for run in runs]
    return [
        name,
        *(f"{spent[phase]:.2f}" for phase in _PHASES if phase != "prefill"),
        f"{median(all_s):.2f}",
        f"{min(all_s):.2f}",
        "" if own_s is None else f"{own_s:.2f}",
    ]


def main() -> int:
    """Run all commands; 0 if the goals are met."""
    quick = is_quick(__doc__)
    runs, events = (2, 20_000) if quick else (5, 50_000)
    with scratch_folder() as folder:
        first = insert(folder, WORKERS, 1, events)
        fresh_s = [fresh_processes_s(WORKERS + 1)]
        few = [insert(folder, WORKERS, runs, events)]
        fresh_s.append(fresh_processes_s(WORKERS + 1))
        if not quick:
            few.append(insert(folder, WORKERS, runs, events))
            fresh_s.append(fresh_processes_s(WORKERS + 1))
            many = insert(folder, 16, 3, events // 4)
    help_s = min(help_cpu_s() for _ in range(5))
    later = [run for command in few for run in command.runs[1:]]
    rows = [
        _row(f"{WORKERS} workers, new data", first.runs, first.own_s()),
        _row(f"{WORKERS} workers, a command's first run", [command.runs[0] for command in few], None),
        _row(f"{WORKERS} workers, its other runs", later, median(c.own_s() for c in few)),
    ]  # fmt: skip
    if not quick:
        rows.append(_row("16 workers, first run", many.runs[:1], None))
        rows.append(_row("16 workers, other runs", many.runs[1:], many.own_s()))
    headers = [
        "Seconds beyond the window", "Start", "Prepare", "Barrier", "Run", "Verify", "Clean-up",
        "All", "Best", "Command's own",
    ]  # fmt: skip
    show(headers, rows)
    busy = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    fresh = min(fresh_s)
    print(
        f"\n{WORKERS + 1} fresh Python processes: {fresh:.2f} s; --help: {help_s:.2f} s of CPU; {busy}"
    )
    best = min(beyond_s(run) for command in few for run in command.runs)
    factor = QUICK_FACTOR if quick else 1
    return conclude(
        f"overhead: ratio {best / fresh:.2f} to fresh processes, {best:.2f} s a run"
        f" (goal <= {GOAL_S * factor:g} s), --help {help_s:.2f} s (goal <= {HELP_GOAL_S * factor:g} s)",
        best <= GOAL_S * factor and help_s <= HELP_GOAL_S * factor,
    )


if __name__ == "__main__":
    sys.exit(main())
