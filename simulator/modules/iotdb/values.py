"""Values of columns as the bytes that tablets have of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import BIG_ENDIAN, is_constant, octets_of
from ...encoding.records import Run
from ...workloads.schema import Column, ColumnType

Missing = NDArray[np.bool_] | None
"""Where a column has no value; None: it has them all."""


Piece = bytes | memoryview
"""A part of a request. The kernel puts them together, so no copy is made for that."""

_FEW_PIECES = 64
"""More of them, of some bytes each, are put together quicker than they are sent one by one."""


class Packed(ABC):
    """A column's values, or those of several, as bytes."""

    @abstractmethod
    def cut(self, begin: int, end: int) -> Sequence[Piece]:
        """Those of the rows [begin, end), column by column."""


class PackedRows(Packed):
    """A column's values, which can be had one by one, too."""

    @abstractmethod
    def rows(self, count: int) -> Iterable[bytes]:
        """Each of the `count` values on its own."""


class EvenRows(PackedRows):
    """Values of the same length."""

    width: int
    """Bytes of each."""

    @abstractmethod
    def add_to(self, run: Run) -> None:
        """Make the value a field of a row."""


class ConstantColumn(EvenRows):
    """The same value in each row."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.width = len(value)

    def cut(self, begin: int, end: int) -> Sequence[Piece]:
        return (self._value * (end - begin),)

    def rows(self, count: int) -> Iterable[bytes]:
        return repeat(self._value, count)

    def add_to(self, run: Run) -> None:
        run.keep(self._value)


class Runs(Packed):
    """Texts that are the same in each run of rows."""

    def __init__(self, texts: NDArray[np.bytes_], bounds: Sequence[int]) -> None:
        """`texts`: one for each run; `bounds`: where each run begins, and where the last one ends."""
        self._bounds = bounds
        # A device's runs are mostly of one length, and their bytes are the same in each request.
        known: dict[tuple[bytes, int], bytes] = {}
        self._runs = []
        for text, (begin, end) in zip(texts.tolist(), pairwise(bounds), strict=True):
            run = known.get((text, end - begin))
            if run is None:
                run = known[text, end - begin] = _with_length(text) * (end - begin)
            self._runs.append(run)

    def cut(self, begin: int, end: int) -> Sequence[Piece]:
        """Those of whole runs."""
        first = bisect_left(self._bounds, begin)
        runs = self._runs[first : bisect_left(self._bounds, end, first)]
        return runs if len(runs) <= _FEW_PIECES else (b"".join(runs),)


class Wide(EvenRows):
    """Values of the same length, of one column or of several, a row of the array for each."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.width = values.dtype.itemsize
        self._values = values.view(f"V{self.width}")
        self._octets = [row.view(np.uint8).data for row in np.atleast_2d(self._values)]

    def cut(self, begin: int, end: int) -> Sequence[Piece]:
        first, last = begin * self.width, end * self.width
        return [octets[first:last] for octets in self._octets]

    def rows(self, count: int) -> Iterable[bytes]:
        found: list[bytes] = self._values.tolist()
        return found

    def add_to(self, run: Run) -> None:
        run.take(self._values.dtype.str, self._values)


class Varying(PackedRows):
    """Texts of different lengths."""

    def __init__(self, values: list[bytes]) -> None:
        self._values = values

    def cut(self, begin: int, end: int) -> Sequence[Piece]:
        return (b"".join(self._values[begin:end]),)

    def rows(self, count: int) -> Iterable[bytes]:
        return self._values


def pack(column: Column, values: NDArray[Any], missing: Missing) -> PackedRows:
    """The values of one column."""
    if kind := BIG_ENDIAN.get(column.type):
        return Wide(np.ascontiguousarray(values.astype(kind)))
    return pack_texts(values, missing)


def pack_texts(values: NDArray[np.bytes_], missing: Missing) -> PackedRows:
    """Texts, each with its length before it; what is missing is empty."""
    if missing is None and is_constant(values):
        return ConstantColumn(_with_length(values[0]))
    if missing is None and are_full(values):
        return Wide(_with_lengths(values))
    name = "text"
    rows = BinaryRows(
        ([Column(name, ColumnType.TEXT)], {name: values}),
        b"",
        missing={} if missing is None else {name: missing},
        missing_length=0,
    )
    return Varying(rows.singles())


def are_full(texts: NDArray[np.bytes_]) -> bool:
    """Whether all are as long as the column is wide."""
    return bool(octets_of(texts)[:, -1].all())


def _with_length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def _with_lengths(texts: NDArray[np.bytes_]) -> NDArray[np.void]:
    """Texts that are as long as the column is wide, each with its length before it."""
    width = texts.dtype.itemsize
    found = np.empty(len(texts), dtype=[("length", ">i4"), ("text", f"S{width}")])
    found["length"] = width
    found["text"] = texts
    return found


def cut_bits(missing: Sequence[Missing], begin: int, end: int) -> list[bytes]:
    """Where values are missing in the rows [begin, end), of all columns: nothing if none is."""
    gone = [None if places is None else places[begin:end] for places in missing]
    if not any(places is not None and places.any() for places in gone):
        return []
    size = (end - begin) // 8 + 1
    return [
        b"\x00"
        if places is None
        else b"\x01" + np.packbits(places, bitorder="little").tobytes().ljust(size, b"\x00")
        for places in gone
    ]
