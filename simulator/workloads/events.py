"""Events as they are generated and encoded: a block of them, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .schema import Schema
from .tags import ID, LazyColumns, Tags, number_devices


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive events of one worker: a numpy array per column, all of the same length.

    `first` is the number of the first event, `devices` the device id of each event (bytes array).
    """

    schema: Schema
    worker: int
    first: int
    columns: Mapping[str, NDArray[Any]]
    devices: NDArray[np.bytes_]
    missing: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Nullable column -> where an event has no value; the column holds some number or text there. A
    nullable column that isn't named has all its values."""

    def __len__(self) -> int:
        return len(self.devices)

    def part(self, start: int, stop: int, step: int = 1) -> EventBlock:
        """Every `step`-th event of [start, stop), as views. `first` is exact for step 1 only."""
        rows = slice(start, stop, step)
        columns = (
            self.columns.part(rows)
            if isinstance(self.columns, LazyColumns)
            else {name: values[rows] for name, values in self.columns.items()}
        )
        missing = {name: places[rows] for name, places in self.missing.items()}
        first, devices = self.first + start, self.devices[rows]
        return EventBlock(self.schema, self.worker, first, columns, devices, missing)

    def choose(self, rows: NDArray[np.integer[Any]]) -> EventBlock:
        """These events alone, copied, with what their rows have. `first` is not theirs."""
        names = [column.name for column in self.schema.row if column.name != ID]
        columns = {name: self.columns[name][rows] for name in names}
        missing = {name: places[rows] for name, places in self.missing.items()}
        return EventBlock(
            self.schema, self.worker, self.first, columns, self.devices[rows], missing
        )

    @property
    def row_columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns of `Schema.row`."""
        if self.schema.tags is Tags.ROW:
            return self.columns
        names = [column.name for column in self.schema.row if column.name != ID]
        return {ID: number_devices(self.devices), **{name: self.columns[name] for name in names}}

    def key_of(self, row: int) -> dict[str, int | str]:
        """The natural key of one event as Python values, e.g. to look it up in the database."""
        key: dict[str, int | str] = {}
        for name in self.schema.row_key:
            if name == ID:
                key[name] = int(number_devices(self.devices[row : row + 1])[0])
                continue
            value = self.devices[row] if name == self.schema.device else self.columns[name][row]
            key[name] = value.decode() if isinstance(value, bytes) else int(value)
        return key
