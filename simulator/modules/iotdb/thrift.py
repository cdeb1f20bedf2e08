"""Thrift's binary protocol in frames, as far as IoTDB's service needs it.

The official client brings pandas and SQLAlchemy, 200 MB in all, for what is a page here.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_VERSION = 0x80010000
_CALL, _REPLY, _EXCEPTION = 1, 2, 3
_BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64 = 2, 3, 4, 6, 8, 10
_STRING, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15

_HEAD = struct.Struct("!bh")
_LENGTH = struct.Struct("!i")
_LIST_HEAD = struct.Struct("!bi")
_MAP_HEAD = struct.Struct("!bbi")
_FIXED = {
    _BOOL: struct.Struct("!?"),
    _BYTE: struct.Struct("!b"),
    _DOUBLE: struct.Struct("!d"),
    _I16: struct.Struct("!h"),
    _I32: _LENGTH,
    _I64: struct.Struct("!q"),
}

Fields = Mapping[int, Any]
"""A struct: number of a field -> its value. Texts are bytes."""


class ThriftError(Exception):
    """What came is no answer to what was asked, or says that the server doesn't know the call."""


def begin_call(name: str) -> bytes:
    """The beginning of a message that calls `name` with a struct; its fields follow, then `END_CALL`."""
    return _begin(name) + _HEAD.pack(_STRUCT, 1)


END_CALL = b"\x00\x00"
"""Ends the struct and the message."""


def call(name: str, *fields: bytes) -> bytes:
    """A whole message that calls `name` with a struct."""
    return b"".join((begin_call(name), *fields, END_CALL))


def call_plainly(name: str, *arguments: bytes) -> bytes:
    """A whole message that calls `name` with arguments that are no struct."""
    return b"".join((_begin(name), *arguments, b"\x00"))


def _begin(name: str) -> bytes:
    # The number of a call is always 0: a connection has one under way.
    return struct.pack("!I", _VERSION | _CALL) + write_text(name) + bytes(4)


def put_bool(number: int, value: bool) -> bytes:
    """A field of that number; as all of these."""
    return _HEAD.pack(_BOOL, number) + bytes([value])


def put_i32(number: int, value: int) -> bytes:
    return _HEAD.pack(_I32, number) + _LENGTH.pack(value)


def put_i64(number: int, value: int) -> bytes:
    return _HEAD.pack(_I64, number) + struct.pack("!q", value)


def put_text(number: int, text: str) -> bytes:
    return begin_bytes(number, len(octets := text.encode())) + octets


def begin_bytes(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of a field."""
    return _HEAD.pack(_STRING, number) + _LENGTH.pack(size)


def put_texts(number: int, texts: Sequence[str]) -> bytes:
    return _HEAD.pack(_LIST, number) + write_texts(texts)


def put_i32s(number: int, values: Sequence[int]) -> bytes:
    return _HEAD.pack(_LIST, number) + write_i32s(values)


def put_bytes_of(number: int, values: Sequence[int]) -> bytes:
    """A list of small numbers, a byte each."""
    return _HEAD.pack(_LIST, number) + _LIST_HEAD.pack(_BYTE, len(values)) + bytes(values)


def begin_texts(number: int, count: int) -> bytes:
    """What stands before so many texts of a field, each as `write_text` has it."""
    return _HEAD.pack(_LIST, number) + _LIST_HEAD.pack(_STRING, count)


def begin_i32s(number: int, count: int) -> bytes:
    """What stands before so many numbers of a field, four bytes each."""
    return _HEAD.pack(_LIST, number) + _LIST_HEAD.pack(_I32, count)


def begin_lists(number: int, count: int) -> bytes:
    """What stands before so many lists of a field, each as `write_texts` or `write_i32s` has it."""
    return _HEAD.pack(_LIST, number) + _LIST_HEAD.pack(_LIST, count)


def put_map(number: int, values: Mapping[str, str]) -> bytes:
    head = _HEAD.pack(_MAP, number) + _MAP_HEAD.pack(_STRING, _STRING, len(values))
    return head + b"".join(write_text(text) for pair in values.items() for text in pair)


def write_text(text: str) -> bytes:
    """A text that is no field, as the next two."""
    octets = text.encode()
    return _LENGTH.pack(len(octets)) + octets


def write_texts(texts: Sequence[str]) -> bytes:
    return _LIST_HEAD.pack(_STRING, len(texts)) + b"".join(map(write_text, texts))


def write_i32s(values: Sequence[int]) -> bytes:
    return _LIST_HEAD.pack(_I32, len(values)) + struct.pack(f"!{len(values)}i", *values)


def read_answer(message: bytes) -> Any:
    """What a call returned: a struct as `Fields`, or a plain value. Raises ThriftError."""
    try:
        version, length = struct.unpack_from("!Ii", message)
        kind, at = version & 0xFF, 8 + length + 4
        if version & 0xFFFF0000 != _VERSION or kind not in (_REPLY, _EXCEPTION):
            raise ThriftError("the answer is not Thrift's binary protocol")
        fields, _ = _read_struct(message, at)
    except (struct.error, IndexError, KeyError) as error:
        raise ThriftError("the answer is not Thrift's binary protocol") from error
    if kind == _EXCEPTION:
        raise ThriftError(fields.get(1, b"").decode(errors="replace") or "the call failed")
    return fields.get(0)


def _read_struct(data: bytes, at: int) -> tuple[Fields, int]:
    found: dict[int, Any] = {}
    while (kind := data[at]) != 0:
        number = int.from_bytes(data[at + 1 : at + 3], "big")
        found[number], at = _read(kind, data, at + 3)
    return found, at + 1


def _read(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    """A value that begins there, and where it ends."""
    if fixed := _FIXED.get(kind):
        return fixed.unpack_from(data, at)[0], at + fixed.size
    return _READERS[kind](data, at)


def _read_string(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    end = at + 4 + size
    if size < 0 or end > len(data):
        raise ThriftError("the answer ends too early")
    return data[at + 4 : end], end


def _read_list(data: bytes, at: int) -> tuple[list[Any], int]:
    kind, count = _LIST_HEAD.unpack_from(data, at)
    found, at = [], at + _LIST_HEAD.size
    for _ in range(count):
        value, at = _read(kind, data, at)
        found.append(value)
    return found, at


def _read_map(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
    key_kind, value_kind, count = _MAP_HEAD.unpack_from(data, at)
    found, at = {}, at + _MAP_HEAD.size
    for _ in range(count):
        key, at = _read(key_kind, data, at)
        found[key], at = _read(value_kind, data, at)
    return found, at


_READERS: Mapping[int, Callable[[bytes, int], tuple[Any, int]]] = {
    _STRING: _read_string,
    _STRUCT: _read_struct,
    _MAP: _read_map,
    _SET: _read_list,
    _LIST: _read_list,
}
