"""How far a computed value may be off the exact one and still be right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .schema import ColumnType

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
