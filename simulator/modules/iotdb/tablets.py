"""Tablets of the table model: events as columns of bytes, as IoTDB's `insertTablet` takes them.

A column's values stand one after the other, big-endian; a text has its length before it. Where values are
missing, a bit for each row follows, of all columns. So a request is a few of numpy's arrays one after
the other.

A tablet is of one table, as the server takes it, and the server takes each run of one device's rows on its
own. So the device's name, and what describes it, is encoded once for each run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import is_constant
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Job
from ..kit.tables import deal_block
from ..sending import Encoder, Payload
from .blocks import (
    Runs,
    Values,
    find_runs,
    join_parts,
    measure,
    measure_times,
    pack_bits,
    with_length,
)
from .schema import list_columns
from .thrift import (
    Piece,
    begin_bytes,
    begin_call,
    put_bool,
    put_i32,
    put_list,
    put_text,
    write_bytes,
    write_i32s,
    write_texts,
)

_TAG, _FIELD = 0, 1
_ROWS_OF_RUN = 24
"""How many rows take as long as one run."""
_FEW_PIECES = 64
"""More pieces than this, of some bytes each, are put together quicker than they are sent one by one."""

Cut = Callable[[int, int], list[Piece]]
"""The bytes of the rows [begin, end) of the block in its runs' order, column by column."""


class TabletEncoder(Encoder):
    """Encodes tablets. A payload's data: for each table that gets events the call, except the session's
    number and its end, in pieces."""

    def __init__(self, job: Job) -> None:
        self._columns = list_columns(job.schema)
        self._time = job.schema.time
        kinds = [_TAG if column.is_tag else _FIELD for column in self._columns]
        self._heads = [
            b"".join(
                (
                    begin_call("insertTablet"),
                    put_text(2, table),
                    put_list(3, write_texts([column.name for column in self._columns])),
                    put_list(6, write_i32s([column.code for column in self._columns])),
                    put_bool(8, False),
                    put_bool(9, True),
                    put_list(10, write_bytes(kinds)),
                )
            )
            for table in job.table_names
        ]

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return self._batches(block, batch) if batch else self._singles(block)

    def _batches(self, block: EventBlock, batch: int) -> list[Payload]:
        count = len(block)
        runs = find_runs(block, self._time, batch, len(self._heads))
        columns = [measure(column, block, runs) for column in self._columns]
        stamps = measure_times(block.columns[self._time])
        cut_stamps, cut_values = _pack([stamps], runs, count), _pack(columns, runs, count)
        gaps = [
            None if column.missing is None else runs.arrange(column.missing) for column in columns
        ]
        incomplete = _find_incomplete(gaps, count)
        payloads: list[Payload] = []
        requests: list[list[Sequence[Piece]]] = [[] for _ in range(0, count, batch)]
        for request, table, begin, end in self._list_tablets(runs, count):
            size = end - begin
            values = cut_values(begin, end)
            if incomplete[begin:end].any():
                parts = [gap if gap is None else gap[None, begin:end] for gap in gaps]
                values.append(pack_bits(parts, 1, size).tobytes())
            head = self._heads[table] + put_i32(7, size) + begin_bytes(5, 8 * size)
            length = begin_bytes(4, sum(map(len, values)))
            requests[request].append([head, *cut_stamps(begin, end), length, *values])
        for number, data in enumerate(requests):
            stop = min(number * batch + batch, count)
            payloads.append(Payload(data, stop - number * batch, block, stop - 1))
        return payloads

    def _list_tablets(self, runs: Runs, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Each tablet's request, its table, and its rows [begin, end) in the runs' order."""
        numbers = runs.requests * len(self._heads) + runs.tables
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        begins = runs.starts[firsts].tolist()
        return zip(
            runs.requests[firsts].tolist(),
            runs.tables[firsts].tolist(),
            begins,
            [*begins[1:], count],
            strict=True,
        )

    def _singles(self, block: EventBlock) -> list[Payload]:
        payloads = []
        for share, part in deal_block(block, len(self._heads)):
            before = self._heads[share.table] + put_i32(7, 1) + begin_bytes(5, 8)
            bodies = self._make_singles(part, before)
            payloads += [Payload([[body]], 1, part, row) for row, body in enumerate(bodies)]
        return payloads

    def _make_singles(self, block: EventBlock, before: bytes) -> list[bytes]:
        """Calls with one row each."""
        count = len(block)
        columns = [measure(column, block) for column in self._columns]
        stamps = measure_times(block.columns[self._time])
        if all(column.lengths is None and column.missing is None for column in columns):
            size = begin_bytes(4, sum(column.width for column in columns))
            return join_parts([before, stamps, size, *columns], count)
        values = join_parts(columns, count)
        gaps = [column.missing for column in columns]
        for row in np.flatnonzero(_find_incomplete(gaps, count)).tolist():
            parts = [gap if gap is None else gap[None, row : row + 1] for gap in gaps]
            values[row] += pack_bits(parts, 1, 1).tobytes()
        sizes = [begin_bytes(4, len(data)) for data in values]
        rows = zip(join_parts([before, stamps], count), sizes, values, strict=True)
        return list(map(b"".join, rows))


def _find_incomplete(gaps: Sequence[NDArray[np.bool_] | None], count: int) -> NDArray[np.bool_]:
    """Which events miss any of their values."""
    masks = [gap for gap in gaps if gap is not None]
    return np.any(masks, axis=0) if masks else np.zeros(count, bool)


def _pack(columns: Sequence[Values], runs: Runs, count: int) -> Cut:
    """The bytes of columns; neighbours of one type are packed together."""
    cuts: list[Cut] = []
    for kind, alike in groupby(columns, lambda column: column.kind):
        if kind is None:
            cuts += [_pack_texts(column, runs, count) for column in alike]
            continue
        members = list(alike)
        values = np.empty((len(members), count), kind)
        for row, column in zip(values, members, strict=True):
            row[:] = column.arrange(runs)
        cuts.append(_cut_rows(values))

    def cut(begin: int, end: int) -> list[Piece]:
        return [piece for part in cuts for piece in part(begin, end)]

    return cut


def _pack_texts(column: Values, runs: Runs, count: int) -> Cut:
    if is_constant(column.data) and column.missing is None:
        repeat = cache(with_length(column.data[0]).__mul__)
        return lambda begin, end: [repeat(end - begin)]
    # If they are of the same length, numpy is quicker with a text for each row than Python with one for
    # each of many runs.
    if column.per_run and (_ROWS_OF_RUN * len(column.data) <= count or column.lengths is not None):
        return _cut_runs(column.data.tolist(), [*runs.starts.tolist(), count])
    values = column.arrange(runs)
    if column.lengths is None:
        texts = np.empty((1, count), [("length", ">i4"), ("text", values.dtype)])
        texts["length"], texts["text"] = column.length, values
        return _cut_rows(texts)
    missing = {} if column.missing is None else {"text": runs.arrange(column.missing)}
    layout = [Column("text", ColumnType.TEXT)]
    rows = BinaryRows((layout, {"text": values}), b"", missing=missing, missing_length=0)
    octets = memoryview(rows.join(0, count))
    ends = np.append(0, np.cumsum(rows.lengths)).tolist()
    return lambda begin, end: [octets[ends[begin] : ends[end]]]


def _cut_rows(values: NDArray[Any]) -> Cut:
    """The values of columns, a row of the array for each."""
    width = values.dtype.itemsize
    rows = [row.view(np.uint8).data for row in values]
    return lambda begin, end: [octets[begin * width : end * width] for octets in rows]


def _cut_runs(texts: Sequence[bytes], bounds: Sequence[int]) -> Cut:
    """Texts that are the same in each run. `bounds`: where each begins, and where the last one ends."""
    # A device's runs are mostly of one length, and their bytes are the same in each request.
    packed: dict[tuple[bytes, int], bytes] = {}
    runs: list[Piece] = []
    for text, (begin, end) in zip(texts, pairwise(bounds), strict=True):
        run = packed.get((text, end - begin))
        if run is None:
            run = packed[text, end - begin] = with_length(text) * (end - begin)
        runs.append(run)

    def cut(begin: int, end: int) -> list[Piece]:
        first = bisect_left(bounds, begin)
        pieces = runs[first : bisect_left(bounds, end, first)]
        return pieces if len(pieces) <= _FEW_PIECES else [b"".join(pieces)]

    return cut
