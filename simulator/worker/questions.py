"""What a reader asks: queries that are always the same, and those that are drawn for each execution; and the
first answer to each, which is kept to be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contract import GivenAnswer, Go, WorkerAnswers
from ..modules.base import AnyModule, Query
from ..oracle.answers import describe_answer
from ..oracle.comparing import Malformed, normalize
from ..oracle.stored import Stored, StoredPart
from ..workloads.base import SHARING_WORKERS, Workload
from ..workloads.drawing import BoundQuery, bind, draw
from ..workloads.schema import Schema


class Questions:
    """The queries of one reader, ready to be asked over the module's connection."""

    def __init__(
        self,
        module: AnyModule,
        workload: Workload,
        go: Go,
        reader: int,
        redraw: bool = True,
    ) -> None:
        """`go`: which events are stored; `reader`: its number, which its parameters depend on; `redraw`:
        those of each execution are its own. OptionError as from `Module.queries`."""
        self._module = module
        self._redraw = redraw
        self._reader = reader
        self._fixed = module.queries()
        self._drawn = module.drawn_queries()
        self.names = module.choose_queries() if self._drawn else list(self._fixed)
        self._stored: Stored | None = None
        if self._drawn:
            parts = [StoredPart(part.worker, part.first, part.count) for part in go.stored]
            shared = _share_devices(workload, go.sharing_workers)
            self._stored = Stored(shared, parts, go.before_ms)

    def connect_again(self) -> None:
        """Disconnect and connect; Retryable or SimulatorError if that fails."""
        self._module.close()
        self._module.open()
        self._fixed = self._module.queries()

    def make(self, name: str, execution: int) -> Query:
        """The query with the parameters of an execution, numbered from 0 on: no part of its time."""
        if name in self._fixed:
            return self._fixed[name]
        return self._module.compile(self._draw(name, execution))

    def bind(self, name: str, execution: int) -> BoundQuery | None:
        """What an execution asked; None if that isn't described."""
        if name not in self._fixed:
            return self._draw(name, execution)
        description = self._module.describe_query(name)
        if description is None or description.is_drawn:
            return None
        return bind(description, self._module.job.schema.epoch_ms)

    def _draw(self, name: str, execution: int) -> BoundQuery:
        assert self._stored is not None
        drawn = execution if self._redraw else 0
        return draw(self._drawn[name], self._stored, self._reader, drawn)


def _share_devices(workload: Workload, workers: int | None) -> Workload:
    """The workload with devices that so many workers share; None: as it is."""
    if workers is None:
        return workload
    options = workload.options.model_dump() | {SHARING_WORKERS: workers}
    return type(workload)(workload.seed, **options)


# The first answer that a reader gets to each query, kept to be checked.

KEPT_VALUES = 500_000
"""How many values of answers a reader keeps: with the Python objects that they are, 50 MB at most."""

_NOT_DESCRIBED = "no right answer is described"


class FirstAnswers:
    """The first answers of one reader. Noting one costs next to nothing, so that it can be done between
    two executions."""

    def __init__(self, wanted: bool) -> None:
        """Without being `wanted` they are not kept."""
        self._wanted = wanted
        self._kept: dict[str, tuple[int, Sequence[Sequence[Any]]]] = {}
        self._too_long: list[str] = []
        self._left = KEPT_VALUES

    def note(self, name: str, execution: int, rows: Sequence[Sequence[Any]]) -> None:
        """An answer to a query, of which the first is kept."""
        if not self._wanted or name in self._kept or name in self._too_long:
            return
        values = len(rows) * len(rows[0]) if rows else 0
        if values > self._left:
            self._too_long.append(name)
            return
        self._left -= values
        self._kept[name] = execution, rows

    def hand_in(self, worker: int, questions: Questions, schema: Schema) -> WorkerAnswers:
        """All that are kept, which are forgotten by that."""
        reason = f"answers of more than {KEPT_VALUES:,} values are too long to be kept"
        found = WorkerAnswers(
            worker=worker, answers=[], unchecked=dict.fromkeys(self._too_long, reason)
        )
        for name in list(self._kept):
            execution, rows = self._kept.pop(name)
            bound = questions.bind(name, execution)
            if bound is None:
                found.unchecked[name] = _NOT_DESCRIBED
            else:
                found.answers.append(_give(name, bound, rows, schema))
        return found


def _give(
    name: str, bound: BoundQuery, rows: Sequence[Sequence[Any]], schema: Schema
) -> GivenAnswer:
    given = GivenAnswer(
        query=name,
        devices=None if bound.devices is None else list(bound.devices),
        start_ms=bound.start_ms,
        end_ms=bound.end_ms,
    )
    kinds = [kind for _, kind in describe_answer(bound.query, schema)]
    try:
        given.columns = normalize(kinds, rows)
    except Malformed as error:
        given.malformed = str(error)
    return given
