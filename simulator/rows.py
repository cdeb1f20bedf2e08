"""Rows of bytes from columns, for all rows at once: binary ones, and texts by a %-format.

Nothing here is done per event in Python: numpy fills records, and what is of different length in each
row is joined with them, or padded and the padding deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoding import Columns, bool_texts, bounds, is_constant, octets_of
from .workloads.base import Column, ColumnType

# Rows made at once: so many bytes stay in a core's own cache until they have been copied into requests.
_WINDOW_BYTES = 1 << 18


_BIG_ENDIAN = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
    ColumnType.FLOAT64: ">f8",
    ColumnType.BOOL: "?",
}

NULL_LENGTH = -1
"""Of a value that isn't there: what PostgreSQL and CQL call NULL."""


class BinaryRows:
    """Each row: a prefix, for each value its length, an int32, and the value, both big-endian; a suffix.

    PostgreSQL's binary COPY wants rows like that, and CQL's binary protocol a query's values.
    `prefix` is one for all rows, or an array with one for each, which is read when rows are asked for.
    `json_prefix` is part of the value. A TEXT column of numpy's type `V` holds arbitrary bytes, all values
    of the same length.

    Rows are made when they are asked for, some at a time. What is of fixed length is one numpy record
    array, in which a column that has one value for all rows (`is_constant`) and known lengths stay.
    Texts of different lengths stand between two such arrays and are joined with them, and so does a
    column with `missing` values: they have no bytes, and `missing_length` for a length.

    The arrays are kept, as filling fresh memory would cost twice as much. So a thread must be done
    with one object's rows before it asks another one for some.
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
        runs = [_Run()]
        self.lengths: NDArray[np.int64] | int = 0
        """Bytes of each row; one number if all have the same."""
        self._texts: list[tuple[NDArray[Any], NDArray[np.bool_] | None]] = []
        """What stands behind each run but the last: values of different lengths, and which aren't there."""
        if isinstance(prefix, bytes):
            runs[0].keep(prefix)
        else:
            runs[0].take(prefix.dtype.str, prefix)
        for column in names:
            data = values[column.name]
            kind = _BIG_ENDIAN.get(column.type) or data.dtype.str
            before = json_prefix if column.type is ColumnType.JSON else b""
            gone = missing.get(column.name)
            if gone is not None and gone.any():
                data, sizes = _with_sizes(data, kind, before)
                self.lengths = self.lengths + np.where(gone, 0, sizes)
                runs[-1].take(">i4", np.where(gone, missing_length, sizes))
                runs.append(_Run())
                self._texts.append((data, gone))
            elif data.dtype.kind == "S" and is_constant(data):
                text = before + data[0]
                runs[-1].keep(_length(len(text)) + text)
            elif data.dtype.kind == "S" and not _fills(data):
                lengths = np.char.str_len(data)
                self.lengths = self.lengths + lengths
                runs[-1].take(">i4", lengths + len(before))
                runs[-1].keep(before)
                runs.append(_Run())
                self._texts.append((data, None))
            else:
                runs[-1].keep(_length(np.dtype(kind).itemsize + len(before)) + before)
                runs[-1].take(kind, data)
        runs[-1].keep(suffix)
        fixed = sum(run.bytes for run in runs)
        self.lengths = self.lengths + fixed
        width = fixed + sum(text.dtype.itemsize for text, _ in self._texts)
        self._window = max(1, _WINDOW_BYTES // width)
        self._arrays = [run.records(self._window, n) for n, run in enumerate(runs) if run.bytes]
        self._moving = [
            (records[name], data)
            for run, records in zip(runs, self._arrays, strict=False)
            for name, data in run.moving
        ]
        self._begin = self._end = 0
        """Which rows the arrays hold."""
        self._pieces: list[bytes] = []
        """Their parts in order, if there are texts of different lengths."""

    def join(self, start: int, stop: int, head: bytes = b"", tail: bytes = b"") -> bytes:
        """The bytes of rows [start, stop) between `head` and `tail`."""
        parts = [head]
        while start < stop:
            if not self._begin <= start < self._end:
                self._fill(start)
            if stop <= self._end:
                return b"".join((*parts, self._part(start, stop), tail))
            parts.append(bytes(self._part(start, self._end)))
            start = self._end
        return b"".join((*parts, tail))

    def singles(self) -> list[bytes]:
        """Each row on its own."""
        rows: list[bytes] = []
        for start in range(0, self._count, self._window):
            self._fill(start)
            if not self._texts:
                rows += _blobs(self._arrays[0], self._end - start)
            else:
                width = len(self._pieces) // (self._end - start)
                rows += [
                    b"".join(self._pieces[first : first + width])
                    for first in range(0, len(self._pieces), width)
                ]
        return rows

    def _fill(self, start: int) -> None:
        """Make rows from `start` on, as many as there is room for."""
        count = min(self._window, self._count - start)
        self._begin, self._end = start, start + count
        for field, data in self._moving:
            field[:count] = data[start : start + count]
        if not self._texts:
            return
        parts: list[list[bytes]] = [[]] * (len(self._arrays) + len(self._texts))
        parts[0::2] = [_blobs(records, count) for records in self._arrays]
        parts[1::2] = [_values(*text, start, start + count) for text in self._texts]
        self._pieces = [b""] * (len(parts) * count)
        for position, part in enumerate(parts):
            self._pieces[position :: len(parts)] = part

    def _part(self, start: int, stop: int) -> bytes | memoryview:
        """The bytes of rows that the arrays hold."""
        first, last = start - self._begin, stop - self._begin
        if not self._texts:
            return self._arrays[0][first:last].view(np.uint8).data
        width = len(self._pieces) // (self._end - self._begin)
        return b"".join(self._pieces[first * width : last * width])


def _with_sizes(
    data: NDArray[Any], kind: str, before: bytes
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Values as bytes with what stands before each, and how many bytes each has."""
    if data.dtype.kind == "S":
        data = np.char.add(np.bytes_(before), data)
        return data, np.char.str_len(data)
    data = np.ascontiguousarray(data.astype(kind)).view(f"V{np.dtype(kind).itemsize}")
    return data, np.full(len(data), data.dtype.itemsize)


def _values(
    data: NDArray[Any], gone: NDArray[np.bool_] | None, start: int, stop: int
) -> list[bytes]:
    """The bytes of each value; none of those that aren't there."""
    values: list[bytes] = data[start:stop].tolist()
    if gone is not None:
        for row in np.flatnonzero(gone[start:stop]).tolist():
            values[row] = b""
    return values


# --- texts ----------------------------------------------------------------------------------------

# No UTF-8 has this byte.
ROW_SEPARATOR = b"\xff"
"""Stands between rows that are taken apart again."""

_PADDING = b"\0"

# Fewer rows are formatted by `%`: what numpy takes for each of its many operations would be as much.
_FEW_ROWS = 1000

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
    run = _Run()
    run.keep(before)
    for text in texts:
        run.take(text.dtype.str, text)
    run.keep(behind)
    records = run.new_records(len(data))
    for name, values in run.moving:
        records[name] = values
    return records.view(f"V{run.bytes}")


def format_requests(
    row: bytes, separator: bytes, columns: Sequence[NDArray[Any]], size: int
) -> list[bytes]:
    """What `format_rows` makes, for `size` rows after the other."""
    spans = bounds(len(columns[0]), size)
    rows = TextRows.of(row, separator, columns) if len(columns[0]) >= _FEW_ROWS else None
    if rows is not None:
        return [rows.join(start, stop) for start, stop in spans]
    lists = [
        [text.translate(None, _PADDING) for text in column.tolist()]
        if column.dtype.kind == "V"
        else column.tolist()
        for column in columns
    ]
    return [
        separator.join(
            _format_some(row, separator, [values[start:stop][first:last] for values in lists])
            for first, last in bounds(stop - start, _ROWS_AT_ONCE)
        )
        for start, stop in spans
    ]


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
        run = _Run()
        constant = separator + literals[0]
        for literal, spec, data in zip(literals[1:], specs, columns, strict=True):
            if spec == b"b" and is_constant(data):
                constant += data[0]
            else:
                texts = _texts(spec, data)
                if texts is None:
                    return None
                run.keep(constant)
                for text in texts:
                    run.take(text.dtype.str, text)
                constant = b""
            constant += literal
        run.keep(constant)
        return cls(run, len(columns[0]), len(separator))

    def __init__(self, run: _Run, count: int, separator_bytes: int) -> None:
        self._count = count
        self._separator_bytes = separator_bytes
        self._window = max(1, _WINDOW_BYTES // run.bytes)
        self._records = run.records(self._window, 0)
        self._moving = [(self._records[name], data) for name, data in run.moving]
        self._begin = self._end = 0

    def join(self, start: int, stop: int) -> bytes:
        """Rows [start, stop) with the separator between them."""
        parts = []
        # Each record begins with a separator, which the first row is to be without.
        skip = self._separator_bytes
        while start < stop:
            if not self._begin <= start < self._end:
                self._fill(start)
            end = min(stop, self._end)
            records = self._records[start - self._begin : end - self._begin]
            parts.append(records.view(np.uint8)[skip:].tobytes().translate(None, _PADDING))
            start, skip = end, 0
        return b"".join(parts)

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


# --- records --------------------------------------------------------------------------------------


class _Run:
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

    def new_records(self, count: int) -> NDArray[np.void]:
        """As `records`, but an array of its own."""
        return _make_records(self._fields, count)


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


def _length(octets: int) -> bytes:
    return octets.to_bytes(4, "big")


def _blobs(records: NDArray[np.void], count: int) -> list[bytes]:
    """The first `count` records, each as its bytes."""
    found: list[bytes] = records[:count].view(f"V{records.dtype.itemsize}").tolist()
    return found


def _fills(data: NDArray[np.generic]) -> bool:
    """Whether every text is as long as the column is wide (numpy pads with NUL)."""
    return bool(octets_of(data)[:, -1].all())
