"""Computes the right answers from the generator, and compares answers with them: which row differs first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.drawing import BoundQuery, Range, Stored, unite
from ..workloads.queries import Every, Exactness, Function, Query
from ..workloads.schema import ColumnType, EventBlock, Schema
from .columns import WHOLE, Values, join, rank, rank_rows, to_values
from .computing import Block, Devices, Evaluation, evaluate

Row = tuple[Any, ...]

EXACT = Exactness()


@dataclass(frozen=True)
class Answer:
    """The right answer to a bound query."""

    query: Query
    names: tuple[str, ...]
    """What each value of a row is, for messages."""
    kinds: tuple[ColumnType, ...]
    """The type of each value."""
    columns: Sequence[Values]
    """The values of all rows, without the query's limit; in its order if it has one."""

    def __len__(self) -> int:
        """The number of rows."""
        count = len(self.columns[0])
        return count if self.query.limit is None else min(count, self.query.limit)

    def row(self, place: int) -> Row:
        """One of all rows."""
        return read_row(self.columns, place)

    @property
    def all_rows(self) -> list[Row]:
        """The rows without the limit, as plain values."""
        return list(zip(*(column.plain() for column in self.columns), strict=True))

    @property
    def rows(self) -> list[Row]:
        """The answer itself."""
        return self.all_rows[: self.query.limit]


def read_row(columns: Sequence[Values], place: int) -> Row:
    """A row as plain values."""
    rows = slice(place, place + 1)
    return tuple(column.take(rows).plain()[0] for column in columns)


def answer(bound: BoundQuery, stored: Stored, exactness: Exactness = EXACT) -> Answer:
    """The right answer. Memory grows with its rows, and with the groups it is computed from."""
    return answer_all([bound], stored, exactness=exactness)[0]


def answer_all(
    bounds: Sequence[BoundQuery],
    stored: Stored,
    note: Callable[[int], object] = lambda _: None,
    exactness: Exactness = EXACT,
) -> list[Answer]:
    """The right answers of several queries. Events are generated once, and only those that some query covers.
    `note` is called with the number generated so far, whenever it grows. `exactness`: of the database whose
    answers are compared with these."""
    evaluations = [evaluate(bound, stored.workload.schema, exactness) for bound in bounds]
    devices = Devices()
    done = 0
    for block in stored.blocks(find_needed(bounds, stored)):
        taken = Block(block, devices)
        for evaluation in evaluations:
            evaluation.add(taken)
        done += len(block)
        note(done)
    return [_finish(evaluation) for evaluation in evaluations]


def answer_blocks(bound: BoundQuery, schema: Schema, blocks: Iterable[EventBlock]) -> Answer:
    """The right answer if these were all events."""
    evaluation, devices = evaluate(bound, schema, EXACT), Devices()
    for block in blocks:
        evaluation.add(Block(block, devices))
    return _finish(evaluation)


def _finish(evaluation: Evaluation) -> Answer:
    """The answer from a finished computation."""
    query = evaluation.query
    names, kinds = zip(*describe_answer(query, evaluation.schema), strict=True)
    columns = [
        replace(column, array=column.array.astype(np.int64, copy=False))
        if kind in WHOLE and column.array.dtype.kind != "O"
        else column
        for kind, column in zip(kinds, evaluation.collect(kinds), strict=True)
    ]
    # Sorted even if the query has no order: keys make it easy to find a row.
    rows = np.argsort(rank_rows(columns, len(columns[0])), kind="stable")
    if query.order is not None:
        values = columns[query.order.by].take(rows)
        places = rank(Values(values.array)) * (-1 if query.order.descending else 1)
        if values.missing is not None:
            places[values.missing] = len(rows)
        rows = rows[np.argsort(places, kind="stable")]
    return Answer(query, names, kinds, [column.take(rows) for column in columns])


def find_needed(bounds: Iterable[BoundQuery], stored: Stored) -> list[Range]:
    """The events that must be generated for the answers to these queries."""
    ranges: list[Range] = []
    for start_ms, end_ms in {(bound.start_ms, bound.end_ms) for bound in bounds}:
        ranges += stored.find_between(start_ms, end_ms)
    return unite(ranges)


_GROUP_BYTES, _VALUE_BYTES = 200, 200
"""The most bytes that a group takes, and each of its values in addition: 320 to 400 bytes were measured for
one or two values."""
_SAMPLE_BYTES = 64
"""The most bytes that each value of a percentile takes: it is stored with its group, and sorted by both."""


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
    listed = len({a.column for a in query.compute if a.function.percent is not None})
    events = sum(map(len, find_needed([bound], stored))) if listed else 0
    return groups * (_GROUP_BYTES + _VALUE_BYTES * values) + events * _SAMPLE_BYTES * listed


def describe_answer(query: Query, schema: Schema) -> list[tuple[str, ColumnType]]:
    """Name and type of each value of a row."""
    columns: list[tuple[str, ColumnType]] = []
    device = (schema.device,) if query.newest else ()
    for part in (*query.per, *device, *query.events):
        if isinstance(part, Every):
            columns.append(("start", ColumnType.TIMESTAMP_MS))
        else:
            is_device = part == schema.device
            columns.append((part, ColumnType.TEXT if is_device else schema.column(part).type))
    for aggregate in query.compute:
        if aggregate.function is Function.COUNT:
            columns.append(("count", ColumnType.INT64))
            continue
        kind = schema.column(aggregate.column or "").type
        is_sum = aggregate.function is Function.SUM and kind not in WHOLE
        is_between = aggregate.function is Function.AVG or aggregate.function.percent is not None
        if is_sum or is_between:
            kind = ColumnType.FLOAT64
        columns.append((f"{aggregate.function} of {aggregate.column}", kind))
    return columns


# --- comparing ------------------------------------------------------------------------------------


class Malformed(ValueError):
    """An answer that doesn't have the right one's form; the text names the row."""


def compare_answers(right: Answer, rows: Sequence[Sequence[Any]]) -> str | None:
    """What is wrong with an answer, naming the first row that differs; None: nothing. Rows, keys, counts,
    extrema and values of events must match exactly (in float32 if the column is of that type), sums and means
    of numbers to the column's precision."""
    try:
        columns = normalize(right.kinds, rows)
    except Malformed as error:
        return str(error)
    return compare_columns(right, columns)


def normalize(kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The columns of an answer's rows as plain numbers, booleans and texts. Malformed if they have other
    types."""
    for number, row in enumerate(rows, 1):
        if len(row) != len(kinds):
            raise Malformed(
                f"row {number} has {len(row)} values instead of {len(kinds)}: {tuple(row)}"
            )
    columns = []
    for place, kind in enumerate(kinds):
        form = _FORMS[kind]
        column: list[Any] = []
        try:
            for row in rows:
                value = row[place]
                column.append(None if value is None else form(value))
        except (TypeError, ValueError, OverflowError) as error:
            number = len(column) + 1
            raise Malformed(f"row {number}, {tuple(rows[number - 1])}: {error}") from error
        columns.append(column)
    return columns


def compare_columns(right: Answer, answer_columns: Sequence[Sequence[Any]]) -> str | None:
    """The same as `compare_answers`, for normalized columns."""
    columns = [
        to_values(kind, column) for kind, column in zip(right.kinds, answer_columns, strict=True)
    ]
    count, expected = len(columns[0]), len(right)
    wrong_length = None if count == expected else f"{count:,} rows instead of {expected:,}"
    if not right.query.keys and right.query.compute:
        # A single row, without a key.
        return wrong_length or _find_value(right, columns, 0)
    differing = (_compare_keyed if right.query.keys else _compare_whole)(right, columns)
    if wrong_length and differing:
        return f"{wrong_length}; {differing}"
    return differing or wrong_length or _compare_order(right, columns)


def _compare_keyed(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare rows that are identified by their first values."""
    keys = right.query.keys
    right_ranks, ranks = _rank_both(right.columns[:keys], columns[:keys])
    places = np.full(max(right_ranks.max(initial=-1), ranks.max(initial=-1)) + 1, -1)
    places[right_ranks] = np.arange(len(right_ranks))
    order = np.argsort(ranks, kind="stable")
    rows = [column.take(order) for column in columns]
    expected, numbers = places[ranks[order]], ranks[order]
    strange = expected < 0
    twice = np.append(False, numbers[1:] == numbers[:-1])[: len(numbers)]
    wrong = strange | twice
    if len(right_ranks):
        # An unexpected row may be compared with any: it is named anyway.
        at = np.where(strange, 0, expected)
        for right_values, values in zip(right.columns, rows, strict=True):
            wrong |= _differ(right_values.take(at), values)
    if wrong.any():
        first = int(np.argmax(wrong))
        row = read_row(rows, first)
        if strange[first]:
            return f"a row that shouldn't be there: {row}"
        if twice[first]:
            return f"two rows of {_format_key(right, row)}, one of them {row}"
        row_columns = [column.take(slice(first, first + 1)) for column in rows]
        return _find_value(right, row_columns, int(expected[first]))
    if right.query.limit is None and len(right_ranks) > len(ranks):
        lacking = np.ones(len(right_ranks), dtype=bool)
        lacking[expected] = False
        expected_row = right.row(int(np.argmax(lacking)))
        return f"no row of {_format_key(right, expected_row)}, expected {expected_row}"
    return None


def _compare_whole(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare rows without a key: all of their values must be right."""
    right_ranks, ranks = _rank_both(right.columns, columns)
    most = int(max(right_ranks.max(initial=-1), ranks.max(initial=-1))) + 1
    lacking = np.bincount(right_ranks, minlength=most) - np.bincount(ranks, minlength=most)
    if (lacking < 0).any():
        first = int(np.argmax(lacking < 0))
        row = read_row(columns, int(np.argmax(ranks == first)))
        return f"a row that shouldn't be there: {row}"
    if (lacking > 0).any() and right.query.limit is None:
        first = int(np.argmax(lacking > 0))
        return f"missing row: {right.row(int(np.argmax(right_ranks == first)))}"
    return None


def _rank_both(
    right: Sequence[Values], columns: Sequence[Values]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Ranks of the rows of both, equal for equal rows and in the rows' order."""
    count = len(right[0])
    joined = [join([expected, values]) for expected, values in zip(right, columns, strict=True)]
    ranks = rank_rows(joined, count + len(columns[0]))
    return ranks[:count], ranks[count:]


def _compare_order(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare the values by which rows are ordered; equal rows may come in any order."""
    if right.query.order is None:
        return None
    by = right.query.order.by
    in_order = _spread(right.columns[by], right.query.order.descending)
    wrong = _differ(in_order.take(slice(len(right))), columns[by])
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    found, expected = read_row(columns, place), right.row(place)
    return f"row {place + 1} by {right.names[by]}: {found}, expected {expected}"


def _spread(values: Values, descending: bool) -> Values:
    """The possible ranges of sorted values. If each may be off, the n-th lies between the n-th smallest lower
    bound and the n-th smallest upper bound, whichever row that is."""
    if values.slack is None:
        return values
    count = len(values) if values.missing is None else int(np.count_nonzero(~values.missing))
    numbers, slack = values.array.astype(np.float64), values.slack.copy()
    low, high = (np.sort((numbers + sign * slack)[:count]) for sign in (-1, 1))
    if descending:
        low, high = low[::-1], high[::-1]
    numbers[:count], slack[:count] = (low + high) / 2, (high - low) / 2
    return Values(numbers, values.missing, slack)


def _differ(right: Values, actual: Values) -> NDArray[np.bool_]:
    """Which values differ from the right ones."""
    if right.slack is None:
        wrong = np.asarray(right.array != actual.array, dtype=bool)
        if right.array.dtype.kind == "f" and actual.array.dtype.kind == "f":
            wrong &= ~(np.isnan(right.array) & np.isnan(actual.array))
    else:
        # Whole numbers as floats: where these aren't exact, the slack is larger than the error.
        numbers, right_numbers = (side.array.astype(np.float64) for side in (actual, right))
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(numbers - right_numbers) <= right.slack)
    right_missing, missing = (
        np.zeros(len(wrong), dtype=bool) if side.missing is None else side.missing
        for side in (right, actual)
    )
    return np.where(right_missing | missing, right_missing != missing, wrong)


def _find_value(right: Answer, columns: Sequence[Values], place: int) -> str | None:
    """The first value of a row that differs from the right row at this place."""
    for name, expected, value in zip(right.names, right.columns, columns, strict=True):
        right_value = expected.take(slice(place, place + 1))
        if _differ(right_value, value)[0]:
            key = right.query.keys and _format_key(right, read_row(columns, 0))
            whose = f" of {key}" if key else ""
            return f"{name}{whose} is {value.plain()[0]} instead of {right_value.plain()[0]}"
    return None


def _format_key(right: Answer, row: Row) -> str:
    key = row[: right.query.keys]
    return ", ".join(f"{name} {value}" for name, value in zip(right.names, key, strict=False))


# --- forms ----------------------------------------------------------------------------------------


def _to_whole(value: Any) -> int:
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value} is not a whole number")
    return whole


def _to_time(value: Any) -> int:
    """A time in ms since 1970: a workload's own statement may return it in the driver's type."""
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    return _to_whole(value)


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    if "\0" in value:
        raise ValueError(f"{value!r} has a NUL character, which no event has")
    return value


def _to_bool(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


_FORMS: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.TIMESTAMP_MS: _to_time,
    ColumnType.INT64: _to_whole,
    ColumnType.INT32: _to_whole,
    ColumnType.FLOAT32: lambda value: float(np.float32(float(value))),
    ColumnType.FLOAT64: float,
    ColumnType.BOOL: _to_bool,
    ColumnType.TEXT: _to_text,
    ColumnType.JSON: _to_text,
}
