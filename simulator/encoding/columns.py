"""Bytes from columns, in bulk: the building blocks of the modules' encoders. Nothing here is done per event
in Python: numpy fills records, or one `%` formats a whole request.

Numbers are turned into text many at once, by tables of digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from ..workloads.schema import FLOATS, Column, ColumnType, EventBlock, Tags

KEY_COLUMN = "id"
"""Column of a key that the worker makes (`--primary-key client`)."""

Columns = tuple[Sequence[Column], Mapping[str, NDArray[Any]]]


def quote_name(name: str) -> str:
    """An identifier quoted for SQL and CQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def digits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Decimal digits of non-negative numbers, zero-padded: shape (n, width), ASCII."""
    text = np.empty((len(numbers), width), dtype=np.uint8)
    rest = numbers
    for position in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, position] = digit
    text += ord("0")
    return text


def iso_times(times_ms: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Milliseconds since 1970 as texts like 2024-01-01T00:00:00.450Z. Takes a tenth of the time of
    `numpy.datetime_as_string`, which computes each date separately."""
    days, rest = np.divmod(times_ms, 86_400_000)
    text = np.empty((len(times_ms), 24), dtype=np.uint8)
    kinds, which = np.unique(days, return_inverse=True)
    dates = np.datetime_as_string(kinds.astype("datetime64[D]")).astype("S10")
    text[:, :10] = dates.view(np.uint8).reshape(len(kinds), 10)[which]
    rest, milliseconds = np.divmod(rest, 1000)
    rest, seconds = np.divmod(rest, 60)
    hours, minutes = np.divmod(rest, 60)
    for place, numbers, width in (
        (11, hours, 2), (14, minutes, 2), (17, seconds, 2), (20, milliseconds, 3),
    ):  # fmt: skip
        text[:, place : place + width] = digits(numbers, width)
    for place, mark in ((10, "T"), (13, ":"), (16, ":"), (19, "."), (23, "Z")):
        text[:, place] = ord(mark)
    return text.view("S24").reshape(len(times_ms))


def client_keys(block: EventBlock) -> NDArray[np.bytes_]:
    """A key per event from its natural key: device id, timestamp, and sequence number if there is one. All
    have the same width, so text order is the order of device, then time."""
    is_row = block.schema.tags is Tags.ROW
    parts = [octets_of(block.devices) if is_row else digits(block.device_ids, 11)]
    parts.append(digits(block.columns[block.schema.time], 13))
    if block.schema.sequence:
        parts.append(digits(block.columns[block.schema.sequence], 12))
    text = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return text.view(f"S{text.shape[1]}").reshape(len(block))


def with_client_key(block: EventBlock) -> Columns:
    """Columns and values of the events' rows with the client's key in front."""
    columns = (Column(KEY_COLUMN, ColumnType.TEXT), *block.schema.row)
    return columns, {KEY_COLUMN: client_keys(block), **block.row_columns}


def text_format(column: Column) -> bytes:
    """The %-format of a column's plain text form."""
    if column.type in TEXTS or column.type is ColumnType.BOOL:
        return b"%b"  # of `bool_texts`, if it isn't a text
    if column.type in FLOATS and column.decimals is not None:
        return b"%%.%df" % column.decimals
    if column.type is ColumnType.FLOAT32:
        # Nine significant digits identify every float32, seventeen every float64 (IEEE 754).
        return b"%.9g"
    return b"%.17g" if column.type is ColumnType.FLOAT64 else b"%d"


BIG_ENDIAN = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
    ColumnType.FLOAT64: ">f8",
    ColumnType.BOOL: "?",
}
"""Numpy's types for values in network byte order, for binary protocols; texts have none."""

TEXTS = (ColumnType.TEXT, ColumnType.JSON)
_BOOLS = np.array([b"false", b"true"])


def bool_texts(values: NDArray[np.bool_]) -> NDArray[np.bytes_]:
    """true and false, as in JSON, SQL, CSV and line protocol."""
    return _BOOLS[values.view(np.uint8)]


_LEAST_REPEATED = 64
"""With fewer texts it isn't worth looking for repetitions."""


def escape(values: NDArray[Any], replacements: Sequence[tuple[bytes, bytes]]) -> NDArray[Any]:
    """A bytes column with `replacements` made in order; the column itself if there is nothing to replace."""
    if is_constant(values):
        return np.broadcast_to(escape(values[:1].copy(), replacements), values.shape)
    content = values.tobytes()
    if not any(old in content for old, _ in replacements):
        return values
    if period := find_period(values):
        return np.resize(escape(values[:period], replacements), values.shape)
    for old, new in replacements:
        if old in content:
            values = np.char.replace(values, old, new)
    return values


def find_period(values: NDArray[np.bytes_]) -> int:
    """After how many texts the sequence repeats, as it does if devices take turns; 0 if it doesn't repeat, or
    not even once in full."""
    octets = octets_of(values)
    count, width = octets.shape
    if count < _LEAST_REPEATED:
        return 0
    flat = octets.reshape(-1)
    first, content = octets[0].tobytes(), octets[: count // 2 + 1].tobytes()
    place = content.find(first, width)
    while place > 0 and place % width:
        # The match spans two texts: continue at the next whole one.
        place = content.find(first, place - place % width + width)
    if place < 0:
        return 0
    return place // width if np.array_equal(flat[place:], flat[:-place]) else 0


def count_turns(devices: NDArray[np.bytes_], batch: int) -> int:
    """How many devices take turns throughout, if each request of `batch` events ends with the last of them;
    otherwise 0."""
    if len(devices) % batch or (devices[1:2] == devices[:1]).all():
        return 0
    turns = find_period(devices)
    if not turns or batch % turns or len(set(devices[:turns].tolist())) < turns:
        return 0
    return turns


SHORT_NUMBERS = 1 << 16
"""16-bit numbers are sorted fastest."""
_MOST_NUMBERS = 1 << 31


def number_names(devices: NDArray[np.bytes_]) -> tuple[NDArray[Any], int]:
    """A number for each event's device, in the order of names, and an exclusive upper bound; 1 means a single
    device."""
    numbers: NDArray[Any] = np.zeros(len(devices), np.uint16)
    kinds = 1
    if is_constant(devices) or all_alike(devices):
        return numbers, kinds
    # The positions in which names differ, as digits.
    for octets in octets_of(devices).T:
        least = int(octets.min())
        span = int(octets.max()) - least + 1
        if span == 1:
            continue
        kinds *= span
        if kinds > _MOST_NUMBERS:
            names, numbers = np.unique(devices, return_inverse=True)
            return numbers, len(names)
        if kinds > SHORT_NUMBERS:
            numbers = numbers.astype(np.int64, copy=False)
        numbers *= span
        numbers += octets - least
    return numbers, kinds


# What must be escaped within a JSON string (RFC 8259, section 7).
_JSON_SPECIAL = b'"\\' + bytes(range(1, 0x20))


def escape_json(values: NDArray[Any]) -> NDArray[Any]:
    """UTF-8 texts escaped for JSON strings; the column itself if nothing needs escaping."""
    if is_constant(values):
        return np.broadcast_to(escape_json(values[:1].copy()), values.shape)
    content = values.tobytes()
    # One pass in C over the whole column: most columns are ids that need no escaping.
    if len(content.translate(None, _JSON_SPECIAL)) == len(content):
        return values
    if period := find_period(values):
        return np.resize(escape_json(values[:period]), values.shape)
    return np.array([orjson.dumps(text.decode())[1:-1] for text in values.tolist()])


def bounds(count: int, batch: int) -> list[tuple[int, int]]:
    """[start, stop) of each request of `batch` rows."""
    return [(start, min(start + batch, count)) for start in range(0, count, batch)]


def is_constant(data: NDArray[Any]) -> bool:
    """Whether a column has one value for all rows, as `numpy.broadcast_to` makes it."""
    return data.strides == (0,) and len(data) > 0


def all_alike(data: NDArray[np.generic]) -> bool:
    """Whether all values are the same. For texts, numpy's own comparison takes ten times as long."""
    octets, width = octets_of(data).reshape(-1), data.dtype.itemsize
    return bool((octets[width:] == octets[:-width]).all())


def octets_of(data: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The values' bytes, in the shape (values, bytes of one value)."""
    data = np.ascontiguousarray(data)
    return data.view(np.uint8).reshape(len(data), data.dtype.itemsize)


PADDING = b"\0"


class Text(NamedTuple):
    """A part of each row: texts padded with NUL characters."""

    values: NDArray[Any]
    measure: Callable[[], NDArray[np.uint8]] | None = None
    """Returns how many bytes each has, if all its padding is at the end."""
    fixed: bool = False
    """Whether none has padding."""


_SMALL = 10_000
"""Smaller numbers are looked up as texts in a table: four digits."""

_DECIMALS = {b".%df" % places: places for places in range(7)}
"""Formats of floats that numpy can do, with their number of places."""


def write_values(spec: bytes, data: NDArray[Any]) -> list[bytes | Text] | None:
    """Each value as text by a %-format's conversion, in parts that follow each other; a part that is the same
    in every row is bytes. None if numpy can't do it."""
    if spec == b"b" and data.dtype.kind == "S":
        octets = data.view(np.uint8).reshape(len(data), -1) if data.flags.c_contiguous else None
        return [Text(data, fixed=octets is not None and bool(octets[:, -1].all()))]
    if spec == b"b" and data.dtype.kind == "V":
        return [Text(data)]
    if spec == b"d" and data.dtype.kind == "i":
        return _integers(data)
    if spec in _DECIMALS and data.dtype in (np.float32, np.float64):
        return _decimals(data, _DECIMALS[spec])
    return None


def _integers(data: NDArray[np.integer[Any]]) -> list[bytes | Text] | None:
    least, most = int(data.min()), int(data.max())
    if least < 0:
        # The negative of this number doesn't fit into 64 bits.
        if least == -(2**63):
            return None
        return [_sign(data < 0), _digits(np.abs(data.astype(np.int64)))]
    if len(str(least)) == len(str(most)):
        return _equally_wide(data, least, most)
    if most < _SMALL:
        texts, widths = _small()
        return [Text(texts[data], lambda: widths[data])]
    return [_digits(data)]


def _equally_wide(data: NDArray[np.integer[Any]], least: int, most: int) -> list[bytes | Text]:
    """Numbers with the same number of digits: the common leading digits come first."""
    places = 0
    while least // 10**places != most // 10**places:
        places += 4
    width = len(str(most))
    parts: list[bytes | Text] = []
    rest: NDArray[Any] = data
    if places < width:
        common = least // 10**places
        parts.append(b"%d" % common)
        rest = data - common * 10**places
    else:
        places = width
    if places <= 8:
        # 32 bits are divided in half the time.
        rest = rest.astype(np.uint32, copy=False)
    groups: list[bytes | Text] = []
    # Numpy has no three-byte integers, so three digits are read from two tables.
    for size in [4] * (places // 4) + {0: [], 1: [1], 2: [2], 3: [2, 1]}[places % 4]:
        above = rest // 10**size
        index = rest - above * 10**size
        groups.append(Text(_all_with(size, size)[index], fixed=True))
        rest = above
    return parts + groups[::-1]


def _decimals(data: NDArray[np.floating[Any]], places: int) -> list[bytes | Text] | None:
    """Floats with `places` decimals, rounded as `%` does it. A float32 has 24 bits, so its product with
    10**places is exact in a float64, and `rint` breaks ties as `%` does: to even. The product of a float64 is
    rounded itself, by at most half of its last bit: where that might matter, this returns None."""
    unit = 10**places
    exact = np.abs(data).astype(np.float64, copy=False) * unit
    units = np.rint(exact)
    most = float(units.max())
    if not most < 2**53:
        return None
    if data.dtype != np.float32 and places:
        # The last bit of the largest is worth most * 2**-52.
        off = np.abs(exact - units)
        if float(off.max()) >= 0.5 - most * 2.0**-52:
            return None
    negative = np.signbit(data)
    if most < _SMALL and places <= _MOST_PLACES:
        texts, widths = _small_decimals(places)
        index = units.astype(np.intp)
        index += _SMALL * negative
        return [Text(texts[index], lambda: widths[index])]
    signs, whole = _sign(negative), units.astype(np.int64)
    if not places:
        return [signs, _digits(whole)]
    whole, part = np.divmod(whole, unit)
    if places <= 3:
        return [signs, _digits(whole), Text(_all_with(places, 4, b".")[part])]
    above, below = np.divmod(part, 10 ** (places - 3))
    return [
        signs,
        _digits(whole),
        Text(_all_with(3, 4, b".")[above]),
        Text(_all_with(places - 3)[below]),
    ]


def _sign(negative: NDArray[np.bool_]) -> Text:
    return Text(negative.view(np.uint8) * np.uint8(ord("-")))


def _digits(numbers: NDArray[np.integer[Any]]) -> Text:
    """Decimal digits of non-negative numbers: three in each group of four bytes."""
    least, most = int(numbers.min()), int(numbers.max())
    groups = -(-len(str(most)) // 3)
    text = np.empty((len(numbers), groups), dtype=np.uint32)
    rest = numbers
    for group in range(groups):
        table = _triples(group == 0)
        if group == groups - 1:
            index = rest + 1000
        else:
            above = rest // 1000
            index = rest - above * 1000
            if least < 1000 ** (group + 1):
                index += 1000 * (above == 0)
            rest = above
        text[:, groups - 1 - group] = table[index]
    return Text(text.view(f"V{4 * groups}").reshape(len(numbers)))


_MOST_PLACES = 5
"""With this many places, the longest text of a small number has eight bytes: -0.09999."""


@lru_cache(maxsize=1)
def _small() -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.uint8]]:
    """The numbers below `_SMALL`, and how many digits each has."""
    texts = [b"%d" % number for number in range(_SMALL)]
    return _table(texts), np.array(list(map(len, texts)), dtype=np.uint8)


@lru_cache(maxsize=_MOST_PLACES + 1)
def _small_decimals(
    places: int,
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.uint8]]:
    """Numbers with `places` decimals that are below `_SMALL` without their point, and their lengths; then the
    same with a minus sign."""
    plain = []
    for number in range(_SMALL):
        whole, part = divmod(number, 10**places)
        plain.append(b"%d.%0*d" % (whole, places, part) if places else b"%d" % whole)
    texts = plain + [b"-" + text for text in plain]
    return _table(texts, 8), np.array(list(map(len, texts)), dtype=np.uint8)


@lru_cache(maxsize=9)
def _all_with(places: int, size: int = 4, before: bytes = b"") -> NDArray[np.unsignedinteger[Any]]:
    """All numbers with `places` digits, leading zeros included, as texts of `size` bytes (1, 2 or 4)."""
    texts = [before + b"%0*d" % (places, number) for number in range(10**places)]
    return _table(texts, size)


@lru_cache(maxsize=2)
def _triples(are_last: bool) -> NDArray[np.unsignedinteger[Any]]:
    """0 to 999 with leading zeros; then without, for the beginning of a number. 0 begins a number only if it
    is the whole number."""
    begins = [b"%d" % number for number in range(1000)]
    if not are_last:
        begins[0] = b""
    return _table([*(b"%03d" % number for number in range(1000)), *begins])


def _table(texts: Sequence[bytes], size: int = 4) -> NDArray[np.unsignedinteger[Any]]:
    return np.frombuffer(b"".join(text.ljust(size, PADDING) for text in texts), dtype=f"u{size}")
