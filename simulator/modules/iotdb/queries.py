"""Described queries in the SQL of IoTDB's table model, and in the language of its tree model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from ...encoding.columns import TEXTS, quote_name
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function, Query, Shape, Where
from ...workloads.schema import ID, Column, ColumnType, Schema
from ..kit.series import Partials, Row, compare, put_in_order
from ..kit.sql_queries import NewestByFunction, compile_query, quote_text
from .schema import LEVEL, TIME, TYPES, describe_tags, find_steady, list_columns, quote, split_path
from .thrift import Answer, count_texts

# Where a table has no condition on time, 2.0.1 applies another table's condition to its files as well. Tags
# are at time 0: once they are flushed, a statement about a window would not find them.
_ANY_TIME = f"{TIME} >= 0"


class IotdbDialect(NewestByFunction):
    """https://iotdb.apache.org/UserGuide/latest-Table/SQL-Manual/overview_apache.html"""

    NEWEST = "last_by"
    # The tree model can't group by values; functions for percentiles and documents are later than 2.0.1.
    SHAPES = frozenset(Shape) - {
        Shape.PATH, Shape.PERCENTILE, Shape.PERCENTILE_OF_ALL, Shape.PERCENTILE_BELOW_0, Shape.PER_TEXT,
    }  # fmt: skip
    # No literal is a FLOAT.
    WIDENS = True

    NUMBERS = TYPES

    def __init__(self) -> None:
        self._chosen: list[str] = []
        """Statements that find the ids of the selected events' devices."""

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
        # Without their time, which has the same name as that of events.
        table = quote_name(schema.tags_table)
        columns = [quote_name(column.name) for column in list_columns(describe_tags(schema))]
        return f"(SELECT {', '.join(columns)} FROM {table} WHERE {_ANY_TIME}) AS {table}"

    def among(self, column: str, statement: str, count: int | None) -> str:
        statement += f" AND {_ANY_TIME}"
        # It has no IN with a statement (2.0.1).
        if count == 1:
            return super().among(column, statement, count)
        self._chosen.append(statement)
        return ""

    def device(self, schema: Schema) -> str:
        return quote_name(schema.device_path or schema.device)

    def bucket(self, time: str, every_ms: int) -> str:
        return f"date_bin({every_ms}ms, {time})"


def compile_statement(bound: BoundQuery, schema: Schema) -> str:
    """The statement for the bound query."""
    query = bound.query
    where = query.where
    if where is not None and not where.texts:
        # The server compares integers only with integers.
        sign, limit = compare(where, schema)
        where = where.model_copy(update={"above" if sign == ">" else "below": limit})

    # The time column is called `time` in every table.
    def rename(name: str | None) -> Any:
        return TIME if name == schema.time else name

    columns = [replace(column, name=rename(column.name)) for column in schema.columns]
    stored = replace(schema, columns=tuple(columns), time=TIME, key=tuple(map(rename, schema.key)))
    compute = [
        aggregate.model_copy(update={"column": rename(aggregate.column)})
        for aggregate in query.compute
    ]
    changes = {
        "where": where,
        "events": tuple(map(rename, query.events)),
        "compute": tuple(compute),
    }
    query = query.model_copy(update=changes)
    return compile_query(replace(bound, query=query), stored, IotdbDialect())


# --- the tree -------------------------------------------------------------------------------------
#
# https://iotdb.apache.org/UserGuide/latest/Basic-Concept/Query-Data.html
#
# Newest events and last values use `SELECT LAST`, which the server answers from memory; raw events, and
# values computed from them, use `ALIGN BY DEVICE`. Those answers are taken as they come (`Selection`).
#
# For all else, the client does part of the work, which counts in the query's time (`Computation`). The tree
# computes over several devices only with `GROUP BY LEVEL`, which supports neither conditions on a value nor
# tags, which are values here. So for those the server computes per device, and `kit/series.py` combines the
# results, as an application would. `GROUP BY ([begin, end), step)` needs a beginning and an end: a query
# without them reads them first, in the same execution.
#
# Three functions aren't used, because their answers in 2.0.1 are wrong: `avg` beside `sum` or `count` of the
# same measurement at a level (some are doubled), `max_by(x, time)` of devices whose newest value is missing,
# and `HAVING` with `ORDER BY` (rows are missing).


Steps = Generator[str, list[Row], list[Row]]
"""Yields statements, receives the rows of each, and returns the rows of an answer."""
Missing = Callable[[], Exception]


@dataclass(frozen=True)
class Selection:
    """A query with a single statement. The functions that read and count rows raise the given error if there
    are no timeseries."""

    text: str
    read: Callable[[list[Row]], list[Row]]
    """The rows of the answer, from those received."""
    count: Callable[[Answer], int] = attrgetter("rows")
    """How many rows `read` returns."""


@dataclass(frozen=True)
class Computation:
    """A query in which the client does part of the work."""

    begin: Callable[[], Steps]
    """The statements, and what is made of their answers. Raises the given error if there are no
    timeseries."""
    follows: str = ""
    """What follows the first statement, for people to read."""

    def describe(self) -> str:
        """The first statement, for people to read."""
        return f"{next(self.begin())}\nthe client combines the results{self.follows}"


def compile_question(
    bound: BoundQuery, schema: Schema, path: str, missing: Missing | None = None
) -> Selection | Computation:
    """The bound query over the devices below a path. `missing`: makes the error for no devices; None: there
    may be none."""
    source, query = _Source(bound, schema, path, missing), bound.query
    if query.newest:
        names: Sequence[str] = query.events
    elif query.events:
        return _ask_events(source)
    else:
        names = [
            aggregate.column
            for aggregate in query.compute
            if aggregate.function is Function.LAST and aggregate.column
        ]
        is_plain = query.per == (schema.device,) and bound.start_ms is None and query.where is None
        if not is_plain or len(names) < len(query.compute):
            values = _Values(query, schema)
            is_searched = values.every_ms and bound.start_ms is None
            follows = ", after the values of each bucket within these times" if is_searched else ""
            return Computation(partial(_compute, source, values), follows)
    newest = _ask_newest(source, [schema.column(name) for name in names])
    return newest if query.order is None else Computation(partial(_put_in_order, newest, query))


class _Source:
    """Where to look for events, and which ones are selected."""

    def __init__(
        self, bound: BoundQuery, schema: Schema, path: str, missing: Missing | None
    ) -> None:
        self.query: Query = bound.query
        self._missing = missing
        self.schema = schema
        self.steady = find_steady(schema)
        self.devices = bound.devices
        self.start_ms, self.end_ms = bound.start_ms, bound.end_ms
        names = ["*"] if bound.devices is None else [quote(name) for name in bound.devices]
        self.paths = ", ".join(f"{path}.{name}" for name in names)

    def expect(self, rows: int) -> None:
        """Record that an answer has this many rows: it has at least one per existing device, or one for all
        of them. Raises the given error if there is none."""
        if not rows and self.devices is None and self._missing is not None:
            raise self._missing()

    def conditions(self) -> str:
        conditions = []
        if self.start_ms is not None and self.end_ms is not None:
            if self.end_ms == self.start_ms + 1:
                conditions.append(f"time = {self.start_ms}")
            else:
                conditions.append(f"time >= {self.start_ms} AND time < {self.end_ms}")
        if self.query.where is not None:
            conditions.append(_write_condition(self.query.where, self.schema))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def find_span(self) -> Generator[str, list[Row], tuple[int, int] | None]:
        """From the first selected event to just after the last; None: there is none."""
        if self.start_ms is not None and self.end_ms is not None:
            return self.start_ms, self.end_ms
        steady = quote(self.steady)
        rows = yield (
            f"SELECT min_time({steady}), max_time({steady}) FROM {self.paths}{self.conditions()}"
            " ALIGN BY DEVICE"
        )
        self.expect(len(rows))
        times = [(first, last) for _, first, last in rows if first is not None]
        if not times:
            return None
        return min(first for first, _ in times), max(last for _, last in times) + 1


def _write_condition(where: Where, schema: Schema) -> str:
    """A condition on a value."""
    if where.texts:
        among = "IN" if where.one_of else "NOT IN"
        return f"{quote(where.column)} {among} ({', '.join(map(quote_text, where.texts))})"
    sign, limit = compare(where, schema)
    return f"{quote(where.column)} {sign} {limit!r}"


def _ask_events(source: _Source) -> Selection:
    query, schema = source.query, source.schema
    own = (schema.time, schema.device)
    measurements = list(dict.fromkeys(name for name in query.events if name not in own))
    if source.steady not in measurements:
        # A row without any value would be missing from the answer.
        measurements.append(source.steady)
    numbers = {name: number for number, name in enumerate([*own, *measurements])}
    places = [numbers[name] for name in query.events]
    names_device = schema.device in query.events
    order = ""
    if query.order is not None:
        name = query.events[query.order.by]
        key = {schema.time: "time", schema.device: "device"}.get(name)
        direction = "DESC" if query.order.descending else "ASC"
        order = f" ORDER BY {key or quote(name)} {direction}{'' if key else ' NULLS LAST'}"
        order += "" if query.limit is None else f" LIMIT {query.limit}"

    def read(rows: list[Row]) -> list[Row]:
        if names_device:
            rows = [(row[0], _name(row[1]), *row[2:]) for row in rows]
        return [tuple(row[place] for place in places) for row in rows]

    return Selection(
        f"SELECT {', '.join(map(quote, measurements))} FROM {source.paths}{source.conditions()}"
        f"{order} ALIGN BY DEVICE",
        read,
    )


def _name(path: str) -> str:
    return split_path(path)[LEVEL + 1]


def _ask_newest(source: _Source, columns: Sequence[Column]) -> Selection:
    """Columns of each device's newest event, from the last value of each measurement, with its time."""
    schema, steady = source.schema, source.steady
    own = (schema.time, schema.device)
    measurements = {column.name: column.type for column in columns if column.name not in own}
    measurements[steady] = schema.column(steady).type

    def read(rows: list[Row]) -> list[Row]:
        source.expect(len(rows))
        devices: dict[str, dict[str, tuple[int, str]]] = {}
        for time_ms, series, value, _ in rows:
            *_, device, measurement = split_path(series)
            devices.setdefault(device, {})[measurement] = (time_ms, value)
        return [
            (device, *(read_value(device, values, column) for column in columns))
            for device, values in devices.items()
            if steady in values
        ]

    def read_value(device: str, values: dict[str, tuple[int, str]], column: Column) -> Any:
        newest_ms = values[steady][0]
        if column.name in own:
            return newest_ms if column.name == schema.time else device
        # An older value belongs to an earlier event.
        time_ms, text = values.get(column.name, (None, ""))
        return _PARSERS.get(column.type, str)(text) if time_ms == newest_ms else None

    def count(answer: Answer) -> int:
        if not set(measurements.values()).isdisjoint(TEXTS):
            # Their values could look like the end of a path.
            return len(read(answer.read()))
        source.expect(answer.rows)
        # A row per measurement; every device has one of them.
        return count_texts(answer, [f".{name}".encode() for name in (steady, quote(steady))])

    text = f"SELECT LAST {', '.join(map(quote, measurements))} FROM {source.paths}"
    return Selection(text, read, count)


def _put_in_order(newest: Selection, query: Query) -> Steps:
    rows = yield newest.text
    return put_in_order(query, newest.read(rows))


_PARSERS: dict[ColumnType, Callable[[str], Any]] = {
    ColumnType.TIMESTAMP_MS: int,
    ColumnType.INT64: int,
    ColumnType.INT32: int,
    ColumnType.FLOAT32: float,
    ColumnType.FLOAT64: float,
    ColumnType.BOOL: lambda text: text == "true",
}


class _Values(Partials):
    """Values computed over some of a device's events, or over all devices' in a bucket of time."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._steady = find_steady(schema)
        super().__init__(query, schema)

    def number(self, column: str | None) -> str:
        return f"count({quote(column or self._steady)})"

    def sum(self, column: str) -> str:
        return f"sum({quote(column)})"

    def extreme(self, function: Function, column: str) -> str:
        if column == self._schema.time:
            return f"{function}_time({quote(self._steady)})"
        return f"{function}_value({quote(column)})"

    def last(self, column: str) -> str:
        return f"last_value({quote(column)})"

    def last_time(self, column: str) -> str:
        return f"max_time({quote(self._steady if column == self._schema.time else column)})"


def _compute(source: _Source, values: _Values) -> Steps:
    query, every_ms = source.query, values.every_ms
    by_level = (
        not any(isinstance(part, str) for part in query.per)
        and source.devices is None
        and query.where is None
        and all(aggregate.function is not Function.LAST for aggregate in query.compute)
    )
    expressions = ", ".join([*values.newest, *values.computed])
    statement = f"SELECT {expressions} FROM {source.paths}{source.conditions()}"
    groups = []
    if every_ms:
        span = yield from source.find_span()
        if span is None:
            return []
        # Whole buckets, counted from 1970.
        first, end = span
        groups.append(f"([{first - first % every_ms}, {end}), {every_ms}ms)")
    if by_level:
        groups.append(f"LEVEL = {LEVEL}")
    if groups:
        statement += f" GROUP BY {', '.join(groups)}"
    if every_ms:
        # Without it, there would be a row for each bucket, even if it is empty.
        statement += f" HAVING {values.computed[0]} > 0"
    rows = yield statement if by_level else f"{statement} ALIGN BY DEVICE"
    if not every_ms:
        source.expect(len(rows))
        rows = [(None, *row) for row in rows]
    # A part begins with its device and its bucket, if the row has them.
    parts: Iterable[Row] = (
        (None, *row) if by_level else (_name(row[1]), row[0], *row[2:]) for row in rows
    )
    return put_in_order(query, values.put_together(parts))
