"""IoTDB's table model: a workload's table is a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...workloads.queries import BoundQuery
from ...workloads.schema import Schema
from ...workloads.tags import Tags
from .._base.errors import INSERT_REMEDY, made_otherwise
from .._base.sql_queries import quote_name
from ..base import Query
from .layout import PROBE, Layout
from .queries import compile_statement
from .schema import TIME, describe_tags, list_columns


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
        for table, schema in self._describe(self.job.table_names).items():
            columns = [f"{TIME} TIMESTAMP TIME"]
            columns += [
                f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
                for column in list_columns(schema)
            ]
            self.ask(f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})")
        if not self.job.clean:
            self.check_columns(self.job.table_names, INSERT_REMEDY)

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        needed = self._describe(tables)
        super().check_columns([*needed], remedy)
        for table, schema in needed.items():
            found = {row[0] for row in self.ask(f"DESC {quote_name(table)}")}
            for column in list_columns(schema):
                if column.name.lower() not in found:
                    raise made_otherwise(table, f"it has no column {column.name}", remedy)

    def _describe(self, tables: Sequence[str]) -> dict[str, Schema]:
        """What is stored in each of these, and in the tags' table if there is to be one."""
        schema = self.job.schema
        found = dict.fromkeys(tables, schema)
        if schema.tags is Tags.TABLE:
            found[schema.tags_table] = describe_tags(schema)
        return found

    def count_devices(self) -> int | None:
        schema = self.job.schema
        if schema.tags is not Tags.TABLE:
            return None
        return int(self.ask(f"SELECT count(*) FROM {quote_name(schema.tags_table)}")[0][0])

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

    def compile(self, bound: BoundQuery) -> Query:
        return partial(self.query, compile_statement(bound, self.job.schema))
