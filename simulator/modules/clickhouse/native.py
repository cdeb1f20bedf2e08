"""Reads answers in the Native format: counts the rows of each, and decodes them.

A block is the numbers of its columns and rows, then each column: name, type, values (see `encoding`). Of a
LowCardinality column a block has a dictionary and each row's place in it.

https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

_NUMPY = {
    "Bool": "?",
    "UInt8": "u1", "UInt16": "<u2", "UInt32": "<u4", "UInt64": "<u8",
    "Int8": "i1", "Int16": "<i2", "Int32": "<i4", "Int64": "<i8",
    "Float32": "<f4", "Float64": "<f8",
    # ms since 1970
    "DateTime64(3)": "<i8", "DateTime64(3, 'UTC')": "<i8",
}  # fmt: skip
_WIDTHS = {kind.encode(): np.dtype(dtype).itemsize for kind, dtype in _NUMPY.items()}

_VERSION_BYTES, _COUNT_BYTES = 8, 8
"""Before a LowCardinality column's dictionary, and before its places."""


class NotNative(Exception):
    """An answer isn't whole blocks; the text says why."""


def count_rows(body: bytes) -> int:
    """The rows of an answer; NotNative if it isn't whole."""
    at = total = 0
    try:
        while at < len(body):
            columns, at = _read_number(body, at)
            rows, at = _read_number(body, at)
            for _ in range(columns):
                kind, at = _read_head(body, at)
                at = _skip(kind, body, at, rows)
            total += rows
    except (IndexError, struct.error) as error:
        raise NotNative("it ends in the middle of a block") from error
    if at != len(body):
        raise NotNative("it ends in the middle of a column")
    return total


def read_rows(body: bytes) -> list[tuple[Any, ...]]:
    """The rows of an answer that `count_rows` has found to be whole. Texts are `str`, times ms since 1970, a
    missing value is None."""
    rows: list[tuple[Any, ...]] = []
    at = 0
    while at < len(body):
        columns, at = _read_number(body, at)
        count, at = _read_number(body, at)
        block = []
        for _ in range(columns):
            kind, at = _read_head(body, at)
            block.append(_read(kind, body, at, count))
            at = _skip(kind, body, at, count)
        rows += zip(*block, strict=True)
    return rows


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    octet = body[at]
    at += 1
    number, shift = octet & 0x7F, 7
    while octet > 0x7F:
        octet = body[at]
        at += 1
        number |= (octet & 0x7F) << shift
        shift += 7
    return number, at


def _read_head(body: bytes, at: int) -> tuple[bytes, int]:
    """A column's type, and where its values begin."""
    size, at = _read_number(body, at)
    size, at = _read_number(body, at + size)
    kind = body[at : at + size]
    if len(kind) < size:
        raise IndexError(at)
    return kind, at + size


def _inner(kind: bytes, outer: bytes) -> bytes | None:
    """The type that `outer(…)` is of; None if the type isn't one of these."""
    return kind[len(outer) + 1 : -1] if kind.startswith(outer + b"(") else None


def _skip(kind: bytes, body: bytes, at: int, rows: int) -> int:
    """Where a column's values end, which begin at a place. IndexError if they don't end."""
    if (width := _WIDTHS.get(kind)) is not None:
        return at + width * rows
    if not rows:
        return at
    if kind == b"String":
        for _ in range(rows):
            size = body[at]
            if size > 0x7F:
                size, at = _read_number(body, at)
                at += size
            else:
                at += size + 1
        return at
    if (inner := _inner(kind, b"Nullable")) is not None:
        return _skip(inner, body, at + rows, rows)
    if (inner := _inner(kind, b"LowCardinality")) is not None:
        texts = _open_dictionary(inner, body, at)
        return _skip(texts.kind, body, texts.begin, texts.size) + _COUNT_BYTES + texts.width * rows
    raise NotNative(
        f"it has a column of type {kind.decode(errors='replace')}, which this module can't read"
    )


class _Dictionary(NamedTuple):
    kind: bytes
    begin: int
    size: int
    width: int
    """Bytes of a place in it."""


def _open_dictionary(inner: bytes, body: bytes, at: int) -> _Dictionary:
    """The dictionary of a LowCardinality column whose values begin at a place."""
    flags, size = struct.unpack_from("<QQ", body, at + _VERSION_BYTES)
    begin = at + _VERSION_BYTES + struct.calcsize("<QQ")
    # Of Nullable texts, the first stands for nothing.
    return _Dictionary(_inner(inner, b"Nullable") or inner, begin, size, 1 << (flags & 0xFF))


def _read(kind: bytes, body: bytes, at: int, rows: int) -> list[Any]:
    """A column's values."""
    values: list[Any]
    if not rows:
        return []
    if kind in _WIDTHS:
        values = np.frombuffer(body, _NUMPY[kind.decode()], rows, at).tolist()
        return values
    if kind == b"String":
        values = []
        for _ in range(rows):
            size, at = _read_number(body, at)
            values.append(body[at : at + size].decode(errors="replace"))
            at += size
        return values
    if (inner := _inner(kind, b"Nullable")) is not None:
        missing = np.frombuffer(body, "?", rows, at).tolist()
        values = _read(inner, body, at + rows, rows)
        return [
            None if is_missing else value for is_missing, value in zip(missing, values, strict=True)
        ]
    inner = _inner(kind, b"LowCardinality")
    assert inner is not None
    texts = _open_dictionary(inner, body, at)
    entries: list[Any] = _read(texts.kind, body, texts.begin, texts.size)
    if texts.kind != inner:
        entries[0] = None
    at = _skip(texts.kind, body, texts.begin, texts.size) + _COUNT_BYTES
    places = np.frombuffer(body, f"<u{texts.width}", rows, at)
    return [entries[place] for place in places.tolist()]
