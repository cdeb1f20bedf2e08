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

from ...workloads.queries import BoundQuery, Function, Query
from ...workloads.schema import Column, ColumnType, Schema
from .._base.partials import Partials, compare
from .._base.row_order import Row, put_in_order
from .schema import LEVEL, find_steady, quote, split_path

Ask = Callable[[str], list[Row]]
Question = Callable[[Ask], list[Row]]
"""Asks what a query asks, by a function that asks statements: the rows of its answer. Raises
NoTimeseriesError."""


class NoTimeseriesError(Exception):
    """There are none where events were asked for."""


def compile_question(
    bound: BoundQuery, schema: Schema, path: str, must_have_events: bool = True
) -> Question:
    """What is bound, asked of the devices below a path."""
    source, query = _Source(bound, schema, path, must_have_events), bound.query
    if query.newest:
        return _Newest(source, query.events).ask
    if query.events:
        return _Events(source).ask
    lasts = [one.column for one in query.compute if one.function is Function.LAST and one.column]
    is_plain = query.per == (schema.device,) and bound.start_ms is None and query.where is None
    if is_plain and len(lasts) == len(query.compute):
        return _Newest(source, lasts).ask
    return _Computed(source).ask


class _Source:
    """Where to look for events, and which of them are asked for."""

    def __init__(
        self, bound: BoundQuery, schema: Schema, path: str, must_have_events: bool
    ) -> None:
        self.query: Query = bound.query
        self._must_have_events = must_have_events
        self.schema = schema
        self.steady = find_steady(schema)
        self.devices = bound.devices
        self.start_ms, self.end_ms = bound.start_ms, bound.end_ms
        names = ["*"] if bound.devices is None else [quote(name) for name in bound.devices]
        self.paths = ", ".join(f"{path}.{name}" for name in names)

    def expect(self, rows: list[Row]) -> list[Row]:
        """The rows of an answer that has one at least for each device that there is, or for all of them.
        Raises NoTimeseriesError."""
        if not rows and self.devices is None and self._must_have_events:
            raise NoTimeseriesError
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


class _Events:
    """Events themselves."""

    def __init__(self, source: _Source) -> None:
        query, schema = source.query, source.schema
        own = (schema.time, schema.device)
        asked = list(dict.fromkeys(name for name in query.events if name not in own))
        if source.steady not in asked:
            # A row without any value would not be in the answer.
            asked.append(source.steady)
        known = {schema.time: 0, schema.device: 1}
        known |= {name: place for place, name in enumerate(asked, 2)}
        self._places = [known[name] for name in query.events]
        self._statement = (
            f"SELECT {', '.join(map(quote, asked))} FROM {source.paths}{source.conditions()}"
            f"{_order(query, schema)} ALIGN BY DEVICE"
        )
        self._device = query.events.index(schema.device) if schema.device in query.events else None

    def ask(self, ask: Ask) -> list[Row]:
        """The rows of the answer."""
        found = ask(self._statement)
        rows = [tuple(row[place] for place in self._places) for row in found]
        place = self._device
        if place is None:
            return rows
        return [(*row[:place], _name(row[place]), *row[place + 1 :]) for row in rows]


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


class _Newest:
    """These columns of each device's newest event: of each measurement the last value, with its time."""

    def __init__(self, source: _Source, names: Sequence[str]) -> None:
        self._source = source
        self._query, self._steady = source.query, source.steady
        schema = source.schema
        self._columns = [schema.column(name) for name in names]
        self._time, self._device = schema.time, schema.device
        asked = {name: None for name in names if name not in (self._time, self._device)}
        asked[source.steady] = None
        self._statement = f"SELECT LAST {', '.join(map(quote, asked))} FROM {source.paths}"

    def ask(self, ask: Ask) -> list[Row]:
        """The rows of the answer."""
        devices: dict[str, dict[str, tuple[int, str]]] = {}
        for time_ms, series, value, _ in self._source.expect(ask(self._statement)):
            *_, device, measurement = split_path(series)
            devices.setdefault(device, {})[measurement] = (time_ms, value)
        rows = [
            (device, *self._read(device, found))
            for device, found in devices.items()
            if self._steady in found
        ]
        return put_in_order(self._query, rows)

    def _read(self, device: str, found: dict[str, tuple[int, str]]) -> list[Any]:
        newest_ms = found[self._steady][0]
        values: list[Any] = []
        for column in self._columns:
            if column.name == self._time:
                values.append(newest_ms)
            elif column.name == self._device:
                values.append(device)
            else:
                # One that is older is of an event before.
                time_ms, text = found.get(column.name, (None, ""))
                values.append(_parse(text, column) if time_ms == newest_ms else None)
        return values


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


class _Computed:
    """Values computed of many events."""

    def __init__(self, source: _Source) -> None:
        query, schema = source.query, source.schema
        self._source = source
        self._values = _Values(query, schema, source.steady)
        named = [part for part in query.per if isinstance(part, str)]
        self._by_level = (
            not named
            and source.devices is None
            and query.where is None
            and all(one.function is not Function.LAST for one in query.compute)
        )
        asked = ", ".join([*self._values.newest, *self._values.computed])
        self._select = f"SELECT {asked} FROM {source.paths}{source.conditions()}"

    def ask(self, ask: Ask) -> list[Row]:
        """The rows of the answer."""
        groups, every_ms = [], self._values.every_ms
        if every_ms:
            span = self._source.find_span(ask)
            if span is None:
                return []
            # Whole buckets counted from 1970.
            first, end = span
            groups.append(f"([{first - first % every_ms}, {end}), {every_ms}ms)")
        if self._by_level:
            groups.append(f"LEVEL = {LEVEL}")
        statement = self._select + (f" GROUP BY {', '.join(groups)}" if groups else "")
        if every_ms:
            # Without it there would be a row for each bucket, whether anything is in it or not.
            statement += f" HAVING {self._values.computed[0]} > 0"
        if not self._by_level:
            statement += " ALIGN BY DEVICE"
        rows = ask(statement)
        if not every_ms:
            self._source.expect(rows)
        parts = (self._split(row, bool(every_ms)) for row in rows)
        return put_in_order(self._source.query, self._values.put_together(parts))

    def _split(self, row: Row, has_time: bool) -> Row:
        """Device, beginning of the bucket and values of a row, as far as it has them."""
        begin_ms, *rest = row if has_time else (None, *row)
        if self._by_level:
            return (None, begin_ms, *rest)
        return (_name(rest[0]), begin_ms, *rest[1:])
