"""Numpy records that rows of bytes are made in, some at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW_BYTES = 1 << 18
"""Rows made at once: so many bytes stay in a core's own cache until they have been copied into requests."""


class Run:
    """Consecutive fields of a row, all of fixed length."""

    def __init__(self) -> None:
        self._fields: list[tuple[str, bytes]] = []
        """Type of each, and what it is in each row, if it's always the same."""
        self.moving: list[tuple[str, NDArray[Any]]] = []
        """Name and values of each that isn't."""
        self.bytes = 0

    def keep(self, constant: bytes) -> None:
        """A field that is the same in each row."""
        if constant:
            self._add(f"V{len(constant)}", constant)

    def take(self, kind: str, data: NDArray[Any]) -> None:
        """A field with a value for each row."""
        self.moving.append((f"f{len(self._fields)}", data))
        self._add(kind, b"")

    def _add(self, kind: str, constant: bytes) -> None:
        self._fields.append((kind, constant))
        self.bytes += np.dtype(kind).itemsize

    def records(self, count: int, place: int) -> NDArray[np.void]:
        """Records in which everything is filled in that is the same in each row; `place`: the run's among
        those of the rows, which may have the same fields."""
        return _kept_records(tuple(self._fields), count, place, get_ident())

    def fill(self, count: int) -> NDArray[np.void]:
        """Each row's bytes, in an array of its own."""
        records = _make_records(self._fields, count)
        for name, values in self.moving:
            records[name] = values
        return records.view(f"V{self.bytes}")


class RowWindows(ABC):
    """Rows of text, made some at a time in arrays that are kept: a window of all rows."""

    def __init__(
        self,
        count: int,
        window: int,
        separator_bytes: int,
        moving: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    ) -> None:
        """`window`: the rows that are made at once; `separator_bytes`: what each row begins with; `moving`:
        the fields of records that differ from row to row, and their values."""
        self._count = count
        self._window = window
        self._separator_bytes = separator_bytes
        self._moving = moving
        self._begin = self._end = 0
        """The rows that are in the records now."""

    def parts(self, start: int, stop: int) -> list[bytes]:
        """Rows [start, stop) with the separator between them, to be joined."""
        parts = []
        # The first row is to be without the separator.
        skip = self._separator_bytes
        while start < stop:
            if not self._begin <= start < self._end:
                self._fill(start)
            end = min(stop, self._end)
            parts.append(self._join(start, end, skip))
            start, skip = end, 0
        return parts

    @abstractmethod
    def _join(self, start: int, stop: int, skip: int) -> bytes:
        """Rows [start, stop), all in the window, without their first `skip` bytes."""

    def _fill(self, start: int) -> None:
        count = min(self._window, self._count - start)
        self._begin, self._end = start, start + count
        for field, data in self._moving:
            field[:count] = data[start : start + count]


@lru_cache(maxsize=64)
def _kept_records(
    fields: tuple[tuple[str, bytes], ...], count: int, _place: int, _thread: int
) -> NDArray[np.void]:
    return _make_records(fields, count)


def _make_records(fields: Sequence[tuple[str, bytes]], count: int) -> NDArray[np.void]:
    records = np.zeros(count, dtype=[(f"f{n}", kind) for n, (kind, _) in enumerate(fields)])
    for number, (_, constant) in enumerate(fields):
        if constant:
            records[f"f{number}"] = np.void(constant)
    return records
