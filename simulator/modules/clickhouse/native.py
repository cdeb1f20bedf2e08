"""Columns in ClickHouse's Native format, for many requests at once.

A block is the numbers of its columns and rows, then each column: name, type, values. Values of fixed
length stand one behind the other, little-endian, as numpy has them; a text has its length before it; of
a Nullable column the first thing is where values are missing. So a request is made of slices of what is
made once for all of them.

https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.columns import is_constant, octets_of
from ...workloads.schema import Column, ColumnType

# https://clickhouse.com/docs/sql-reference/data-types
TYPES = {
    ColumnType.TIMESTAMP_MS: "DateTime64(3, 'UTC')",
    ColumnType.INT64: "Int64",
    ColumnType.INT32: "Int32",
    ColumnType.FLOAT32: "Float32",
    ColumnType.FLOAT64: "Float64",
    ColumnType.BOOL: "Bool",
    ColumnType.TEXT: "String",
    ColumnType.JSON: "String",
}
"""What columns are sent as. The server makes of it what a table has."""

_LITTLE_ENDIAN = {
    ColumnType.TIMESTAMP_MS: "<i8",
    ColumnType.INT64: "<i8",
    ColumnType.INT32: "<i4",
    ColumnType.FLOAT32: "<f4",
    ColumnType.FLOAT64: "<f8",
    ColumnType.BOOL: "?",
}

_JOINED_BYTES = 64
"""From so many bytes on, joining texts of different lengths costs less than picking them out of an array."""

_NO_BYTES = b""


def write_number(number: int) -> bytes:
    """A number of variable length: seven bits a byte, the lowest first (LEB128)."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


_NUMBERS = [write_number(number) for number in range(1 << 12)]


def _write_length(length: int) -> bytes:
    return _NUMBERS[length] if length < len(_NUMBERS) else write_number(length)


def write_text(text: bytes) -> bytes:
    """A text with its length."""
    return _write_length(len(text)) + text


class _Values(ABC):
    """A column's values as bytes, of which requests take slices."""

    @abstractmethod
    def part(self, start: int, stop: int) -> bytes | memoryview:
        """The bytes of values [start, stop)."""


class _Constant(_Values):
    """The same value in each row."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def part(self, start: int, stop: int) -> bytes:
        return self._value * (stop - start)


class _Fixed(_Values):
    """Values that are all of the same length."""

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        """`octets`: a row for each value."""
        self._width = octets.shape[1]
        self._octets = octets.reshape(-1).data

    def part(self, start: int, stop: int) -> memoryview:
        return self._octets[start * self._width : stop * self._width]


class _Varying(_Values):
    """Values of different lengths, one behind the other."""

    def __init__(self, octets: memoryview, begins: Sequence[int]) -> None:
        """`begins`: of each value, and the end of the last."""
        self._octets, self._begins = octets, begins

    def part(self, start: int, stop: int) -> memoryview:
        return self._octets[self._begins[start] : self._begins[stop]]


def _write_texts(data: NDArray[np.bytes_]) -> _Values:
    """Texts with their lengths."""
    if is_constant(data):
        return _Constant(write_text(data[0]))
    octets = octets_of(data)
    count, width = octets.shape
    if octets[:, -1].all():
        return _Fixed(_with_length(octets, width))
    lengths = np.char.str_len(data)
    if width >= _JOINED_BYTES:
        texts = [_write_length(len(text)) + text for text in data.tolist()]
        begins = [0, *accumulate(map(len, texts))]
        return _Varying(memoryview(b"".join(texts)), begins)
    # Fewer than 128 bytes: the length is one.
    padded = np.empty((count, width + 1), dtype=np.uint8)
    padded[:, 0] = lengths
    padded[:, 1:] = octets
    # No text has a NUL character: what numpy fills texts up with.
    is_there = padded != 0
    is_there[:, 0] = True
    picked = np.compress(is_there.reshape(-1), padded.reshape(-1))
    return _Varying(picked.data, [0, *np.cumsum(lengths + 1).tolist()])


def _with_length(octets: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Texts of one length, and that before each."""
    length = np.frombuffer(write_number(width), dtype=np.uint8)
    found = np.empty((len(octets), len(length) + width), dtype=np.uint8)
    found[:, : len(length)] = length
    found[:, len(length) :] = octets
    return found


def _write_values(column: Column, data: NDArray[Any]) -> _Values:
    kind = _LITTLE_ENDIAN.get(column.type)
    if kind is None:
        return _write_texts(data)
    return _Fixed(octets_of(data.astype(kind, copy=False)))


class NativeBlock:
    """Rows as blocks of any of them."""

    def __init__(
        self,
        columns: Sequence[Column],
        values: Mapping[str, NDArray[Any]],
        missing: Mapping[str, NDArray[np.bool_]],
    ) -> None:
        """`missing` as in `EventBlock`."""
        self._count = write_number(len(columns))
        self._parts: list[tuple[bytes, _Values]] = []
        """What comes before values, and the values."""
        for column in columns:
            data = values[column.name]
            kind = TYPES[column.type]
            head = write_text(column.name.encode())
            if not column.nullable:
                self._parts.append((head + write_text(kind.encode()), _write_values(column, data)))
                continue
            head += write_text(f"Nullable({kind})".encode())
            gone = missing.get(column.name)
            if gone is None:
                self._parts.append((head, _Constant(b"\0")))
            else:
                self._parts.append((head, _Fixed(octets_of(gone))))
            self._parts.append((_NO_BYTES, _write_values(column, data)))

    def join(self, start: int, stop: int) -> bytes:
        """Rows [start, stop) as one block."""
        pieces: list[bytes | memoryview] = [self._count, write_number(stop - start)]
        for head, values in self._parts:
            pieces.append(head)
            pieces.append(values.part(start, stop))
        return b"".join(pieces)
