"""How close generated values come to recorded ones: decides between signals, and is shown to users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, log

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.schema import ColumnType

from .samples import Floats, Walk

LAGS = (1, 10, 100)
PERCENTS = (1.0, 25.0, 50.0, 75.0, 99.0)
JUDGED = np.linspace(2, 98, 33)
"""The percentiles that decide between signals."""
_LEVEL = 3
"""The level of zstd: its default, which databases also use."""

Texts = Sequence[bytes] | NDArray[np.bytes_] | None

_DTYPES = {
    ColumnType.INT32: np.int32,
    ColumnType.INT64: np.int64,
    ColumnType.TIMESTAMP_MS: np.int64,
    ColumnType.FLOAT32: np.float32,
}


@dataclass(frozen=True)
class Portrait:
    """The compared statistics of a column's values, by device and time."""

    percentiles: tuple[float, ...]
    """At `PERCENTS`; empty for texts and truth values."""
    autocorrelation: tuple[float, ...]
    """At `LAGS`; NaN where no device has enough events, and for texts, which have no distances."""
    repeats: float
    """The share of values that equal the device's previous one."""
    zstd_bytes: float
    """Compressed bytes per value, among those of its device."""


def portray(walk: Walk, kind: ColumnType, texts: Texts = None) -> Portrait:
    """The portrait of a column. `texts`: the list that its values index."""
    is_number = texts is None and kind is not ColumnType.BOOL
    percentiles = np.percentile(walk.values, PERCENTS) if is_number and len(walk) else ()
    return Portrait(
        tuple(float(value) for value in percentiles),
        tuple(walk.autocorrelation(lag) if texts is None else float("nan") for lag in LAGS),
        walk.repeats,
        count_zstd_bytes(walk.values, kind, texts),
    )


def count_zstd_bytes(values: Floats, kind: ColumnType, texts: Texts = None) -> float:
    """Bytes per value, stored by type or as a line of text, after zstd."""
    import pyarrow as pa

    if not len(values):
        return 0.0
    if texts is not None:
        data = b"\n".join([texts[place] for place in values.astype(np.int64).tolist()])
    elif kind is ColumnType.BOOL:
        data = values.astype(np.uint8).tobytes()
    else:
        data = values.astype(_DTYPES.get(kind, np.float64)).tobytes()
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
    return len(packed) / len(values)


def measure_distance(
    recorded: Walk, made: Walk, percentiles: Floats, spread: Floats, kind: ColumnType
) -> float:
    """The distance of generated values of some devices from the recorded ones at the same times: 0 is equal.
    `percentiles`: of all recorded values, at `JUDGED`; `spread`: values generated for many devices, whose
    percentiles are compared with them."""
    width = float(percentiles[-1] - percentiles[0]) or float(np.ptp(recorded.values)) or 1.0
    apart = np.percentile(spread, JUDGED) - percentiles
    distance = 2 * float(np.minimum(np.abs(apart) / width, 1).mean())
    # Impossible values, such as a negative flow, shouldn't be generated.
    low, high = percentiles[0] - width / 4, percentiles[-1] + width / 4
    inside = (recorded.values >= low) & (recorded.values <= high)
    distance += 2 * max(0.0, float(((spread < low) | (spread > high)).mean() - (~inside).mean()))
    for lag in LAGS:
        pair = recorded.autocorrelation(lag), made.autocorrelation(lag)
        if not any(map(isnan, pair)):
            distance += abs(pair[0] - pair[1]) / len(LAGS)
    distance += abs(recorded.repeats - made.repeats)
    sizes = [count_zstd_bytes(walk.values, kind) for walk in (recorded, made)]
    return distance + abs(log(max(sizes[0], 0.01) / max(sizes[1], 0.01))) / 2
