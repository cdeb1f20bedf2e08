"""Described queries in MetricsQL.

Values are computed with a rollup function per series (a column of a device), and an aggregate over the series
of a group: `max(max_over_time({__name__="machines_power"}[3600000ms])) by (hall)`. All values of an answer
are one query (`union`). Buckets of time are the steps of a range query; partial buckets at the ends of a
window are separate queries.

The newest event of a device is its last sample over all time: the server reads all samples, since it has no
list of newest ones. Events themselves come from the export API, by series; they are joined here by their
times, which counts in the query's time. Queries with a condition on a value aren't supported, since a series
knows nothing about another's values at the same time; a condition on a tag is one on labels.

https://docs.victoriametrics.com/victoriametrics/metricsql/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Every, Function, Shape
from ...workloads.schema import FLOATS, Column, ColumnType, Schema
from ..kit.series import Row, field_columns, find_witness, name_tag, put_in_order, read_tag
from .encoding import ALL_TIME, name_metric
from .forms import (
    PART,
    Form,
    ask_at,
    ask_steps,
    bound_times,
    count_parts,
    count_samples,
    describe_form,
    export,
    quote_label,
    quote_text,
    read_result,
    select_series,
    unite,
    write_line_begin,
    write_span,
    write_window,
)

IMPOSSIBLE = frozenset({Shape.WHERE, Shape.PATH, Shape.PERCENTILE_OF_ALL, Shape.PER_TEXT})
SHAPES = frozenset(Shape) - IMPOSSIBLE

_POINTS = 10_000
"""The points of a range query; a server returns at most 30,000 (-search.maxPointsPerTimeseries)."""

_SHOWN = 2


def compile_query(bound: BoundQuery, schema: Schema, db: str | None, table: str) -> Question:
    """The bound query over a table's events."""
    kind: type[Question] = _Events
    if bound.query.compute:
        kind = _Aggregation
    elif bound.query.newest:
        kind = _Newest
    return kind(bound, schema, db, table)


class Question(ABC):
    """A bound query in MetricsQL: its requests, and how to make rows from their answers."""

    forms: Sequence[Form]
    """The first requests; all of them, unless `spreads`."""
    spreads = False
    """Whether these find out when the events were, and `spread` makes the requests that follow."""

    def __init__(self, bound: BoundQuery, schema: Schema, db: str | None, table: str) -> None:
        self._bound, self._schema, self._table, self._db = bound, schema, table, db
        self._query = bound.query
        self._witness = find_witness(schema)
        self._fields: Mapping[str, Column] = {
            column.name: column for column in field_columns(schema)
        }
        # The event fields to read, including one that each event has.
        self._needed = [name for name in dict.fromkeys(self._query.events) if name in self._fields]
        if all(self._fields[name].nullable for name in self._needed):
            self._needed.append(self._witness)
        self._certain = next(name for name in self._needed if not self._fields[name].nullable)

    def describe(self) -> str:
        """The requests, for people to read."""
        shown = [describe_form(form) for form in self.forms[:_SHOWN]]
        if len(self.forms) > _SHOWN:
            shown.append(f"and so on, {len(self.forms)} requests in all, one after the other")
        if self.spreads:
            shown.append("and then for the values of each bucket within these times")
        return "\n".join(shown)

    def spread(self, body: bytes) -> Sequence[Form]:
        """The requests that follow once this answer has shown when the events were."""
        raise AssertionError(f"nothing comes after {body!r}")

    def count(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> int:
        """The number of rows in these requests' answers, which are complete and free of errors."""
        rows = self._scan(forms, bodies)
        if rows is None:
            return len(self.read(forms, bodies))
        limit = self._query.limit if self._query.order else None
        return rows if limit is None else min(rows, limit)

    @abstractmethod
    def _scan(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> int | None:
        """The number of rows without a limit, by a scan; None: they must be read to be counted."""

    @abstractmethod
    def read(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> list[Row]:
        """The rows. KeyError and the like if one isn't in the form of an answer."""

    def _select(self, *columns: str) -> str:
        bound, tables = self._bound, [self._table]
        return select_series(
            self._schema, self._db, tables, columns, bound.devices, bound.query.where
        )

    def _read_label(self, name: str, labels: Mapping[str, str]) -> Any:
        """The value of the device's column, or of a tag."""
        if name == self._schema.device:
            return labels.get(name_tag(name, self._schema), "")
        return read_tag(self._schema.column(name), labels.get(name, ""))


def _read_number(column: Column, value: str | float | None) -> Any:
    if value is None:
        return None
    if column.type in FLOATS:
        return float(value)
    number = int(float(value))
    return bool(number) if column.type is ColumnType.BOOL else number


# --- events ---------------------------------------------------------------------------------------


class _Events(Question):
    """Stored events. Counts the samples of the field that each event has."""

    def __init__(self, bound: BoundQuery, schema: Schema, db: str | None, table: str) -> None:
        super().__init__(bound, schema, db, table)
        first_ms, end_ms = bound_times(bound)
        self.forms = [export(self._select(*self._needed), first_ms, end_ms - 1)]
        self._begin = write_line_begin(name_metric(table, self._certain))

    def _scan(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> int | None:
        return None if self._begin is None else count_samples(bodies[0], self._begin)

    def read(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> list[Row]:
        metrics = {name_metric(self._table, name): name for name in self._needed}
        devices: dict[tuple[tuple[str, str], ...], dict[str, _Samples]] = {}
        for line in map(orjson.loads, bodies[0].splitlines()):
            labels = line["metric"]
            name = metrics[labels.pop("__name__")]
            samples = devices.setdefault(tuple(sorted(labels.items())), {})
            before = samples.get(name, _Samples([], []))
            samples[name] = _Samples(
                before.times_ms + line["timestamps"], before.values + line["values"]
            )
        rows = [
            row for labels, series in devices.items() for row in self._join(dict(labels), series)
        ]
        return put_in_order(self._query, rows)

    def _join(self, labels: Mapping[str, str], series: Mapping[str, _Samples]) -> Iterator[Row]:
        certain = self._certain
        times_ms = series[certain].times_ms if certain in series else []
        columns: list[Sequence[Any]] = []
        for name in self._query.events:
            if name == self._schema.time:
                columns.append(times_ms)
            elif name in self._fields:
                column, samples = self._fields[name], series.get(name, _Samples([], []))
                columns.append([_read_number(column, value) for value in samples.at(times_ms)])
            else:
                columns.append([self._read_label(name, labels)] * len(times_ms))
        return zip(*columns, strict=True)


class _Samples(NamedTuple):
    """The samples of a series."""

    times_ms: list[int]
    values: list[Any]

    def at(self, times_ms: Sequence[int]) -> Sequence[Any]:
        """The value at each of these times; None where there is none."""
        if times_ms == self.times_ms:
            return self.values
        by_time = dict(zip(self.times_ms, self.values, strict=True))
        return [by_time.get(time_ms) for time_ms in times_ms]


class _Newest(Question):
    """The newest event of each device. Counts the values of the field that each event has."""

    def __init__(self, bound: BoundQuery, schema: Schema, db: str | None, table: str) -> None:
        super().__init__(bound, schema, db, table)
        time_ms, window = write_span(*ALL_TIME)
        needed, certain = self._needed, self._certain
        # If an event may lack a column, its last value may belong to an older event.
        timed = [name for name in needed if self._fields[name].nullable]
        if timed or schema.time in self._query.events:
            timed.append(certain)
        others = [name for name in needed if name != certain]
        # Each part takes a while by itself, but over all devices, names make an answer much longer.
        values, times, naming = [[certain], others], [timed], " keep_metric_names"
        if bound.devices is None:
            values, times = [[name] for name in (certain, *others)], [[name] for name in timed]
            naming = ""
        parts = [("value", names, "last_over_time({})") for names in values if names]
        parts += [("time", names, "tlast_over_time({})" + naming) for names in times if names]
        self._parts = {str(place): part[:2] for place, part in enumerate(parts)}
        self._metrics = {name_metric(table, name): name for name in needed}
        texts = [text.format(f"{self._select(*names)}{window}") for _, names, text in parts]
        self.forms = [ask_at(unite(texts), time_ms)]

    def _scan(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> int | None:
        return count_parts(bodies[0], 0)

    def read(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> list[Row]:
        devices: dict[tuple[tuple[str, str], ...], dict[tuple[str, str], str]] = {}
        for series in read_result(bodies[0]):
            labels = series["metric"]
            metric = labels.pop("__name__", None)
            kind, names = self._parts[labels.pop(PART)]
            part = kind, names[0] if len(names) == 1 else self._metrics[metric]
            devices.setdefault(tuple(sorted(labels.items())), {})[part] = series["value"][1]
        columns = (self._schema.device, *self._query.events)
        rows = []
        for key, values in devices.items():
            labels = dict(key)
            rows.append(tuple(self._read_column(name, labels, values) for name in columns))
        return put_in_order(self._query, rows)

    def _read_column(
        self, name: str, labels: Mapping[str, str], values: Mapping[tuple[str, str], str]
    ) -> Any:
        """The value of a column of a device's newest event."""
        newest = values.get(("time", self._certain))
        if name == self._schema.time:
            return _read_time(newest)
        if name not in self._fields:
            return self._read_label(name, labels)
        if self._fields[name].nullable and values.get(("time", name)) != newest:
            return None
        return _read_number(self._fields[name], values["value", name])


# --- computed values ------------------------------------------------------------------------------

_Found = dict[int, str]
"""Index of a part -> its value in a group."""


_Value = tuple[Sequence[str], Callable[..., Any]]
"""A value of a row: the expressions of its parts, and a function of their values, which are None if
missing."""


class _Aggregation(Question):
    """Values computed over groups of events. Counts the values of a part that each group has; without such a
    part, as all columns may be missing, rows are read to be counted."""

    def __init__(self, bound: BoundQuery, schema: Schema, db: str | None, table: str) -> None:
        super().__init__(bound, schema, db, table)
        groups = [part for part in self._query.per if isinstance(part, str)]
        every = [part.every for part in self._query.per if isinstance(part, Every)]
        self._groups = {name: name_tag(name, schema) for name in groups}
        self._every_ms = every[0] if every else None
        labels = ",".join(map(quote_label, self._groups.values()))
        self._by = f" by ({labels})" if labels else ""
        self._is_of_series = schema.device in groups or len(bound.devices or ()) == 1
        """Whether a group is a device, which has one series per column."""
        self.spreads = self._every_ms is not None and bound_times(bound) == ALL_TIME
        if not self.spreads:
            self.forms = self._list_forms(*bound_times(bound))
            return
        # First for the time of all selected events.
        time_ms, window = write_span(*ALL_TIME)
        events = f"{self._select(self._witness)}{window}"
        texts = [f"min(tfirst_over_time({events}))", f"max(tlast_over_time({events}))"]
        self.forms = [ask_at(unite(texts), time_ms)]

    def _list_forms(self, first_ms: int, end_ms: int) -> list[Form]:
        """The requests for this time, excluding its end."""
        every_ms = self._every_ms
        if every_ms is None:
            return [self._ask_once(0, first_ms, end_ms)]
        # Whole buckets lie between these two.
        begin_ms = -(-first_ms // every_ms) * every_ms
        stop_ms = end_ms // every_ms * every_ms
        forms = []
        if first_ms < min(begin_ms, end_ms):
            until_ms = min(begin_ms, end_ms)
            forms.append(self._ask_once(begin_ms - every_ms, first_ms, until_ms))
        for start_ms in range(begin_ms, stop_ms, _POINTS * every_ms):
            last_ms = min(start_ms + _POINTS * every_ms, stop_ms) - 1
            text = self._write(write_window(every_ms))
            forms.append(ask_steps(text, start_ms + every_ms - 1, last_ms, every_ms))
        if begin_ms <= stop_ms < end_ms:
            forms.append(self._ask_once(stop_ms, stop_ms, end_ms))
        return forms

    def _ask_once(self, bucket_ms: int, first_ms: int, end_ms: int) -> Form:
        time_ms, window = write_span(first_ms, end_ms)
        return ask_at(self._write(window), time_ms, bucket_ms)

    def spread(self, body: bytes) -> Sequence[Form]:
        extent = {
            series["metric"][PART]: _read_time(series["value"][1]) for series in read_result(body)
        }
        return self._list_forms(extent["0"], extent["1"] + 1) if extent else []

    def _scan(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> int | None:
        if not self._query.per:
            return 1
        place = 0
        for aggregate in self._query.compute:
            column = None if aggregate.column is None else self._fields.get(aggregate.column)
            if column is None or not column.nullable:
                break
            place += len(self._compute(aggregate, "")[0])
        else:
            # If there is a single part, each group has it.
            if place > 1:
                return None
            place = 0
        return sum(count_parts(body, place) for body in bodies)

    def read(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> list[Row]:
        query = self._query
        groups: dict[tuple[Any, ...], _Found] = {}
        for bucket_ms, labels, part, value in self._read_parts(forms, bodies):
            read = {name: self._read_label(name, labels) for name in self._groups}
            key = tuple(
                bucket_ms if isinstance(group, Every) else read[group] for group in query.per
            )
            groups.setdefault(key, {})[part] = value
        if not query.per:
            groups.setdefault((), {})
        values = [self._compute(aggregate, "") for aggregate in query.compute]
        rows = []
        for key, parts in groups.items():
            row, place = list(key), 0
            for texts, read_value in values:
                end = place + len(texts)
                row.append(read_value(*map(parts.get, range(place, end))))
                place = end
            rows.append(tuple(row))
        return put_in_order(query, rows)

    def _read_parts(
        self, forms: Sequence[Form], bodies: Sequence[bytes]
    ) -> Iterator[tuple[int, Mapping[str, str], int, str]]:
        """Bucket, labels, index of the part, and its value."""
        for form, body in zip(forms, bodies, strict=True):
            for series in read_result(body):
                labels = series["metric"]
                part = int(labels[PART])
                if form.step_ms is None:
                    yield form.bucket_ms, labels, part, series["value"][1]
                    continue
                for time_s, value in series["values"]:
                    yield round(time_s * 1000) + 1 - form.step_ms, labels, part, value

    def _write(self, window: str) -> str:
        return unite(
            [
                part
                for aggregate in self._query.compute
                for part in self._compute(aggregate, window)[0]
            ]
        )

    def _compute(self, aggregate: Aggregate, window: str) -> _Value:
        if aggregate.function is Function.COUNT:
            counted = self._select(aggregate.column or self._witness)
            text = self._over("sum", f"count_over_time({counted}{window})")
            return [text], lambda number: int(float(number or 0))
        assert aggregate.column is not None
        events = f"{self._select(self._witness)}{window}"
        if aggregate.column == self._schema.time:
            function = "tfirst" if aggregate.function is Function.MIN else "tlast"
            text = self._over(aggregate.function.value, f"{function}_over_time({events})")
            return [text], _read_time
        if aggregate.column not in self._fields:
            return self._compute_tag(aggregate, aggregate.column, events)
        column, values = self._fields[aggregate.column], f"{self._select(aggregate.column)}{window}"
        if aggregate.function is Function.LAST:
            return self._compute_last(column, values, events)
        if aggregate.function.percent is not None:
            # For one series: percentiles over several can't be derived from those of each.
            share = aggregate.function.percent / 100
            return [self._over("any", f"quantile_over_time({share:g}, {values})")], _read_float
        if aggregate.function is Function.AVG and self._is_of_series:
            return [self._over("avg", f"avg_over_time({values})")], _read_float
        if aggregate.function is Function.AVG:
            total = self._over("sum", f"sum_over_time({values})")
            text = f"{total} / {self._over('sum', f'count_over_time({values})')}"
            return [text], _read_float
        text = self._over(aggregate.function.value, f"{aggregate.function}_over_time({values})")
        return [text], partial(_read_number, column)

    def _compute_last(self, column: Column, values: str, events: str) -> _Value:
        text = self._over("any", f"last_over_time({values})")
        if not column.nullable:
            return [text], partial(_read_number, column)
        # The newest event may lack the value.
        times = [self._over("any", f"tlast_over_time({vector})") for vector in (values, events)]
        return (
            [text, *times],
            lambda value, time_s, newest_s: (
                _read_number(column, value) if time_s == newest_s else None
            ),
        )

    def _compute_tag(self, aggregate: Aggregate, name: str, events: str) -> _Value:
        """A value computed from a tag, which is a label of each series."""
        counts = f"count_over_time({events})"
        label = f"label_value({counts}, {quote_text(name)})"
        read = partial(_read_number, self._schema.column(name))
        if aggregate.function not in (Function.SUM, Function.AVG):
            function = "any" if aggregate.function is Function.LAST else aggregate.function.value
            return [self._over(function, label)], read
        text = self._over("sum", f"{label} * {counts}")
        if aggregate.function is Function.AVG:
            return [f"{text} / {self._over('sum', counts)}"], _read_float
        return [text], read

    def _over(self, function: str, text: str) -> str:
        return f"{function}({text}){self._by}"


def _read_time(text: str | None) -> Any:
    """Seconds as ms."""
    return None if text is None else round(float(text) * 1000)


def _read_float(text: str | None) -> float | None:
    return None if text is None else float(text)
