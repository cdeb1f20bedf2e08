"""What generating events costs, how much memory a million devices take, and what zlib makes of signals.

    python -m benchmarks.generate [--quick]

Events per CPU second of each workload, in blocks as a worker makes them; `temperature` beside the bare
random numbers that it is made of, in the same round; a worker's memory with a million devices, after
some blocks and after ten times as many; and bytes per value of a device's values in a row, as the
database of a column store might have them, compressed by zlib (level 6).

The goals: `machines`, and ten columns of it, >= 5 million events per CPU second; `temperature` takes
<= 4 × the bare random numbers; ten times as many blocks take <= 1.05 × the memory. `--quick` makes
fewer rounds and allows half of the rate.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.defined import define
from simulator.workloads.definition import Definition
from simulator.workloads.noise import random_words
from simulator.workloads.schema import ColumnType
from simulator.workloads.yaml_source import parse_definition

from .support import conclude, is_quick, show

GOAL_EVENTS_PER_S = 5e6
GOAL_TEMPERATURE_RATIO = 4.0
GOAL_MEMORY_RATIO = 1.05

BLOCK_EVENTS = 16_384
"""As many as a worker generates at once."""
BLOCKS = 20

DAY_OF_SECONDS = 86_400

SIGNALS = {
    "constant": "{kind: constant, value: 21.5}",
    "hold": "{kind: hold, lasts: 20m, values: [20, 21.5, 23]}",
    "counter": "{kind: counter, every: 12s}",
    "choice": "{kind: choice, values: [20, 21.5, 23], weights: [90, 9, 1]}",
    "wander, roughness 0": "{kind: wander, low: 0, high: 100, period: 2h, roughness: 0}",
    "wander, roughness 0.4": "{kind: wander, low: 0, high: 100, period: 2h, roughness: 0.4}",
    "wander, roughness 1": "{kind: wander, low: 0, high: 100, period: 2h, roughness: 1}",
    "cycle": "{kind: cycle, low: 0, high: 100}",
    "cycle, noise 1.5": "{kind: cycle, low: 0, high: 100, noise: 1.5}",
    "percentiles": "{kind: percentiles, values: {p0: 0, p50: 0, p99: 20, p100: 100}}",
    "percentiles, period 2h": "{kind: percentiles, values: {p0: 0, p50: 0, p99: 20, p100: 100}, period: 2h}",
    "normal": "{kind: normal, mean: 50, deviation: 10}",
    "uniform": "{kind: uniform, low: 0, high: 100}",
}


def signal_bytes(signal: str) -> tuple[float, float]:
    """Bytes per value of a day of a device's values, one a second, one decimal: as float32, as text."""
    kind = define(
        parse_definition(
            "{name: one, about: one, table: one, time: at, device: name, interval: 1s, devices: 1,"
            " columns: [{name: at, type: timestamp_ms}, {name: name, type: text}, {name: x,"
            f" type: float32, decimals: 1, signal: {signal}}}]}}",
            "benchmark",
        )
    )
    values = kind().block(0, 0, DAY_OF_SECONDS).columns["x"]
    text = "\n".join(f"{value:.1f}" for value in values.tolist()).encode()
    sizes = [len(zlib.compress(data, 6)) / len(values) for data in (values.tobytes(), text)]
    return sizes[0], sizes[1]


def cpu_s_per_event(make: Callable[[int], object], rounds: int) -> float:
    """CPU seconds per event of `make(first)`: the best round, as whatever else the machine does can only
    add to it."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        for block in range(BLOCKS):
            make(block * BLOCK_EVENTS)
        best = min(best, time.thread_time() - begin)
    return best / BLOCKS / BLOCK_EVENTS


def generating(workload: Workload) -> Callable[[int], object]:
    """A function that makes the block that begins with event `first`."""
    return lambda first: workload.block(0, first, BLOCK_EVENTS)


def ten_columns() -> Workload:
    """`machines` without its text of states and one of its tags, and without late events."""
    definition = getattr(load_workload("machines"), "definition")  # noqa: B009
    assert isinstance(definition, Definition)
    columns = tuple(
        column for column in definition.columns if column.name not in ("status", "model")
    )
    return define(definition.model_copy(update={"columns": columns, "late": None}))()


def resident_mb() -> float:
    """Memory that this process has resident."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def memory_mb() -> tuple[float, float]:
    """Memory with a million devices: after 20 blocks spread over their events, and after 200."""
    workload = load_workload("machines")(devices=1_000_000)
    sizes_mb = []
    for blocks in (20, 200):
        for block in range(blocks):
            workload.block(0, block * 1_000_003, BLOCK_EVENTS)
        sizes_mb.append(resident_mb())
    return sizes_mb[0], sizes_mb[1]


def main() -> int:
    """Measure all; 0 if the goals are met."""
    quick = is_quick(__doc__)
    rounds = 3 if quick else 15
    # The bare numbers and `temperature` in turn: both meet the same machine.
    temperature = load_workload("temperature")()
    bare_s = cpu_s_per_event(lambda first: random_words(0, 0, first, BLOCK_EVENTS, 1), rounds)
    temperature_s = cpu_s_per_event(generating(temperature), rounds)
    ratio = temperature_s / bare_s
    cases = {
        "temperature": temperature_s,
        **{
            name: cpu_s_per_event(generating(load_workload(name)()), rounds)
            for name in ("cpu", "machines", "trucks", "wide")
        },
        "ten columns": cpu_s_per_event(generating(ten_columns()), rounds),
    }
    counts = {
        name: sum(
            column.type is not ColumnType.JSON for column in load_workload(name).schema.columns
        )
        for name in cases
        if name != "ten columns"
    }
    show(
        ["Workload", "Columns", "Million events per CPU second", "ns/event"],
        [
            [name, str(counts.get(name, 10)), f"{1e-6 / spent:.2f}", f"{spent * 1e9:.0f}"]
            for name, spent in cases.items()
        ],
    )
    show(
        ["Signal", "float32 bytes/value", "text bytes/value"],
        [
            [name, *(f"{size:.2f}" for size in signal_bytes(signal))]
            for name, signal in SIGNALS.items()
        ],
    )
    before_mb, after_mb = memory_mb()
    slowest = 1 / max(cases["machines"], cases["ten columns"])
    goal = GOAL_EVENTS_PER_S / (2 if quick else 1)
    met = (
        slowest >= goal
        and ratio <= GOAL_TEMPERATURE_RATIO
        and after_mb <= GOAL_MEMORY_RATIO * before_mb
    )
    return conclude(
        f"generate: machines and ten columns {slowest / 1e6:.1f} million events per CPU second"
        f" (goal >= {goal / 1e6:g}), temperature {ratio:.1f} × bare random numbers"
        f" (goal <= {GOAL_TEMPERATURE_RATIO:g}), a million devices {before_mb:.0f} MB,"
        f" later {after_mb:.0f} MB (goal <= {GOAL_MEMORY_RATIO:g} ×)",
        met,
    )


if __name__ == "__main__":
    sys.exit(main())
