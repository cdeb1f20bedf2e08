"""What learning costs: a million recorded rows of ten columns.

    python -m benchmarks.learning [--quick]

A Parquet file of the workload `machines`, but for its tags, is learnt by the command line in a process of its
own, once with converting the file, and once without. Peak memory is the process's VmHWM.

The goals: at most 10 s, of which converting is a part, and 1 GB. `--quick`: a tenth of the rows. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from simulator.workloads import load_workload
from simulator.workloads.schema import EventBlock

from .support import conclude, is_quick, scratch_folder, show

GOAL_S, GOAL_MB = 10.0, 1000.0
ROWS, DEVICES = 1_000_000, 50
LEFT_OUT = ("hall", "model")


def write_recording(file: Path, block: EventBlock, left_out: Sequence[str] = ()) -> None:
    """A Parquet file of made events."""
    columns = {}
    for column in block.schema.columns:
        if column.name in left_out:
            continue
        values = block.columns[column.name]
        if column.name == block.schema.time:
            columns[column.name] = pa.array(values, pa.timestamp("ms", "UTC"))
        elif values.dtype.kind == "S":
            columns[column.name] = pa.array(values.astype("U").tolist())
        else:
            columns[column.name] = pa.array(values, mask=block.missing.get(column.name))
    pyarrow.parquet.write_table(pa.table(columns), file)


def learn(file: Path, folder: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of learning a file."""
    words = ["run.py", "workloads", "learn", str(file), "--output", str(folder / "learnt.yaml")]
    environment = {**os.environ, "IOTBENCH_RECORDINGS": str(folder / "cache")}
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"learning failed with status {process.returncode}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def main() -> int:
    """Learn twice; 0 if the goals are met."""
    rows = ROWS // 10 if is_quick(__doc__) else ROWS
    with scratch_folder() as folder:
        file = folder / "machines.parquet"
        made = load_workload("machines")(devices=DEVICES).block(0, 0, rows)
        write_recording(file, made, LEFT_OUT)
        first, second = learn(file, folder), learn(file, folder)
    table = [
        [name, f"{seconds:.1f}", f"{peak_mb:,.0f}"]
        for name, (seconds, peak_mb) in (("converted", first), ("kept", second))
    ]
    show([f"{rows:,} rows of 10 columns", "s", "MB"], table)
    seconds, peak_mb = max(first[0], second[0]), max(first[1], second[1])
    return conclude(
        f"{seconds:.1f} s of {GOAL_S:.0f}, {peak_mb:,.0f} MB of {GOAL_MB:,.0f}",
        seconds <= GOAL_S and peak_mb <= GOAL_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
