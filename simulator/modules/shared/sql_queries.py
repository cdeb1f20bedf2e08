"""Described queries in SQL: one compiler, and a dialect for what databases say differently."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ...workloads.base import ColumnType, Schema
from ...workloads.queries import Aggregate, Bound, Every, Function, Shape, Where
from .sql import quote_name


class Newest(Enum):
    """How each device's newest event is asked for."""

    WINDOW = "window"
    """By a window function; it gives all events of a device at its newest time."""
    DISTINCT_ON = "distinct on"
    """By PostgreSQL's DISTINCT ON; an index on device and time can make it fast."""


class SqlDialect:
    """PostgreSQL's SQL. Others change what they say differently."""

    SHAPES = frozenset(Shape)
    """What can be compiled."""
    NUMBERS: Mapping[ColumnType, str] = {
        ColumnType.INT32: "integer",
        ColumnType.INT64: "bigint",
        ColumnType.FLOAT32: "real",
        ColumnType.FLOAT64: "double precision",
    }
    """The types of columns that numbers are compared in."""

    def device(self, schema: Schema) -> str:
        """The expression that names an event's device."""
        column = quote_name(schema.device)
        path = schema.device_path
        return f"{column} ->> {quote_text(path)}" if path else column

    def bucket(self, time: str, every_ms: int) -> str:
        """The start of an event's bucket of time, in ms since 1970; no event is older than that."""
        return f"{time} - {time} % {every_ms}"

    def number(self, value: float, kind: ColumnType) -> str:
        """A number to compare a column of this type with."""
        # A real beside a double would be widened, and so be another number than the one that was stored.
        if kind is ColumnType.FLOAT32:
            return f"CAST({value!r} AS {self.NUMBERS[kind]})"
        return repr(int(value)) if float(value).is_integer() else repr(value)

    def aggregate(self, one: Aggregate, schema: Schema) -> str:
        """What computes a value of a group's events."""
        if one.column is None:
            return "count(*)"
        column = quote_name(one.column)
        if one.function is Function.LAST:
            return f"(array_agg({column} ORDER BY {quote_name(schema.time)} DESC))[1]"
        if one.function is Function.SUM and schema.column(one.column).type is ColumnType.FLOAT32:
            # The sum of reals is a real, whose last digits would get lost on the way.
            column = f"CAST({column} AS {self.NUMBERS[ColumnType.FLOAT64]})"
        return f"{one.function}({column})"


def compile_query(
    bound: Bound, schema: Schema, dialect: SqlDialect, newest: Newest = Newest.DISTINCT_ON
) -> str:
    """The statement that asks what is bound, its parameters in it as they would be in an application
    that puts its own together."""
    query = bound.query
    table, device = quote_name(schema.table), dialect.device(schema)
    conditions = _list_conditions(bound, schema, dialect)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if query.newest:
        statement = _ask_newest(bound, schema, dialect, where, newest)
    elif query.events:
        columns = ", ".join(_name_column(name, schema, dialect) for name in query.events)
        statement = f"SELECT {columns} FROM {table}{where}"
    else:
        per = [
            dialect.bucket(quote_name(schema.time), part.every)
            if isinstance(part, Every)
            else device
            if part == schema.device
            else quote_name(part)
            for part in query.per
        ]
        values = [dialect.aggregate(one, schema) for one in query.compute]
        grouped = ", ".join(str(place) for place in range(1, len(per) + 1))
        statement = f"SELECT {', '.join([*per, *values])} FROM {table}{where}"
        if grouped:
            statement += f" GROUP BY {grouped}"
    if query.order:
        if query.newest:
            statement = f"SELECT * FROM ({statement}) AS newest"
        direction = "DESC" if query.order.descending else "ASC"
        places = [f"{query.order.by + 1} {direction} NULLS LAST"]
        places += [f"{key + 1} ASC" for key in range(query.keys) if key != query.order.by]
        statement += f" ORDER BY {', '.join(places)}"
    return statement if query.limit is None else f"{statement} LIMIT {query.limit}"


def _list_conditions(bound: Bound, schema: Schema, dialect: SqlDialect) -> list[str]:
    found = []
    if bound.devices is not None:
        names = [quote_text(name) for name in bound.devices]
        among = f"= {names[0]}" if len(names) == 1 else f"IN ({', '.join(names)})"
        found.append(f"{dialect.device(schema)} {among}")
    time = quote_name(schema.time)
    if bound.start_ms is not None and bound.end_ms is not None:
        if bound.end_ms == bound.start_ms + 1:
            found.append(f"{time} = {bound.start_ms}")
        else:
            found.append(f"{time} >= {bound.start_ms} AND {time} < {bound.end_ms}")
    if bound.query.where is not None:
        found.append(_compare(bound.query.where, schema, dialect))
    return found


def _compare(where: Where, schema: Schema, dialect: SqlDialect) -> str:
    sign, value = (">", where.above) if where.above is not None else ("<", where.below)
    assert value is not None
    kind = schema.column(where.column).type
    return f"{quote_name(where.column)} {sign} {dialect.number(value, kind)}"


def _ask_newest(
    bound: Bound, schema: Schema, dialect: SqlDialect, where: str, newest: Newest
) -> str:
    table, device, time = (
        quote_name(schema.table),
        dialect.device(schema),
        quote_name(schema.time),
    )
    columns = [_name_column(name, schema, dialect) for name in bound.query.events]
    asked = ", ".join([device, *columns])
    if bound.devices is not None and len(bound.devices) == 1:
        return f"SELECT {asked} FROM {table}{where} ORDER BY {time} DESC LIMIT 1"
    if newest is Newest.DISTINCT_ON:
        return (
            f"SELECT DISTINCT ON ({device}) {asked} FROM {table}{where}"
            f" ORDER BY {device}, {time} DESC"
        )
    names = [f"v{number}" for number in range(len(columns) + 1)]
    inner = ", ".join(
        f"{column} AS {name}" for column, name in zip([device, *columns], names, strict=True)
    )
    return (
        f"SELECT {', '.join(names)} FROM (SELECT {inner}, {time} AS happened,"
        f" max({time}) OVER (PARTITION BY {device}) AS newest FROM {table}{where}) AS e"
        " WHERE happened = newest"
    )


def _name_column(name: str, schema: Schema, dialect: SqlDialect) -> str:
    return dialect.device(schema) if name == schema.device else quote_name(name)


def quote_text(text: str) -> str:
    """A text as standard SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
