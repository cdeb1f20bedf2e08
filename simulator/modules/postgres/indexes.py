"""Indexes of PostgreSQL and its relatives."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from ...workloads.schema import ColumnType, Schema
from ...workloads.tags import ID, Tags
from .._base.sql_queries import SqlDialect, quote_name
from .server import Session

_LONGEST_NAME = 63
"""Bytes; what is beyond is cut: https://www.postgresql.org/docs/current/limits.html"""


def name_index(table: str, index: str) -> str:
    """A name within the server's limit. It begins with the table: names are the schema's, and one that there
    is already, on whichever table, would pass for the one asked for."""
    name = f"{table}_{index}"
    if len(name) <= _LONGEST_NAME:
        return name
    tail = f"_{crc32(table.encode()):08x}_{index}"
    return table[: _LONGEST_NAME - len(tail)] + tail


def list_statements(
    schema: Schema, tables: Sequence[str], dialect: SqlDialect, time_order: str
) -> dict[str, str]:
    """Name -> statement of each index of the events' tables, and of the tags' table."""
    apart = schema.tags is Tags.TABLE
    name = f"({dialect.device(schema)})" if schema.device_path else quote_name(schema.device)
    device = quote_name(ID) if apart else name
    # YugabyteDB would hash the first column if nothing were said of its order: no help for a
    # minimum or a range.
    values = [f"{quote_name(c.name)} ASC" for c in schema.row if c.type is ColumnType.FLOAT32]
    columns = {
        "device_ts": [f"{device} ASC", f"{quote_name(schema.time)} {time_order}", *values],
        "temp": values,
    }
    wanted = [
        (table, index, indexed) for table in tables for index, indexed in columns.items() if indexed
    ]
    if apart:
        wanted.append((schema.tags_table, "device", [f"{name} ASC"]))
    return {
        name_index(
            table, index
        ): f"CREATE INDEX IF NOT EXISTS {quote_name(name_index(table, index))}"
        f" ON {quote_name(table)} ({', '.join(indexed)})"
        for table, index, indexed in wanted
    }


def read_indexes(session: Session, tables: Sequence[str]) -> dict[str, str]:
    """Name -> table and columns of all indexes of these tables."""
    rows = session.ask(
        "SELECT indexname, tablename, indexdef FROM pg_indexes"
        " WHERE schemaname = current_schema() AND tablename = ANY(%s) ORDER BY tablename, indexname",
        [list(tables)],
    )
    return {name: f"{table} {text.partition(' USING ')[2]}" for name, table, text in rows}
