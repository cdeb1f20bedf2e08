"""Do two fill levels predict a third that is ten times as large?

    python -m benchmarks.scaling --config CONFIG [--turns N] [--levels N,N,N] TARGET[:KEY=VALUE] …

Each candidate, a target of the config file with an option of its module, is filled to three levels in each
turn, with the same tables. On each level `mixed` inserts 500 events a second in requests of 50, and one
reader asks its queries one after the other. What the verdict makes of the first two levels
(`cli.results.scaling`: exponents, the geometric mean of the turns' predictions and its interval) stands
beside what the third then shows: the median time of each query and of inserts, the 99th percentile where
there are 100 requests, and the bytes on disk.

The goal: predictions within 25 %, or the measured figure in their interval.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean

from cli.results.model import Result
from cli.results.scaling import Growth, find_growth, find_interval
from cli.results.store import read_result
from simulator.units import format_amount, format_digits, parse_amount

from .support import ROOT, conclude, show

QUERIES = ("range", "threshold", "last-value", "last-values")
DEVICES, INTERVAL = 100, "10s"
"""The smallest level has more than the hour that the queries look at."""
ALLOWED = 0.25
DISK = "disk"

Figures = dict[str, float]
"""What a run shows, in ms and bytes."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--levels", default="50k,500k,5M")
    parser.add_argument("candidates", nargs="+", metavar="TARGET[:KEY=VALUE]")
    arguments = parser.parse_args()
    levels = [int(parse_amount(text) or 0) for text in arguments.levels.split(",")]
    rows: list[list[str]] = []
    near = right = predicted = 0
    for candidate in arguments.candidates:
        turns = [list(measure(arguments.config, candidate, levels)) for _ in range(arguments.turns)]
        for name in turns[0][0][1]:
            row, off, is_right = compare(turns, name)
            rows.append([candidate, name, *row])
            predicted += off is not None
            near += off is not None and abs(off) <= ALLOWED
            right += is_right
    headers = ["Candidate", "Figure", *map(format_amount, levels), "Exponent", "Predicted", "Off"]
    show(headers, rows, texts=2)
    return conclude(
        f"{near} of {predicted} predictions are within {ALLOWED:.0%}, {right} within that or their interval",
        right == predicted,
    )


def measure(config: Path, candidate: str, levels: Sequence[int]) -> Iterator[tuple[int, Figures]]:
    """Each level, and what was measured on it."""
    target, _, option = candidate.partition(":")
    before = 0
    for level in levels:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "result.json")
            command = [
                sys.executable, "run.py", "mixed", "--config", config, "--target", target, "--runs", "1",
                "--workload", "machines", "--workload-option", f"devices={DEVICES}",
                "--workers", "2", "--batch", "50", "--rate", "500", "--duration", "20s", "--warm-up", "4s",
                "--readers", "1", "--queries", ",".join(QUERIES), "--no-check",
                "--prefill", str(level - before), "--prefill-span", INTERVAL, "--prefill-every", INTERVAL,
                "--output", folder, "--json", file,
                *(["--extra-option", option] if option else []), *(["--no-clean"] if before else []),
            ]  # fmt: skip
            subprocess.run([*map(str, command)], cwd=ROOT, check=True, stdout=sys.stderr)
            result = read_result(file)
        yield result.runs[0].fill_level or level, dict(list_figures(result))
        before = level


def list_figures(result: Result) -> Iterator[tuple[str, float]]:
    run = result.runs[0]
    writers, readers = run.writers, run.readers
    assert writers is not None
    assert readers is not None
    for name, times in [
        *((query.query, query.latency_ms) for query in readers.queries),
        ("inserts", writers.service_ms),
    ]:
        if times is not None:
            yield f"{name} p50", times.p50
            if times.p99 is not None:
                yield f"{name} p99", times.p99
    storage = writers.storage
    if storage is not None and storage.total_bytes:
        yield DISK, storage.total_bytes


def compare(
    turns: Sequence[Sequence[tuple[int, Figures]]], name: str
) -> tuple[list[str], float | None, bool]:
    """The figure's means on all levels, its exponent, and what was predicted for the last; by how much that
    is off, None if nothing was predicted; and whether it is right."""
    means = [
        _find_mean([figures[name] for _, figures in level if name in figures])
        for level in zip(*turns, strict=True)
    ]
    shown = ["-" if mean is None else _show(name, mean) for mean in means]
    top, measured = round(fmean(turn[-1][0] for turn in turns)), means[-1]
    growths = [
        growth
        for number, turn in enumerate(turns, 1)
        if (growth := _find_growth(number, turn, name, top)) is not None
    ]
    if not growths or measured is None:
        return [*shown, "-", "-", "-"], None, False
    logs = [log(growth.predict(top)) for growth in growths]
    mean = exp(fmean(logs))
    exponent = f"{fmean(growth.exponent for growth in growths):.2f}"
    predicted, off = _show(name, mean), mean / measured - 1
    is_right = abs(off) <= ALLOWED
    bounds = find_interval(logs)
    exponents = find_interval([growth.exponent for growth in growths])
    if bounds is not None and exponents is not None:
        low, high = exp(bounds.low), exp(bounds.high)
        exponent += f" ({exponents.low:.2f} to {exponents.high:.2f})"
        predicted += f" ({_show(name, low)} to {_show(name, high)})"
        is_right = is_right or low <= measured <= high
    return [*shown, exponent, predicted, f"{off:+.0%}"], off, is_right


def _find_growth(
    number: int, turn: Sequence[tuple[int, Figures]], name: str, top: int
) -> Growth | None:
    """The growth from the first level to the second. A disk grows by as much an event as between them."""
    (low, first), (high, second), _ = turn
    growth = find_growth(number, (low, first.get(name)), (high, second.get(name)))
    if growth is None or name != DISK:
        return growth
    per_event = (growth.high - growth.low) / (high - low)
    last = growth.high + per_event * (top - high)
    return Growth(number, high, growth.high, top, last)


def _find_mean(values: Sequence[float]) -> float | None:
    return exp(fmean(map(log, values))) if values else None


def _show(name: str, value: float) -> str:
    return f"{format_amount(value)}B" if name == DISK else f"{format_digits(value)} ms"


if __name__ == "__main__":
    sys.exit(main())
