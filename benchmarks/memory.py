"""A worker's peak memory at more and more events: it must not grow with them.

    python -m benchmarks.memory [--quick]

A real worker process (`python -m simulator.main worker`) and a real collector, target `blackhole`
with PostgreSQL's payloads; the peak is the worker's VmHWM at its end.

The goals: the peak at the most events <= 1.1 × that at the fewest, and <= 150 MB everywhere.
`--quick` leaves the largest size out. Linux only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from simulator.contract import DataSet

from .processes import settings_file, start_collector, worker_memory_mb
from .support import conclude, is_quick, scratch_folder, show

GOAL_RATIO, GOAL_MB = 1.1, 150
SIZES = (100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Case:
    """One way to build payloads."""

    name: str
    batch: int
    options: dict[str, str]
    sizes: tuple[int, ...] = SIZES
    is_history: bool = False
    """Whether the events are a history, before a short run."""


CASES = (
    Case("copy binary", 1_000, {}),
    Case("copy binary", 10_000, {}),
    Case("history", 1_000, {}, is_history=True),
    Case("values_lists", 1_000, {"insert_mode": "values_lists"}),
    # Ten million single requests would take a minute and show nothing more.
    Case("single", 0, {}, SIZES[:2]),
)


def peak_mb(case: Case, events: int, folder: Path) -> float:
    """The worker's peak in MB."""
    own, data = events, DataSet()
    if case.is_history:
        own, data = 1000, DataSet(prefill_span_s=10.0 * events, prefill_every_s=10)
    settings = settings_file(folder, 1, own, case.batch, case.options, data)
    with start_collector(settings) as collector:
        return worker_memory_mb(settings, collector).peak


def main() -> int:
    """Measure all cases; 0 if the goals are met."""
    quick = is_quick(__doc__)
    rows, ratios, peaks = [], [], []
    for case in CASES:
        sizes = case.sizes[:2] if quick else case.sizes
        with scratch_folder() as folder:
            peaks_mb = [peak_mb(case, events, folder) for events in sizes]
        ratios.append(peaks_mb[-1] / peaks_mb[0])
        peaks += peaks_mb
        shown = [f"{mb:.0f}" for mb in peaks_mb] + [""] * (len(SIZES) - len(peaks_mb))
        rows.append([case.name, f"{case.batch or 1:,}", *shown, f"{ratios[-1]:.2f}"])
    sizes_shown = [f"MB at {size:,}" for size in SIZES]
    show(["Payloads", "Batch", *sizes_shown, "Most ÷ fewest"], rows)
    met = max(ratios) <= GOAL_RATIO and max(peaks) <= GOAL_MB
    return conclude(
        f"memory: ratio {max(ratios):.2f} (goal <= {GOAL_RATIO}),"
        f" peak {max(peaks):.0f} MB (goal <= {GOAL_MB} MB)",
        met,
    )


if __name__ == "__main__":
    sys.exit(main())
