"""Described queries in the SQL of IoTDB's table model."""

from __future__ import annotations

from dataclasses import replace

from ...encoding.columns import quote_name
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Query, Where
from ...workloads.schema import ID, Schema
from ..kit.partials import compare
from ..kit.sql_queries import NewestByFunction, compile_query
from .schema import TIME, TYPES, describe_tags, list_columns

# Where a table has no condition on time of its own, 2.0.1 takes that of another one for its files as well.
# Tags are at time 0: once they are flushed, a statement about a window would not find them.
_ANY_TIME = f"{TIME} >= 0"


class IotdbDialect(NewestByFunction):
    """https://iotdb.apache.org/UserGuide/latest-Table/SQL-Manual/overview_apache.html"""

    NEWEST = "last_by"
    # No literal is a FLOAT.
    WIDENS = True

    NUMBERS = TYPES

    def __init__(self) -> None:
        self._chosen: list[str] = []
        """Statements that find the ids of devices whose events are asked for."""

    def name_events(self, schema: Schema) -> str:
        table = quote_name(schema.table)
        columns = ", ".join(f"{table}.{quote_name(column.name)}" for column in schema.row)
        source = table
        for statement in self._chosen:
            source = (
                f"(SELECT {columns} FROM {source} JOIN ({statement}) AS chosen"
                f" ON {table}.{quote_name(ID)} = chosen.{quote_name(ID)}) AS {table}"
            )
        return source

    def name_tags(self, schema: Schema) -> str:
        # Without their time, which is called as that of events is.
        table = quote_name(schema.tags_table)
        columns = [quote_name(column.name) for column in list_columns(describe_tags(schema))]
        return f"(SELECT {', '.join(columns)} FROM {table} WHERE {_ANY_TIME}) AS {table}"

    def among(self, column: str, statement: str, count: int | None) -> str:
        statement += f" AND {_ANY_TIME}"
        # It knows no IN of a statement (2.0.1).
        if count == 1:
            return super().among(column, statement, count)
        self._chosen.append(statement)
        return ""

    def device(self, schema: Schema) -> str:
        return quote_name(schema.device_path or schema.device)

    def bucket(self, time: str, every_ms: int) -> str:
        return f"date_bin({every_ms}ms, {time})"


def compile_statement(bound: BoundQuery, schema: Schema) -> str:
    """The statement that asks what is bound."""
    query = bound.query
    if query.where is not None:
        query = query.model_copy(update={"where": _round(query.where, schema)})
    query = _rename_time(query, schema.time)
    return compile_query(replace(bound, query=query), _rename_column(schema), IotdbDialect())


def _round(where: Where, schema: Schema) -> Where:
    """The same condition with whole numbers, if the column's are: the server compares them with no others."""
    sign, limit = compare(where, schema)
    return where.model_copy(update={"above" if sign == ">" else "below": limit})


def _rename_column(schema: Schema) -> Schema:
    """The schema as it is stored: the column of time is called `time` in every table."""
    columns = tuple(
        replace(column, name=TIME) if column.name == schema.time else column
        for column in schema.columns
    )
    key = tuple(TIME if name == schema.time else name for name in schema.key)
    return replace(schema, columns=columns, time=TIME, key=key)


def _rename_time(query: Query, time: str) -> Query:
    events = tuple(TIME if name == time else name for name in query.events)
    compute = tuple(
        aggregate.model_copy(update={"column": TIME}) if aggregate.column == time else aggregate
        for aggregate in query.compute
    )
    return query.model_copy(update={"events": events, "compute": compute})
