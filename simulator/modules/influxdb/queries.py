"""Described queries in Flux.

Each begins with steps that storage itself can do: `range`, `filter` and one aggregate per series (a field of
a device). So Flux gets few rows, and aggregates them once more where a group has several devices. For a few
devices with many events, this is four times as fast as an aggregate over all series (`group() |> min()`); it
is slower only with thousands of devices. Each aggregate is a separate result (`yield`) and reads the events
again: a stream that is used twice would be passed to Flux without aggregation.
https://docs.influxdata.com/influxdb/v2/query-data/optimize-queries/

Flux itself joins the fields of an event (`pivot`), and checks a condition on one of several fields. An event
without a value lacks that field, so a field that every event has shows which rows there are, and which event
is the newest. It is queried afterwards, if there are fewer rows than possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ...encoding.columns import TEXTS
from ...errors import OptionError
from ...units import write_duration
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Every, Function
from ...workloads.schema import Schema
from ..kit.series import Row, name_device, name_tag, put_in_order, read_tag
from .flux import Question, Result, quote_text, quote_texts, write_sort


def compile_query(bound: BoundQuery, schema: Schema, bucket: str) -> Question:
    """The query for the bound values, which it contains."""
    return (_Aggregation if bound.query.compute else _Listing)(bound, schema, bucket)


# --- events ---------------------------------------------------------------------------------------


class _Listing(Question):
    """Events, or the newest ones."""

    def __init__(self, bound: BoundQuery, schema: Schema, bucket: str) -> None:
        super().__init__(bound, schema, bucket)
        query = self._query
        self._names = [schema.device, *query.events] if query.newest else list(query.events)
        needed = [name for name in dict.fromkeys(query.events) if name in self._fields]
        if self._filtered and self._filtered not in needed:
            needed.append(self._filtered)
        # An event exists even if it has none of these values.
        if not any(map(self._is_certain, needed)):
            needed.append(self._witness)
        alone = needed[0] if len(needed) == 1 else None
        places = {schema.device: name_device(schema), schema.time: "_time", alone: "_value"}
        self.columns = [places.get(name, name) for name in self._names]
        text = self._select(needed)
        if query.newest:
            text += " |> last()"
        if alone is None:
            text = self._pivot(text)
            certain = next(filter(self._is_certain, needed))
            if query.newest and not all(map(self._is_certain, needed)):
                # An older value of a field that the newest event lacks becomes a row of its own.
                text += f" |> filter(fn: (r) => exists r[{quote_text(certain)}])"
        text += " |> group()"
        kept = dict.fromkeys(self.columns)
        if not any(self._is_certain(name) and not schema.column(name).tag for name in self._names):
            # Rows without any column would disappear.
            kept["_time"] = None
        keep = f"keep(columns: {quote_texts(list(kept))})"
        self.text = f"{text} |> {keep}" if query.order is None else self._order(text, keep)

    def _order(self, text: str, keep: str) -> str:
        query, columns = self._query, self.columns
        order = query.order
        assert order is not None
        name, by = self._names[order.by], columns[order.by]
        column = self._schema.column(name)
        if column.tag and column.is_number:
            text += f" |> {self._cast(name, by)}"
        keys = [] if order.descending else [key for key in columns[: query.keys] if key != by]
        sort = write_sort([by, *keys], order.descending, query.limit)
        is_there = self._is_certain(name) and not column.tag
        if query.limit is None or is_there:
            return f"{text} |> {sort} |> {keep}"
        # Flux sorts missing values first, and empty tags are missing.
        exists = f"exists r[{quote_text(by)}]"
        return (
            f"rows = {text}\n"
            f'rows |> filter(fn: (r) => {exists}) |> {sort} |> {keep} |> yield(name: "some")\n'
            f"rows |> filter(fn: (r) => not {exists}) |> limit(n: {query.limit}) |> {keep}"
            ' |> yield(name: "none")'
        )

    def read(self, answers: Sequence[Sequence[Result]]) -> list[Row]:
        rows = [row for _, row in answers[0]]
        for place, name in enumerate(self._names):
            column = self._schema.column(name)
            # CSV has one form for a missing text and an empty one.
            may_miss = column.type in TEXTS and column.nullable
            if column.tag or may_miss:
                rows = [
                    (
                        *row[:place],
                        read_tag(column, row[place]) if column.tag else row[place] or None,
                        *row[place + 1 :],
                    )
                    for row in rows
                ]
        return put_in_order(self._query, rows)


# --- computed values ------------------------------------------------------------------------------


_PERCENTS = {str(f): f.percent for f in Function if f.percent is not None}

_Part = tuple[str, str]
"""A Flux function and a column, computed by storage."""
_Found = dict[_Part, tuple[int | None, Any]]
"""Times and values of a group."""


class _Stream(NamedTuple):
    """A result of an answer: a function of columns."""

    function: str
    columns: Sequence[str]
    text: str


class _Limited(Enum):
    """Whether each stream has only the rows within the limit."""

    NOT = "not"
    BY_KEY = "by key"
    BY_VALUE = "by value"


class _Aggregation(Question):
    """Values computed over groups of events. Rows are counted in a result that has each group once per field.
    A query of only nullable columns has no such result, so its rows are read to be counted."""

    def __init__(self, bound: BoundQuery, schema: Schema, bucket: str) -> None:
        super().__init__(bound, schema, bucket)
        query = self._query
        spans = sorted(part.every for part in query.per if isinstance(part, Every))
        for span in spans:
            if span % spans[0]:
                raise OptionError(
                    f"query {query.name}: InfluxDB has buckets of {write_duration(spans[0])} and"
                    f" {write_duration(span)} together only if one is a multiple of the other"
                )
        self._every = spans[0] if spans else None
        """The length in ms of the shortest buckets of time, if there are any."""
        self._tags = [name_tag(part, schema) for part in query.per if isinstance(part, str)]
        """The tags to group by."""
        one_device = bound.devices is not None and len(bound.devices) == 1
        self._is_one_series = schema.device in query.per or one_device
        """Whether all events of a group are of one device."""
        columns = {
            aggregate.column for aggregate in query.compute if aggregate.column in self._fields
        }
        texts = (part for part in query.per if isinstance(part, str))
        self._texts = [name for name in texts if name in self._fields]
        """The fields to group by, like tags."""
        is_filtered = self._filtered is not None and not columns <= {self._filtered}
        self._is_pivoted = is_filtered or bool(self._texts)
        parts = [part for aggregate in query.compute for part in self._split(aggregate)]
        certain = [part for part in parts if self._is_certain(part[1])]
        self._complete = certain[0] if certain else ("first", self._witness)
        """The part that every group has."""
        self._parts = list(dict.fromkeys(parts))
        self._timed = set()
        """The functions that need the events' own times."""
        for aggregate in query.compute:
            own = self._split(aggregate)
            # A pivot's rows are unordered.
            is_last = aggregate.function is Function.LAST
            if aggregate.column == schema.time or (is_last and (len(own) > 1 or self._is_pivoted)):
                self._timed.add(own[0][0])
        self._limited = self._find_limited()
        self.text, self._streams = self._write(self._parts)
        self.columns = [*self._tags, "_start", "_time", "_field", "_value"]
        for number, stream in enumerate(self._streams):
            # The first result whose fields every group has.
            if all(map(self._is_certain, stream.columns)):
                self.counted, self.repeated = str(number), len(stream.columns)
                break
        self.is_scanned = not query.per or self.counted is not None

    def count(self, lines: int) -> int:
        return super().count(lines) if self._query.per else 1

    def _split(self, aggregate: Aggregate) -> list[_Part]:
        if aggregate.column is None:
            return [("count", self._witness)]
        if aggregate.column == self._schema.time:
            return [("first" if aggregate.function is Function.MIN else "last", self._witness)]
        if aggregate.function is Function.LAST:
            newest = [] if self._is_certain(aggregate.column) else [self._witness]
            return [("last", name) for name in (aggregate.column, *newest)]
        if aggregate.function is not Function.AVG:
            return [(aggregate.function.value, aggregate.column)]
        is_whole = self._is_one_series or self._is_pivoted
        functions = ["mean"] if is_whole else ["sum", "count"]
        return [(function, aggregate.column) for function in functions]

    def _write(self, parts: Sequence[_Part]) -> tuple[str, Sequence[_Stream]]:
        """Flux, and its results by number, which is their name."""
        streams = list(self._list_streams(parts))
        texts = [
            f'{stream.text} |> yield(name: "{number}")' for number, stream in enumerate(streams)
        ]
        if self._is_pivoted:
            fields = [name for _, name in parts if name in self._fields]
            needed = list(dict.fromkeys([*fields, *self._texts, self._witness]))
            texts.insert(0, f"rows = {self._pivot(self._select(needed))}")
        return "\n".join(texts), streams

    def _list_streams(self, parts: Sequence[_Part]) -> Iterator[_Stream]:
        for function in dict.fromkeys(function for function, _ in parts):
            names = [name for applied, name in parts if applied == function]
            if self._is_pivoted:
                for name in names:
                    yield _Stream(function, [name], self._ask_rows(function, name))
                continue
            fields = [name for name in names if name in self._fields]
            if fields:
                yield _Stream(function, fields, self._ask_series(function, self._select(fields)))
            for name in names:
                if name not in self._fields:
                    values = f"{self._select([self._witness])} |> {self._cast(name, '_value')}"
                    values += f' |> set(key: "_field", value: {quote_text(name)})'
                    yield _Stream(function, [name], self._ask_series(function, values))

    def _ask_series(self, function: str, values: str) -> str:
        """A function of each group's values, per field."""
        steps = [values, *self._apply(function)]
        if function in _PERCENTS:
            steps = [values, "toFloat()", self._group(), *self._apply(function)]
        elif not self._is_one_series:
            # By windows again, since Flux takes long to group by time.
            steps += [self._group(), *self._apply("sum" if function == "count" else function, True)]
        return " |> ".join([*steps, *self._finish(function)])

    def _ask_rows(self, function: str, name: str) -> str:
        """A function of a column over the events that meet the condition."""
        steps = ["rows"]
        if not self._is_certain(name):
            steps.append(f"filter(fn: (r) => exists r[{quote_text(name)}])")
        if name in self._fields:
            steps.append(f'rename(columns: {{{quote_text(name)}: "_value"}})')
        else:
            steps.append(self._cast(name, "_value"))
        steps += [
            f'set(key: "_field", value: {quote_text(name)})',
            *(["toFloat()"] if function in _PERCENTS else []),
            self._group(),
            *self._apply(function, True),
        ]
        return " |> ".join([*steps, *self._finish(function)])

    def _apply(self, function: str, unordered: bool = False) -> list[str]:
        """Steps for a function over each time bucket's values, or over all. `unordered`: over several
        series."""
        every = write_duration(self._every) if self._every is not None else None
        call = f"{function}()"
        if function in _PERCENTS:
            quantile = f'quantile(q: {_PERCENTS[function] / 100:g}, method: "exact_mean"'
            call, function = (
                f"{quantile})",
                f"(column, tables=<-) => tables |> {quantile}, column: column)",
            )
        if function in self._timed:
            if unordered:
                call = f'{"min" if function == "first" else "max"}(column: "_time")'
            return [call] if every is None else [f"window(every: {every})", call]
        if every is None:
            return [call]
        arguments = f'fn: {function}, createEmpty: false, timeSrc: "_start"'
        return [f"aggregateWindow(every: {every}, {arguments})"]

    def _group(self) -> str:
        return f"group(columns: {quote_texts([*self._tags, '_field'])})"

    def _finish(self, function: str) -> list[str]:
        bucket = "_start" if function in self._timed else "_time"
        keys = [
            bucket if isinstance(part, Every) else name_tag(part, self._schema)
            for part in self._query.per
        ]
        value = "_time" if function in self._timed else "_value"
        steps = []
        order = self._query.order
        if self._limited is not _Limited.NOT and order is not None:
            # Groups without a value come last, ordered by key.
            columns, descending = keys, False
            if self._limited is _Limited.BY_KEY:
                by = keys[order.by]
                columns, descending = [by, *(key for key in keys if key != by)], order.descending
            elif function == self._parts[0][0]:
                is_time = self._query.compute[0].column == self._schema.time
                own = [] if order.descending else keys
                columns, descending = ["_time" if is_time else "_value", *own], order.descending
            steps += [
                'group(columns: ["_field"])',
                write_sort(columns, descending, self._query.limit),
            ]
        kept = list(dict.fromkeys([*keys, value, "_field", "_value"]))
        return [*steps, f"keep(columns: {quote_texts(kept)})"]

    def _find_limited(self) -> _Limited:
        query, order = self._query, self._query.order
        if query.limit is None or order is None or not query.per:
            return _Limited.NOT
        if order.by < query.keys:
            part = query.per[order.by]
            # Flux sorts tags by their texts, with empty ones first.
            is_ordered = isinstance(part, Every) or part == self._schema.device
            return _Limited.BY_KEY if is_ordered else _Limited.NOT
        parts = self._split(query.compute[0])
        return _Limited.BY_VALUE if len(query.compute) == len(parts) == 1 else _Limited.NOT

    def find_missing(self, answer: Sequence[Result]) -> str | None:
        if self._complete in self._parts:
            return None
        groups: dict[Row, _Found] = {}
        self._collect(groups, self._streams, answer)
        # Some groups may have events, but no values.
        return self._write([self._complete])[0] if len(groups) < self._count_groups() else None

    def read(self, answers: Sequence[Sequence[Result]]) -> list[Row]:
        groups: dict[Row, _Found] = {}
        self._collect(groups, self._streams, answers[0])
        for answer in answers[1:]:
            self._collect(groups, self._write([self._complete])[1], answer)
        computed = [(aggregate, self._split(aggregate)) for aggregate in self._query.compute]
        rows = [
            (*key, *[_find_value(aggregate, parts, values) for aggregate, parts in computed])
            for key, values in groups.items()
            # Other groups may lack values that the limit has cut off.
            if self._limited is not _Limited.BY_KEY or self._complete in values
        ]
        return put_in_order(self._query, rows)

    def _collect(
        self, groups: dict[Row, _Found], streams: Sequence[_Stream], answer: Sequence[Result]
    ) -> None:
        keys = [self._read_key(part) for part in self._query.per]
        for result, row in answer:
            start, time, field, value = row[len(self._tags) :]
            begin = time if start is None else start
            values = groups.setdefault(tuple([read(row, begin) for read in keys]), {})
            values[streams[int(result)].function, field] = time, value
        if not keys:
            groups.setdefault((), {})

    def _count_groups(self) -> float:
        """The most groups that the query can have."""
        query, bound = self._query, self._bound
        if not query.per:
            return 1
        if self._limited is not _Limited.NOT:
            return query.limit or 0 if self._limited is _Limited.BY_VALUE else math.inf
        most: float = 1
        if self._tags:
            by_device = self._schema.device in query.per and bound.devices is not None
            most = len(bound.devices or ()) if by_device else math.inf
        if self._every is not None:
            if bound.start_ms is None or bound.end_ms is None:
                return math.inf
            most *= (bound.end_ms - 1) // self._every - bound.start_ms // self._every + 1
        return most

    def _read_key(self, part: str | Every) -> Callable[[Row, int], Any]:
        """The function that makes a key's value from a row, which begins with the tags, and from its time."""
        if isinstance(part, Every):
            every = part.every
            # The range may have cut off the beginning of the first bucket.
            return lambda row, time_ms: time_ms - time_ms % every
        place, column = self._tags.index(name_tag(part, self._schema)), self._schema.column(part)
        if part == self._schema.device:
            return lambda row, time_ms: row[place]
        if column.nullable:
            return lambda row, time_ms: row[place] or None
        return lambda row, time_ms: read_tag(column, row[place])


def _find_value(aggregate: Aggregate, parts: Sequence[_Part], values: _Found) -> Any:
    """A value of a row, from these parts."""
    time, value = values.get(parts[0], (None, None))
    if aggregate.function is Function.COUNT:
        return value or 0
    if parts[0][0] in ("first", "last") and aggregate.function is not Function.LAST:
        return time
    if len(parts) == 1 or value is None:
        return value
    other_time, other = values[parts[1]]
    if aggregate.function is Function.LAST:
        # The newest event may lack the value.
        return value if time == other_time else None
    return value / other
