"""What replaying a recording costs a worker, beside generating the same columns by their definition.

    python -m benchmarks.replaying [--quick]

The recording is a Parquet file of what `machines` generates (on VictoriaMetrics, which stores no texts but
tags, without them). CPU: µs per event of making and encoding 1,000 events at a time, the best of some rounds
in turns; sending is the same for all. Ten copies of each device are compared with a definition of ten times
as many devices. Memory: of a worker process on `blackhole` at its end, its own (RssAnon); what it has mapped
of the recording, the system takes back where memory is short.

The goals: CPU of a recording and of its copies <= 1.3 × the definition's; own memory <= 600 MB. `--quick`: a
tenth of the events. Linux only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from cli.commands.workloads import measure_encoder
from simulator.contract import DataSet, Load
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.options import parse_payload_options
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.recording.definition import RecordedDefinition

from .learning import write_recording
from .processes import settings_file, start_collector, worker_memory_mb
from .support import conclude, is_quick, read_machines, scratch_folder, show

GOAL_RATIO, GOAL_MB = 1.3, 600
MODULES = ("postgres", "questdb", "influxdb", "cassandra", "victoriametrics")
EVENTS, DEVICES, COPIES, BATCH, ROUNDS = 1_000_000, 50, 10, 1000, 5


def make_definitions(module: str, folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """Of one of each device and of ten: the definition by which events are generated, and a recording's."""
    found: dict[str, dict[str, Any]] = {}
    file = folder / f"{module}.parquet"
    for fleet in (1, COPIES):
        found[f"described, {fleet}"] = {**read_machines(module), "devices": DEVICES * fleet}
        if fleet == 1:
            workload = load_workload("machines", found["described, 1"])()
            write_recording(file, workload.block(0, 0, rows))
        recorded: dict[str, Any] = {"file": str(file), "device": "machine", "fleet": fleet}
        definition = {"name": "recorded", "recorded": recorded}
        recorded["store"] = RecordedDefinition.read(definition).open().name
        found[f"recorded, {fleet}"] = definition
    return found


def measure_cpu(module: str, workloads: dict[str, Workload], events: int) -> dict[str, float]:
    """µs of CPU per event of each."""
    kind = load_module(module)
    encoding = next(one for one in kind.ENCODINGS if one.batched)
    options = parse_payload_options(kind.options_model, encoding.options)
    best = dict.fromkeys(workloads, float("inf"))
    for _ in range(ROUNDS):
        for name, workload in workloads.items():
            encoder = kind.encoder(options, Job(workload.schema, Load(batch=BATCH)))
            generate_s, encode_s, _ = measure_encoder(workload, encoder, events, rounds=1)
            best[name] = min(best[name], (generate_s + encode_s) * 1e6)
    return best


def main() -> int:
    """Measure all modules; 0 if the goals are met."""
    events = EVENTS // 10 if is_quick(__doc__) else EVENTS
    rows: list[list[str]] = []
    ratios, own_mb = [], {}
    with scratch_folder() as folder:
        os.environ["IOTBENCH_RECORDINGS"] = str(folder / "recordings")
        for module in MODULES:
            definitions = make_definitions(module, folder, events)
            workloads = {name: load_workload(d["name"], d)() for name, d in definitions.items()}
            cpu = measure_cpu(module, workloads, events // 5)
            rows.append([module])
            for fleet in (1, COPIES):
                described, recorded = cpu[f"described, {fleet}"], cpu[f"recorded, {fleet}"]
                ratios.append(recorded / described)
                rows[-1] += [f"{described:.3f}", f"{recorded:.3f}", f"{ratios[-1]:.2f}"]
            if module == MODULES[0]:
                for name, definition in definitions.items():
                    data = DataSet(workload=definition["name"], definition=definition)
                    settings = settings_file(folder, 1, 2 * events, BATCH, {}, data)
                    with start_collector(settings) as collector:
                        own_mb[name] = worker_memory_mb(settings, collector).own
    costs = ["Described µs", "Recorded µs", "Ratio"]
    show(["Module", *costs, f"{COPIES} × described µs", f"{COPIES} copies µs", "Ratio"], rows)
    show(["Worker of", "Own MB"], [[name, f"{mb:.0f}"] for name, mb in own_mb.items()])
    return conclude(
        f"CPU {max(ratios):.2f} (goal <= {GOAL_RATIO}), {max(own_mb.values()):.0f} MB (goal <= {GOAL_MB})",
        max(ratios) <= GOAL_RATIO and max(own_mb.values()) <= GOAL_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
