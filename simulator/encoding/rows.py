"""Rows of text, made from columns by a %-format for all rows at once.

Nothing here is done per event in Python: numpy fills records in which values of varying length are padded,
and the padding is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from ..workloads.schema import Column, ColumnType, EventBlock
from .binary_rows import WINDOW_BYTES, RowWindows, Run
from .columns import (
    PADDING,
    Text,
    bool_texts,
    bounds,
    escape,
    escape_json,
    is_constant,
    text_format,
    write_values,
)

# UTF-8 doesn't use this byte.
ROW_SEPARATOR = b"\xff"
"""Separates rows that will be split again."""

# Nor this one.
_MARK = b"\xfe"
"""Stands for the longest constant text of a row while padding is deleted: looking for padding costs some 0.6
ns a byte, and inserting the text a tenth of that."""

_MARKED_BYTES = 48
"""Shorter texts aren't worth it."""

# Fewer rows are formatted by `%`: numpy's cost for its many operations would be as high.
_FEW_ROWS = 400

# How many rows one operation formats: no other thread runs meanwhile, for some 70 µs.
_ROWS_AT_ONCE = 256


def format_rows(row: bytes, separator: bytes, columns: Sequence[NDArray[Any]]) -> bytes:
    """`row` % the values, once per row, joined by `separator`. `row` has %b for texts, %d for integers, %.2f
    or similar for floats. All columns have the same length. Texts are UTF-8 without NUL characters, or those
    of `text_values`."""
    (text,) = format_requests(row, separator, columns, max(1, len(columns[0]))) or [b""]
    return text


def format_singles(row: bytes, columns: Sequence[NDArray[Any]]) -> list[bytes]:
    """`row` % the values of each row; see `format_rows`."""
    return format_rows(row, ROW_SEPARATOR, columns).split(ROW_SEPARATOR)


def format_lines(line: bytes, columns: Sequence[NDArray[Any]], batch: int) -> list[bytes]:
    """Requests of `batch` lines each; 0: single lines without a line break."""
    return format_requests(line, b"\n", columns, batch) if batch else format_singles(line, columns)


def text_form(column: Column, form: bytes) -> bytes:
    """The %-format within a row for a column whose values `text_values` writes in `form`."""
    return b"%b" if column.nullable else form


def text_values(
    column: Column,
    form: bytes,
    data: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    null: bytes,
) -> NDArray[Any]:
    """A column's values for `text_form`: texts if it is nullable, with `null` for missing values. They are of
    numpy's type `V` if NUL characters in them don't belong to the texts."""
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


@dataclass(frozen=True)
class TextFormat:
    """How a text format writes its columns."""

    form: Callable[[Column], bytes]
    """The %-format of a present value."""
    prepare: Callable[[Column, NDArray[Any]], NDArray[Any]]
    """A column's values as the %-format takes them, for example escaped."""
    null: bytes
    """Stands for a missing value."""

    def list_forms(self, columns: Sequence[Column]) -> list[bytes]:
        """The %-formats of columns written by `write`."""
        return [text_form(column, self.form(column)) for column in columns]

    def write(
        self,
        columns: Sequence[Column],
        values: Mapping[str, NDArray[Any]],
        missing: Mapping[str, NDArray[np.bool_]],
    ) -> list[NDArray[Any]]:
        """The columns' values, taken from `values` by name. `missing` as in `EventBlock`."""
        written = []
        for column in columns:
            own = self.prepare(column, values[column.name])
            places = missing.get(column.name)
            written.append(text_values(column, self.form(column), own, places, self.null))
        return written


def _pad(form: bytes, data: NDArray[Any]) -> NDArray[np.void] | None:
    """`form` % each value, of numpy's type `V`: NUL characters in it don't belong to the text. None if only
    Python can format the values."""
    (before, behind), (spec,) = _parse(form)
    pieces = write_values(spec, data)
    if pieces is None:
        return None
    run = Run()
    for piece in (before, *pieces, behind):
        if isinstance(piece, bytes):
            run.keep(piece)
        else:
            run.take(piece.values.dtype.str, piece.values)
    return run.fill(len(data))


def format_requests(
    row: bytes, separator: bytes, columns: Sequence[NDArray[Any]], size: int
) -> list[bytes]:
    """The result of `format_rows` for `size` rows at a time."""
    spans = bounds(len(columns[0]), size)
    count = len(columns[0])
    if count >= _FEW_ROWS and (pieces := find_pieces(row, separator, columns)) is not None:
        rows = PlacedRows.of(pieces, count) or TextRows(pieces, count)
        return [b"".join(rows.parts(start, stop)) for start, stop in spans]
    lists = [
        [text.translate(None, PADDING) for text in column.tolist()]
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


def find_pieces(
    row: bytes, separator: bytes, columns: Sequence[NDArray[Any]]
) -> list[bytes | Text] | None:
    """The parts of a row, the separator first; None if there is a value that only Python can format."""
    literals, specs = _parse(row)
    pieces: list[bytes | Text] = [separator]
    constant = literals[0]
    for literal, spec, data in zip(literals[1:], specs, columns, strict=True):
        if spec == b"b" and is_constant(data):
            constant += data[0]
        else:
            texts = write_values(spec, data)
            if texts is None:
                return None
            for text in texts:
                if isinstance(text, bytes):
                    constant += text
                else:
                    pieces += [constant, text]
                    constant = b""
        constant += literal
    return [*pieces, constant]


class TextRows(RowWindows):
    """Rows of text: records in which each value has as much room as the longest may need, padded with NUL
    characters that are deleted when rows are fetched. As in `BinaryRows`, rows are made some at a time in
    reused arrays."""

    def __init__(self, pieces: Sequence[bytes | Text], count: int) -> None:
        """`pieces` of a row: constant texts, the separator first, and columns of texts."""
        constants = [piece for piece in pieces if isinstance(piece, bytes)]
        longest = max(constants[1:], key=len)
        self._marked = longest if len(longest) >= _MARKED_BYTES else b""
        run = Run()
        for piece in pieces:
            if not isinstance(piece, bytes):
                run.take(piece.values.dtype.str, piece.values)
            elif piece and piece == self._marked:
                run.keep(_MARK)
            else:
                run.keep(piece)
        window = max(1, WINDOW_BYTES // (run.bytes + len(self._marked)))
        self._records = run.records(window, 0)
        moving = [(self._records[name], data) for name, data in run.moving]
        super().__init__(count, window, len(constants[0]), moving)

    def _join(self, start: int, stop: int, skip: int) -> bytes:
        records = self._records[start - self._begin : stop - self._begin]
        text = records.view(np.uint8)[skip:].tobytes().translate(None, PADDING)
        return text.replace(_MARK, self._marked) if self._marked else text


_SPEC = re.compile(rb"%(b|d|\.[0-9]+[fg]|%)")


@lru_cache(maxsize=64)
def _parse(row: bytes) -> tuple[list[bytes], list[bytes]]:
    """The constant parts around the values of a %-format (one more than values), and each value's format."""
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


# --- events as JSON objects, one on a line ---------------------------------------------------------


def _json_form(column: Column) -> bytes:
    form = text_format(column)
    return b'"' + form + b'"' if column.type is ColumnType.TEXT else form


def _prepare_json(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    if column.type is ColumnType.TEXT:
        return escape_json(values)
    if column.type is ColumnType.JSON:
        # Line breaks mean nothing outside strings; within strings they are escaped.
        return escape(values, ((b"\n", b" "), (b"\r", b" ")))
    return values


JSON_FORMAT = TextFormat(_json_form, _prepare_json, b"null")


def json_object_format(columns: Sequence[Column]) -> bytes:
    """The %-format of an object with the columns as members, on one line. Takes the columns in the form of
    `json_columns`."""
    members = [
        orjson.dumps(column.name).replace(b"%", b"%%") + b":" + form
        for column, form in zip(columns, JSON_FORMAT.list_forms(columns), strict=True)
    ]
    return b"{" + b",".join(members) + b"}"


def json_columns(block: EventBlock) -> list[NDArray[Any]]:
    """The columns of the events' rows, in order, for `json_object_format`; `null` for missing values."""
    return JSON_FORMAT.write(block.schema.row, block.row_columns, block.missing)


_MOST_UNEVEN = 2
"""With more parts of varying length, `TextRows` is as fast as `PlacedRows`."""


class _Segment(NamedTuple):
    """Parts of a row of which only the last may have padding."""

    run: Run
    widths: NDArray[np.uint8] | None
    """How many bytes the last part has in each row; None if it has no padding."""
    fixed_bytes: int
    """How many bytes the other parts have."""

    @property
    def least_bytes(self) -> int:
        return self.fixed_bytes + (0 if self.widths is None else int(self.widths.min()))


class PlacedRows(RowWindows):
    """Rows of text with few parts of varying length: each part is copied to its place with its padding, which
    the next part overwrites. Copying a part takes some 5 ns, looking for padding in a row 0.3 to 0.6 ns a
    byte."""

    @classmethod
    def of(cls, pieces: Sequence[bytes | Text], count: int) -> PlacedRows | None:
        """The rows; None if it is impossible or not worth it. `pieces`: of a row, the separator first."""
        uneven = sum(isinstance(piece, Text) and not piece.fixed for piece in pieces)
        segments = _divide(pieces) if uneven <= _MOST_UNEVEN else None
        if segments is None:
            return None
        following_bytes = 0
        for place, segment in reversed(list(enumerate(segments))):
            # The next row's first segment is written before all others.
            if place and segment.run.bytes - segment.least_bytes > following_bytes:
                return None
            following_bytes += segment.least_bytes
        first = pieces[0]
        assert isinstance(first, bytes)
        return cls(segments, count, len(first))

    def __init__(self, segments: Sequence[_Segment], count: int, separator_bytes: int) -> None:
        self._segments = segments
        row_bytes = sum(segment.run.bytes for segment in segments)
        window = max(1, WINDOW_BYTES // row_bytes)
        self._records = [
            segment.run.records(window, place) for place, segment in enumerate(segments)
        ]
        moving = [
            (records[name], data)
            for records, segment in zip(self._records, segments, strict=True)
            for name, data in segment.run.moving
        ]
        super().__init__(count, window, separator_bytes, moving)
        if all(segment.widths is None for segment in segments):
            return
        lengths = np.full(count, sum(segment.fixed_bytes for segment in segments))
        for segment in segments:
            if segment.widths is not None:
                lengths += segment.widths
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        longest = max(segment.run.bytes for segment in segments)
        self._text = np.empty(window * row_bytes + longest, dtype=np.uint8)
        # Views of the buffer: at each byte begins an item as long as the segment.
        self._places = [
            np.ndarray(
                (len(self._text) - segment.run.bytes + 1,),
                dtype=f"V{segment.run.bytes}",
                buffer=self._text,
                strides=(1,),
            )
            for segment in segments
        ]

    def _join(self, start: int, stop: int, skip: int) -> bytes:
        some = slice(start - self._begin, stop - self._begin)
        if len(self._segments) == 1 and self._segments[0].widths is None:
            return self._records[0][some].view(np.uint8)[skip:].tobytes()
        first = self._starts[start]
        at = self._starts[start:stop] - first
        for segment, records, places in zip(
            self._segments, self._records, self._places, strict=True
        ):
            places[at] = records[some].view(places.dtype)
            at += segment.fixed_bytes
            if segment.widths is not None:
                at += segment.widths[start:stop]
        return self._text[skip : self._ends[stop - 1] - first].tobytes()


def _divide(pieces: Sequence[bytes | Text]) -> list[_Segment] | None:
    """The row in segments; None if the padding of some part isn't known."""
    segments, run = [], Run()
    for piece in pieces:
        if isinstance(piece, bytes):
            if PADDING in piece:
                return None
            run.keep(piece)
            continue
        if not piece.fixed and piece.measure is None:
            return None
        fixed_bytes = run.bytes
        run.take(piece.values.dtype.str, piece.values)
        if piece.measure is not None:
            segments.append(_Segment(run, piece.measure(), fixed_bytes))
            run = Run()
    if run.bytes:
        segments.append(_Segment(run, None, run.bytes))
    return segments
