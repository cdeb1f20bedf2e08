"""Where events are in a database, whichever of IoTDB's models it is of."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ...errors import Retryable
from ...workloads.queries import BoundQuery
from .._base.errors import nothing_to_query
from ..base import Job, Query
from .answers import Row
from .options import IotdbOptions

Ask = Callable[[str, float], list[Row]]
"""Asks a statement, for so many seconds at most: all rows of its answer."""

PROBE = "iot_database_benchmark_regions"
"""A table that is there for a moment."""
_REGIONS_S = 30.0


class Layout(ABC):
    """A model's statements. All methods but `compile` raise Retryable or SimulatorError."""

    def __init__(self, options: IotdbOptions, job: Job, ask: Ask) -> None:
        self.options = options
        self.job = job
        self._ask_for = ask

    @property
    @abstractmethod
    def database(self) -> str:
        """What the server calls the database in its lists."""

    def prepare(self) -> None:
        """Make the database if there is none, and what the job's tables need; drop them before if the job
        cleans."""
        if not self.is_there():
            self.make_database()
            self._make_regions()
        if self.job.clean:
            present = self.list_tables()
            for table in (*self.job.all_table_names, self.job.schema.tags_table):
                if table in present:
                    self.drop_table(table)
        self.make_tables()

    def is_there(self) -> bool:
        """Whether there is such a database."""
        return self.database in {row[0] for row in self.ask("SHOW DATABASES")}

    @abstractmethod
    def make_database(self) -> None:
        """Make the database."""

    @abstractmethod
    def list_tables(self) -> set[str]:
        """The database's tables; none if there is no such database."""

    @abstractmethod
    def make_tables(self) -> None:
        """Make the job's tables that aren't there, as far as they can be without events."""

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        """SimulatorError if one of the tables isn't there, or has other columns than events have now;
        `remedy`: as `made_otherwise` has it."""
        present = self.list_tables()
        for table in tables:
            if table not in present:
                raise nothing_to_query(table, self.job)

    def count_devices(self) -> int | None:
        """Rows of the tags' table; None if there is none."""
        return None

    @abstractmethod
    def drop_table(self, table: str) -> None:
        """Drop a table with its events."""

    @abstractmethod
    def count(self) -> int:
        """Events in the job's tables."""

    @abstractmethod
    def compile(self, bound: BoundQuery) -> Query:
        """What is bound as a function that asks."""

    @abstractmethod
    def make_probe(self) -> None:
        """Make the probe's table, if there is anything to make."""

    @abstractmethod
    def fill_probe(self) -> None:
        """Store something of many devices there."""

    def ask(self, statement: str) -> list[Row]:
        """The rows of a statement that is no query of the workload."""
        return self._ask_for(statement, self.options.database_timeout_s)

    def query(self, statement: str) -> list[Row]:
        """The rows of one that is."""
        return self._ask_for(statement, self.options.query_timeout_s)

    def _make_regions(self) -> None:
        """Have a new database make its regions, which takes seconds and else would be the first events'
        time. Raises Retryable if they aren't there in time."""
        self.make_probe()
        deadline = time.monotonic() + _REGIONS_S
        while True:
            try:
                self.fill_probe()
                break
            except Retryable:
                # There is no event for it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.drop_table(PROBE)
