"""What a figure is, and which runs it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import InsertRun
from simulator.units import format_count

from ..results.model import Result


@dataclass(frozen=True)
class NamedResult:
    """A result under the name that it has in a figure."""

    name: str
    result: Result


@dataclass(frozen=True)
class Figure:
    """One figure; `spec` has no title of its own."""

    kind: str
    title: str
    note: str
    """What is shown, in a sentence."""
    spec: dict[str, Any]


def choose_examples(named: NamedResult, alone: bool) -> list[tuple[str, InsertRun]]:
    """The slowest valid run of each worker count (in a series over fill levels: the first and the last
    run); beside other results, only that of the best worker count."""
    result = named.result
    runs = [run for run in _list_runs(result) if run.valid and run.timeline and run.inserts_per_s]
    if result.by_fill_level:
        return [
            (_name_run(named, run, alone), run)
            for run in (runs[:1] + runs[-1:] if alone else runs[:1])
        ]
    if not alone and result.best:
        runs = [run for run in runs if run.workers == result.best.workers]
    found: dict[int, InsertRun] = {}
    for run in runs:
        known = found.get(run.workers)
        if known is None or (run.inserts_per_s or 0) < (known.inserts_per_s or 0):
            found[run.workers] = run
    return [(_name_run(named, run, alone), run) for run in found.values()]


def choose_slowest(named: NamedResult, alone: bool) -> list[tuple[str, InsertRun]]:
    """The run with the highest p99 of each worker count; beside other results, only that of the
    best worker count."""
    result = named.result
    runs = [run for run in _list_runs(result) if run.valid and run.latency_ms]
    if not alone and result.best and not result.by_fill_level:
        runs = [run for run in runs if run.workers == result.best.workers]
    found: dict[int, InsertRun] = {}
    for run in runs:
        known = found.get(run.workers)
        if known is None or find_p99(run) > find_p99(known):
            found[run.workers] = run
    return [(_name_run(named, run, alone), run) for run in found.values()]


def _list_runs(result: Result) -> list[InsertRun]:
    """All runs; of a search those that its answer rests on, which others are far from."""
    if result.tuning is not None:
        best = result.tuning.rank_finalists()[:1]
        own = {number for t in result.tuning.trials if [t.candidate] == best for number in t.runs}
        return [run for run in result.insert_runs if run.run in own]
    if result.capacity is None:
        return result.insert_runs
    holding = {step.run for step in result.capacity.steps_at_answer}
    return [run for run in result.insert_runs if run.run in holding]


def describe_places(results: Sequence[NamedResult]) -> str:
    """Where `choose_examples` and `choose_slowest` look."""
    return "at each worker count" if len(results) == 1 else "of each result's best worker count"


def find_p99(run: InsertRun) -> float:
    return run.latency_ms.tail if run.latency_ms else 0.0


def _name_run(named: NamedResult, run: InsertRun, alone: bool) -> str:
    text = describe_run(named.result, run)
    return text if alone else f"{named.name}, {text}"


def describe_run(result: Result, run: InsertRun) -> str:
    if result.by_fill_level:
        return f"level {run.fill_level:,}"
    if result.clients is not None:
        return f"{result.clients.find_client(run.run)}, run {run.run}"
    return f"{format_count(run.workers, 'worker')}, run {run.run}"
