"""Described queries in SQL: one compiler, and a dialect for the differences between databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import ClassVar

import numpy as np

from ...encoding.columns import quote_name
from ...workloads.drawing import BoundQueries, BoundQuery
from ...workloads.queries import Aggregate, Every, Function, Query, Shape, Where
from ...workloads.schema import ID, Column, ColumnType, Schema
from ..own_statements import Drawn, fill_statement


class Newest(Enum):
    """How to select each device's newest event."""

    WINDOW = "window"
    """With a window function; it returns all events of a device at its newest time."""
    DIALECT = "dialect"
    """In the dialect's own way."""
    SEEK = "seek"
    """Device by device, each with a look-up in an index on device and time."""
    JOIN = "join"
    """With the newest time of each device, joined with the events: two passes without sorting. For named
    devices, in the dialect's own way."""


class SqlDialect:
    """PostgreSQL's SQL. Other dialects override the differences."""

    SHAPES = frozenset(Shape)
    """The supported shapes."""
    NUMBERS: Mapping[ColumnType, str] = {
        ColumnType.INT32: "integer",
        ColumnType.INT64: "bigint",
        ColumnType.FLOAT32: "real",
        ColumnType.FLOAT64: "double precision",
    }
    """The types of columns in which numbers are compared."""
    COLLATION: ClassVar[str] = ""
    """What follows a text, or the type of its column, to sort texts by their bytes, as right answers do;
    empty: they are anyway."""
    WIDENS = False
    """Whether a real is compared with a double literal as that double, at no cost."""

    def device(self, schema: Schema) -> str:
        """The expression for the name of an event's device."""
        column = quote_name(schema.device)
        path = schema.device_path
        return f"{column} ->> {quote_text(path)}" if path else column

    def instant(self, time_ms: int) -> str:
        """A time, in ms since 1970, to compare with an event's."""
        return str(time_ms)

    def read(self, column: Column) -> str:
        """The expression for a column, or for the value at a path into one."""
        return self.read_path(column) if column.path else quote_name(column.name)

    def read_path(self, column: Column) -> str:
        """The expression for the value at a path into documents, in the type of that column."""
        *above, last = [quote_name(column.stored_as), *map(quote_text, column.path)]
        text = f"({' -> '.join(above)} ->> {last})"
        if column.type is ColumnType.TEXT:
            return f"{text}{self.COLLATION}"
        return f"CAST({text} AS {self.NUMBERS[column.type]})"

    def value(self, column: Column) -> str:
        """The expression for a column's value in an answer, where times are in ms since 1970."""
        return self.read(column)

    def compare_texts(self, column: Column, where: Where) -> str:
        """The condition that a text is among some, or is present and not among them."""
        texts = list(map(self.text, where.texts))
        if len(texts) == 1:
            return f"{self.read(column)} {'=' if where.one_of else '<>'} {texts[0]}"
        among = "IN" if where.one_of else "NOT IN"
        return f"{self.read(column)} {among} ({', '.join(texts)})"

    def text(self, text: str) -> str:
        """A text as a constant."""
        return quote_text(text)

    def bucket(self, time: str, every_ms: int) -> str:
        """The start of an event's bucket of time, in ms since 1970; no event is older than that."""
        return f"{time} - {time} % {every_ms}"

    def group(self, places: int, buckets: Sequence[Every]) -> str:
        """What follows the conditions of a statement with a row per group. `places`: how many of its first
        values are the group's key, including the `buckets` of time."""
        return f" GROUP BY {', '.join(map(str, range(1, places + 1)))}" if places else ""

    def select(self, values: Sequence[str]) -> str:
        """The values selected in a statement's last step."""
        return ", ".join(values)

    def put_in_order(self, statement: str, query: Query) -> str:
        """The statement with its rows in the query's order: missing values come last."""
        assert query.order is not None
        if query.newest:
            statement = f"SELECT * FROM ({statement}) AS newest"
        direction = "DESC" if query.order.descending else "ASC"
        places = [f"{query.order.by + 1} {direction} NULLS LAST"]
        places += [f"{key + 1} ASC" for key in range(query.keys) if key != query.order.by]
        return f"{statement} ORDER BY {', '.join(places)}"

    def number(self, value: float, kind: ColumnType) -> str:
        """A number to compare a column of this type with."""
        # A real compared with a double would be widened, and so differ from the stored number.
        if kind is ColumnType.FLOAT32:
            if not self.WIDENS:
                return f"CAST({value!r} AS {self.NUMBERS[kind]})"
            value = float(np.float32(value))
        return repr(int(value)) if float(value).is_integer() else repr(value)

    def aggregate(self, aggregate: Aggregate, schema: Schema) -> str:
        """The expression for an aggregate over a group's events."""
        if aggregate.column is None:
            return "count(*)"
        column = schema.column(aggregate.column)
        value, function = self.read(column), aggregate.function
        if function is Function.LAST:
            return f"(array_agg({value} ORDER BY {quote_name(schema.time)} DESC))[1]"
        if function.percent is not None:
            return self.percentile(column, function.percent)
        if function is Function.SUM and column.type is ColumnType.FLOAT32:
            # The sum of reals is a real, which would lose its last digits on the way.
            value = self.widen(value)
        return f"{function}({value})"

    def percentile(self, column: Column, percent: float) -> str:
        """The expression for a percentile over a group's values."""
        value = self.read(column)
        # Not all relatives of PostgreSQL have one for other numbers.
        value = value if column.type is ColumnType.FLOAT64 else self.widen(value)
        return f"percentile_cont({percent / 100:g}) WITHIN GROUP (ORDER BY {value})"

    def widen(self, value: str) -> str:
        """A number with 64 bits."""
        return f"CAST({value} AS {self.NUMBERS[ColumnType.FLOAT64]})"

    def name_events(self, schema: Schema) -> str:
        """The source of events, from the table's name."""
        return quote_name(schema.table)

    def name_tags(self, schema: Schema) -> str:
        """The source of tags, from their table's name."""
        return quote_name(schema.tags_table)

    def among(self, column: str, statement: str, count: int | None) -> str:
        """The condition that a column's value is among those of a statement: `count` at most, if known. Empty
        if `name_events` does it."""
        return f"{column} {'=' if count == 1 else 'IN'} ({statement})"

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        """The statement for these values of each device's newest event; the first identifies the device.
        `source` follows FROM, including conditions."""
        # An index on device and time can make it fast.
        return (
            f"SELECT DISTINCT ON ({values[0]}) {list_aliased(values)} FROM {source}"
            f" ORDER BY {values[0]}, {time} DESC"
        )

    def select_newest_of_one(self, values: Sequence[str], time: str, source: str) -> str:
        """The same where `source` has the events of one device."""
        return f"SELECT {list_aliased(values)} FROM {source} ORDER BY {time} DESC LIMIT 1"


class NewestByFunction(SqlDialect):
    """A dialect without DISTINCT ON that has a function for a newest event's values: in one pass, without
    sorting, and NULL if the event has no value."""

    NEWEST: ClassVar[str]
    """The function, with a value and a time."""

    def aggregate(self, aggregate: Aggregate, schema: Schema) -> str:
        if aggregate.function is Function.LAST:
            value = self.read(schema.column(aggregate.column or ""))
            return self._find_newest(value, quote_name(schema.time))
        return super().aggregate(aggregate, schema)

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        device, *rest = values
        newest = [
            value
            if value == device
            else f"max({time})"
            if value == time
            else self._find_newest(value, time)
            for value in rest
        ]
        return f"SELECT {list_aliased([device, *newest])} FROM {source} GROUP BY 1"

    def _find_newest(self, value: str, time: str) -> str:
        return f"{self.NEWEST}({value}, {time})"


def compile_query(
    bound: BoundQuery, schema: Schema, dialect: SqlDialect, newest: Newest = Newest.DIALECT
) -> str:
    """The statement for the bound query. It contains the parameters, as in an application that builds its own
    statements."""
    query = bound.query
    conditions = _list_conditions(bound, schema, dialect)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if query.newest:
        columns = [_name_column(name, schema, dialect) for name in query.events]
        device = dialect.device(schema)
        if schema.is_apart(schema.device):
            # By id first; names are looked up for the result.
            inner, outer = _split(columns, [schema.is_apart(name) for name in query.events])
            statement = _find_newest(bound, schema, dialect, inner, where, newest)
            statement = _join_tags(statement, [device, *outer], schema, dialect)
        else:
            values = [device, *columns]
            statement = _find_newest(bound, schema, dialect, values, where, newest)
    elif query.events:
        values = [_name_column(name, schema, dialect) for name in query.events]
        tables = _name_tables(query.events, schema, dialect)
        statement = f"SELECT {dialect.select(values)} FROM {tables}{where}"
    else:
        statement = _compute(query, schema, dialect, where)
    if query.order:
        statement = dialect.put_in_order(statement, query)
    return statement if query.limit is None else f"{statement} LIMIT {query.limit}"


def _list_conditions(bound: BoundQuery, schema: Schema, dialect: SqlDialect) -> list[str]:
    conditions = []
    if bound.devices is not None:
        names = [dialect.text(name) for name in bound.devices]
        among = f"= {names[0]}" if len(names) == 1 else f"IN ({', '.join(names)})"
        named = f"{dialect.device(schema)} {among}"
        apart = schema.is_apart(schema.device)
        conditions.append(_among_tags(named, len(names), schema, dialect) if apart else named)
    time = quote_name(schema.time)
    if bound.start_ms is not None and bound.end_ms is not None:
        if bound.end_ms == bound.start_ms + 1:
            conditions.append(f"{time} = {dialect.instant(bound.start_ms)}")
        else:
            start, end = dialect.instant(bound.start_ms), dialect.instant(bound.end_ms)
            conditions.append(f"{time} >= {start} AND {time} < {end}")
    if bound.query.where is not None:
        where = bound.query.where
        column = schema.column(where.column)
        if where.texts:
            comparison = dialect.compare_texts(column, where)
        else:
            sign, value = where.comparison
            comparison = f"{dialect.read(column)} {sign} {dialect.number(value, column.type)}"
        apart = schema.is_apart(where.column)
        conditions.append(_among_tags(comparison, None, schema, dialect) if apart else comparison)
    return list(filter(None, conditions))


def _among_tags(condition: str, devices: int | None, schema: Schema, dialect: SqlDialect) -> str:
    """A condition on names or tags, which at most this many devices meet, as one on the events' ids."""
    statement = f"SELECT {quote_name(ID)} FROM {quote_name(schema.tags_table)} WHERE {condition}"
    # In joins, some databases need more than the id's name.
    return dialect.among(_name_id(schema.table), statement, devices)


def _compute(query: Query, schema: Schema, dialect: SqlDialect, where: str) -> str:
    per = [
        dialect.bucket(quote_name(schema.time), part.every)
        if isinstance(part, Every)
        else _name_column(part, schema, dialect)
        for part in query.per
    ]
    values = [dialect.aggregate(aggregate, schema) for aggregate in query.compute]
    named = [part for part in query.per if isinstance(part, str)]
    buckets = [part for part in query.per if isinstance(part, Every)]
    computed = [aggregate.column for aggregate in query.compute if aggregate.column is not None]
    by_id = schema.is_apart(schema.device) and schema.device in named
    if by_id and not any(map(schema.is_apart, computed)):
        # By id first; names are looked up for groups, which are fewer than events.
        apart = [isinstance(part, str) for part in query.per] + [False] * len(values)
        inner, outer = _split([*per, *values], apart)
        return _join_tags(
            f"SELECT {list_aliased(inner)} FROM {dialect.name_events(schema)}{where}"
            f"{dialect.group(1 + len(buckets), buckets)}",
            outer,
            schema,
            dialect,
        )
    tables = _name_tables([*named, *computed], schema, dialect)
    grouped = dialect.group(len(per), buckets)
    return f"SELECT {dialect.select([*per, *values])} FROM {tables}{where}{grouped}"


_ALIAS = '"_v%d"'
"""The alias of a value in a subquery; no column has such a name."""

_DEVICES = '"_devices"'
"""The alias of a list of devices; no table has such a name."""


def list_aliases(count: int) -> str:
    """The aliases that `list_aliased` uses first."""
    return ", ".join(_ALIAS % place for place in range(count))


def list_aliased(values: Sequence[str]) -> str:
    """Values with the aliases that `compile_query` uses for them."""
    return ", ".join(f"{value} AS {_ALIAS % place}" for place, value in enumerate(values))


def _split(values: Sequence[str], apart: Sequence[bool]) -> tuple[list[str], list[str]]:
    """Split values, of which some are in the tags' table, into those to select from events, the id first, and
    those to select from the result and the tags."""
    inner, outer = [quote_name(ID)], []
    for value, is_apart in zip(values, apart, strict=True):
        outer.append(value if is_apart else _ALIAS % len(inner))
        inner += [] if is_apart else [value]
    return inner, outer


def _join_tags(statement: str, values: Sequence[str], schema: Schema, dialect: SqlDialect) -> str:
    """The statement that joins tags to a statement, whose values are aliased, the first an id."""
    return (
        f"SELECT {dialect.select(values)} FROM ({statement}) AS e"
        f" JOIN {dialect.name_tags(schema)} ON {_name_id(schema.tags_table)} = {_ALIAS % 0}"
    )


def _name_id(table: str) -> str:
    """The id's column of a table."""
    return f"{quote_name(table)}.{quote_name(ID)}"


def _name_tables(columns: Iterable[str], schema: Schema, dialect: SqlDialect) -> str:
    """The events' table, joined with the tags' table if one of the columns is there."""
    table = dialect.name_events(schema)
    if not any(map(schema.is_apart, columns)):
        return table
    same = f"{_name_id(schema.table)} = {_name_id(schema.tags_table)}"
    return f"{table} JOIN {dialect.name_tags(schema)} ON {same}"


def _find_newest(
    bound: BoundQuery,
    schema: Schema,
    dialect: SqlDialect,
    values: Sequence[str],
    where: str,
    newest: Newest,
) -> str:
    """The statement for these values of each device's newest event; the first identifies the device."""
    table, device, time = dialect.name_events(schema), values[0], quote_name(schema.time)
    aliased = list_aliased(values)
    if bound.devices is not None and len(bound.devices) == 1:
        return dialect.select_newest_of_one(values, time, f"{table}{where}")
    if newest is Newest.JOIN and bound.devices is None:
        times = list_aliased([device, f"max({time})"])
        return (
            f"SELECT DISTINCT ON ({device}) {aliased} FROM {table}"
            f" JOIN (SELECT {times} FROM {table}{where} GROUP BY 1) AS newest"
            f" ON {device} = newest.{_ALIAS % 0} AND {time} = newest.{_ALIAS % 1}{where} ORDER BY {device}"
        )
    if newest in (Newest.DIALECT, Newest.JOIN):
        return dialect.select_newest(values, time, f"{table}{where}")
    if newest is Newest.SEEK:
        return (
            f"{_list_devices(bound, schema, dialect, device)} SELECT e.* FROM {_DEVICES} CROSS JOIN LATERAL"
            f" (SELECT {aliased} FROM {table} WHERE {device} = {_DEVICES}.{_ALIAS % 0}"
            f" ORDER BY {time} DESC LIMIT 1) AS e"
        )
    return (
        f"SELECT {list_aliases(len(values))} FROM (SELECT {aliased}, {time} AS happened,"
        f" max({time}) OVER (PARTITION BY {device}) AS newest FROM {table}{where}) AS e"
        " WHERE happened = newest"
    )


def _list_devices(bound: BoundQuery, schema: Schema, dialect: SqlDialect, device: str) -> str:
    """A WITH of the devices to query: the named ones, all in the tags' table, or all that have events, by
    jumping from one to the next in the index (https://wiki.postgresql.org/wiki/Loose_indexscan)."""
    name = _ALIAS % 0
    named = [f"({dialect.text(device_name)})" for device_name in bound.devices or ()]
    if schema.is_apart(schema.device):
        among = f" WHERE {dialect.device(schema)} IN ({', '.join(named)})" if named else ""
        return f"WITH {_DEVICES} AS (SELECT {device} AS {name} FROM {dialect.name_tags(schema)}{among})"
    if named:
        return f"WITH {_DEVICES} ({name}) AS (VALUES {', '.join(named)})"
    first = f"(SELECT {device} AS {name} FROM {dialect.name_events(schema)}"
    following = f"WHERE {device} > {_DEVICES}.{name} ORDER BY 1 LIMIT 1)"
    return (
        f"WITH RECURSIVE {_DEVICES} AS ({first} ORDER BY 1 LIMIT 1) UNION ALL"
        f" SELECT {first} {following} FROM {_DEVICES} WHERE {_DEVICES}.{name} IS NOT NULL)"
    )


def _name_column(name: str, schema: Schema, dialect: SqlDialect) -> str:
    return dialect.device(schema) if name == schema.device else dialect.value(schema.column(name))


def quote_text(text: str) -> str:
    """A text as standard SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def fill_sql(text: str, bound: BoundQuery, schema: Schema, dialect: SqlDialect, table: str) -> str:
    """A workload's own statement with its parameters filled in, and `table` for its table."""

    def write_number(value: float, column: Column) -> str:
        return dialect.number(value, column.type)

    return fill_statement(text, bound, schema, dialect, write_number, table)


# --- statements with places for drawn parameters ----------------------------------------------------

# No workload's events have these times, and no device has such a name.
_START_MS, _END_MS = 4_102_444_800_123, 4_102_531_200_456
_NAMES = "\ue000%d\ue001"


@dataclass(frozen=True)
class Template:
    """A statement with places for an execution's parameters: its devices, then the start and the end of its
    window, as far as the query has them."""

    parts: tuple[str, ...]
    """The constant parts, before, between and after the places."""
    places: tuple[int, ...]
    """The parameter after each part except the last."""
    devices: int
    """How many parameters are names; the others are times, in ms since 1970."""

    def join(self, write: Callable[[int], str]) -> str:
        """The statement with the results of `write` for each parameter's number."""
        places = [*map(write, self.places), ""]
        return "".join(map(str.__add__, self.parts, places))

    def fill(
        self, bounds: BoundQueries, text: Callable[[str], str], instant: Callable[[int], str]
    ) -> Iterator[str]:
        """The statement of each execution, with names and times in the form from these functions."""
        if not self.places:
            return iter([self.parts[0]] * len(bounds))
        parameters = bounds.list_parameters()
        names, times = parameters[: self.devices], parameters[self.devices :]
        columns = [*(map(text, map(bytes.decode, column)) for column in names)]
        columns += [map(instant, column) for column in times]
        # About 0.5 µs each, however many places there are.
        pattern = "%s".join(part.replace("%", "%%") for part in self.parts)
        choose = itemgetter(*self.places)
        return (pattern % choose(row) for row in zip(*columns, strict=True))


def make_template(
    bounds: BoundQueries, compiled: Callable[[BoundQuery], str], literals: Drawn
) -> Template:
    """What the statements of a query's executions share. `compiled` puts each parameter into the statement as
    `literals` writes it, and makes no other difference."""
    count = 0 if bounds.devices is None else bounds.devices.shape[1]
    names = tuple(_NAMES % number for number in range(count))
    written = {literals.text(name): number for number, name in enumerate(names)}
    start = end = None
    if bounds.start_ms is not None:
        start = _START_MS
        end = _START_MS + 1 if bounds.query.instant else _END_MS
        written |= {literals.instant(start): count, literals.instant(end): count + 1}
    statement = compiled(BoundQuery(bounds.query, names or None, start, end))
    if not written:
        return Template((statement,), (), 0)
    marks = "|".join(re.escape(mark) for mark in written)
    pieces = re.split(f"({marks})", statement)
    return Template(tuple(pieces[::2]), tuple(written[mark] for mark in pieces[1::2]), count)
