"""Numbers as texts, many at once, by tables of what their digits are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PADDING = b"\0"


class Text(NamedTuple):
    """A part of each row: texts that are filled up with NUL characters."""

    values: NDArray[Any]
    measure: Callable[[], NDArray[np.uint8]] | None = None
    """Tells how many bytes each has, if all its padding is behind them."""
    fixed: bool = False
    """Whether none has padding."""


_SMALL = 10_000
"""Numbers below have texts of their own in a table: four digits."""

_DECIMALS = {b".%df" % places: places for places in range(7)}
"""Formats of floats that numpy can do, and how many places each has."""


def write_values(spec: bytes, data: NDArray[Any]) -> list[bytes | Text] | None:
    """Each value as text by the conversion of a %-format, in parts, one behind the other; a part that is the
    same in each is bytes. None if numpy can't do it."""
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
        # The opposite of this number doesn't fit into 64 bits.
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
    """Numbers with the same number of digits: first the digits that all have in common."""
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
    # Numpy has no numbers of three bytes, whose tables are read as fast.
    for size in [4] * (places // 4) + {0: [], 1: [1], 2: [2], 3: [2, 1]}[places % 4]:
        above = rest // 10**size
        index = rest - above * 10**size
        groups.append(Text(_zero_padded(size)[index], fixed=True))
        rest = above
    return parts + groups[::-1]


def _decimals(data: NDArray[np.floating[Any]], places: int) -> list[bytes | Text] | None:
    """Floats with `places` decimals, rounded as `%` does it.

    A float32 has 24 bits, so its product with 10**places is exact in a float64, and `rint` decides ties
    as `%` does: for the even one. The product of a float64 is rounded itself, by half of its last bit at
    most: where that might matter, nothing is decided here.
    """
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
        return [signs, _digits(whole), Text(_fractions(places)[part])]
    above, below = np.divmod(part, 10 ** (places - 3))
    return [
        signs,
        _digits(whole),
        Text(_fractions(3)[above]),
        Text(_leading_zeros(places - 3)[below]),
    ]


def _sign(negative: NDArray[np.bool_]) -> Text:
    return Text(negative.view(np.uint8) * np.uint8(ord("-")))


def _digits(numbers: NDArray[np.integer[Any]]) -> Text:
    """Decimal digits of numbers that aren't negative: three in each group of four bytes."""
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
"""With so many, the longest text of a small number has eight bytes: -0.09999."""


@lru_cache(maxsize=1)
def _small() -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """The numbers below `_SMALL`, and how many digits each has."""
    texts = [b"%d" % number for number in range(_SMALL)]
    return _table(texts), np.array(list(map(len, texts)), dtype=np.uint8)


@lru_cache(maxsize=_MOST_PLACES + 1)
def _small_decimals(places: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Numbers with `places` decimals that are below `_SMALL` without their point, and how long each is; then
    the same with a minus sign."""
    plain = []
    for number in range(_SMALL):
        whole, part = divmod(number, 10**places)
        plain.append(b"%d.%0*d" % (whole, places, part) if places else b"%d" % whole)
    texts = plain + [b"-" + text for text in plain]
    padded = b"".join(text.ljust(8, PADDING) for text in texts)
    widths = np.array(list(map(len, texts)), dtype=np.uint8)
    return np.frombuffer(padded, dtype=np.uint64), widths


@lru_cache(maxsize=3)
def _zero_padded(places: int) -> NDArray[np.unsignedinteger[Any]]:
    """The numbers with `places` digits: 1, 2 or 4."""
    texts = [b"%0*d" % (places, number) for number in range(10**places)]
    return np.frombuffer(b"".join(texts), dtype=f"u{places}")


@lru_cache(maxsize=2)
def _triples(are_last: bool) -> NDArray[np.uint32]:
    """0 to 999 with leading zeros, then without, for the beginning of a number; 0 is no beginning unless
    it is all there is."""
    begins = [b"%d" % number for number in range(1000)]
    if not are_last:
        begins[0] = b""
    return _table([*(b"%03d" % number for number in range(1000)), *begins])


@lru_cache(maxsize=3)
def _fractions(places: int) -> NDArray[np.uint32]:
    """The point and `places` decimals, three at most."""
    return _table([b".%0*d" % (places, number) for number in range(10**places)])


@lru_cache(maxsize=3)
def _leading_zeros(places: int) -> NDArray[np.uint32]:
    """Numbers with `places` digits, three at most."""
    return _table([b"%0*d" % (places, number) for number in range(10**places)])


def _table(texts: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(text.ljust(4, PADDING) for text in texts), dtype=np.uint32)
