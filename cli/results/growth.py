"""How what is on disk grows from step to step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import InsertRun


def measure_growth(runs: Sequence[InsertRun]) -> list[float | None]:
    """For each run the bytes by which its events let the tables grow, each: those after the run less those
    after the run before, ÷ the events in between. None for one that doesn't go on with the data of the one
    before it, or if one of the sizes isn't known."""
    found: list[float | None] = []
    before: InsertRun | None = None
    for run in runs:
        found.append(None if before is None else _compare(before, run))
        before = run
    return found


def _compare(before: InsertRun, after: InsertRun) -> float | None:
    was, now = before.storage, after.storage
    if was is None or now is None or was.total_bytes is None or now.total_bytes is None:
        return None
    if not was.events or not now.events or after.fill_level != was.events:
        return None
    events = now.events - was.events
    return (now.total_bytes - was.total_bytes) / events if events > 0 else None
