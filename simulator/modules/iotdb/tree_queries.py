"""Described queries in the language of IoTDB's tree model.

https://iotdb.apache.org/UserGuide/latest/Basic-Concept/Query-Data.html

Newest events and last values are asked for by `SELECT LAST`, which the server answers from memory; raw
events, and what is computed of them, `ALIGN BY DEVICE`. The tree computes nothing of several devices together
but by `GROUP BY LEVEL`, which knows no condition on a value and no tags, which are values here. So where
those are asked for, the server computes something per device, and `_base/partials.py` puts that together, as
an application would.

`GROUP BY ([begin, end), step)` needs a beginning and an end. If the query has none, the server is asked for
them first, in the same execution.

Of 2.0.1, three functions aren't used, because of their answers: `avg` beside `sum` or `count` of the same
measurement at a level (some are doubled), `max_by(x, time)` of devices whose newest value is missing, and
`HAVING` with `ORDER BY` (rows are missing). Computed rows are put in order here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function, Query
from ...workloads.schema import Column, ColumnType, Schema
from .._base.partials import Partials, compare
from .._base.row_order import Row, put_in_order
from .schema import LEVEL, find_steady, quote, split_path

Ask = Callable[[str], list[Row]]
Question = Callable[[Ask], list[Row]]
"""Asks what a query asks, by a function that asks statements: the rows of its answer."""
Missing = Callable[[], Exception]


def compile_question(
    bound: BoundQuery, schema: Schema, path: str, missing: Missing | None = None
) -> Question:
    """What is bound, asked of the devices below a path. `missing`: what is raised if there are none; None:
    there may be none."""
    source, query = _Source(bound, schema, path, missing), bound.query
    if query.newest:
        return _ask_newest(source, query.events)
    if query.events:
        return _ask_events(source)
    lasts = [one.column for one in query.compute if one.function is Function.LAST and one.column]
    is_plain = query.per == (schema.device,) and bound.start_ms is None and query.where is None
    if is_plain and len(lasts) == len(query.compute):
        return _ask_newest(source, lasts)
    return _ask_computed(source)


class _Source:
    """Where to look for events, and which of them are asked for."""

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

    def expect(self, rows: list[Row]) -> list[Row]:
        """The rows of an answer that has one at least for each device that there is, or for all of them.
        Raises what is raised if there is none."""
        if not rows and self.devices is None and self._missing is not None:
            raise self._missing()
        return rows

    def conditions(self) -> str:
        """The statement's WHERE, or nothing."""
        found = []
        if self.start_ms is not None and self.end_ms is not None:
            if self.end_ms == self.start_ms + 1:
                found.append(f"time = {self.start_ms}")
            else:
                found.append(f"time >= {self.start_ms} AND time < {self.end_ms}")
        if self.query.where is not None:
            sign, limit = compare(self.query.where, self.schema)
            found.append(f"{quote(self.query.where.column)} {sign} {limit!r}")
        return f" WHERE {' AND '.join(found)}" if found else ""

    def find_span(self, ask: Ask) -> tuple[int, int] | None:
        """From the first event that is asked for to just behind the last; None: there is none."""
        if self.start_ms is not None and self.end_ms is not None:
            return self.start_ms, self.end_ms
        steady = quote(self.steady)
        rows = ask(
            f"SELECT min_time({steady}), max_time({steady}) FROM {self.paths}{self.conditions()}"
            " ALIGN BY DEVICE"
        )
        times = [(first, last) for _, first, last in self.expect(rows) if first is not None]
        if not times:
            return None
        return min(first for first, _ in times), max(last for _, last in times) + 1


def _ask_events(source: _Source) -> Question:
    """Events themselves."""
    query, schema = source.query, source.schema
    own = (schema.time, schema.device)
    asked = list(dict.fromkeys(name for name in query.events if name not in own))
    if source.steady not in asked:
        # A row without any value would not be in the answer.
        asked.append(source.steady)
    known = {name: place for place, name in enumerate([*own, *asked])}
    places = [known[name] for name in query.events]
    statement = (
        f"SELECT {', '.join(map(quote, asked))} FROM {source.paths}{source.conditions()}"
        f"{_order(query, schema)} ALIGN BY DEVICE"
    )

    def ask_all(ask: Ask) -> list[Row]:
        rows = ask(statement)
        if schema.device in query.events:
            rows = [(row[0], _name(row[1]), *row[2:]) for row in rows]
        return [tuple(row[place] for place in places) for row in rows]

    return ask_all


def _order(query: Query, schema: Schema) -> str:
    """The statement's ORDER BY and LIMIT, or nothing."""
    if query.order is None:
        return ""
    name = query.events[query.order.by]
    key = {schema.time: "time", schema.device: "device"}.get(name)
    direction = "DESC" if query.order.descending else "ASC"
    found = f" ORDER BY {f'{quote(name)} {direction} NULLS LAST' if key is None else f'{key} {direction}'}"
    return found if query.limit is None else f"{found} LIMIT {query.limit}"


def _name(path: str) -> str:
    """The device of a path."""
    return split_path(path)[LEVEL + 1]


def _ask_newest(source: _Source, names: Sequence[str]) -> Question:
    """These columns of each device's newest event: of each measurement the last value, with its time."""
    schema, steady = source.schema, source.steady
    columns = [schema.column(name) for name in names]
    asked = {name: None for name in names if name not in (schema.time, schema.device)}
    asked[steady] = None
    statement = f"SELECT LAST {', '.join(map(quote, asked))} FROM {source.paths}"

    def read(device: str, found: dict[str, tuple[int, str]], column: Column) -> Any:
        newest_ms = found[steady][0]
        if column.name in (schema.time, schema.device):
            return newest_ms if column.name == schema.time else device
        # One that is older is of an event before.
        time_ms, text = found.get(column.name, (None, ""))
        return _parse(text, column) if time_ms == newest_ms else None

    def ask_all(ask: Ask) -> list[Row]:
        devices: dict[str, dict[str, tuple[int, str]]] = {}
        for time_ms, series, value, _ in source.expect(ask(statement)):
            *_, device, measurement = split_path(series)
            devices.setdefault(device, {})[measurement] = (time_ms, value)
        rows = [
            (device, *(read(device, found, column) for column in columns))
            for device, found in devices.items()
            if steady in found
        ]
        return put_in_order(source.query, rows)

    return ask_all


_PARSERS: dict[ColumnType, Callable[[str], Any]] = {
    ColumnType.TIMESTAMP_MS: int,
    ColumnType.INT64: int,
    ColumnType.INT32: int,
    ColumnType.FLOAT32: float,
    ColumnType.FLOAT64: float,
    ColumnType.BOOL: lambda text: text == "true",
}


def _parse(text: str, column: Column) -> Any:
    parse = _PARSERS.get(column.type)
    return parse(text) if parse else text


class _Values(Partials):
    """What is computed of some of a device's events, or of all devices' in a bucket of time."""

    def __init__(self, query: Query, schema: Schema, steady: str) -> None:
        """`steady`: a measurement that each event has."""
        self._steady = steady
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


def _ask_computed(source: _Source) -> Question:
    """Values computed of many events."""
    query = source.query
    values = _Values(query, source.schema, source.steady)
    every_ms = values.every_ms
    by_level = (
        not any(isinstance(part, str) for part in query.per)
        and source.devices is None
        and query.where is None
        and all(one.function is not Function.LAST for one in query.compute)
    )
    asked = ", ".join([*values.newest, *values.computed])
    select = f"SELECT {asked} FROM {source.paths}{source.conditions()}"

    def split(row: Row) -> Row:
        """Device, beginning of the bucket and values of a row, as far as it has them."""
        begin_ms, *rest = row if every_ms else (None, *row)
        return (None, begin_ms, *rest) if by_level else (_name(rest[0]), begin_ms, *rest[1:])

    def ask_all(ask: Ask) -> list[Row]:
        groups = []
        if every_ms:
            span = source.find_span(ask)
            if span is None:
                return []
            # Whole buckets counted from 1970.
            first, end = span
            groups.append(f"([{first - first % every_ms}, {end}), {every_ms}ms)")
        if by_level:
            groups.append(f"LEVEL = {LEVEL}")
        statement = select + (f" GROUP BY {', '.join(groups)}" if groups else "")
        if every_ms:
            # Without it there would be a row for each bucket, whether anything is in it or not.
            statement += f" HAVING {values.computed[0]} > 0"
        rows = ask(statement if by_level else f"{statement} ALIGN BY DEVICE")
        if not every_ms:
            source.expect(rows)
        return put_in_order(query, values.put_together(map(split, rows)))

    return ask_all
