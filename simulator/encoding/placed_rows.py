"""Rows of text whose parts are put where they belong, one behind the other.

A part that isn't of the same length in each row has its padding behind it, and what follows is written over
that. Copying a part of a row takes some 5 ns, looking through a row for padding 0.3 to 0.6 ns a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .binary_rows import WINDOW_BYTES, RowWindows, Run
from .numerals import PADDING, Text

_MOST_UNEVEN = 2
"""With more parts that differ in length, `TextRows` is as fast."""


class _Segment(NamedTuple):
    """Parts of a row of which only the last may have padding."""

    run: Run
    widths: NDArray[np.uint8] | None
    """The bytes of the last part; None if there is no padding."""
    fixed_bytes: int
    """The bytes of the other parts."""

    @property
    def least_bytes(self) -> int:
        return self.fixed_bytes + (0 if self.widths is None else int(self.widths.min()))


class PlacedRows(RowWindows):
    """Rows of text with few parts that differ in length.

    As with `BinaryRows`, rows are made some at a time, and in arrays that are kept.
    """

    @classmethod
    def of(cls, pieces: Sequence[bytes | Text], count: int) -> PlacedRows | None:
        """The rows; None if it can't be done, or isn't worth it. `pieces`: of a row, the separator first."""
        uneven = sum(isinstance(piece, Text) and not piece.fixed for piece in pieces)
        segments = _divide(pieces) if uneven <= _MOST_UNEVEN else None
        if segments is None:
            return None
        following_bytes = 0
        for place, segment in reversed(list(enumerate(segments))):
            # The first segment of the next row is written earlier than all others.
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
        # What begins at each byte and has a segment's length.
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
    """The row in segments; None if there is padding that nobody knows."""
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
