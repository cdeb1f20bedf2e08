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
    runs = [one for one in _list_runs(named.result) if one.group.timeline and one.group.rate_per_s]
    if named.result.by_fill_level:
        runs = [one for one in runs if one.group.valid]
        ends = runs[:1] + runs[-1:] if alone else runs[:1]
        return [(_name_run(named, one, alone), one) for one in ends]
    return _choose_each(named, alone, runs, lambda group: -(group.rate_per_s or 0))


def choose_slowest(named: NamedResult, alone: bool) -> list[tuple[str, GroupRun]]:
    """The run with the highest p99 of each worker count; beside other results, only that of the
    best worker count."""
    runs = [one for one in _list_runs(named.result) if one.group.latency_ms]
    return _choose_each(
        named, alone, runs, lambda group: group.latency_ms.tail if group.latency_ms else 0.0
    )


def _choose_each(
    named: NamedResult,
    alone: bool,
    runs: Sequence[GroupRun],
    weight: Callable[[GroupResult], float],
) -> list[tuple[str, GroupRun]]:
    """The valid run with the most weight of each worker count, or of the best alone; of several the first."""
    best = None if named.result.by_fill_level else named.result.best
    found: dict[int, GroupRun] = {}
    for one in runs:
        workers = one.group.workers
        if one.group.valid and (alone or best is None or workers == best.workers):
            known = found.get(workers)
            if known is None or weight(one.group) > weight(known.group):
                found[workers] = one
    return [(_name_run(named, one, alone), one) for one in found.values()]


def _list_runs(result: Result) -> list[GroupRun]:
    """All runs; of a search those that its answer rests on, which others are far from."""
    if result.tuning is not None:
        best = result.tuning.rank_finalists()[:1]
        own = {number for t in result.tuning.trials if [t.candidate] == best for number in t.runs}
        return [one for one in result.writers if one.run.run in own]
    if result.capacity is None:
        return result.writers
    holding = {step.run for step in result.capacity.steps_at_answer}
    return [one for one in result.writers if one.run.run in holding]


def describe_places(results: Sequence[NamedResult]) -> str:
    """Where `choose_examples` and `choose_slowest` look."""
    return "at each worker count" if len(results) == 1 else "of each result's best worker count"


def _name_run(named: NamedResult, one: GroupRun, alone: bool) -> str:
    text = describe_run(named.result, one)
    return text if alone else f"{named.name}, {text}"


def describe_run(result: Result, one: GroupRun) -> str:
    number = one.run.run
    if result.by_fill_level:
        return f"level {format_level(one)}"
    if result.clients is not None:
        return f"{result.clients.find_client(number) or 'loading'}, run {number}"
    return f"{format_count(one.group.workers, 'worker')}, run {number}"
