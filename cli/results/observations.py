"""Stored results as one tidy table: the one input of what looks at more than one run. Pure.

A row is a group of workers in a run or, of readers, one of their queries, or one execution of it, or a stage
of a rate that changes; its columns are the registry's figures. `results export` writes the rows, the matrix
and charts read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import Role

from .entries import Entry, list_entries, split_queries, split_stages
from .figures import EXPORTED, FIGURES, STAGED, Figure, read_all
from .model import GroupRun, Result

_OF_STAGE = [*(FIGURES[key] for key in ("workers", "run", "valid", "fill_level")), *STAGED]


@dataclass(frozen=True)
class Observation:
    """A row: what was measured, where, and its figures."""

    candidate: str
    """What is compared: a campaign's candidate, else the target."""
    step: str
    """A campaign's step, else the command."""
    repetition: int | None
    """None outside of a campaign."""
    run: int
    group: str
    """`writers` or `readers`; of a run with one group of two at a time `writers alone` or `readers alone`."""
    workers: int
    level: int | None
    """Events in the database when the window began, if they could be counted."""
    valid: bool
    """Whether its figures count."""
    query: str | None
    """None: the group as a whole."""
    part: int | None
    """Which execution of the query, or which stage of the group, from 1 on; None: all together."""
    figures: Mapping[str, Any]
    """Key of `results.figures` -> value; what isn't known is left out."""

    def list_tidy(self) -> Iterator[tuple[str, Any]]:
        """(figure, value): the row in the long form, one figure each."""
        yield from self.figures.items()


def observe(
    result: Result, candidate: str | None = None, figures: Sequence[Figure] = EXPORTED
) -> Iterator[Observation]:
    """The rows of a result: writers, those of them that ran alone, then readers. Of each group first the run
    as a whole, then its queries (or, where these were kept, their executions), then its stages. `candidate`:
    what it is called; `figures`: the only ones that are read."""
    staged = [figure for figure in _OF_STAGE if figure in figures]
    alone = result.alone
    for role, runs in ((Role.WRITE, result.writers), (Role.READ, result.readers)):
        for group_runs in (runs, [run for run in alone if run.group.role is role]):
            for entry in list_entries(group_runs, result):
                yield _observe(result, candidate, entry, figures)
                parts = list(split_queries(entry)) if role is Role.READ else []
                for number, part in enumerate(parts, 1):
                    yield _observe(result, candidate, part, figures, number if part.each else None)
                for stage in split_stages(entry):
                    yield _observe(result, candidate, stage, staged, stage.number)


def _observe(
    result: Result,
    candidate: str | None,
    entry: Entry,
    figures: Sequence[Figure],
    part: int | None = None,
) -> Observation:
    group_run = entry.group_run
    return Observation(
        candidate=candidate or result.target,
        step=result.command,
        repetition=None,
        run=group_run.run.run,
        group=name_group(group_run),
        workers=entry.group.workers,
        level=group_run.run.fill_level,
        valid=entry.group.valid,
        query=entry.query.query if entry.query else None,
        part=part,
        figures=read_all(entry, figures),
    )


def name_group(group_run: GroupRun) -> str:
    """`writers`, `readers alone`."""
    name = "writers" if group_run.group.role is Role.WRITE else "readers"
    return f"{name} alone" if group_run.alone else name
