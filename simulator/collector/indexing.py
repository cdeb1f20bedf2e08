"""The indexes of a run's tables: made before its inserts, or built when the events are loaded, and timed."""

from __future__ import annotations

import time
from typing import Any

from ..contract import Role, RunSettings
from ..errors import SimulatorError
from ..modules.base import AnyModule
from ..modules.indexes import CreateIndices, IndexedModule
from .asking import ask


class Indexing:
    """What is done for `create_indices`; nothing, if the module has no indexes."""

    def __init__(self, settings: RunSettings, module: AnyModule) -> None:
        self._settings = settings
        self._job = module.job
        self._module: IndexedModule[Any, Any] | None = None
        self._when = CreateIndices.NO
        if isinstance(module, IndexedModule):
            self._module = module
            self._when = module.options.create_indices
        self.build_s: float | None = None
        """How long it took to build indexes on events that were there."""

    @property
    def builds_before_run(self) -> bool:
        """Whether they are built between the prefill and the start."""
        return self._when is CreateIndices.AFTER and self._settings.loads_by_prefill

    @property
    def builds_after_run(self) -> bool:
        """Whether they are built when the run's own events are loaded."""
        writes = bool(self._settings.groups_of(Role.WRITE))
        return self._when is CreateIndices.AFTER and writes and not self.builds_before_run

    def prepare_inserts(self) -> None:
        """Make them, or see to it that there are none. SimulatorError if tables that stay have some that
        nobody asked for."""
        module = self._module
        if module is None:
            return
        if self._when is CreateIndices.BEFORE:
            module.create_indexes(module.index_names)
        elif present := self._list_present(module):
            if self.builds_after_run:
                module.drop_indexes(present)
            elif self._when is CreateIndices.NO:
                raise SimulatorError(
                    f"the tables have indexes that create_indices=no does not make ({', '.join(present)}):"
                    " run without --no-clean, or with create_indices=before"
                )

    def prepare_queries(self) -> None:
        """Of tables that others have loaded: SimulatorError if indexes are missing that inserts should have
        paid for; those of `after` are built."""
        if self._when is CreateIndices.BEFORE and (lacking := self._list_lacking()):
            raise SimulatorError(
                f"the tables were loaded without the indexes of create_indices=before ({', '.join(lacking)}),"
                " so no insert has paid for them: insert again with create_indices=before, or have them built"
                " now, and timed, with create_indices=after"
            )
        if self._when is CreateIndices.AFTER:
            self.build()

    def build(self) -> None:
        """Build those that are missing, and note how long it takes."""
        if lacking := self._list_lacking():
            assert self._module is not None
            create = self._module.create_indexes
            began = time.monotonic()
            ask(lambda: create(lacking))
            self.build_s = time.monotonic() - began

    def describe_schema(self) -> dict[str, object]:
        """The tables as they are now, as far as runs can differ in them."""
        schema: dict[str, object] = {
            "tables": self._job.table_names,
            "tags": str(self._job.schema.tags),
        }
        if self._settings.groups_of(Role.WRITE, Role.FILL):
            schema["primary_key"] = str(self._job.load.primary_key)
        if self._module is not None:
            schema["indexes"] = sorted(ask(self._module.list_indexes).values())
        return schema

    def _list_lacking(self) -> list[str]:
        if self._module is None:
            return []
        present = ask(self._module.list_indexes)
        return [name for name in self._module.index_names if name not in present]

    def _list_present(self, module: IndexedModule[Any, Any]) -> list[str]:
        lacking = self._list_lacking()
        return [name for name in module.index_names if name not in lacking]
