"""Temperature events, the workload of the published comparison: small rows from many devices."""

from __future__ import annotations

import numpy as np

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
    )

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        word = random_words(self.seed, worker, first, count, 1)[:, 0]
        numbers = np.arange(first, first + count, dtype=np.int64)
        # One word holds both values: its upper half the temperature, its lower half the jitter.
        # Multiply and shift maps 32 random bits evenly onto a small range without a division.
        hundredths = ((word >> 32) * np.uint64(5501) >> 32).astype(np.int64) - 2000
        jitter = ((word & 0xFFFF_FFFF) * np.uint64(2 * JITTER_MS + 1) >> 32).astype(np.int64)
        devices = self.devices(worker)[numbers % self.device_spread]
        return EventBlock(
            self.schema,
            worker,
            first,
            {
                "timestamp": FIRST_TIMESTAMP_MS
                + (numbers - time_origin) * INTERVAL_MS
                + (jitter - JITTER_MS),
                "device_id": devices,
                "sequence_number": numbers,
                "temperature": (hundredths / 100).astype(np.float32),
            },
            devices,
        )
