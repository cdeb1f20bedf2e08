"""The right answers, computed from the generator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.columns import WHOLE, Values, rank, rank_rows
from ..workloads.drawing import BoundQuery
from ..workloads.precision import Slack
from ..workloads.queries import Every, Function, Order, Query
from ..workloads.schema import ColumnType, Schema
from .computing import Block, Devices, Evaluation, evaluate
from .stored import Range, Stored, unite

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """The right answer to a bound query."""

    query: Query
    names: tuple[str, ...]
    """What each value of a row is, for messages."""
    kinds: tuple[ColumnType, ...]
    """The type of each value."""
    columns: Sequence[Values]
    """Of all rows, in the query's order if it has one, and without its limit."""
    slack: Sequence[Slack]

    def __len__(self) -> int:
        """Of its rows."""
        found = len(self.columns[0])
        return found if self.query.limit is None else min(found, self.query.limit)

    def row(self, place: int) -> Row:
        """One of all rows."""
        return read_row(self.columns, place)

    @property
    def all_rows(self) -> list[Row]:
        """Without the limit, in plain values."""
        return list(zip(*(column.plain() for column in self.columns), strict=True))

    @property
    def rows(self) -> list[Row]:
        """The answer itself."""
        return self.all_rows[: self.query.limit]


def read_row(columns: Sequence[Values], place: int) -> Row:
    """A row in plain values."""
    one = slice(place, place + 1)
    return tuple(column.take(one).plain()[0] for column in columns)


def answer(bound: BoundQuery, stored: Stored, rounded: Collection[Function] = ()) -> Answer:
    """The right answer. Memory grows with its rows, and with the groups it is computed of."""
    return answer_all([bound], stored, rounded=rounded)[0]


def answer_all(
    bounds: Sequence[BoundQuery],
    stored: Stored,
    note: Callable[[int], object] = lambda _: None,
    rounded: Collection[Function] = (),
) -> list[Answer]:
    """The right answers of several queries: events are generated once, those that none of them is about
    not at all. `note` is told how many have been generated each time that there are more.

    `rounded`: what a database computes of whole numbers in floats of 64 bits, and so may be off beyond 2**53.
    """
    schema = stored.workload.schema
    found = [evaluate(bound, schema, rounded) for bound in bounds]
    devices = Devices()
    done = 0
    for block in stored.blocks(find_needed(bounds, stored)):
        taken = Block(block, devices)
        for one in found:
            one.add(taken)
        done += len(block)
        note(done)
    return [_finish(bound.query, schema, one) for bound, one in zip(bounds, found, strict=True)]


def _finish(query: Query, schema: Schema, evaluation: Evaluation) -> Answer:
    """The answer of what has been computed."""
    names, kinds = zip(*describe_answer(query, schema), strict=True)
    found, slack = evaluation.collect(kinds)
    columns = [_normalize(kind, column) for kind, column in zip(kinds, found, strict=True)]
    # Without an order, too: so keys make it easy to find a row.
    order = np.argsort(rank_rows(columns, len(columns[0])), kind="stable")
    if query.order is not None:
        order = _put_in_order(order, columns, query.order)
    return Answer(
        query,
        names,
        kinds,
        [column.take(order) for column in columns],
        [None if one is None else one[order] for one in slack],
    )


def _put_in_order(
    rows: NDArray[np.intp], columns: Sequence[Values], order: Order
) -> NDArray[np.intp]:
    """Rows in a query's order: what has no value comes last, and equal ones stay as they are."""
    values = columns[order.by].take(rows)
    places = rank(Values(values.array))
    if order.descending:
        places = -places
    if values.missing is not None:
        places = np.where(values.missing, len(rows), places)
    return rows[np.argsort(places, kind="stable")]


def _normalize(kind: ColumnType, values: Values) -> Values:
    """With the type that values of a kind are compared in."""
    if kind in WHOLE and values.array.dtype.kind != "O":
        return Values(values.array.astype(np.int64, copy=False), values.missing)
    return values


def find_needed(bounds: Iterable[BoundQuery], stored: Stored) -> list[Range]:
    """Which events must be generated for the answers to these."""
    found: list[Range] = []
    for start_ms, end_ms in {(bound.start_ms, bound.end_ms) for bound in bounds}:
        found += stored.find_between(start_ms, end_ms)
    return unite(found)


_GROUP_BYTES, _VALUE_BYTES = 200, 200
"""What a group takes at most while answers are computed, and each of its values besides: 320 to 400 bytes
were measured of a group with one or two, of a million devices."""


def estimate_memory(bound: BoundQuery, stored: Stored) -> int:
    """So many bytes the groups of a query take at most while its right answer is computed."""
    query, schema = bound.query, stored.workload.schema
    if query.events and not query.newest:
        return 0
    groups = 1
    if query.newest or schema.device in query.per:
        groups = stored.device_count if bound.devices is None else len(bound.devices)
    start, end = (bound.start_ms, bound.end_ms)
    if start is None or end is None:
        start, end = stored.span_ms
    for part in query.per:
        if isinstance(part, Every):
            groups *= (end - start) // part.every + 1
    values = len({one.column for one in query.compute} | set(query.events))
    return groups * (_GROUP_BYTES + _VALUE_BYTES * values)


def describe_answer(query: Query, schema: Schema) -> list[tuple[str, ColumnType]]:
    """Name and type of each value of a row."""
    if query.newest:
        return _describe_columns((schema.device, *query.events), schema)
    if query.events:
        return _describe_columns(query.events, schema)
    found: list[tuple[str, ColumnType]] = []
    for part in query.per:
        if isinstance(part, Every):
            found.append(("start", ColumnType.TIMESTAMP_MS))
        else:
            found += _describe_columns([part], schema)
    for one in query.compute:
        if one.column is None:
            found.append(("count", ColumnType.INT64))
            continue
        kind = schema.column(one.column).type
        if one.function is Function.AVG or (one.function is Function.SUM and kind not in WHOLE):
            kind = ColumnType.FLOAT64
        found.append((f"{one.function} of {one.column}", kind))
    return found


def _describe_columns(names: Iterable[str], schema: Schema) -> list[tuple[str, ColumnType]]:
    return [
        (name, ColumnType.TEXT if name == schema.device else schema.column(name).type)
        for name in names
    ]
