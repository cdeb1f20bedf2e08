"""Rows of binary values, made from columns for all rows at once; and the numpy records that hold rows of
bytes, some at a time.

Nothing is done per event in Python: numpy fills records, and values whose length varies by row are joined
with them or picked out of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..workloads.schema import ColumnType
from .columns import BIG_ENDIAN, Columns, is_constant, octets_of

WINDOW_BYTES = 1 << 18
"""How many bytes of rows are made at once: they stay in a core's own cache until they are copied into
requests."""


class Run:
    """Consecutive fields of a row, all of fixed length."""

    def __init__(self) -> None:
        self._fields: list[tuple[str, bytes]] = []
        self.moving: list[tuple[str, NDArray[Any]]] = []
        """Name and values of each field that differs by row."""
        self.bytes = 0

    def keep(self, constant: bytes) -> None:
        """Add a field that is the same in each row."""
        if constant:
            self._add(f"V{len(constant)}", constant)

    def take(self, kind: str, data: NDArray[Any]) -> None:
        """Add a field with a value for each row."""
        self.moving.append((f"f{len(self._fields)}", data))
        self._add(kind, b"")

    def _add(self, kind: str, constant: bytes) -> None:
        self._fields.append((kind, constant))
        self.bytes += np.dtype(kind).itemsize

    def records(self, count: int, place: int) -> NDArray[np.void]:
        """Records with all constant fields filled in. `place`: the run's position among the runs of the rows,
        as several may have the same fields."""
        return _kept_records(tuple(self._fields), count, place, get_ident())

    def fill(self, count: int) -> NDArray[np.void]:
        """Each row's bytes, in an array of its own."""
        records = _make_records(self._fields, count)
        for name, values in self.moving:
            records[name] = values
        return records.view(f"V{self.bytes}")


class RowWindows(ABC):
    """Rows made some at a time in reused arrays: a window onto all rows."""

    def __init__(
        self,
        count: int,
        window: int,
        separator_bytes: int,
        moving: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    ) -> None:
        """`window`: how many rows are made at once. `separator_bytes`: the length of what each row begins
        with. `moving`: the fields of records that differ by row, and their values."""
        self._count = count
        self._window = window
        self._separator_bytes = separator_bytes
        self._moving = moving
        self._begin = self._end = 0
        """Which rows the records hold now."""

    def parts(self, start: int, stop: int) -> list[bytes | memoryview]:
        """Rows [start, stop) with the separator between them; must be joined before other rows are
        requested."""
        parts: list[bytes | memoryview] = []
        # The first row must have no separator.
        skip = self._separator_bytes
        while start < stop:
            if not self._begin <= start < self._end:
                self.fill(start)
            end = min(stop, self._end)
            part = self._join(start, end, skip)
            parts.append(part if end == stop else bytes(part))
            start, skip = end, 0
        return parts

    @abstractmethod
    def _join(self, start: int, stop: int, skip: int) -> bytes | memoryview:
        """Rows [start, stop), all within the window, without the first `skip` bytes."""

    def fill(self, start: int) -> None:
        """Make rows from `start` on, as many as fit."""
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


NULL_LENGTH = -1
"""The length of a missing value: NULL in PostgreSQL and CQL."""

_PIECE_BYTES = 28
"""Joining a row with another piece costs as much as picking this many bytes out of it."""


class BinaryRows:
    """Each row: a prefix; for each value its length (an int32) and the value, both big-endian; a suffix.

    PostgreSQL's binary COPY takes rows like these, and so does CQL's binary protocol for a query's values.
    `prefix` is one for all rows, or an array with one for each, which is read when rows are requested.
    `json_prefix` is part of the value. A TEXT column of numpy's type `V` holds arbitrary bytes, all values of
    the same length. A value that is `missing` has no bytes, and `missing_length` for a length.

    Rows are made on request, some at a time, in reused arrays: filling fresh memory would cost twice as much.
    So a thread must be done with one object's rows before it requests more from it.
    """

    def __init__(
        self,
        columns: Columns,
        prefix: bytes | NDArray[np.void],
        json_prefix: bytes = b"",
        suffix: bytes = b"",
        missing: Mapping[str, NDArray[np.bool_]] | None = None,
        missing_length: int = NULL_LENGTH,
    ) -> None:
        names, values = columns
        missing = missing or {}
        self._count = len(values[names[0].name])
        fields = [_keep(prefix) if isinstance(prefix, bytes) else _take(prefix.dtype.str, prefix)]
        self.lengths: NDArray[np.int64] | int = 0
        """Bytes of each row; one number if all are the same."""
        for column in names:
            data = values[column.name]
            kind = BIG_ENDIAN.get(column.type) or data.dtype.str
            before = json_prefix if column.type is ColumnType.JSON else b""
            absent = missing.get(column.name)
            if absent is not None and absent.any():
                if data.dtype.kind == "S":
                    data = np.char.add(np.bytes_(before), data)
                    sizes = np.char.str_len(data)
                else:
                    width = np.dtype(kind).itemsize
                    data = np.ascontiguousarray(data.astype(kind)).view(f"V{width}")
                    sizes = np.full(len(data), width)
                self.lengths = self.lengths + np.where(absent, 0, sizes)
                fields.append(_take(">i4", np.where(absent, missing_length, sizes)))
                fields.append(_Field(data.dtype.str, b"", data, True, absent))
            elif data.dtype.kind == "S" and is_constant(data):
                text = before + data[0]
                fields.append(_keep(_length(len(text)) + text))
            elif data.dtype.kind == "S" and not octets_of(data)[:, -1].all():
                lengths = np.char.str_len(data)
                self.lengths = self.lengths + lengths
                fields += [_take(">i4", lengths + len(before)), _keep(before)]
                fields.append(_Field(data.dtype.str, b"", data, True))
            else:
                fields.append(_keep(_length(np.dtype(kind).itemsize + len(before)) + before))
                fields.append(_take(kind, data))
        fields.append(_keep(suffix))
        varying = [field for field in fields if field.varies]
        width = sum(np.dtype(field.kind).itemsize for field in fields if field.kind)
        self.lengths = (
            self.lengths + width - sum(np.dtype(field.kind).itemsize for field in varying)
        )
        self._window = max(1, min(WINDOW_BYTES // width, self._count))
        are_joined = width > _PIECE_BYTES * (2 * len(varying) + 1) and varying
        self._made = (_Joined if are_joined else _Picked)(fields, self._count, self._window)

    def join(self, start: int, stop: int, head: bytes = b"", tail: bytes = b"") -> bytes:
        """The bytes of rows [start, stop) between `head` and `tail`."""
        return b"".join((head, *self._made.parts(start, stop), tail))

    def singles(self) -> list[bytes]:
        """Each row by itself."""
        rows: list[bytes] = []
        for start in range(0, self._count, self._window):
            self._made.fill(start)
            rows += self._made.singles()
        return rows


class _Field(NamedTuple):
    """Consecutive bytes of a row."""

    kind: str
    constant: bytes = b""
    """The bytes, if they are the same in each row."""
    data: NDArray[Any] | None = None
    """The values of the rows, if they differ."""
    varies: bool = False
    """Whether its length varies: a text, which numpy pads with NUL, or a value that may be missing."""
    gone: NDArray[np.bool_] | None = None


def _keep(constant: bytes) -> _Field:
    return _Field(f"V{len(constant)}" if constant else "", constant)


def _take(kind: str, data: NDArray[Any]) -> _Field:
    return _Field(kind, b"", data)


class _Picked(RowWindows):
    """Rows in one array of records in which texts are padded; the bytes of each row are picked out of it."""

    def __init__(self, fields: Sequence[_Field], count: int, window: int) -> None:
        run = Run()
        self._varying: list[tuple[slice, _Field]] = []
        for field in fields:
            if field.data is None:
                run.keep(field.constant)
                continue
            begin = run.bytes
            run.take(field.kind, field.data)
            if field.varies:
                self._varying.append((slice(begin, run.bytes), field))
        self._records = run.records(window, 0)
        moving = [(self._records[name], data) for name, data in run.moving]
        super().__init__(count, window, 0, moving)
        self._octets = self._records.view(np.uint8).reshape(window, run.bytes)
        self._is_there = np.ones((window, run.bytes), dtype=bool) if self._varying else None
        """Which bytes belong to a row; None: all of them."""

    def fill(self, start: int) -> None:
        super().fill(start)
        count = self._end - start
        for place, field in self._varying:
            assert self._is_there is not None
            there = self._is_there[:count, place]
            if field.kind[1] == "S":
                np.not_equal(self._octets[:count, place], 0, out=there)
            else:
                there[...] = True
            if field.gone is not None:
                there[field.gone[start : self._end]] = False

    def _join(self, start: int, stop: int, skip: int) -> memoryview:
        some = slice(start - self._begin, stop - self._begin)
        octets = self._octets[some].reshape(-1)
        if self._is_there is None:
            return octets.data
        return np.compress(self._is_there[some].reshape(-1), octets).data

    def singles(self) -> list[bytes]:
        """Each row in the window by itself."""
        count = self._end - self._begin
        if self._is_there is None:
            return _blobs(self._records, count)
        octets = bytes(self._join(self._begin, self._end, 0))
        ends = np.cumsum(np.count_nonzero(self._is_there[:count], axis=1)).tolist()
        return [octets[begin:end] for begin, end in pairwise([0, *ends])]


class _Joined(RowWindows):
    """Rows in several arrays of records; values of varying length stand between two of them, and are joined
    with them. For long texts, which take longer to pick out of a record."""

    def __init__(self, fields: Sequence[_Field], count: int, window: int) -> None:
        runs = [Run()]
        self._varying: list[_Field] = []
        """What follows each run but the last."""
        for field in fields:
            if field.varies:
                self._varying.append(field)
                runs.append(Run())
            elif field.data is None:
                runs[-1].keep(field.constant)
            else:
                runs[-1].take(field.kind, field.data)
        self._arrays = [run.records(window, n) for n, run in enumerate(runs) if run.bytes]
        moving = [
            (records[name], data)
            for run, records in zip(runs, self._arrays, strict=False)
            for name, data in run.moving
        ]
        super().__init__(count, window, 0, moving)
        self._pieces: list[bytes] = []
        self._width = len(self._arrays) + len(self._varying)

    def fill(self, start: int) -> None:
        super().fill(start)
        count = self._end - start
        parts: list[list[bytes]] = [[]] * self._width
        parts[0::2] = [_blobs(records, count) for records in self._arrays]
        for place, field in enumerate(self._varying):
            assert field.data is not None
            values: list[bytes] = field.data[start : self._end].tolist()
            if field.gone is not None:
                for row in np.flatnonzero(field.gone[start : self._end]).tolist():
                    values[row] = b""
            parts[2 * place + 1] = values
        self._pieces = [b""] * (self._width * count)
        for position, part in enumerate(parts):
            self._pieces[position :: self._width] = part

    def _join(self, start: int, stop: int, skip: int) -> bytes:
        first, last = self._width * (start - self._begin), self._width * (stop - self._begin)
        return b"".join(self._pieces[first:last])

    def singles(self) -> list[bytes]:
        """Each row in the window by itself."""
        width = self._width
        return [
            b"".join(self._pieces[at : at + width]) for at in range(0, len(self._pieces), width)
        ]


def _length(octets: int) -> bytes:
    return octets.to_bytes(4, "big")


def _blobs(records: NDArray[np.void], count: int) -> list[bytes]:
    """The first `count` records, each as its bytes."""
    blobs: list[bytes] = records[:count].view(f"V{records.dtype.itemsize}").tolist()
    return blobs
