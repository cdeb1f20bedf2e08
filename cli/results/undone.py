"""The rule by which disturbances are told of that were not done, or failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.contract import InsertRun, ReadRun

from .caveats import Caveat, Kind
from .model import Baseline, Result
from .rules import locate_run


def find_undone(result: Result) -> Iterator[Caveat]:
    """What became of disturbances that weren't done as they were asked for: each once, with the runs of which
    it is true."""
    runs = _list_runs(result)
    found: dict[tuple[str, str], list[tuple[InsertRun | ReadRun, str]]] = {}
    for run in runs:
        for mark in run.marks:
            if not mark.ok:
                found.setdefault((mark.action, "failed"), []).append((run, mark.said or ""))
        for one in run.undone:
            found.setdefault((one.action, "was not done"), []).append((run, one.reason))
    for (action, what), told in found.items():
        (run, reason), *others = told
        often = f" in {len(told)} of {len(runs)} runs" if len(runs) > 1 else ""
        place = None if others else locate_run(result, run)
        yield Caveat(Kind.DISTURBANCE, f"'{action}' {what}{often}: {reason}", place)


def _list_runs(result: Result) -> Sequence[InsertRun | ReadRun]:
    """Those in which something may have been done: readers beside writers have it with these."""
    baseline = result.baseline or Baseline()
    return [*result.insert_runs, *baseline.runs, *baseline.reads]
