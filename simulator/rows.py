"""Rows of text from columns, by a %-format, for all rows at once.

Nothing here is done per event in Python: numpy fills records, in which what is of different length in each
row is padded, and the padding is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoding import bool_texts, bounds, is_constant
from .records import WINDOW_BYTES, Run
from .workloads.base import Column, ColumnType

# No UTF-8 has this byte.
ROW_SEPARATOR = b"\xff"
"""Stands between rows that are taken apart again."""

_PADDING = b"\0"

# Nor this one.
_MARK = b"\xfe"
"""Stands for the longest of the texts that are the same in each row, while padding is deleted: looking
through it for padding costs some 0.6 ns a byte, putting it in a tenth of that."""

_MARKED_BYTES = 48
"""A shorter one isn't worth it."""

# Fewer rows are formatted by `%`: what numpy takes for each of its many operations would be as much.
_FEW_ROWS = 400

# Rows formatted by one operation, during which no other thread runs: some 70 µs.
_ROWS_AT_ONCE = 256


def format_rows(row: bytes, separator: bytes, columns: Sequence[NDArray[Any]]) -> bytes:
    """`row` % the values, once per row, joined by `separator`.

    `row` has %b for texts, %d for integers, %.2f or the like for floats. All columns are of the same
    length. Texts are UTF-8 without NUL characters, or those of `text_values`.
    """
    (text,) = format_requests(row, separator, columns, max(1, len(columns[0]))) or [b""]
    return text


def format_singles(row: bytes, columns: Sequence[NDArray[Any]]) -> list[bytes]:
    """`row` % the values of each row; see `format_rows`."""
    return format_rows(row, ROW_SEPARATOR, columns).split(ROW_SEPARATOR)


def text_form(column: Column, form: bytes) -> bytes:
    """How a row has a column whose values are written in `form`, as `text_values` gives them."""
    return b"%b" if column.nullable else form


def text_values(
    column: Column,
    form: bytes,
    data: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    null: bytes,
) -> NDArray[Any]:
    """A column's values for `text_form`: of a nullable one texts, `null` where a value is missing. They
    are of numpy's type `V` if NUL characters among their bytes are none of the texts'."""
    if column.type is ColumnType.BOOL:
        data = bool_texts(data)
    if not column.nullable or not len(data):
        return data
    texts = _pad(form, data)
    if texts is None:
        texts = np.array(format_singles(form, [data]))
    if missing is None or not missing.any():
        return texts
    if texts.dtype.itemsize < len(null):
        texts = texts.astype(f"{texts.dtype.kind}{len(null)}")
    texts[missing] = null if texts.dtype.kind == "S" else np.void(null.ljust(texts.itemsize, b"\0"))
    return texts


def _pad(form: bytes, data: NDArray[Any]) -> NDArray[np.void] | None:
    """`form` % each value, of numpy's type `V`: NUL characters among its bytes are none of the text's.
    None if only Python can format them."""
    (before, behind), (spec,) = _parse(form)
    texts = _texts(spec, data)
    if texts is None:
        return None
    run = Run()
    run.keep(before)
    for text in texts:
        run.take(text.dtype.str, text)
    run.keep(behind)
    records = run.new_records(len(data))
    for name, values in run.moving:
        records[name] = values
    return records.view(f"V{run.bytes}")


Frame = Callable[[int], tuple[bytes, bytes]]
"""What stands before and behind rows of so many bytes."""


def no_frame(_length: int) -> tuple[bytes, bytes]:
    """Nothing."""
    return b"", b""


def format_requests(
    row: bytes,
    separator: bytes,
    columns: Sequence[NDArray[Any]],
    size: int,
    frame: Frame = no_frame,
) -> list[bytes]:
    """What `format_rows` makes, for `size` rows after the other, each framed."""
    spans = bounds(len(columns[0]), size)
    rows = TextRows.of(row, separator, columns) if len(columns[0]) >= _FEW_ROWS else None
    if rows is not None:
        return [_join(rows.parts(start, stop), frame) for start, stop in spans]
    lists = [
        [text.translate(None, _PADDING) for text in column.tolist()]
        if column.dtype.kind == "V"
        else column.tolist()
        for column in columns
    ]
    texts = (
        separator.join(
            _format_some(row, separator, [values[start:stop][first:last] for values in lists])
            for first, last in bounds(stop - start, _ROWS_AT_ONCE)
        )
        for start, stop in spans
    )
    return [_join([text], frame) for text in texts]


def _join(parts: Sequence[bytes], frame: Frame) -> bytes:
    """The parts of one request, framed."""
    before, behind = frame(sum(map(len, parts)))
    return b"".join((before, *parts, behind))


def _format_some(row: bytes, separator: bytes, columns: Sequence[Sequence[Any]]) -> bytes:
    width, count = len(columns), len(columns[0])
    values: list[Any] = [None] * (width * count)
    for position, column in enumerate(columns):
        values[position::width] = column
    return _repeat(row, separator, count) % tuple(values)


@lru_cache(maxsize=8)
def _repeat(row: bytes, separator: bytes, count: int) -> bytes:
    return separator.join([row] * count)


class TextRows:
    """Rows of text: records in which each value has as much room as the longest may need, filled up with
    NUL characters, which are deleted when the rows are fetched.

    As with `BinaryRows`, rows are made some at a time, and in arrays that are kept.
    """

    @classmethod
    def of(cls, row: bytes, separator: bytes, columns: Sequence[NDArray[Any]]) -> TextRows | None:
        """None if there is a value that only Python can format."""
        literals, specs = _parse(row)
        pieces: list[bytes | NDArray[Any]] = [separator]
        constant = literals[0]
        for literal, spec, data in zip(literals[1:], specs, columns, strict=True):
            if spec == b"b" and is_constant(data):
                constant += data[0]
            else:
                texts = _texts(spec, data)
                if texts is None:
                    return None
                pieces += [constant, *texts]
                constant = b""
            constant += literal
        return cls([*pieces, constant], len(columns[0]))

    def __init__(self, pieces: Sequence[bytes | NDArray[Any]], count: int) -> None:
        """`pieces` of a row: what is the same in each, the separator first, and columns of texts."""
        constants = [piece for piece in pieces if isinstance(piece, bytes)]
        longest = max(constants[1:], key=len)
        self._marked = longest if len(longest) >= _MARKED_BYTES else b""
        run = Run()
        for piece in pieces:
            if not isinstance(piece, bytes):
                run.take(piece.dtype.str, piece)
            elif piece and piece == self._marked:
                run.keep(_MARK)
            else:
                run.keep(piece)
        self._count = count
        self._separator_bytes = len(constants[0])
        self._window = max(1, WINDOW_BYTES // (run.bytes + len(self._marked)))
        self._records = run.records(self._window, 0)
        self._moving = [(self._records[name], data) for name, data in run.moving]
        self._begin = self._end = 0

    def parts(self, start: int, stop: int) -> list[bytes]:
        """Rows [start, stop) with the separator between them, to be joined."""
        parts = []
        # Each record begins with a separator, which the first row is to be without.
        skip = self._separator_bytes
        while start < stop:
            if not self._begin <= start < self._end:
                self._fill(start)
            end = min(stop, self._end)
            records = self._records[start - self._begin : end - self._begin]
            text = records.view(np.uint8)[skip:].tobytes().translate(None, _PADDING)
            parts.append(text.replace(_MARK, self._marked) if self._marked else text)
            start, skip = end, 0
        return parts

    def _fill(self, start: int) -> None:
        count = min(self._window, self._count - start)
        self._begin, self._end = start, start + count
        for field, data in self._moving:
            field[:count] = data[start : start + count]


_DECIMALS = {b".%df" % places: places for places in range(7)}
"""Formats of floats that numpy can do, and how many places each has."""

_SPEC = re.compile(rb"%(b|d|\.[0-9]+[fg]|%)")


@lru_cache(maxsize=64)
def _parse(row: bytes) -> tuple[list[bytes], list[bytes]]:
    """What stands around the values of a %-format (one more than values), and how each is formatted."""
    literals, specs = [b""], []
    for position, part in enumerate(_SPEC.split(row)):
        if position % 2 == 0:
            assert b"%" not in part, row
            literals[-1] += part
        elif part == b"%":
            literals[-1] += b"%"
        else:
            specs.append(part)
            literals.append(b"")
    return literals, specs


def _texts(spec: bytes, data: NDArray[Any]) -> list[NDArray[Any]] | None:
    """What each value is as text, one behind the other and padded; None if numpy can't tell."""
    if spec == b"b" and data.dtype.kind in "SV":
        return [data]
    if spec == b"d" and data.dtype.kind == "i":
        return _integers(data)
    if spec in _DECIMALS and data.dtype in (np.float32, np.float64):
        return _decimals(data, _DECIMALS[spec])
    return None


def _integers(data: NDArray[np.integer[Any]]) -> list[NDArray[Any]] | None:
    least = int(data.min())
    if least >= 0:
        return [_digits(data)]
    # This number's opposite isn't one of 64 bits.
    if least == -(2**63):
        return None
    return [_sign(data < 0), _digits(np.abs(data.astype(np.int64)))]


def _decimals(data: NDArray[np.floating[Any]], places: int) -> list[NDArray[Any]] | None:
    """Floats with so many places, rounded as `%` does it.

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
    signs = _sign(np.signbit(data))
    whole = units.astype(np.int64)
    if not places:
        return [signs, _digits(whole)]
    whole, part = np.divmod(whole, unit)
    if places <= 3:
        return [signs, _digits(whole), _fractions(places)[part]]
    above, below = np.divmod(part, 10 ** (places - 3))
    return [signs, _digits(whole), _fractions(3)[above], _leading_zeros(places - 3)[below]]


def _sign(negative: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return negative.view(np.uint8) * np.uint8(ord("-"))


def _digits(numbers: NDArray[np.integer[Any]]) -> NDArray[np.void]:
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
    return text.view(f"V{4 * groups}").reshape(len(numbers))


@lru_cache(maxsize=2)
def _triples(are_last: bool) -> NDArray[np.uint32]:
    """0 to 999 with leading zeros, then without, for the begin of a number; 0 is no begin unless it is
    all there is."""
    begins = [b"%d" % number for number in range(1000)]
    if not are_last:
        begins[0] = b""
    return _table([*(b"%03d" % number for number in range(1000)), *begins])


@lru_cache(maxsize=3)
def _fractions(places: int) -> NDArray[np.uint32]:
    """The point and so many decimals, three at most."""
    return _table([b".%0*d" % (places, number) for number in range(10**places)])


@lru_cache(maxsize=3)
def _leading_zeros(places: int) -> NDArray[np.uint32]:
    """Numbers with so many digits, three at most."""
    return _table([b"%0*d" % (places, number) for number in range(10**places)])


def _table(texts: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(text.ljust(4, _PADDING) for text in texts), dtype=np.uint32)
