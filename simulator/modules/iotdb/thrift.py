"""Thrift's binary protocol in frames, as far as IoTDB's service needs it.

The official client brings pandas and SQLAlchemy, 200 MB in all, for what is a page here; and Thrift's own
library reads structs by classes that its compiler makes of the service's definition.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

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
"""A part of a message. The kernel puts them together, so no copy is made for that."""

Fields = Mapping[int, Any]
"""A struct: number of a field -> its value. Texts are bytes."""

END_CALL = b"\x00\x00"
"""Ends the struct and the message that `begin_call` begins."""


class ThriftError(Exception):
    """What came is no answer to what was asked, or says that the server doesn't know the call."""


def begin_call(name: str) -> bytes:
    """The beginning of a message that calls `name` with a struct; its fields follow, then `END_CALL`."""
    return _begin(name) + _HEAD.pack(_STRUCT, 1)


def call(name: str, *fields: bytes) -> bytes:
    """A whole message that calls `name` with a struct."""
    return b"".join((begin_call(name), *fields, END_CALL))


def call_plainly(name: str, *arguments: bytes) -> bytes:
    """A whole message that calls `name` with arguments that are no struct."""
    return b"".join((_begin(name), *arguments, b"\x00"))


def _begin(name: str) -> bytes:
    # The number of a call is always 0: a connection has one under way.
    return struct.pack("!I", _VERSION | _CALL) + write_text(name) + bytes(4)


# --- fields: their numbers stand first ------------------------------------------------------------


def put_bool(number: int, value: bool) -> bytes:
    """A field of that number, as by all of these functions."""
    return _HEAD.pack(_BOOL, number) + bytes([value])


def put_i32(number: int, value: int) -> bytes:
    return _HEAD.pack(I32, number) + _LENGTH.pack(value)


def put_i64(number: int, value: int) -> bytes:
    return _HEAD.pack(_I64, number) + _FIXED[_I64].pack(value)


def put_text(number: int, text: str) -> bytes:
    return _HEAD.pack(TEXT, number) + write_text(text)


def put_list(number: int, values: bytes) -> bytes:
    """`values`: as `write_texts` and its like write them."""
    return _HEAD.pack(LIST, number) + values


def put_map(number: int, values: Mapping[str, str]) -> bytes:
    head = _HEAD.pack(_MAP, number) + _MAP_HEAD.pack(TEXT, TEXT, len(values))
    return head + b"".join(write_text(text) for pair in values.items() for text in pair)


def begin_bytes(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of a field."""
    return _HEAD.pack(TEXT, number) + _LENGTH.pack(size)


def begin_list(number: int, kind: int, count: int) -> bytes:
    """What stands before so many values of a field: TEXT, I32 or LIST, each as below."""
    return _HEAD.pack(LIST, number) + _LIST_HEAD.pack(kind, count)


# --- values that are no fields --------------------------------------------------------------------


def write_text(text: str) -> bytes:
    """A text, with its length before it."""
    octets = text.encode()
    return _LENGTH.pack(len(octets)) + octets


def write_texts(texts: Sequence[str]) -> bytes:
    """A list of texts."""
    return _LIST_HEAD.pack(TEXT, len(texts)) + b"".join(map(write_text, texts))


def write_i32s(values: Sequence[int]) -> bytes:
    """A list of numbers of four bytes each."""
    return _LIST_HEAD.pack(I32, len(values)) + struct.pack(f"!{len(values)}i", *values)


def write_bytes(values: Sequence[int]) -> bytes:
    """A list of numbers of a byte each."""
    return _LIST_HEAD.pack(_BYTE, len(values)) + bytes(values)


# --- answers --------------------------------------------------------------------------------------


def read_answer(message: bytes) -> Any:
    """What a call returned: a struct as `Fields`, or a plain value. Raises ThriftError."""
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
    """A value that begins there, and where it ends."""
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
