"""The recorded data as arrays: as many devices as fit, each with all its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from simulator.workloads.recording import Recording
from simulator.workloads.recording.store import RecordedColumn
from simulator.workloads.schema import FLOATS, ColumnType

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

MOST_ROWS, MOST_VALUES = 2_000_000, 20_000_000
"""Limits on the sampled events (of whole devices) and values."""

MOST_PAIRS = 200_000
"""Pairs of events in a statistic."""


@dataclass(frozen=True)
class Choices:
    """Texts, documents or, without `texts`, truth values, by index."""

    texts: Sequence[bytes] | NDArray[np.bytes_] | None = None
    documents: bool = False

    def read(self, place: int) -> Any:
        """The value as in a definition."""
        if self.texts is None:
            return bool(place)
        text = bytes(self.texts[place])
        return orjson.loads(text) if self.documents else text.decode()


@dataclass(frozen=True)
class Series:
    """A column other than time and device, in file order."""

    name: str
    """Name in the definition."""
    source: str
    """Name in the file."""
    type: ColumnType
    values: Floats
    """Numbers, or indices into `choices`."""
    missing: Mask
    choices: Choices | None = None
    """The values of texts, documents or truth values, by index."""
    decimals: int | None = None
    """The decimals that hold all its numbers exactly; None: more than nine."""
    tag: bool = False
    """Whether it is constant for each device: one value per device."""

    @property
    def texts(self) -> Sequence[bytes] | NDArray[np.bytes_] | None:
        """The list that its values index; None: numbers or truth values."""
        return self.choices.texts if self.choices else None

    def read(self, value: float) -> Any:
        """One of `values` as in a definition."""
        if self.choices is not None:
            return self.choices.read(int(value))
        return float(value) if self.type in FLOATS else int(value)

    @property
    def quantum(self) -> float:
        """The smallest step between its numbers; 0 if it isn't rounded."""
        if self.type not in FLOATS:
            return 1.0
        return 0.0 if self.decimals is None else 10.0**-self.decimals


@dataclass(frozen=True)
class Sample:
    """Events in file order."""

    times_ms: NDArray[np.int64]
    devices: NDArray[np.int64]
    """Device numbers from 0."""
    columns: tuple[Series, ...]
    time: str
    device: str
    """Names of the time and device columns."""
    name_lengths: tuple[int, int]
    """The shortest and the longest device name, in bytes."""
    recorded_devices: int
    """The number of devices in the recording, of which these may be a sample."""
    recorded_rows: int

    @cached_property
    def order(self) -> Rows:
        """The rows by device and time."""
        return np.lexsort((self.times_ms, self.devices))

    @cached_property
    def sorted_times_ms(self) -> NDArray[np.int64]:
        """The times in that order."""
        return self.times_ms[self.order]

    @cached_property
    def sorted_devices(self) -> NDArray[np.int64]:
        """The devices in that order."""
        return self.devices[self.order]

    @cached_property
    def starts(self) -> Rows:
        """Where each device begins in that order, followed by the number of rows."""
        changes = np.flatnonzero(np.diff(self.sorted_devices)) + 1
        return np.concatenate([[0], changes, [len(self.order)]])

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return len(self.starts) - 1

    def walk(self, series: Series) -> Walk:
        """A column's values by device and time, without missing ones."""
        there = ~series.missing[self.order]
        rows = self.order[there]
        devices = self.sorted_devices[there]
        return Walk(series.values[rows], self.sorted_times_ms[there], devices)


def take_sample(recording: Recording, most_values: int = MOST_VALUES) -> Sample:
    """All events of a recording or, if there are too many, those of as many devices as fit."""
    most_rows = min(MOST_ROWS, most_values // max(len(recording.columns), 1))
    numbers = recording.device_numbers
    counts = np.bincount(numbers, minlength=recording.header.devices)
    # Devices are in random order.
    devices = max(1, int(np.searchsorted(np.cumsum(counts), most_rows, "right")))
    rows: slice | Rows = slice(None)
    if devices < len(counts):
        rows = np.flatnonzero(numbers < devices)[:most_rows]
    names = np.char.str_len(recording.devices)
    return Sample(
        times_ms=np.array(recording.times_ms[rows]),
        devices=numbers[rows].astype(np.int64),
        columns=tuple(
            _take_column(recording, column, slice(devices) if column.tag else rows)
            for column in recording.columns
        ),
        time=recording.header.time,
        device=recording.header.device,
        name_lengths=(int(names.min()), int(names.max())),
        recorded_devices=recording.header.devices,
        recorded_rows=recording.header.rows,
    )


def _take_column(recording: Recording, column: RecordedColumn, rows: slice | Rows) -> Series:
    values = recording.values(column.name)[rows].astype(np.float64)
    missing = recording.missing(column.name)
    # NaN and infinity enter no statistic.
    absent = ~np.isfinite(values) if missing is None else missing[rows] | ~np.isfinite(values)
    values[absent] = 0
    choices = None
    if column.type is ColumnType.BOOL:
        choices = Choices()
    elif column.type in (ColumnType.TEXT, ColumnType.JSON):
        texts = recording.texts(column.name).all()
        choices = Choices(texts, column.type is ColumnType.JSON)
    return Series(
        column.name, column.source, column.type, np.clip(values, *_WITHIN.get(column.type, _ALL)),
        absent, choices, column.decimals, column.tag,
    )  # fmt: skip


_ALL = (-1e300, 1e300)
_WITHIN = {
    ColumnType.INT64: (-(2.0**53), 2.0**53),
    ColumnType.TIMESTAMP_MS: (0.0, 253_402_300_799_999.0),
    ColumnType.FLOAT32: (-3e38, 3e38),
}
"""Limits of a definition's signals."""


@dataclass(frozen=True)
class Walk:
    """Values of a column by device and time."""

    values: Floats
    times_ms: NDArray[np.int64]
    devices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def starts(self) -> Rows:
        """As in `Sample`."""
        changes = np.flatnonzero(np.diff(self.devices)) + 1
        return np.concatenate([[0], changes, [len(self.devices)]])

    @cached_property
    def steps(self) -> tuple[Floats, NDArray[np.int64]]:
        """The change of the value from each event of a device to its next, and the time between them in
        ms."""
        same = self.devices[1:] == self.devices[:-1]
        return np.diff(self.values)[same], np.diff(self.times_ms)[same]

    @property
    def repeats(self) -> float:
        """The share of values that equal the device's previous one."""
        steps = self.steps[0]
        return float((steps == 0).mean()) if len(steps) else 0.0

    def pairs(self, lag: int) -> tuple[Rows, Rows]:
        """Pairs of rows of one device this many events apart: a large, even sample."""
        count = len(self) - lag
        if count <= 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        # A prime stride covers all phases of periodic data.
        first = np.arange(0, count, max(1, count // MOST_PAIRS) | 1, dtype=np.int64)
        first = first[self.devices[first] == self.devices[first + lag]]
        return first, first + lag

    def autocorrelation(self, lag: int) -> float:
        """The correlation of values this many events apart, over all devices; NaN if there are none."""
        first, second = self.pairs(lag)
        spread = self.values.std()
        if not len(first) or not spread:
            return float("nan")
        centred = self.values - self.values.mean()
        return float((centred[first] * centred[second]).mean() / spread**2)

    def part(self, devices: int, rows: int) -> Walk:
        """The first rows of some devices, evenly chosen."""
        starts = self.starts
        chosen = np.unique(np.linspace(0, len(starts) - 2, devices).astype(np.int64))
        taken = np.concatenate(
            [np.arange(starts[d], min(starts[d] + rows, starts[d + 1])) for d in chosen]
        )
        return Walk(self.values[taken], self.times_ms[taken], self.devices[taken])

    def with_values(self, values: Floats) -> Walk:
        """The same events with other values."""
        return Walk(values, self.times_ms, self.devices)
