"""What a reader asks: queries that are always the same, and those that are drawn for each execution."""

from __future__ import annotations

from collections.abc import Sequence

from ..contract import StoredEvents
from ..modules.base import AnyModule, Query
from ..workloads.base import Workload
from ..workloads.queries import draw
from ..workloads.stored import Stored, StoredPart


class Questions:
    """The queries of one reader, ready to be asked over the module's connection."""

    def __init__(
        self,
        module: AnyModule,
        workload: Workload,
        stored: Sequence[StoredEvents],
        reader: int,
        redraw: bool = True,
    ) -> None:
        """`reader`: its number, which its parameters depend on; `redraw`: those of each execution are its
        own. OptionError as from `Module.queries`."""
        self._module = module
        self._redraw = redraw
        self._reader = reader
        self._fixed = module.queries()
        self._drawn = module.drawn_queries()
        self.names = module.choose_queries() if self._drawn else list(self._fixed)
        self._stored: Stored | None = None
        if self._drawn:
            parts = [StoredPart(part.worker, part.first, part.count) for part in stored]
            self._stored = Stored(workload, parts)

    def renew(self) -> None:
        """After a new connection."""
        self._fixed = self._module.queries()

    def make(self, name: str, execution: int) -> Query:
        """The query with the parameters of an execution, numbered from 0 on: no part of its time."""
        if name in self._fixed:
            return self._fixed[name]
        assert self._stored is not None
        drawn = execution if self._redraw else 0
        return self._module.compile(draw(self._drawn[name], self._stored, self._reader, drawn))
