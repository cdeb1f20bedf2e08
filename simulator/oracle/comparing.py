"""Whether an answer is the right one, and if not, which row differs first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workloads.columns import Slack, Values, join, rank_rows, to_values
from ..workloads.schema import ColumnType
from .answers import Answer, Row, read_row


class Malformed(ValueError):
    """An answer without the form of the right one; the text names the row."""


def compare_answers(right: Answer, rows: Sequence[Sequence[Any]]) -> str | None:
    """What is wrong with the answer that was found, naming the first row that differs; None: nothing.

    Rows, keys, counts, extrema and values of events must be right exactly (in float32 if the column is
    of that type), sums and means of numbers to the column's precision.
    """
    try:
        columns = normalize(right.kinds, rows)
    except Malformed as error:
        return str(error)
    return compare_columns(right, columns)


def normalize(kinds: Sequence[ColumnType], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The columns of an answer's rows in the one form in which values are compared: plain numbers,
    truths and texts, None where there is no value. Malformed if they aren't of these kinds."""
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
        return wrong_length or _find_value(right, columns, np.zeros(1, dtype=np.intp))
    compare = _compare_keyed if right.query.keys else _compare_whole
    differing = compare(right, columns)
    if not differing and not wrong_length:
        differing = _compare_order(right, columns)
    if wrong_length and differing:
        return f"{wrong_length}; {differing}"
    return wrong_length or differing


def _compare_keyed(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare rows that their first values tell apart."""
    keys = right.query.keys
    right_ranks, ranks = _rank_both(right.columns[:keys], columns[:keys])
    places = np.full(max(right_ranks.max(initial=-1), ranks.max(initial=-1)) + 1, -1)
    places[right_ranks] = np.arange(len(right_ranks))
    order = np.argsort(ranks, kind="stable")
    rows = [column.take(order) for column in columns]
    expected, numbers = places[ranks[order]], ranks[order]
    strange = expected < 0
    twice = np.append(False, numbers[1:] == numbers[:-1])[: len(numbers)]
    # A row that shouldn't be there may be compared with any: it is named anyway.
    wrong = strange | twice | _differ(right, rows, np.where(strange, 0, expected))
    if wrong.any():
        first = int(np.argmax(wrong))
        row = read_row(rows, first)
        if strange[first]:
            return f"a row that shouldn't be there: {row}"
        if twice[first]:
            return f"two rows of {_format_key(right, row)}, one of them {row}"
        row_columns = [column.take(slice(first, first + 1)) for column in rows]
        return _find_value(right, row_columns, expected[first : first + 1])
    if right.query.limit is None and len(right_ranks) > len(ranks):
        lacking = np.ones(len(right_ranks), dtype=bool)
        lacking[expected] = False
        expected_row = right.row(int(np.argmax(lacking)))
        return f"no row of {_format_key(right, expected_row)}, expected {expected_row}"
    return None


def _compare_whole(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare rows that nothing tells apart but their values, all of which must be right."""
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
    """Numbers for the rows of both, the same for equal ones and in the rows' order."""
    count = len(right[0])
    joined = [join([expected, values]) for expected, values in zip(right, columns, strict=True)]
    ranks = rank_rows(joined, count + len(columns[0]))
    return ranks[:count], ranks[count:]


def _compare_order(right: Answer, columns: Sequence[Values]) -> str | None:
    """Compare the values by which rows are ordered with those of the right answer, one after the other:
    which of several rows with the same value come first, or within the limit, is open."""
    order = right.query.order
    if order is None:
        return None
    rows = np.arange(len(right))
    slack = right.slack[order.by]
    wrong = _differ_in(right.columns[order.by].take(rows), columns[order.by], _pick(slack, rows))
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    return (
        f"row {place + 1} by {right.names[order.by]}: {read_row(columns, place)},"
        f" expected {right.row(place)}"
    )


def _differ(
    right: Answer, columns: Sequence[Values], places: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Which rows have another value than the right rows at these places."""
    wrong = np.zeros(len(places), dtype=bool)
    if len(right.columns[0]):
        for expected, values, slack in zip(right.columns, columns, right.slack, strict=True):
            wrong |= _differ_in(expected.take(places), values, _pick(slack, places))
    return wrong


def _pick(slack: Slack, places: NDArray[np.intp]) -> Slack:
    return None if slack is None else slack[places]


def _differ_in(right: Values, actual: Values, slack: Slack) -> NDArray[np.bool_]:
    if slack is None:
        wrong = np.asarray(right.array != actual.array, dtype=bool)
    else:
        # Whole numbers as floats: where these aren't exact, the slack is larger than that.
        numbers, right_numbers = (side.array.astype(np.float64) for side in (actual, right))
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(numbers - right_numbers) <= slack)
    right_missing, missing = (
        np.zeros(len(wrong), dtype=bool) if side.missing is None else side.missing
        for side in (right, actual)
    )
    return np.where(right_missing | missing, right_missing != missing, wrong)


def _find_value(right: Answer, columns: Sequence[Values], place: NDArray[np.intp]) -> str | None:
    """The first value of a row that isn't that of the right row."""
    keys = right.query.keys
    for name, expected, value, slack in zip(
        right.names, right.columns, columns, right.slack, strict=True
    ):
        right_value = expected.take(place)
        if not _differ_in(right_value, value, _pick(slack, place))[0]:
            continue
        whose = f" of {_format_key(right, read_row(columns, 0))}" if keys else ""
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
    """A time in ms since 1970: a workload's own statement may give it as the driver has times."""
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


def _to_float32(value: Any) -> float:
    return float(np.float32(float(value)))


_FORMS: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.TIMESTAMP_MS: _to_time,
    ColumnType.INT64: _to_whole,
    ColumnType.INT32: _to_whole,
    ColumnType.FLOAT32: _to_float32,
    ColumnType.FLOAT64: float,
    ColumnType.BOOL: _to_bool,
    ColumnType.TEXT: _to_text,
    ColumnType.JSON: _to_text,
}
