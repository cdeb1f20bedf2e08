"""Answers to statements: blocks of columns, whose rows are counted by their heads.

https://github.com/apache/tsfile/tree/develop/java/common/src/main/java/org/apache/tsfile/block (TsBlock)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SimulatorError
from ..kit.row_order import Row
from .thrift import Fields, ThriftError

_INT = struct.Struct("!i")

_FLOAT, _DOUBLE = 3, 4
"""Types whose values are encoded as those of numbers of the same size."""
_TEXTS = (5, 11)
_BYTES, _FOUR, _EIGHT, _BINARY, _REPEATED = 0, 1, 2, 3, 4
"""Encodings of a column."""


class Answer:
    """What a statement found, as it came."""

    def __init__(self, result: Fields, size: int) -> None:
        """`result`: what executing it returned, in a frame of so many bytes. Raises ThriftError if a block is
        none, as `add` does."""
        self.number: int = result.get(2) or 0
        """The number by which the server knows the answer."""
        # A result that tells of no columns has no rows, whatever else it says.
        self._columns = len(result.get(3) or ())
        self._places: Sequence[int] = result.get(17) or range(self._columns)
        # In the tree's answers, the time is no column.
        self._has_time = not result.get(5, True)
        self.blocks: list[bytes] = []
        self.rows = 0
        self.bytes = 0
        self._take(result.get(13), result.get(14), size)

    @property
    def is_open(self) -> bool:
        """Whether rows are still to come."""
        return self._more and self._columns > 0

    def add(self, result: Fields, size: int) -> None:
        """Take in what a call for more rows returned."""
        self._take(result.get(6), result.get(7), size)

    def _take(self, blocks: Sequence[bytes] | None, more: object, size: int) -> None:
        self._more = bool(more)
        self.bytes += size
        if blocks and self._columns:
            self.blocks += blocks
            self.rows += sum(map(count_rows, blocks))

    def read(self) -> list[Row]:
        """The rows. Raises SimulatorError if they are none."""
        places = [-1, *self._places] if self._has_time else self._places
        try:
            return list(read_blocks(self.blocks, places))
        except (struct.error, ValueError, IndexError) as error:
            raise SimulatorError(
                "IoTDB gave an unreadable answer: it is not in the form of rows"
            ) from error


def count_rows(block: bytes) -> int:
    """How many rows a block has. Raises ThriftError if it is none."""
    try:
        (columns,) = _INT.unpack_from(block)
        (rows,) = _INT.unpack_from(block, _INT.size + columns)
    except struct.error as error:
        raise ThriftError("the answer is not in the form of rows") from error
    return int(rows)


def count_texts(answer: Answer, ends: Sequence[bytes]) -> int:
    """How many texts of an answer have one of these ends. They are told by what stands behind them: the first
    byte of the next one's length or of the next column."""
    behind = (b"\0", b"\1")
    return sum(
        block.count(end + following)
        for block in answer.blocks
        for end in ends
        for following in behind
    )


def read_blocks(blocks: Sequence[bytes], places: Sequence[int]) -> Iterator[Row]:
    """The rows of an answer's blocks. `places`: the column in the blocks of each value of a row; -1 is the
    time."""
    for block in blocks:
        columns = _read_block(block)
        yield from zip(*(columns[place + 1] for place in places), strict=True)


def _read_block(block: bytes) -> list[list[Any]]:
    """The columns, the time first."""
    (count,) = struct.unpack_from("!i", block)
    types = block[4 : 4 + count]
    (rows,) = struct.unpack_from("!i", block, 4 + count)
    at = 8 + count
    encodings = block[at : at + count + 1]
    at += count + 1
    columns = []
    # The time is an INT64.
    for encoding, kind in zip(encodings, (2, *types), strict=True):
        values, at = _read_column(block, at, encoding, kind, rows)
        columns.append(values)
    return columns


def _read_column(
    block: bytes, at: int, encoding: int, kind: int, rows: int
) -> tuple[list[Any], int]:
    """The values of a column that begins there, and where it ends."""
    values: list[Any]
    if encoding == _REPEATED:
        values, at = _read_column(block, at + 1, block[at], kind, 1)
        return values * rows, at
    is_null, at = _read_bits(block, at + 1, rows) if block[at] else (None, at + 1)
    count = rows if is_null is None else rows - int(np.count_nonzero(is_null))
    if encoding == _BYTES:
        # These alone have a place for what is null, too.
        bits, at = _read_bits(block, at, rows)
        values = (bits if is_null is None else bits[~is_null]).tolist()
    elif encoding == _BINARY:
        values, at = _read_texts(block, at, count, kind in _TEXTS)
    else:
        size = 4 if encoding == _FOUR else 8
        code = "f" if kind in (_FLOAT, _DOUBLE) else "i"
        values = np.frombuffer(block, f">{code}{size}", count, at).tolist()
        at += size * count
    if is_null is not None:
        present = iter(values)
        values = [None if null else next(present) for null in is_null.tolist()]
    return values, at


def _read_bits(block: bytes, at: int, count: int) -> tuple[NDArray[np.bool_], int]:
    size = -(-count // 8)
    octets = np.frombuffer(block, np.uint8, size, at)
    return np.unpackbits(octets, count=count).astype(bool), at + size


def _read_texts(block: bytes, at: int, count: int, is_text: bool) -> tuple[list[Any], int]:
    values: list[Any] = []
    for _ in range(count):
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        value = block[at + 4 : end]
        values.append(value.decode() if is_text else value)
        at = end
    return values, at
