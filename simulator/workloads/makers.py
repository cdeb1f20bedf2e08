"""What computes the values of a definition's columns: of each signal, and in the column's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from . import signals
from .definition import ColumnDefinition, Definition
from .schema import FLOATS, ColumnType
from .signal_kinds import Choice, Constant, Counter, Cycle, Hold, Normal, Uniform, Wander
from .signals import Points

_DTYPES: dict[ColumnType, type[np.generic]] = {
    ColumnType.TIMESTAMP_MS: np.int64,
    ColumnType.INT64: np.int64,
    ColumnType.INT32: np.int32,
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
}

Maker = Callable[[Points], NDArray[Any]]
"""Computes the values of a column."""


def make_makers(definition: Definition, epoch_ms: int) -> dict[str, Maker]:
    """The makers of all columns with a signal, except tags, for events from this time on."""
    return {
        name: make_maker(name, column, epoch_ms)
        for name, column in definition.each_column()
        if column.signal and not column.tag
    }


def make_maker(name: str, column: ColumnDefinition, epoch_ms: int) -> Maker:
    """What computes a column's values, for events from this time on."""
    signal, salt = column.signal, signals.salt(name)
    if isinstance(signal, Choice | Hold | Constant):
        return _make_picker(salt, column, signal)
    assert signal is not None
    low, high = column.reach
    if column.type not in FLOATS and isinstance(signal, Uniform) and high - low < 2**32 - 1:
        least, most, dtype = int(low), int(high), _DTYPES[column.type]
        return lambda points: signals.uniform_integers(points, salt, least, most).astype(
            dtype, copy=False
        )
    # Float32 holds whole numbers to 2**24: as far as that, rounding to decimals is right in it.
    reach = max(abs(low), abs(high)) * 10 ** (column.decimals or 0)
    exact = column.type is not ColumnType.FLOAT32 or reach >= 2**23
    numbers = _make_numbers(salt, signal, exact, epoch_ms)
    if (low, high) == signal.span:
        return lambda points: _finish(numbers(points), column)
    # What is rounded may leave the span.
    return lambda points: _finish(numbers(points).clip(low, high), column)


def _finish(values: NDArray[Any], column: ColumnDefinition) -> NDArray[Any]:
    """The numbers as the column's type has them."""
    if column.type not in FLOATS:
        np.rint(values, out=values)
    elif column.decimals is not None:
        values = signals.rounded(values, column.decimals)
    return values.astype(_DTYPES[column.type], copy=False)


def _make_numbers(
    salt: int, signal: Uniform | Normal | Wander | Cycle | Counter, exact: bool, epoch_ms: int
) -> Maker:
    match signal:
        case Uniform():
            return lambda points: signals.uniform(points, salt, signal.low, signal.high)
        case Normal():
            return lambda points: signals.normal(points, salt, signal.mean, signal.deviation, exact)
        case Wander(low=low, high=high):
            return lambda points: signals.wander(
                points, salt, low, high, signal.period, signal.roughness, signal.octaves, exact
            )
        case Cycle(low=low, high=high):
            return lambda points: signals.cycle(
                points, salt, low, high, signal.period, signal.shift, signal.noise, exact
            )
        case Counter():
            rate = signal.step / signal.every
            return lambda points: signals.counter(
                points, salt, signal.start, rate, epoch_ms, signal.spread
            )


def _make_picker(salt: int, column: ColumnDefinition, signal: Choice | Hold | Constant) -> Maker:
    values = _values(column, signal.values)
    if len(values) == 1:
        return lambda points: np.full(len(points.times_ms), values[0], dtype=values.dtype)
    table = signals.pick_table(signal.shares)
    match signal:
        case Hold():
            return lambda points: values[signals.hold(points, salt, table, signal.lasts)]
        case _ if column.tag:
            return lambda points: values[signals.tag(points, salt, table)]
        case _:
            return lambda points: values[signals.choice(points, salt, table)]


def _values(column: ColumnDefinition, values: tuple[Any, ...]) -> NDArray[Any]:
    if column.type is ColumnType.TEXT:
        return np.array([text.encode() for text in values])
    if column.type is ColumnType.JSON:
        return np.array([orjson.dumps(document) for document in values])
    if column.type in FLOATS:
        return _finish(np.array(values, dtype=np.float64), column)
    return np.array(values, dtype=_DTYPES[column.type])
