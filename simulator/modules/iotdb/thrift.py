"""Thrift's framed binary protocol, as far as IoTDB's service needs it, and the blocks of columns in its
answers.

The official client needs pandas and SQLAlchemy, 200 MB in all, for what takes a page here. Thrift's own
library needs classes that its compiler generates from the service's definition.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md
https://github.com/apache/tsfile/tree/develop/java/common/src/main/java/org/apache/tsfile/block (TsBlock)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SimulatorError
from ..kit.series import Row

_VERSION = 0x80010000
_CALL, _REPLY, _EXCEPTION = 1, 2, 3
_BOOL, _BYTE, _DOUBLE, _I16, I32, _I64 = 2, 3, 4, 6, 8, 10
TEXT, _STRUCT, _MAP, _SET, LIST = 11, 12, 13, 14, 15

_HEAD = struct.Struct("!bh")
_LENGTH = struct.Struct("!i")
_LIST_HEAD = struct.Struct("!bi")
_MAP_HEAD = struct.Struct("!bbi")
_FIXED = {
    _BOOL: struct.Struct("!?"),
    _BYTE: struct.Struct("!b"),
    _DOUBLE: struct.Struct("!d"),
    _I16: struct.Struct("!h"),
    I32: _LENGTH,
    _I64: struct.Struct("!q"),
}

Piece = bytes | memoryview
"""A part of a message. The kernel joins them, so they aren't copied."""

Fields = Mapping[int, Any]
"""A struct: number of a field -> its value. Texts are bytes."""

END_CALL = b"\x00\x00"
"""Ends the struct and the message that `begin_call` begins."""


class ThriftError(Exception):
    """What arrived doesn't answer the call, or says that the server doesn't know the call."""


def begin_call(name: str, takes_struct: bool = True) -> bytes:
    """The beginning of a message that calls `name`, usually with a struct, followed by its fields and
    `END_CALL`."""
    # The number of a call is always 0: a connection has one call in flight.
    head = struct.pack("!I", _VERSION | _CALL) + write_text(name) + bytes(4)
    return head + _HEAD.pack(_STRUCT, 1) if takes_struct else head


def call(name: str, *fields: bytes, takes_struct: bool = True) -> bytes:
    """A whole message that calls `name` with a struct, or with these arguments."""
    end = END_CALL if takes_struct else END_CALL[1:]
    return b"".join((begin_call(name, takes_struct), *fields, end))


# --- fields: their numbers come first -------------------------------------------------------------


def put_bool(number: int, value: bool) -> bytes:
    """A field with that number, as in all of these functions."""
    return _HEAD.pack(_BOOL, number) + bytes([value])


def put_i32(number: int, value: int) -> bytes:
    return _HEAD.pack(I32, number) + _LENGTH.pack(value)


def put_i64(number: int, value: int) -> bytes:
    return _HEAD.pack(_I64, number) + _FIXED[_I64].pack(value)


def put_text(number: int, text: str) -> bytes:
    return _HEAD.pack(TEXT, number) + write_text(text)


def put_list(number: int, values: bytes) -> bytes:
    """`values`: as from `write_texts` and the like."""
    return _HEAD.pack(LIST, number) + values


def put_map(number: int, values: Mapping[str, str]) -> bytes:
    head = _HEAD.pack(_MAP, number) + _MAP_HEAD.pack(TEXT, TEXT, len(values))
    return head + b"".join(write_text(text) for pair in values.items() for text in pair)


def begin_bytes(number: int, size: int) -> bytes:
    """What precedes the `size` bytes of a field."""
    return _HEAD.pack(TEXT, number) + _LENGTH.pack(size)


def begin_list(number: int, kind: int, count: int) -> bytes:
    """What precedes this many values of a field: TEXT, I32 or LIST, each as below."""
    return _HEAD.pack(LIST, number) + _LIST_HEAD.pack(kind, count)


# --- values that aren't fields --------------------------------------------------------------------


def write_text(text: str) -> bytes:
    """A text, after its length."""
    octets = text.encode()
    return _LENGTH.pack(len(octets)) + octets


def write_texts(texts: Sequence[str]) -> bytes:
    """A list of texts."""
    return _LIST_HEAD.pack(TEXT, len(texts)) + b"".join(map(write_text, texts))


def write_i32s(values: Sequence[int]) -> bytes:
    """A list of numbers of four bytes each."""
    return _LIST_HEAD.pack(I32, len(values)) + struct.pack(f"!{len(values)}i", *values)


def write_bytes(values: Sequence[int]) -> bytes:
    """A list of numbers of one byte each."""
    return _LIST_HEAD.pack(_BYTE, len(values)) + bytes(values)


# --- answers --------------------------------------------------------------------------------------


def read_answer(message: bytes) -> Any:
    """The result of a call: a struct as `Fields`, or a plain value. Raises ThriftError."""
    try:
        version, length = struct.unpack_from("!Ii", message)
        kind, at = version & 0xFF, 8 + length + 4
        if version & 0xFFFF0000 != _VERSION or kind not in (_REPLY, _EXCEPTION):
            raise ThriftError("the answer is not Thrift's binary protocol")
        fields, _ = _read(_STRUCT, message, at)
    except (struct.error, IndexError, KeyError) as error:
        raise ThriftError("the answer is not Thrift's binary protocol") from error
    if kind == _EXCEPTION:
        raise ThriftError(fields.get(1, b"").decode(errors="replace") or "the call failed")
    return fields.get(0)


def _read(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    """The value that begins there, and its end."""
    if kind == TEXT:
        begin = at + _LENGTH.size
        (size,) = _LENGTH.unpack_from(data, at)
        if size < 0 or begin + size > len(data):
            raise ThriftError("the answer ends too early")
        return data[begin : begin + size], begin + size
    if kind == _STRUCT:
        fields: dict[int, Any] = {}
        while (part := data[at]) != 0:
            number = int.from_bytes(data[at + 1 : at + 3], "big")
            fields[number], at = _read(part, data, at + 3)
        return fields, at + 1
    if kind in (LIST, _SET):
        part, count = _LIST_HEAD.unpack_from(data, at)
        return _read_several([part] * count, data, at + _LIST_HEAD.size)
    if kind == _MAP:
        key, value, count = _MAP_HEAD.unpack_from(data, at)
        values, at = _read_several([key, value] * count, data, at + _MAP_HEAD.size)
        return dict(zip(values[::2], values[1::2], strict=True)), at
    fixed = _FIXED[kind]
    return fixed.unpack_from(data, at)[0], at + fixed.size


def _read_several(kinds: Sequence[int], data: bytes, at: int) -> tuple[list[Any], int]:
    values = []
    for kind in kinds:
        value, at = _read(kind, data, at)
        values.append(value)
    return values, at


_FLOATS = (3, 4)
"""Types whose values are encoded like numbers of the same size."""
_TEXTS = (5, 11)
_BYTES, _FOUR, _EIGHT, _BINARY, _REPEATED = 0, 1, 2, 3, 4


class Answer:
    """The raw answer to a statement."""

    def __init__(self, result: Fields, size: int) -> None:
        """`result`: of executing it, in a frame of this many bytes. Raises ThriftError for an invalid block,
        as `add` does."""
        self.number: int = result.get(2) or 0
        """The server's number for the answer."""
        # A result without columns has no rows, whatever else it says.
        self._columns = len(result.get(3) or ())
        self._places: Sequence[int] = result.get(17) or range(self._columns)
        # In the tree's answers, the time isn't a column.
        self._has_time = not result.get(5, True)
        self.blocks: list[bytes] = []
        self.rows = 0
        self.bytes = 0
        self._take(result.get(13), result.get(14), size)

    @property
    def is_open(self) -> bool:
        """Whether more rows are to come."""
        return self._more and self._columns > 0

    def add(self, result: Fields, size: int) -> None:
        """Add the result of a call for more rows."""
        self._take(result.get(6), result.get(7), size)

    def _take(self, blocks: Sequence[bytes] | None, more: object, size: int) -> None:
        self._more = bool(more)
        self.bytes += size
        if blocks and self._columns:
            self.blocks += blocks
            self.rows += sum(map(count_rows, blocks))

    def read(self) -> list[Row]:
        """The rows. Raises SimulatorError if they are invalid."""
        places = [-1, *self._places] if self._has_time else self._places
        try:
            return list(read_blocks(self.blocks, places))
        except (struct.error, ValueError, IndexError) as error:
            raise SimulatorError(
                "IoTDB gave an unreadable answer: it is not in the form of rows"
            ) from error


def count_rows(block: bytes) -> int:
    """The number of rows in a block. Raises ThriftError if it is invalid."""
    try:
        (columns,) = _LENGTH.unpack_from(block)
        (rows,) = _LENGTH.unpack_from(block, _LENGTH.size + columns)
    except struct.error as error:
        raise ThriftError("the answer is not in the form of rows") from error
    return int(rows)


def count_texts(answer: Answer, ends: Sequence[bytes]) -> int:
    """How many texts of an answer have one of these ends. They are recognised by what follows: the first byte
    of the next one's length or of the next column."""
    behind = (b"\0", b"\1")
    return sum(
        block.count(end + following)
        for block in answer.blocks
        for end in ends
        for following in behind
    )


def read_blocks(blocks: Sequence[bytes], places: Sequence[int]) -> Iterator[Row]:
    """The rows of an answer's blocks. `places`: for each value of a row, its column in the blocks; -1 is the
    time."""
    for block in blocks:
        (count,) = _LENGTH.unpack_from(block)
        types = block[4 : 4 + count]
        (rows,) = _LENGTH.unpack_from(block, 4 + count)
        at = 8 + count
        encodings = block[at : at + count + 1]
        at += count + 1
        columns = []
        # The time comes first: an INT64.
        for encoding, kind in zip(encodings, (2, *types), strict=True):
            values, at = _read_column(block, at, encoding, kind, rows)
            columns.append(values)
        yield from zip(*(columns[place + 1] for place in places), strict=True)


def _read_column(
    block: bytes, at: int, encoding: int, kind: int, rows: int
) -> tuple[list[Any], int]:
    """The values of the column that begins there, and its end."""
    values: list[Any]
    if encoding == _REPEATED:
        values, at = _read_column(block, at + 1, block[at], kind, 1)
        return values * rows, at
    is_null, at = _read_bits(block, at + 1, rows) if block[at] else (None, at + 1)
    count = rows if is_null is None else rows - int(np.count_nonzero(is_null))
    if encoding == _BYTES:
        # Only these have room for null values, too.
        bits, at = _read_bits(block, at, rows)
        values = (bits if is_null is None else bits[~is_null]).tolist()
    elif encoding == _BINARY:
        values = []
        for _ in range(count):
            end = at + 4 + int.from_bytes(block[at : at + 4], "big")
            value = block[at + 4 : end]
            values.append(value.decode() if kind in _TEXTS else value)
            at = end
    else:
        size = 4 if encoding == _FOUR else 8
        code = "f" if kind in _FLOATS else "i"
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
