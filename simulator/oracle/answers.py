"""The right answers, computed from the generator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.columns import WHOLE, Slack, Values, rank, rank_rows
from ..workloads.drawing import BoundQuery
from ..workloads.queries import Every, Function, Order, Query
from ..workloads.schema import ColumnType, EventBlock, Schema
from ..workloads.stored import Range, Stored, unite
from .computing import Block, Devices, Evaluation, evaluate

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
    """The values of all rows, in the query's order if it has one, and without its limit."""
    slack: Sequence[Slack]

    def __len__(self) -> int:
        """The number of its rows."""
        count = len(self.columns[0])
        return count if self.query.limit is None else min(count, self.query.limit)

    def row(self, place: int) -> Row:
        """One of all rows."""
        return read_row(self.columns, place)

    @property
    def all_rows(self) -> list[Row]:
        """The rows without the limit, in plain values."""
        return list(zip(*(column.plain() for column in self.columns), strict=True))

    @property
    def rows(self) -> list[Row]:
        """The answer itself."""
        return self.all_rows[: self.query.limit]


def read_row(columns: Sequence[Values], place: int) -> Row:
    """A row in plain values."""
    rows = slice(place, place + 1)
    return tuple(column.take(rows).plain()[0] for column in columns)


def answer(bound: BoundQuery, stored: Stored, rounded: Collection[Function] = ()) -> Answer:
    """The right answer. Memory grows with its rows, and with the groups it is computed of."""
    return answer_all([bound], stored, rounded=rounded)[0]


def answer_all(
    bounds: Sequence[BoundQuery],
    stored: Stored,
    note: Callable[[int], object] = lambda _: None,
    rounded: Collection[Function] = (),
) -> list[Answer]:
    """The right answers of several queries: events are generated once, those that no query is about not at
    all. `note` is called with how many have been generated, each time that there are more.

    `rounded`: what a database computes of whole numbers in 64-bit floats, which may be off beyond 2**53.
    """
    schema = stored.workload.schema
    evaluations = [evaluate(bound, schema, rounded) for bound in bounds]
    devices = Devices()
    done = 0
    for block in stored.blocks(find_needed(bounds, stored)):
        taken = Block(block, devices)
        for evaluation in evaluations:
            evaluation.add(taken)
        done += len(block)
        note(done)
    return [
        _finish(bound.query, schema, evaluation)
        for bound, evaluation in zip(bounds, evaluations, strict=True)
    ]


def answer_blocks(bound: BoundQuery, schema: Schema, blocks: Iterable[EventBlock]) -> Answer:
    """The right answer if these were all events."""
    evaluation, devices = evaluate(bound, schema, ()), Devices()
    for block in blocks:
        evaluation.add(Block(block, devices))
    return _finish(bound.query, schema, evaluation)


def _finish(query: Query, schema: Schema, evaluation: Evaluation) -> Answer:
    """The answer of what has been computed."""
    names, kinds = zip(*describe_answer(query, schema), strict=True)
    values, slack = evaluation.collect(kinds)
    columns = [_normalize(kind, column) for kind, column in zip(kinds, values, strict=True)]
    # Sorted without an order, too: keys make it easy to find a row.
    order = np.argsort(rank_rows(columns, len(columns[0])), kind="stable")
    if query.order is not None:
        order = _put_in_order(order, columns, query.order)
    return Answer(
        query,
        names,
        kinds,
        [column.take(order) for column in columns],
        [None if column_slack is None else column_slack[order] for column_slack in slack],
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
    """Values in the type in which those of a kind are compared."""
    if kind in WHOLE and values.array.dtype.kind != "O":
        return Values(values.array.astype(np.int64, copy=False), values.missing)
    return values


def find_needed(bounds: Iterable[BoundQuery], stored: Stored) -> list[Range]:
    """The events that must be generated for the answers to these queries."""
    ranges: list[Range] = []
    for start_ms, end_ms in {(bound.start_ms, bound.end_ms) for bound in bounds}:
        ranges += stored.find_between(start_ms, end_ms)
    return unite(ranges)


_GROUP_BYTES, _VALUE_BYTES = 200, 200
"""What a group takes at most while answers are computed, and each of its values besides: 320 to 400 bytes
were measured of a group with one or two, of a million devices."""


def estimate_memory(bound: BoundQuery, stored: Stored) -> int:
    """The most bytes that the groups of a query take while its right answer is computed."""
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
    values = len({aggregate.column for aggregate in query.compute} | set(query.events))
    return groups * (_GROUP_BYTES + _VALUE_BYTES * values)


def describe_answer(query: Query, schema: Schema) -> list[tuple[str, ColumnType]]:
    """Name and type of each value of a row."""
    if query.newest:
        return _describe_columns((schema.device, *query.events), schema)
    if query.events:
        return _describe_columns(query.events, schema)
    columns: list[tuple[str, ColumnType]] = []
    for part in query.per:
        if isinstance(part, Every):
            columns.append(("start", ColumnType.TIMESTAMP_MS))
        else:
            columns += _describe_columns([part], schema)
    for aggregate in query.compute:
        if aggregate.function is Function.COUNT:
            columns.append(("count", ColumnType.INT64))
            continue
        kind = schema.column(aggregate.column or "").type
        if aggregate.function is Function.AVG or (
            aggregate.function is Function.SUM and kind not in WHOLE
        ):
            kind = ColumnType.FLOAT64
        columns.append((f"{aggregate.function} of {aggregate.column}", kind))
    return columns


def _describe_columns(names: Iterable[str], schema: Schema) -> list[tuple[str, ColumnType]]:
    return [
        (name, ColumnType.TEXT if name == schema.device else schema.column(name).type)
        for name in names
    ]
