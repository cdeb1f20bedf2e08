"""Temperature events, the workload of the published comparison: small rows from many devices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .base import SCATTERED, Workload, device_ids
from .noise import random_word, random_words
from .queries import Aggregate, Function, Query
from .schema import FIRST_TIMESTAMP_MS, Column, ColumnType, EventBlock, Schema

INTERVAL_MS = 450
JITTER_MS = 150

_LOWEST, _MEAN, _HIGHEST = (
    Aggregate(function=function, column="temperature")
    for function in (Function.MIN, Function.AVG, Function.MAX)
)
QUERIES = (
    Query(
        name="count-events", about="number of events", compute=(Aggregate(function=Function.COUNT),)
    ),
    Query(
        name="temperature-min-max",
        about="lowest and highest temperature overall",
        compute=(_LOWEST, _HIGHEST),
    ),
    Query(
        name="temperature-stats",
        about="the same with the average",
        compute=(_LOWEST, _MEAN, _HIGHEST),
    ),
    Query(
        name="temperature-stats-per-device",
        about="lowest, average, highest per device",
        compute=(_LOWEST, _MEAN, _HIGHEST),
        per=("device_id",),
    ),
    Query(
        name="newest-per-device",
        about="the last temperature of each device",
        newest=True,
        events=("temperature",),
    ),
)


class Temperature(Workload):
    """timestamp, device_id, sequence_number, temperature.

    Timestamps rise by 450 ms an event, each moved by up to 150 ms either way, so they always rise;
    temperatures are uniform in -20 to 35 degrees with two decimals; sequence_number is the event's
    number.
    """

    name = "temperature"
    schema = Schema(
        table="events",
        columns=(
            Column("timestamp", ColumnType.TIMESTAMP_MS),
            Column("device_id", ColumnType.TEXT),
            Column("sequence_number", ColumnType.INT64),
            Column("temperature", ColumnType.FLOAT32, decimals=2, least=-20),
        ),
        time="timestamp",
        device="device_id",
        key=("device_id", "timestamp", "sequence_number"),
        # The indexes of the comparison for which this tool was made.
        given_indexes=(
            ("device_ts", ("device_id", "timestamp", "temperature")),
            ("temp", ("temperature",)),
        ),
    )
    queries: ClassVar[tuple[Query, ...]] = QUERIES
    high = ("temperature", 30.0)
    event_interval_ms = INTERVAL_MS

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        low = random_words(self.seed, worker, first, count, 1)[:, 0]
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.dealt_devices(worker, first, count)
        return self._make(worker, numbers, numbers - time_origin, low, devices)

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        if self.device_spread >= SCATTERED:
            return super().pick(worker, numbers)
        low = random_word(self.seed, worker, numbers)
        devices = self.devices(worker)[numbers % self.device_spread]
        return self._make(worker, numbers, numbers.copy(), low, devices)

    def _make(
        self,
        worker: int,
        numbers: NDArray[np.int64],
        places: NDArray[np.int64],
        low: NDArray[np.uint64],
        devices: NDArray[np.bytes_],
    ) -> EventBlock:
        """Events with these numbers, at these places in time, each made from a random word. Places and words
        are overwritten."""
        # In place where possible: on a machine with a busy server the caches are cold, and fresh memory then
        # costs more time than the arithmetic. One word holds both values: its upper half the temperature, its
        # lower half the jitter.
        high = low >> np.uint64(32)
        low &= np.uint64(0xFFFF_FFFF)
        timestamps = self._times_ms(places, low)
        hundredths = _scale(high, 5501)
        hundredths -= 2000
        temperatures = np.empty(len(numbers), dtype=np.float32)
        np.divide(hundredths, 100, out=temperatures, casting="same_kind")
        columns = {
            "timestamp": timestamps,
            "device_id": devices,
            "sequence_number": numbers,
            "temperature": temperatures,
        }
        first = int(numbers[0]) if len(numbers) else 0
        return EventBlock(self.schema, worker, first, columns, devices)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        low = random_word(self.seed, workers, numbers)
        low &= np.uint64(0xFFFF_FFFF)
        devices = device_ids(workers, numbers % self.device_spread)
        return devices, self._times_ms(numbers.copy(), low)

    def _times_ms(self, numbers: NDArray[np.int64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The times of events, by number and 32 random bits each; both are overwritten."""
        numbers *= INTERVAL_MS * self.clock_factor
        numbers += FIRST_TIMESTAMP_MS - JITTER_MS
        numbers += _scale(bits, 2 * JITTER_MS + 1)
        return numbers

    @property
    def instants_are_distinct(self) -> bool:
        return True  # times always rise


def _scale(bits: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Numbers from 0 to `count` - 1, from 32 random bits each, computed in place.

    Multiplying and shifting maps them evenly onto a small range without a division.
    """
    bits *= np.uint64(count)
    bits >>= np.uint64(32)
    return bits.view(np.int64)
