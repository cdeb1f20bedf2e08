"""IoTDB's table model: a workload's table is a table."""

from __future__ import annotations

from functools import partial

from ...workloads.queries import Bound
from ..base import Query
from ..shared.sql import quote_name
from .encoding import TIME, list_columns
from .layout import PROBE, Layout
from .queries import compile_statement


class Tables(Layout):
    """The table model."""

    @property
    def database(self) -> str:
        return self.options.database

    def make_database(self) -> None:
        statement = f"CREATE DATABASE IF NOT EXISTS {quote_name(self.database)}"
        if self.options.time_partition_interval_s is not None:
            interval_ms = self.options.time_partition_interval_s * 1000
            statement += f" WITH (time_partition_interval={interval_ms})"
        self.ask(statement)

    def list_tables(self) -> set[str]:
        if not self.is_there():
            return set()
        return {row[0] for row in self.ask(f"SHOW TABLES FROM {quote_name(self.database)}")}

    def make_tables(self) -> None:
        columns = [f"{TIME} TIMESTAMP TIME"]
        columns += [
            f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
            for column in list_columns(self.job.schema)
        ]
        for table in self.job.table_names:
            self.ask(f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})")

    def drop_table(self, table: str) -> None:
        # Or rows that came out of the order of time are in the next table of that name (2.0.1).
        self.ask(f"DELETE FROM {quote_name(table)}")
        self.ask(f"DROP TABLE {quote_name(table)}")

    def make_probe(self) -> None:
        self.ask(
            f"CREATE TABLE IF NOT EXISTS {PROBE} ({TIME} TIMESTAMP TIME, name STRING TAG, value INT32 FIELD)"
        )

    def fill_probe(self) -> None:
        rows = ", ".join(f"(0, '{number}', 0)" for number in range(16))
        self.ask(f"INSERT INTO {PROBE}({TIME}, name, value) VALUES {rows}")

    def count(self) -> int:
        counts = [
            self.ask(f"SELECT count(*) FROM {quote_name(table)}") for table in self.job.table_names
        ]
        return sum(int(rows[0][0]) for rows in counts)

    def compile(self, bound: Bound) -> Query:
        return partial(self.query, compile_statement(bound, self.job.schema))
