"""Stored results as one tidy table: the input of everything that looks at several runs. Pure. A row is a
group of workers in a run, one of its queries or executions, or a stage of a changing rate; its columns are
the registry's figures. `results export` writes these rows, the matrix and charts read them. Rows over all
runs come last: readers' times and the answers of searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import Role

from .caveats import Place, find_place
from .entries import Entry, list_entries, split_queries, split_stages
from .figures import EXPORTED, FIGURES, STAGED, Figure, read_all
from .model import GroupRun, Result
from .summaries import collect_query_samples, group_executions, list_queries

_OF_STAGE = [*(FIGURES[key] for key in ("workers", "run", "valid", "fill_level")), *STAGED]


CAPACITY = Place(figure="capacity_per_s")


@dataclass(frozen=True)
class Observation:
    """A row: what was measured, where, and the figures."""

    candidate: str
    """A campaign's candidate, or else the target."""
    step: str
    """A campaign's step, or else the command."""
    repetition: int | None
    """None outside campaigns."""
    run: int | None
    """None: all runs together."""
    group: str
    """`writers` or `readers`; in a baseline run with one group at a time, `writers alone` or `readers
    alone`."""
    workers: int
    level: int | None
    """Events in the database when the window began, if they could be counted."""
    valid: bool
    """Whether its figures count."""
    place: Place | None
    """The place at which its figures compare with other results, as independent samples; None if they don't:
    readers disturb each other, and the runs of a search differ in rate."""
    query: str | None
    """None: the group as a whole."""
    part: int | None
    """Number of the execution, of the stage, or of the sample over all runs, from 1; None: all together."""
    figures: Mapping[str, Any]
    """Key of `results.figures` -> value; unknown ones are left out. Over all runs: `query_mean_s`,
    `tuned_per_s` or `capacity_*`."""


def observe(
    result: Result,
    candidate: str | None = None,
    repetition: int | None = None,
    figures: Sequence[Figure] = EXPORTED,
    parts: bool = True,
) -> Iterator[Observation]:
    """The rows of a result: writers, writers alone, then readers. For each group first the whole run, then
    its queries (or their executions, if kept), then its stages. `candidate`, `repetition`: used if the result
    doesn't have them; `figures`: the only ones to read; `parts`: include queries, executions and stages."""
    names = [candidate, result.candidate, result.target]
    name = next(name for name in names if name is not None)
    step, repetition = result.step or result.command, repetition or result.repetition
    compared = result.command in ("insert", "mixed")

    def make(entry: Entry, read: Sequence[Figure], part: int | None = None) -> Observation:
        run, group = entry.group_run, entry.group
        beside = compared and group.role is Role.WRITE and not run.alone and entry.stage is None
        return Observation(
            name, step, repetition, run.run.run, name_group(run), group.workers,
            run.run.fill_level, group.valid, find_place(result, run) if beside else None,
            entry.query.query if entry.query else None, part, read_all(entry, read),
        )  # fmt: skip

    staged = [figure for figure in _OF_STAGE if figure in figures] if parts else []
    for role, runs in ((Role.WRITE, result.writers), (Role.READ, result.readers)):
        alone = [run for run in result.alone if run.group.role is role]
        for entry in (*list_entries(runs, result), *list_entries(alone, result)):
            yield make(entry, figures)
            for number, part in enumerate(split_queries(entry) if parts else (), 1):
                yield make(part, figures, number if part.each else None)
            for stage in split_stages(entry) if staged else ():
                yield make(stage, staged, stage.number)

    def sum_up(group: str, place: Place, part: int | None, values: dict[str, Any]) -> Observation:
        return Observation(
            name, step, repetition, None, group, 0, None, True, place, place.query, part, values
        )  # fmt: skip

    if result.command in ("query", "mixed"):
        executions = group_executions(result.asked)
        for query in list_queries(result.asked):
            times_s = (
                executions[query].samples
                if query in executions
                else collect_query_samples(result.asked, query)
            )
            for number, time_s in enumerate(times_s, 1):
                yield sum_up("readers", Place(query=query), number, {"query_mean_s": time_s})
    if (tuning := result.tuning) is not None and (best := tuning.rank_finalists()):
        for number, rate in enumerate(tuning.find_rates(best[0], tuning.stages), 1):
            yield sum_up("writers", Place(figure="tuned_per_s"), number, {"tuned_per_s": rate})
    if (capacity := result.capacity) is not None:
        answer = {
            "capacity_per_s": capacity.events_per_s, "capacity_above_per_s": capacity.above_per_s,
            "capacity_client_bound": capacity.client_bound, "capacity_precision": capacity.precision,
        }  # fmt: skip
        known = {key: value for key, value in answer.items() if value is not None}
        yield sum_up("writers", CAPACITY, None, known)


def name_group(group_run: GroupRun) -> str:
    """`writers`, `readers alone`."""
    name = "writers" if group_run.group.role is Role.WRITE else "readers"
    return f"{name} alone" if group_run.alone else name
