"""What a figure is read from: a group of a run, one of its queries, executions or stages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.contract import Execution, GroupResult, QueryResult, StageResult

from .limits import RunVerdict
from .model import GroupRun, Result
from .summaries import EventSize, weigh


@dataclass(frozen=True)
class Entry:
    """What a row of a table or of an export is about: a group of a run, or, of readers, one of their queries
    or one execution of it."""

    group_run: GroupRun
    before: GroupRun | None = None
    """The run before it."""
    query: QueryResult | None = None
    each: Execution | None = None
    stage: StageResult | None = None
    """A stage of a rate that changes."""
    number: int | None = None
    """Which stage it is."""
    cost_per_hour: float | None = None
    holds: bool | None = None
    """Whether the run keeps its limits; None: it has none, or that isn't decided."""
    verdict: RunVerdict | None = None
    """What became of the limits."""

    @property
    def group(self) -> GroupResult:
        """What the workers measured."""
        return self.group_run.group

    @cached_property
    def size(self) -> EventSize:
        """What an event of the run takes on disk."""
        return weigh(self.group_run, self.before)


def list_entries(runs: Sequence[GroupRun], result: Result | None = None) -> list[Entry]:
    """An entry for each run of a group; `split_queries` splits those of readers by their queries. `result`:
    the result of the runs, for what it costs and whether a rate holds."""
    steps = result.capacity.steps if result and result.capacity else []
    holds = {step.run: step.holds for step in steps}
    judged = {id(run): verdict for run, verdict in result.judged} if result else {}
    cost = result.cost_per_hour if result else None
    entries = []
    before: GroupRun | None = None
    for group_run in runs:
        verdict = judged.get(id(group_run.run))
        held = verdict.holds if verdict else holds.get(group_run.run.run)
        entry = Entry(group_run, before, cost_per_hour=cost, holds=held, verdict=verdict)
        entries.append(entry)
        before = group_run
    return entries


def split_queries(entry: Entry) -> Iterator[Entry]:
    """An entry for each query, or for each execution where these were kept."""
    for query in entry.group.queries:
        own = replace(entry, query=query)
        yield from (replace(own, each=execution) for execution in query.each)
        if not query.each:
            yield own


def split_stages(entry: Entry) -> Iterator[Entry]:
    """An entry for each stage of a rate that changes."""
    for number, stage in enumerate(entry.group.stages, 1):
        yield replace(entry, stage=stage, number=number)
