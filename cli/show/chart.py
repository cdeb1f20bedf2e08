"""What a chart is, and which runs it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import GroupResult
from simulator.units import format_count

from ..results.model import GroupRun, Result
from .tables import format_level


@dataclass(frozen=True)
class NamedResult:
    """A result under the name that it has in a chart."""

    name: str
    result: Result


@dataclass(frozen=True)
class Chart:
    """A drawn figure, of one kind of `plot`; `spec` has no title of its own."""

    kind: str
    title: str
    note: str
    """What is shown, in a sentence."""
    spec: dict[str, Any]


def choose_examples(named: NamedResult, alone: bool) -> list[tuple[str, GroupRun]]:
    """The slowest valid run of each worker count (in a series over fill levels: the first and the last
    run); beside other results, only that of the best worker count."""
    runs = [run for run in _list_runs(named.result) if run.group.timeline and run.group.rate_per_s]
    if named.result.by_fill_level:
        runs = [run for run in runs if run.group.valid]
        ends = runs[:1] + runs[-1:] if alone else runs[:1]
        return [(_name_run(named, run, alone), run) for run in ends]
    return _choose_each(named, alone, runs, lambda group: -(group.rate_per_s or 0))


def choose_slowest(named: NamedResult, alone: bool) -> list[tuple[str, GroupRun]]:
    """The run with the highest p99 of each worker count; beside other results, only that of the
    best worker count."""
    runs = [run for run in _list_runs(named.result) if run.group.latency_ms]
    return _choose_each(
        named, alone, runs, lambda group: group.latency_ms.tail if group.latency_ms else 0.0
    )


def _choose_each(
    named: NamedResult,
    alone: bool,
    runs: Sequence[GroupRun],
    weight: Callable[[GroupResult], float],
) -> list[tuple[str, GroupRun]]:
    """The valid run with the most weight at each worker count, or only at the best one; the first of equal
    ones."""
    best = None if named.result.by_fill_level else named.result.best
    chosen: dict[int, GroupRun] = {}
    for run in runs:
        workers = run.group.workers
        if run.group.valid and (alone or best is None or workers == best.workers):
            previous = chosen.get(workers)
            if previous is None or weight(run.group) > weight(previous.group):
                chosen[workers] = run
    return [(_name_run(named, run, alone), run) for run in chosen.values()]


def _list_runs(result: Result) -> list[GroupRun]:
    """All runs; of a search only those that its answer rests on, since the others are far from it."""
    if result.tuning is not None:
        best = result.tuning.rank_finalists()[:1]
        numbers = {
            number
            for trial in result.tuning.trials
            if [trial.candidate] == best
            for number in trial.runs
        }
        return [group_run for group_run in result.writers if group_run.run.run in numbers]
    if result.capacity is None:
        return result.writers
    holding = {step.run for step in result.capacity.steps_at_answer}
    return [group_run for group_run in result.writers if group_run.run.run in holding]


def describe_places(results: Sequence[NamedResult]) -> str:
    """Where `choose_examples` and `choose_slowest` look."""
    return "at each worker count" if len(results) == 1 else "of each result's best worker count"


def _name_run(named: NamedResult, run: GroupRun, alone: bool) -> str:
    text = describe_run(named.result, run)
    return text if alone else f"{named.name}, {text}"


def describe_run(result: Result, group_run: GroupRun) -> str:
    number = group_run.run.run
    if result.by_fill_level:
        return f"level {format_level(group_run)}"
    if result.clients is not None:
        return f"{result.clients.find_client(number) or 'loading'}, run {number}"
    return f"{format_count(group_run.group.workers, 'worker')}, run {number}"
