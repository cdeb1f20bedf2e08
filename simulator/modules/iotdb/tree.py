"""IoTDB's tree model: a device is a path, `root.<database>.<table>.<device>`, a column a measurement of it.

All measurements of a device are aligned: they share its times. What identifies a device is in its path, and
no more: IoTDB's documentation has it so ("Only include unique identifiers in the path",
https://iotdb.apache.org/UserGuide/latest/Background-knowledge/Data-Model-and-Terminology_apache.html). The
name does that alone, so tags are measurements, stored with each event as `tags=row` says. Were they levels of
the path, whoever asks of one device would have to know them, or have them searched for.

Nothing but the database is made beforehand: a device's timeseries come with its first event, of the types
that the tablet names, and without events there is no table.

An event without any value is not stored at all (2.0.1), so one measurement must never be missing. Events
are counted by that one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import Role
from ...workloads.queries import BoundQuery
from .._base.errors import missing_table
from ..base import Query
from .answers import Row
from .layout import PROBE, Layout
from .schema import LEVEL, find_steady, name_table, quote, split_path
from .tree_queries import NoTimeseriesError, compile_question

_DEVICES = 16


class Tree(Layout):
    """The tree model."""

    @property
    def database(self) -> str:
        return f"root.{self.options.database}"

    def make_database(self) -> None:
        statement = f"CREATE DATABASE {self.database}"
        if self.options.time_partition_interval_s is not None:
            statement += (
                f" WITH TIME_PARTITION_INTERVAL={self.options.time_partition_interval_s * 1000}"
            )
        self.ask(statement)

    def list_tables(self) -> set[str]:
        return {split_path(row[0])[LEVEL] for row in self.ask(f"SHOW CHILD PATHS {self.database}")}

    def make_tables(self) -> None:
        """There is nothing to make."""

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        if self._must_have_events:
            super().check_columns(tables, remedy)

    def drop_table(self, table: str) -> None:
        self.ask(f"DELETE TIMESERIES {self._path(table)}.**")

    def make_probe(self) -> None:
        """There is nothing to make."""

    def fill_probe(self) -> None:
        for number in range(_DEVICES):
            self.ask(
                f"INSERT INTO {self._path(PROBE)}.d{number}(timestamp, v) ALIGNED VALUES (0, 0)"
            )

    def count(self) -> int:
        steady = quote(find_steady(self.job.schema))
        counts = [
            self.ask(f"SELECT count({steady}) FROM {self._path(table)}.* GROUP BY LEVEL = {LEVEL}")
            for table in self.job.table_names
        ]
        return sum(int(row[0]) for rows in counts for row in rows)

    def compile(self, bound: BoundQuery) -> Query:
        path = self._path(self.job.schema.table)
        question = compile_question(bound, self.job.schema, path, self._must_have_events)

        def ask() -> list[Row]:
            try:
                return question(self.query)
            except NoTimeseriesError:
                raise missing_table(
                    f"IoTDB: there are no timeseries below {path}", self.job
                ) from None

        return ask

    @property
    def _must_have_events(self) -> bool:
        """As `Module.must_have_events`: tables come with them."""
        return self.job.load.role is Role.READ

    def _path(self, table: str) -> str:
        return name_table(self.options.database, table)
