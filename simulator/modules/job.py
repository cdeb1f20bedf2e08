"""What a run asks of a module, and in which ways one can build payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..contract import Load, Retention, Role, RunSettings, Tables
from ..workloads import name_events
from ..workloads.schema import Schema, Tags

TABLE_COUNT = 4
"""How many tables `--tables multiple` writes to."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run asks of a module, apart from the module's own options."""

    schema: Schema
    load: Load = field(default_factory=Load)
    """The writers' load, with the readers' queries; in a run without writers, the readers' load."""
    run_id: str = "none"
    clean: bool = True
    target: str = "TARGET"
    """The target's name, for commands that messages advise."""
    workload: str = "WORKLOAD"
    """What follows --workload in those commands."""
    program: str = "python run.py"
    """How those commands begin."""
    reads_by_clock: bool = False
    """Whether readers ask in an open loop."""
    retention: Retention | None = None
    """How long events are kept; None: nothing is deleted."""

    @classmethod
    def of(cls, settings: RunSettings, schema: Schema, retention: Retention | None = None) -> Job:
        """The job of a run's settings."""
        writing = settings.groups_of(Role.WRITE, Role.FILL)
        load = (writing or settings.groups)[0].load
        for group in settings.groups_of(Role.READ):
            load = load.model_copy(update={"queries": group.load.queries})
        data = settings.data
        return cls(
            schema,
            load,
            settings.run_id,
            data.clean,
            settings.target,
            name_events(data),
            settings.program,
            any(group.load.rate_per_s is not None for group in settings.groups_of(Role.READ)),
            retention,
        )

    @property
    def stamps_arrivals(self) -> bool:
        """Whether the kernel is to say when answers arrive (`modules/sending.py`)."""
        return self.reads_by_clock or self.load.rate_per_s is not None

    @property
    def table_names(self) -> list[str]:
        """The tables written to; event i goes to table i modulo their number."""
        if self.load.tables is Tables.MULTIPLE:
            return [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [self.schema.table]

    @property
    def all_table_names(self) -> list[str]:
        """All tables that any run may have left."""
        numbered = [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [*numbered, self.schema.table]

    @property
    def tags_tables(self) -> list[str]:
        """The table of the tags, if they have one of their own."""
        return [self.schema.tags_table] if self.schema.tags is Tags.TABLE else []


@dataclass(frozen=True)
class Encoding:
    """One way in which a module can build payloads, for the ceiling."""

    label: str
    options: Mapping[str, str]
    batched: bool = True
