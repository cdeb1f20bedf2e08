"""Temperature events, the workload of the published comparison: small rows from many devices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .base import FIRST_TIMESTAMP_MS, Column, ColumnType, EventBlock, Schema, Workload, random_words

INTERVAL_MS = 450
JITTER_MS = 150
MIN_TEMPERATURE = -20.0
MAX_TEMPERATURE = 35.0


class Temperature(Workload):
    """timestamp, device_id, sequence_number, temperature.

    Timestamps rise by 450 ms an event, each moved by up to 150 ms either way, so they always rise;
    temperatures are uniform in -20 to 35 degrees with two decimals; sequence_number is the event's
    number.

    Queries and the columns of their answers (rows in any order; stats: min, mean, max):

    * `count-events`: number of events
    * `temperature-min-max`: min, max
    * `temperature-stats`: min, mean, max
    * `temperature-stats-per-device`: device, min, mean, max; a row per device
    * `newest-per-device`: device, temperature of its newest event; a row per device
    """

    name = "temperature"
    schema = Schema(
        table="events",
        columns=(
            Column("timestamp", ColumnType.TIMESTAMP_MS),
            Column("device_id", ColumnType.TEXT),
            Column("sequence_number", ColumnType.INT64),
            Column("temperature", ColumnType.FLOAT32, decimals=2),
        ),
        time="timestamp",
        device="device_id",
        key=("device_id", "timestamp", "sequence_number"),
        queries=(
            "count-events",
            "temperature-min-max",
            "temperature-stats",
            "temperature-stats-per-device",
            "newest-per-device",
        ),
    )

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        # In place where possible: on a machine with a busy server the caches are cold, and then
        # fresh memory costs more time than arithmetic.
        low = random_words(self.seed, worker, first, count, 1)[:, 0]
        # One word holds both values: its upper half the temperature, its lower half the jitter.
        high = low >> np.uint64(32)
        low &= np.uint64(0xFFFF_FFFF)
        numbers = np.arange(first, first + count, dtype=np.int64)
        timestamps = numbers - time_origin
        timestamps *= INTERVAL_MS
        timestamps += FIRST_TIMESTAMP_MS - JITTER_MS
        timestamps += _scale(low, 2 * JITTER_MS + 1)
        hundredths = _scale(high, 5501)
        hundredths -= 2000
        temperatures = np.empty(count, dtype=np.float32)
        np.divide(hundredths, 100, out=temperatures, casting="same_kind")
        devices = self.dealt_devices(worker, first, count)
        return EventBlock(
            self.schema,
            worker,
            first,
            {
                "timestamp": timestamps,
                "device_id": devices,
                "sequence_number": numbers,
                "temperature": temperatures,
            },
            devices,
        )


def _scale(bits: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Numbers from 0 to `count` - 1 from 32 random bits each, computed in place.

    Multiply and shift maps them evenly onto a small range without a division.
    """
    bits *= np.uint64(count)
    bits >>= np.uint64(32)
    return bits.view(np.int64)
