"""Tables created by a workload's own statements (`simulator/workloads/own_schema.py`) instead of the
module's. Before anything is dropped, the statements are tried: the tables are created under another name,
examined, and dropped again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from ...contract import Tables
from ...errors import Retryable, SimulatorError, did_you_mean, one_line
from ...workloads.own_schema import fill_statements
from ..options import OptionsT
from .module import ConnectedModule, ConnectionT
from .sql_queries import quote_text

TRIAL = "benchmark_trial"
"""The table for trying statements; the name of the tags' table starts with it."""

_MOST_SHOWN = 60
"""Characters of a statement to quote in a message."""


class OwnTablesModule(ConnectedModule[OptionsT, ConnectionT]):
    """A module whose tables are created by statements: the workload's own, if it has some."""

    _tried: Mapping[bool, Mapping[str, str]] = {}
    """Whether it is the tags' table -> the columns that the workload's statements give it."""

    @abstractmethod
    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        """The module's own statements that create all tables of the job; `there`: existing tables."""

    @abstractmethod
    def name_table(self, table: str) -> str:
        """A table's name in statements."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Execute a statement without an answer, which may take a while."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Drop a table, if it exists."""

    def mark_table(self, table: str) -> list[str]:
        """The statement that marks a table as this tool's in the database; none where that isn't possible."""
        return []

    def check_own_tables(self) -> None:
        """SimulatorError if the workload's existing tables don't fit the events or queries."""

    def make_statements(self, there: Collection[str] = ()) -> list[str]:
        """The statements that create all tables of the job: the workload's own, or else the module's."""
        if not self.own_tables:
            return self.create_tables(there)
        statements = []
        for table in self.tables:
            if table not in there:
                name, is_tags = self.name_table(table), table in self.job.tags_tables
                first, *others = fill_statements(self.own_tables, name, quote_text(name), is_tags)
                statements += [first, *self.mark_table(table), *others]
        return statements

    def try_own_tables(self) -> None:
        """Create the workload's tables under another name, and drop them again. SimulatorError, before
        anything else was changed, if the server refuses their statements, or if they lack columns of
        events."""
        if not self.own_tables:
            return
        job = self.job.change(tables=Tables.SINGLE)
        schema = replace(job.schema, table=TRIAL, tags_of=None)
        trial = type(self)(self.options, replace(job, schema=schema, clean=True))
        trial._connection = self.connection
        for table in reversed(trial.claim_tables()):
            trial.drop(table)
        try:
            for statement in trial.make_statements():
                trial._try_statement(statement)
            self._tried = {table in trial.job.tags_tables: trial.read_columns(table)
                           for table in trial.tables}  # fmt: skip
            trial._check_own_columns(self._tried)
            trial.check_own_tables()
        finally:
            for table in reversed(trial.tables):
                with suppress(Retryable, SimulatorError):
                    trial.drop(table)

    def _try_statement(self, statement: str) -> None:
        try:
            self.execute(statement)
        except SimulatorError as error:
            text = one_line(statement)
            shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
            raise SimulatorError(
                f"the workload's own schema was refused, and nothing was dropped: {error} ({shown})"
            ) from error

    def _check_own_columns(self, tried: Mapping[bool, Mapping[str, str]]) -> None:
        for table in self.tables:
            is_tags = table in self.job.tags_tables
            actual, expected = tried[is_tags], self.expect_columns(table)
            for name, kind in expected.items():
                if name not in actual:
                    hint = did_you_mean(name, [other for other in actual if other not in expected])
                    raise own_schema_lacks(f"no column {name}{hint}", is_tags)
                if kind is not None and not self.holds(actual[name], kind):
                    raise own_schema_lacks(
                        f"{name} as {actual[name]}, which can't hold what is sent: make it {kind}",
                        is_tags,
                    )

    def is_like_ours(self, table: str) -> bool:
        columns = self._tried.get(table in self.job.tags_tables)
        if columns is not None and self.read_columns(table) == columns:
            return True
        return super().is_like_ours(table)


def own_schema_lacks(what: str, is_tags: bool = False) -> SimulatorError:
    """What is wrong with a workload's own table, after `it has`."""
    table = ":tags" if is_tags else ":table"
    return SimulatorError(
        f"the workload's own schema doesn't fit, and nothing was dropped: {table} has {what}"
    )
