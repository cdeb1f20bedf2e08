"""What a reader asks: queries that are always the same, and those that are drawn for each execution."""

from __future__ import annotations

from ..contract import Go
from ..modules.base import AnyModule, Query
from ..workloads.base import SHARING_WORKERS, Workload
from ..workloads.queries import Bound, bind, draw
from ..workloads.stored import Stored, StoredPart


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

    def renew(self) -> None:
        """After a new connection."""
        self._fixed = self._module.queries()

    def make(self, name: str, execution: int) -> Query:
        """The query with the parameters of an execution, numbered from 0 on: no part of its time."""
        if name in self._fixed:
            return self._fixed[name]
        return self._module.compile(self._draw(name, execution))

    def bind(self, name: str, execution: int) -> Bound | None:
        """What an execution asked; None if that isn't described."""
        if name not in self._fixed:
            return self._draw(name, execution)
        description = self._module.describe_query(name)
        if description is None or description.is_drawn:
            return None
        return bind(description, self._module.job.schema.epoch_ms)

    def _draw(self, name: str, execution: int) -> Bound:
        assert self._stored is not None
        drawn = execution if self._redraw else 0
        return draw(self._drawn[name], self._stored, self._reader, drawn)


def _share_devices(workload: Workload, workers: int | None) -> Workload:
    """The workload with devices that so many workers share; None: as it is."""
    if workers is None:
        return workload
    options = workload.options.model_dump() | {SHARING_WORKERS: workers}
    return type(workload)(workload.seed, **options)
