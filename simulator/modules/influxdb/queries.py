"""Described queries in Flux.

Each begins with what storage itself can do: `range`, `filter` and one aggregate for each series, which are
a device's fields. So Flux gets few rows to work on, and aggregates them once more where a group has
several devices. For a few devices with many events, storage does that four times as fast as an aggregate
over all series (`group() |> min()`); only from thousands of devices on it is the slower way. Each
aggregate is a result of its own (`yield`) and reads the events again: a stream that is used twice would be
handed to Flux as it is. https://docs.influxdata.com/influxdb/v2/query-data/optimize-queries/

Fields of an event come together by `pivot`, which is Flux's work, and so is a condition on one of several.
An event that lacks a value has no such field: what there are rows for, and which event is the newest, says
a field that every event has. It is asked for afterwards, if there are fewer rows than there may be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...workloads.queries import BoundQuery
from ...workloads.schema import ColumnType, Schema
from .._base.labels import read_tag
from .._base.row_order import Row, put_in_order
from .answers import parse_csv
from .compiler import Ask, Compiler, Question
from .computing import Aggregation
from .flux import (
    name_device,
    quote_text,
    quote_texts,
    write_sort,
)


def compile_query(bound: BoundQuery, schema: Schema, bucket: str) -> Question:
    """The query that asks what is bound, its parameters in it."""
    compiler: type[Compiler] = Aggregation if bound.query.compute else _Listing
    return compiler(bound, schema, bucket).compile()


class _Listing(Compiler):
    """Events, or the newest ones."""

    def compile(self) -> Question:
        query, schema = self._query, self._schema
        names = [schema.device, *query.events] if query.newest else list(query.events)
        needed = self._list_fields()
        alone = needed[0] if len(needed) == 1 else None
        places = {schema.device: name_device(schema), schema.time: "_time", alone: "_value"}
        columns = [places.get(name, name) for name in names]
        text = self._select(needed)
        if query.newest:
            text += " |> last()"
        if alone is None:
            text = self._pivot(text)
            certain = next(filter(self._is_certain, needed))
            if query.newest and not all(map(self._is_certain, needed)):
                # An older value of a field that the newest event lacks makes a row of its own.
                text += f" |> filter(fn: (r) => exists r[{quote_text(certain)}])"
        text += " |> group()"
        kept = dict.fromkeys(columns)
        if not any(self._is_certain(name) and not schema.column(name).tag for name in names):
            # Rows without any column would be gone.
            kept["_time"] = None
        keep = f"keep(columns: {quote_texts(list(kept))})"
        read = partial(self._read, names, columns)
        if query.order is None:
            return Question(f"{text} |> {keep}", read)
        return Question(self._order(text, names, columns, keep), read)

    def _list_fields(self) -> list[str]:
        """The fields that have to be read."""
        asked = [name for name in self._query.events if name in self._fields]
        needed = list(dict.fromkeys([*asked, *([self._filtered] if self._filtered else [])]))
        # An event is there even if it has none of these values.
        if not any(map(self._is_certain, needed)):
            needed.append(self._witness)
        return needed

    def _order(self, text: str, names: list[str], columns: list[str], keep: str) -> str:
        query = self._query
        order = query.order
        assert order is not None
        name, by = names[order.by], columns[order.by]
        column = self._schema.column(name)
        if column.tag and column.is_number:
            text += f" |> {self._cast(name, by)}"
        keys = [] if order.descending else [key for key in columns[: query.keys] if key != by]
        sort = write_sort([by, *keys], order.descending, query.limit)
        is_there = self._is_certain(name) and not column.tag
        if query.limit is None or is_there:
            return f"{text} |> {sort} |> {keep}"
        # Flux has missing values first, and empty tags are missing.
        there = f"exists r[{quote_text(by)}]"
        return (
            f"rows = {text}\n"
            f'rows |> filter(fn: (r) => {there}) |> {sort} |> {keep} |> yield(name: "some")\n'
            f"rows |> filter(fn: (r) => not {there}) |> limit(n: {query.limit}) |> {keep}"
            ' |> yield(name: "none")'
        )

    def _read(self, names: list[str], columns: list[str], answer: str, _ask: Ask) -> list[Row]:
        rows = parse_csv(answer, columns)
        for place, name in enumerate(names):
            read = self._find_reader(name)
            if read is not None:
                rows = [(*row[:place], read(row[place]), *row[place + 1 :]) for row in rows]
        return put_in_order(self._query, rows)

    def _find_reader(self, name: str) -> Callable[[Any], Any] | None:
        """What makes a value of what CSV has; None: it is that."""
        column = self._schema.column(name)
        if column.tag:
            return partial(read_tag, column)
        # CSV has one form for a missing text and an empty one.
        is_text = column.type in (ColumnType.TEXT, ColumnType.JSON)
        return (lambda text: text or None) if is_text and column.nullable else None
