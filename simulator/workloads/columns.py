"""Columns of values that may be missing: what answers are computed and compared in, and how far a computed
value may be off the exact one and still be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .schema import ColumnType

Rows = NDArray[np.intp] | slice

WHOLE = (ColumnType.TIMESTAMP_MS, ColumnType.INT32, ColumnType.INT64)
"""The types of whole numbers."""

_WORD = 8
"""Bytes of a text that are compared at once."""


@dataclass(frozen=True, slots=True)
class Values:
    """A column. Texts are UTF-8 in a bytes array."""

    array: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    """Where there is no value, whatever the array holds there; None: all are there."""

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Rows) -> Values:
        """Some of the values, in this order."""
        missing = None if self.missing is None else self.missing[rows]
        return Values(self.array[rows], missing)

    def plain(self) -> list[Any]:
        """As Python's own values, None where there is none."""
        values: list[Any] = self.array.tolist()
        if self.array.dtype.kind == "S":
            values = [value.decode() for value in values]
        if self.missing is not None:
            for row in np.flatnonzero(self.missing).tolist():
                values[row] = None
        return values


_DTYPES: dict[ColumnType, type[np.generic]] = {
    **dict.fromkeys(WHOLE, np.int64),
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
    ColumnType.TEXT: np.bytes_,
    ColumnType.JSON: np.bytes_,
}


def to_values(kind: ColumnType, plain: Sequence[Any]) -> Values:
    """Plain values of a kind, None where there is none, as a column."""
    dtype = _DTYPES[kind]
    is_missing = np.array([value is None for value in plain], dtype=bool)
    nothing: Any = b"" if dtype is np.bytes_ else 0
    if dtype is np.bytes_:
        filled = [nothing if value is None else value.encode() for value in plain]
    else:
        filled = [nothing if value is None else value for value in plain]
    missing = is_missing if is_missing.any() else None
    try:
        return Values(np.array(filled, dtype=dtype), missing)
    except OverflowError:
        return Values(np.array(filled, dtype=object), missing)


def join(parts: Sequence[Values]) -> Values:
    """One column after the other."""
    missing = None
    if any(part.missing is not None for part in parts):
        missing = np.concatenate(
            [np.zeros(len(p), dtype=bool) if p.missing is None else p.missing for p in parts]
        )
    return Values(np.concatenate([part.array for part in parts]), missing)


def rank(values: Values) -> NDArray[np.intp]:
    """A number for each value: equal values have the same, higher ones a higher, and missing ones the
    highest."""
    array = values.array
    ranks = _rank_texts(array) if array.dtype.kind == "S" else _rank_distinct(array)
    if values.missing is not None and values.missing.any():
        ranks = np.where(values.missing, len(array), ranks)
    return ranks


def rank_rows(columns: Sequence[Values], count: int) -> NDArray[np.intp]:
    """A number for each row of values, the first of which count most: from 0 on, without gaps. `count`: how
    many rows there are, which may have no values at all."""
    ranks = np.zeros(count, dtype=np.intp)
    for column in columns:
        ranks = combine(ranks, rank(column))
    return ranks


def combine(first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.intp]:
    """Ranks of pairs, without gaps."""
    if not len(first):
        return first
    return densify(first * (int(second.max()) + 1) + second)[0]


def densify(codes: NDArray[np.intp]) -> tuple[NDArray[np.intp], int]:
    """Codes from 0 on without gaps, in the same order; and how many there are."""
    if not len(codes):
        return codes, 0
    most = int(codes.max()) + 1
    if most > 8 * len(codes) + 1024:
        distinct, places = np.unique(codes, return_inverse=True)
        return places, len(distinct)
    there = np.zeros(most, dtype=bool)
    there[codes] = True
    numbers = np.cumsum(there) - 1
    return numbers[codes], int(numbers[-1]) + 1


def _rank_texts(texts: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Rank by numbers made of eight bytes each: numpy compares texts an order of magnitude more slowly."""
    words = max(1, -(-texts.dtype.itemsize // _WORD))
    padded = texts.astype(f"S{words * _WORD}").view(">u8").reshape(len(texts), words)
    ranks = _rank_distinct(padded[:, 0].astype(np.uint64))
    for word in range(1, words):
        ranks = combine(ranks, _rank_distinct(padded[:, word].astype(np.uint64)))
    return ranks


def _rank_distinct(array: NDArray[Any]) -> NDArray[np.intp]:
    return np.unique(array, return_inverse=True)[1]


# --- precision ------------------------------------------------------------------------------------

Slack = NDArray[np.float64] | None
"""How far each value of a column may be off; None: not at all."""

PRECISION = {
    ColumnType.FLOAT32: 1e-6,
    ColumnType.FLOAT64: 1e-12,
    ColumnType.INT32: 1e-12,
    ColumnType.INT64: 1e-12,
}
"""How far each value may be off in what a database computes of many, relative to its size. That a
database computes means of float32 columns in that type is no wrong answer."""
DIGITS = 1e-9
"""How far any mean may be off besides: databases give decimal fractions with so many digits."""

_EXACT = 2.0**53
"""Up to this size, floats of 64 bits have all whole numbers."""
_ROUNDING = 2.0**-53
"""How far one operation on such floats may be off, relative to its result (IEEE 754, to nearest)."""


def round_off(
    size: NDArray[np.float64], operations: NDArray[np.int64] | int
) -> NDArray[np.float64]:
    """How far whole numbers of this size may be off after so many operations in floats of 64 bits: not at
    all, as long as all of them are exact. A sum of n numbers, in any order, takes n (Higham, "Accuracy and
    Stability of Numerical Algorithms", 4.2, with the conversion of each)."""
    return np.where(size <= _EXACT, 0.0, size * (_ROUNDING * operations))
