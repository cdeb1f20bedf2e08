"""Described queries in ClickHouse's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...encoding.columns import quote_name
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Function
from ...workloads.schema import Column, ColumnType, Schema, Tags
from ..kit.sql_queries import SqlDialect, compile_query, list_aliased


class ClickhouseDialect(SqlDialect):
    """https://clickhouse.com/docs/sql-reference/statements/select"""

    NUMBERS: Mapping[ColumnType, str] = {
        ColumnType.INT32: "Int32",
        ColumnType.INT64: "Int64",
        ColumnType.FLOAT32: "Float32",
        ColumnType.FLOAT64: "Float64",
    }

    def device(self, schema: Schema) -> str:
        return name_device(schema)

    def instant(self, time_ms: int) -> str:
        return f"fromUnixTimestamp64Milli({time_ms}, 'UTC')"

    def text(self, text: str) -> str:
        return quote_text(text)

    def value(self, column: Column) -> str:
        name = quote_name(column.name)
        return _in_ms(name) if column.type is ColumnType.TIMESTAMP_MS else name

    def bucket(self, time: str, every_ms: int) -> str:
        return f"intDiv({_in_ms(time)}, {every_ms}) * {every_ms}"

    def aggregate(self, aggregate: Aggregate, schema: Schema) -> str:
        if aggregate.column is None:
            return "count()"
        column = quote_name(aggregate.column)
        if aggregate.function is Function.LAST:
            time = quote_name(schema.time)
            if not schema.column(aggregate.column).nullable:
                return f"argMax({column}, {time})"
            # Of a lone value, `argMax` would leave out the events that have none. Takes three times as long.
            return f"argMax(tuple({column}), {time}).1"
        computed = f"{aggregate.function}({column})"
        return _in_ms(computed) if aggregate.column == schema.time else computed

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # Both backwards, as a table is then read in its own order: a third of the time.
        return (
            f"SELECT {list_aliased(values)} FROM {source}"
            f" ORDER BY {values[0]} DESC, {time} DESC LIMIT 1 BY {values[0]}"
        )


def name_device(schema: Schema) -> str:
    """The expression for what names an event's device."""
    column, path = quote_name(schema.device), schema.device_path
    return f"{column}.{quote_name(path)}" if path else column


def quote_text(text: str) -> str:
    """A text as a constant: unlike standard SQL, a backslash means something in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _in_ms(time: str) -> str:
    """A time in ms since 1970."""
    return f"toUnixTimestamp64Milli({time})"


def compile_statement(bound: BoundQuery, schema: Schema) -> str:
    """The statement for a bound query."""
    settings = []
    if bound.query.compute and not bound.query.per:
        # Else the lowest of no values would be 0.
        settings.append("aggregate_functions_null_for_empty = 1")
    if schema.tags is Tags.TABLE:
        # A device's row may be there more than once until parts are merged.
        settings.append("final = 1")
    statement = compile_query(bound, schema, ClickhouseDialect())
    return f"{statement} SETTINGS {', '.join(settings)}" if settings else statement
