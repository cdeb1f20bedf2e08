"""Tablets of the table model: events as columns of bytes, in the form for IoTDB's `insertTablet`.

A column's values follow one another, big-endian; a text follows its length. For missing values, the columns
are followed by a bit for each row. So a request is a few numpy arrays, one after another.

A tablet belongs to one table, and the server processes each run of one device's rows by itself. So the
device's name and description are encoded once per run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoding.binary_rows import BinaryRows, Run
from ...encoding.columns import (
    BIG_ENDIAN,
    SHORT_NUMBERS,
    bounds,
    count_turns,
    is_constant,
    number_names,
    octets_of,
)
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Job
from ..sending import Encoder, Request, deal_block
from .schema import TableColumn, list_columns
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


class Rows(NamedTuple):
    """The rows of a block that are in some runs of the same size."""

    chosen: NDArray[np.intp]
    places: NDArray[np.intp] | slice
    size: int
    turns: int = 0
    """How many devices take turns, if these are the rows of a whole block in which devices take turns in the
    order of their names; otherwise 0."""

    @property
    def runs(self) -> int:
        return self.chosen.size

    def pick(self, values: NDArray[Any]) -> NDArray[Any]:
        """The rows' values, a row for each run."""
        if self.turns:
            values = values.reshape(-1, self.size, self.turns).transpose(0, 2, 1)
            return values.reshape(self.runs, self.size)
        return values[self.places].reshape(self.runs, self.size)


class Runs(NamedTuple):
    """A block's runs: events of one request, one table and one device, by time."""

    order: NDArray[np.intp] | None
    """The block's rows in the runs' order; None: they are in that order."""
    starts: NDArray[np.intp]
    firsts: NDArray[np.intp]
    """The block's row at the start of each run."""
    sizes: NDArray[np.intp]
    requests: NDArray[np.intp]
    """Each run's request number; ascending."""
    tables: NDArray[np.intp]
    turns: int = 0
    """How many devices take turns throughout, so that each request has a run of each of them, all of one
    size; 0: unknown."""

    def arrange(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value of each event, in the runs' order."""
        return values if self.order is None else values[self.order]

    def find_rows(self, chosen: NDArray[np.intp], size: int) -> Rows:
        """The rows of these runs, which have this many events each."""
        starts = self.starts[chosen]
        first, end = int(starts[0]), int(starts[-1]) + size
        places: NDArray[np.intp] | slice = slice(first, end)
        if end - first != starts.size * size:
            places = (starts[:, None] + np.arange(size)).reshape(-1)
        if self.order is None:
            return Rows(chosen, places, size)
        is_whole = chosen.size == self.starts.size
        is_named = bool((np.diff(self.firsts[: self.turns]) == 1).all())
        return Rows(chosen, self.order[places], size, self.turns if is_whole and is_named else 0)


def find_runs(block: EventBlock, time: str, batch: int, tables: int) -> Runs:
    """The runs of a block's requests of `batch` events, which go to this many tables in turn."""
    count, times = len(block), block.columns[time]
    is_sorted = bool((times[1:] >= times[:-1]).all())
    if is_sorted and tables == 1 and (turns := count_turns(block.devices, batch)):
        return _take_turns(block, batch, turns)
    numbers, kinds = number_names(block.devices)
    order = None
    if is_sorted and tables == 1 and kinds == 1:
        firsts = starts = np.arange(0, count, batch)
    else:
        keys = numbers
        if tables > 1:
            kind = np.uint16 if kinds * tables <= SHORT_NUMBERS else np.int64
            keys = (np.arange(count) % batch % tables * kinds + numbers).astype(kind)
        order = np.concatenate(
            [
                begin
                + (
                    np.argsort(keys[begin:end], kind="stable")
                    if is_sorted
                    else np.lexsort((times[begin:end], keys[begin:end]))
                )
                for begin, end in bounds(count, batch)
            ]
        )
        keys = keys[order]
        begins = np.append(True, keys[1:] != keys[:-1])
        begins[::batch] = True
        starts = np.flatnonzero(begins)
        firsts = order[starts]
    sizes = np.diff(starts, append=count)
    return Runs(order, starts, firsts, sizes, starts // batch, (block.first + firsts) % tables)


def _take_turns(block: EventBlock, batch: int, turns: int) -> Runs:
    """The runs of one table's requests, in which this many devices take turns, in the order in which sorting
    would return them."""
    requests, size = len(block) // batch, batch // turns
    rows = np.arange(len(block)).reshape(requests, size, turns).transpose(0, 2, 1)
    names = block.devices[:turns]
    if (names[1:] < names[:-1]).any():
        rows = rows[:, np.argsort(names)]
    order = np.ascontiguousarray(rows).reshape(-1)
    starts = np.arange(0, len(block), size)
    sizes, tables = np.full(len(starts), size), np.zeros(len(starts), np.intp)
    return Runs(
        order, starts, order[starts], sizes, np.repeat(np.arange(requests), turns), tables, turns
    )


class Values(NamedTuple):
    """The values of a column."""

    kind: str | None
    """Numpy's type of the bytes to send; None: a text."""
    data: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    lengths: NDArray[np.int64] | None = None
    """The lengths of texts that differ in length, 0 for a missing one."""
    length: int = 0
    """The length of all texts, if they don't differ."""
    per_run: bool = False
    """Whether there is one value per run instead of per event."""

    @property
    def width(self) -> int:
        """Bytes per value, if all take the same."""
        return np.dtype(self.kind).itemsize if self.kind else 4 + self.length

    def pick(self, rows: Rows) -> Any:
        """The values of these rows, a row for each run, or the value for all of them there."""
        if is_constant(self.data):
            return self.data[0]
        return self.data[rows.chosen, None] if self.per_run else rows.pick(self.data)

    def arrange(self, runs: Runs) -> NDArray[Any]:
        """The value of each event, in the runs' order."""
        return np.repeat(self.data, runs.sizes) if self.per_run else runs.arrange(self.data)

    def spell(self, places: NDArray[np.intp] | slice) -> list[bytes]:
        """The values at these places as bytes, one by one; a missing one has a placeholder."""
        values = self.data[places]
        if self.kind is not None:
            packed = np.ascontiguousarray(values.astype(self.kind))
            spelt: list[bytes] = packed.view(f"V{packed.itemsize}").tolist()
            return spelt
        texts: list[bytes] = values.tolist()
        if self.missing is not None:
            gaps = self.missing[places].tolist()
            texts = [b"" if is_gap else text for text, is_gap in zip(texts, gaps, strict=True)]
        # A call for each would take a third longer.
        return [len(text).to_bytes(4, "big") + text for text in texts]


def with_length(text: bytes) -> bytes:
    """A text in the form for tablets."""
    return len(text).to_bytes(4, "big") + text


def measure(column: TableColumn, block: EventBlock, runs: Runs | None = None) -> Values:
    """A column's values in a block. Values that follow from the device are taken once per run."""
    values, missing = column.take(block), block.missing.get(column.name)
    if column.is_device or (missing is not None and not missing.any()):
        missing = None
    per_run = False
    if runs is not None and column.is_of_device and missing is None and not is_constant(values):
        values, per_run = values[runs.firsts], True
    if kind := BIG_ENDIAN.get(column.column.type):
        return Values(kind, values, missing, per_run=per_run)
    if missing is None and is_constant(values):
        return Values(None, values, length=len(values[0]))
    octets = octets_of(values)
    if missing is None and octets.shape[1] and octets[:, -1].all():
        return Values(None, values, length=octets.shape[1], per_run=per_run)
    lengths = np.char.str_len(values)
    if missing is not None:
        lengths[missing] = 0
    return Values(None, values, missing, lengths, per_run=per_run)


def measure_times(times: NDArray[np.int64]) -> Values:
    """The times of a block's events."""
    return Values(BIG_ENDIAN[ColumnType.TIMESTAMP_MS], times)


def join_parts(parts: Sequence[bytes | Values], count: int) -> list[bytes]:
    """The parts of each event as bytes, one after another: constants, and values."""
    pieces: list[list[bytes]] = []
    run = Run()
    for part in parts:
        if isinstance(part, bytes):
            run.keep(part)
        elif part.kind is not None:
            run.take(part.kind, part.data)
        elif part.lengths is None and is_constant(part.data):
            run.keep(with_length(part.data[0]))
        elif part.lengths is None:
            run.keep(part.length.to_bytes(4, "big"))
            run.take(part.data.dtype.str, part.data)
        else:
            pieces += [*_make_records(run, count), part.spell(slice(None))]
            run = Run()
    pieces += _make_records(run, count)
    return pieces[0] if len(pieces) == 1 else list(map(b"".join, zip(*pieces, strict=True)))


def _make_records(run: Run, count: int) -> list[list[bytes]]:
    """Each event's run; nothing if there is none."""
    return [run.fill(count).tolist()] if run.bytes else []


def pack_bits(
    gaps: Sequence[NDArray[np.bool_] | None], tablets: int, size: int
) -> NDArray[np.uint8]:
    """For each tablet of this many events, the bits of missing values, column by column; nothing if none is
    missing. `gaps`: for each column a row per tablet; None: it has all values."""
    if not any(gap is not None and gap.any() for gap in gaps):
        return np.empty((tablets, 0), np.uint8)
    pieces = []
    for gap in gaps:
        if gap is None:
            pieces.append(np.zeros((tablets, 1), np.uint8))
            continue
        bits = np.zeros((tablets, 1 + size // 8 + 1), np.uint8)
        bits[:, 0] = 1
        packed = np.packbits(gap, axis=1, bitorder="little")
        bits[:, 1 : 1 + packed.shape[1]] = packed
        pieces.append(bits)
    return np.concatenate(pieces, axis=1)


_TAG, _FIELD = 0, 1
_ROWS_OF_RUN = 24
"""The number of rows that takes as long as one run."""
_FEW_PIECES = 64
"""More pieces than this, of some bytes each, are faster to join than to send one by one."""

Cut = Callable[[int, int], list[Piece]]
"""The bytes of the rows [begin, end) of the block in its runs' order, column by column."""


class TabletEncoder(Encoder):
    """Encodes tablets. A payload's data: for each table that gets events the call in pieces, without the
    session's number and its end."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
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

    def encode(self, block: EventBlock) -> list[Request]:
        return self._batches(block) if self.job.load.batch else self._singles(block)

    def _batches(self, block: EventBlock) -> list[Request]:
        count, batch = len(block), self.size
        runs = find_runs(block, self._time, batch, len(self._heads))
        columns = [measure(column, block, runs) for column in self._columns]
        stamps = measure_times(block.columns[self._time])
        cut_stamps, cut_values = _pack([stamps], runs, count), _pack(columns, runs, count)
        gaps = [
            None if column.missing is None else runs.arrange(column.missing) for column in columns
        ]
        incomplete = _find_incomplete(gaps, count)
        payloads: list[Request] = []
        requests: list[list[Sequence[Piece]]] = [[] for _ in range(0, count, batch)]
        # Each tablet's request, its table, and its rows [begin, end) in the runs' order.
        numbers = runs.requests * len(self._heads) + runs.tables
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        begins = runs.starts[firsts].tolist()
        tablets = zip(
            runs.requests[firsts].tolist(),
            runs.tables[firsts].tolist(),
            begins,
            [*begins[1:], count],
            strict=True,
        )
        for request, table, begin, end in tablets:
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
            payloads.append(Request(data, stop - number * batch, block, stop - 1))
        return payloads

    def _singles(self, block: EventBlock) -> list[Request]:
        payloads = []
        for share, part in deal_block(block, len(self._heads)):
            before = self._heads[share.table] + put_i32(7, 1) + begin_bytes(5, 8)
            bodies = self._make_singles(part, before)
            payloads += [Request([[body]], 1, part, row) for row, body in enumerate(bodies)]
        return payloads

    def _make_singles(self, block: EventBlock, before: bytes) -> list[bytes]:
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
    masks = [gap for gap in gaps if gap is not None]
    return np.any(masks, axis=0) if masks else np.zeros(count, bool)


def _pack(columns: Sequence[Values], runs: Runs, count: int) -> Cut:
    """The bytes of columns; neighbours of the same type are packed together."""
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
    # For equal lengths, numpy with a text for each row is faster than Python with one for each of many runs.
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
    """The values of columns, a row of the array each."""
    width = values.dtype.itemsize
    rows = [row.view(np.uint8).data for row in values]
    return lambda begin, end: [octets[begin * width : end * width] for octets in rows]


def _cut_runs(texts: Sequence[bytes], bounds: Sequence[int]) -> Cut:
    """Texts that are the same in each run. `bounds`: where each begins, and where the last one ends."""
    # A device's runs mostly have one length, and their bytes are the same in each request.
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
