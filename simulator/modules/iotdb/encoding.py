"""Tablets: events as columns of bytes, as IoTDB's `insertTablet` takes them.

A column's values stand one after the other, big-endian; a text has its length before it. Where values are
missing, a bit for each row follows, of all columns. So a request is a few of numpy's arrays one after
the other, and nothing is done per event but for texts of different lengths.

A tablet is of one table, as the server takes it. In each the events of a device stand together, in the
order of time, since the server takes each run of one device's rows on its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...binary_rows import BinaryRows
from ...encoding import all_alike, bounds, is_constant, octets_of
from ...records import Run
from ...workloads.base import Column, ColumnType, EventBlock, Schema
from ..base import Job
from ..sending import Encoder, Payload
from ..shared.tables import deal_block, deal_rows
from .thrift import (
    begin_bytes,
    begin_call,
    put_bool,
    put_bytes_of,
    put_i32,
    put_i32s,
    put_text,
    put_texts,
)

TIME = "time"
"""What a table's column of time is always called."""

TYPES: Mapping[ColumnType, str] = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.INT64: "INT64",
    ColumnType.INT32: "INT32",
    ColumnType.FLOAT32: "FLOAT",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "STRING",
    ColumnType.JSON: "STRING",
}
_CODES = {
    "BOOLEAN": 0,
    "INT32": 1,
    "INT64": 2,
    "FLOAT": 3,
    "DOUBLE": 4,
    "TIMESTAMP": 8,
    "STRING": 11,
}
_TAG, _FIELD = 0, 1

_BIG_ENDIAN = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
    ColumnType.FLOAT64: ">f8",
    ColumnType.BOOL: "?",
}
_MIXED = np.random.default_rng(7).integers(1, 2**63, 256, dtype=np.uint64) | np.uint64(1)
"""Factors of the bytes of a device's name, whose sum tells most devices apart."""


class TableColumn(NamedTuple):
    """A column of a table, but for the time."""

    name: str
    column: Column
    is_tag: bool
    """Whether it is a part of what tells devices apart."""
    is_device: bool
    """Whether its values are the devices' names, and not those of the events' column."""

    @property
    def type(self) -> str:
        """As SQL calls it."""
        return TYPES[self.column.type]


def list_columns(schema: Schema) -> list[TableColumn]:
    """The columns of a schema's table but for the time.

    The device's name is a tag, and so is each text that describes the device. A device that is named in a
    document gets a column of its own for that.
    """
    found = []
    if schema.device_path:
        device = Column(schema.device_path, ColumnType.TEXT)
        found.append(TableColumn(schema.device_path, device, is_tag=True, is_device=True))
    for column in schema.columns:
        if column.name == schema.time:
            continue
        is_device = column.name == schema.device and not schema.device_path
        is_tag = is_device or (column.tag and column.type is ColumnType.TEXT)
        found.append(TableColumn(column.name, column, is_tag, is_device))
    return found


class TabletEncoder(Encoder):
    """Encodes tablets. A payload's data: for each table that gets events the call but for the session's
    number and its end, as bytes."""

    def __init__(self, job: Job, batch: int) -> None:
        self._columns = list_columns(job.schema)
        self._time = job.schema.time
        names = [column.name for column in self._columns]
        codes = [_CODES[column.type] for column in self._columns]
        kinds = [_TAG if column.is_tag else _FIELD for column in self._columns]
        self._heads = [
            b"".join(
                (
                    begin_call("insertTablet"),
                    put_text(2, table),
                    put_texts(3, names),
                    put_i32s(6, codes),
                    put_bool(8, False),
                    put_bool(9, True),
                    put_bytes_of(10, kinds),
                )
            )
            for table in job.table_names
        ]

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return self._batches(block, batch) if batch else self._singles(block)

    def _batches(self, block: EventBlock, batch: int) -> list[Payload]:
        columns = [_pack(column, block) for column in self._columns]
        stamps = _Wide(block.columns[self._time].astype(">i8"), None)
        order = _Order(block.devices, block.columns[self._time])
        payloads = []
        for start, stop in bounds(len(block), batch):
            bodies = []
            for table, rows in deal_rows(block, start, stop, len(self._heads)):
                chosen, count = order.arrange(rows), len(rows)
                pieces = [packed.cut(chosen, count) for packed in columns]
                pieces += _cut_bits(columns, chosen, count)
                parts = (
                    self._heads[table],
                    put_i32(7, count),
                    begin_bytes(5, 8 * count),
                    stamps.cut(chosen, count),
                    begin_bytes(4, sum(map(len, pieces))),
                    *pieces,
                )
                bodies.append(b"".join(parts))
            payloads.append(Payload(bodies, stop - start, block, stop - 1))
        return payloads

    def _singles(self, block: EventBlock) -> list[Payload]:
        payloads = []
        for share, part in deal_block(block, len(self._heads)):
            columns = [_pack(column, part) for column in self._columns]
            stamps = part.columns[self._time].astype(">i8")
            bodies = _make_singles(self._heads[share.table], columns, stamps)
            payloads += [Payload([body], 1, part, row) for row, body in enumerate(bodies)]
        return payloads


_Rows = slice | NDArray[np.intp]
"""Which rows of a block, in which order."""


class _Order:
    """The order of a tablet's events: by device and time."""

    def __init__(self, devices: NDArray[np.bytes_], times: NDArray[np.int64]) -> None:
        self._times = times
        self._is_sorted = bool((times[1:] >= times[:-1]).all())
        self._marks: NDArray[np.uint16] | None = None
        """A number of each device; None: there is one device."""
        if not all_alike(devices):
            octets = octets_of(devices)
            # Of 16 bits, which numpy sorts fastest. Two devices of one number may get mixed: that costs the
            # server a little time, and no more.
            mixed = octets @ np.resize(_MIXED, octets.shape[1])
            self._marks = (mixed >> np.uint64(48)).astype(np.uint16)

    def arrange(self, rows: range) -> _Rows:
        """These rows in order."""
        chosen = slice(rows.start, rows.stop, rows.step)
        if self._marks is None and self._is_sorted:
            return chosen
        if self._marks is None:
            order = np.argsort(self._times[chosen], kind="stable")
        elif self._is_sorted:
            order = np.argsort(self._marks[chosen], kind="stable")
        else:
            order = np.lexsort((self._times[chosen], self._marks[chosen]))
        return rows.start + order * rows.step


class _Packed(ABC):
    """A column's values as bytes."""

    width: int = 0
    """Bytes of each value; 0: they differ."""
    missing: NDArray[np.bool_] | None = None
    """Where there is none."""

    @abstractmethod
    def cut(self, rows: _Rows, count: int) -> bytes | memoryview:
        """Those of `count` rows."""

    @abstractmethod
    def rows(self, count: int) -> Iterable[bytes]:
        """Each of the `count` values on its own."""

    def add_to(self, run: Run) -> None:
        """Make the value a field of a row; of values that have a width."""
        raise NotImplementedError


class _Alike(_Packed):
    """The same value in each row."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.width = len(value)

    def cut(self, rows: _Rows, count: int) -> bytes:
        return self._value * count

    def rows(self, count: int) -> Iterable[bytes]:
        return repeat(self._value, count)

    def add_to(self, run: Run) -> None:
        run.keep(self._value)


class _Wide(_Packed):
    """Values of the same length."""

    def __init__(self, values: NDArray[Any], missing: NDArray[np.bool_] | None) -> None:
        self.width = values.dtype.itemsize
        self._values = values.view(f"V{self.width}")
        self.missing = missing

    def cut(self, rows: _Rows, count: int) -> memoryview:
        return np.ascontiguousarray(self._values[rows]).view(np.uint8).data

    def rows(self, count: int) -> Iterable[bytes]:
        found: list[bytes] = self._values.tolist()
        return found

    def add_to(self, run: Run) -> None:
        run.take(self._values.dtype.str, self._values)


class _Varying(_Packed):
    """Texts of different lengths."""

    def __init__(self, values: list[bytes], missing: NDArray[np.bool_] | None) -> None:
        self._values = values
        self.missing = missing

    def cut(self, rows: _Rows, count: int) -> bytes:
        if isinstance(rows, slice):
            return b"".join(self._values[rows])
        return b"".join([self._values[row] for row in rows.tolist()])

    def rows(self, count: int) -> Iterable[bytes]:
        return self._values


def _pack(column: TableColumn, part: EventBlock) -> _Packed:
    values = part.devices if column.is_device else part.columns[column.name]
    missing = None if column.is_device else part.missing.get(column.name)
    if missing is not None and not missing.any():
        missing = None
    if kind := _BIG_ENDIAN.get(column.column.type):
        return _Wide(np.ascontiguousarray(values.astype(kind)), missing)
    if missing is None and is_constant(values):
        return _Alike(_with_length(values[0]))
    if missing is None and values.dtype.kind == "S" and octets_of(values)[:, -1].all():
        return _Wide(_with_lengths(values), None)
    gone = {} if missing is None else {column.name: missing}
    rows = BinaryRows(
        ([Column(column.name, ColumnType.TEXT)], {column.name: values}),
        b"",
        missing=gone,
        missing_length=0,
    )
    return _Varying(rows.singles(), missing)


def _with_length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def _with_lengths(texts: NDArray[np.bytes_]) -> NDArray[np.void]:
    """Texts that are as long as the column is wide, each with its length before it."""
    width = texts.dtype.itemsize
    found = np.empty(len(texts), dtype=[("length", ">i4"), ("text", f"S{width}")])
    found["length"] = width
    found["text"] = texts
    return found


def _cut_bits(columns: Sequence[_Packed], rows: _Rows, count: int) -> list[bytes]:
    """Where values are missing, of all columns: nothing if none is."""
    gone = [None if packed.missing is None else packed.missing[rows] for packed in columns]
    if not any(places is not None and places.any() for places in gone):
        return []
    size = count // 8 + 1
    return [
        b"\x00"
        if places is None
        else b"\x01" + np.packbits(places, bitorder="little").tobytes().ljust(size, b"\x00")
        for places in gone
    ]


def _make_singles(
    head: bytes, columns: Sequence[_Packed], stamps: NDArray[np.int64]
) -> list[bytes]:
    """Calls with one row each."""
    before = b"".join((head, put_i32(7, 1), begin_bytes(5, 8)))
    if all(packed.width and packed.missing is None for packed in columns):
        run = Run()
        run.keep(before)
        run.take(">i8", stamps)
        run.keep(begin_bytes(4, sum(packed.width for packed in columns)))
        for packed in columns:
            packed.add_to(run)
        records = run.new_records(len(stamps))
        for name, moving in run.moving:
            records[name] = moving
        found: list[bytes] = records.view(f"V{records.dtype.itemsize}").tolist()
        return found
    marks: list[bytes] = stamps.view("V8").tolist()
    calls: list[bytes] = []
    rows = zip(*(packed.rows(len(stamps)) for packed in columns), strict=True)
    for row, values in enumerate(rows):
        data = b"".join((*values, *_cut_bits(columns, slice(row, row + 1), 1)))
        calls.append(b"".join((before, marks[row], begin_bytes(4, len(data)), data)))
    return calls
