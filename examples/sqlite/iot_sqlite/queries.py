"""Described queries in SQLite's SQL: what differs from PostgreSQL's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.encoding.columns import quote_name
from simulator.modules.kit.sql_queries import SqlDialect, list_aliased, list_aliases, quote_text
from simulator.workloads.queries import Shape
from simulator.workloads.schema import ColumnType, Schema


class SqliteDialect(SqlDialect):
    """https://www.sqlite.org/lang_select.html"""

    # There is no aggregate function for the newest event's value beside others.
    SHAPES = frozenset(Shape) - {Shape.LAST}

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"json_extract({column}, {quote_text(f'$.{path}')})" if path else column

    def number(self, value: float, kind: ColumnType) -> str:
        # A float32 is stored in 64 bits.
        return repr(float(np.float32(value))) if kind is ColumnType.FLOAT32 else repr(value)

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # SQLite promises that the other columns come from the row of the maximum.
        newest = f"SELECT {list_aliased(values)}, max({time}) FROM {source} GROUP BY 1"
        return f"SELECT {list_aliases(len(values))} FROM ({newest})"
