"""Tablets: events as columns of bytes, as IoTDB's `insertTablet` takes them.

A column's values stand one after the other, big-endian; a text has its length before it. Where values are
missing, a bit for each row follows, of all columns. So a request is a few of numpy's arrays one after
the other, and nothing is done per event but for texts of different lengths.

A tablet is of one table, as the server takes it. In each the events of a device stand together, in the
order of time, since the server takes each run of one device's rows on its own. So the device's name, and
what describes it, is encoded once for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoding.columns import BIG_ENDIAN, all_alike, bounds, digits, is_constant, octets_of
from ...encoding.records import Run
from ...workloads.events import EventBlock
from ...workloads.schema import Column, ColumnType, Schema
from ...workloads.tags import ID, Tags, number_devices
from .._base.tables import deal_block, deal_rows
from ..base import Job
from ..sending import Encoder, Payload
from .thrift import (
    begin_bytes,
    begin_call,
    put_bool,
    put_bytes_of,
    put_i32,
    put_i32s,
    put_text,
    put_texts,
)
from .values import (
    EvenRows,
    Missing,
    Packed,
    Piece,
    Runs,
    Wide,
    are_full,
    cut_bits,
    pack,
    pack_texts,
)

TIME = "time"
"""What a table's column of time is always called."""

TYPES: Mapping[ColumnType, str] = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.INT64: "INT64",
    ColumnType.INT32: "INT32",
    ColumnType.FLOAT32: "FLOAT",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "STRING",
    ColumnType.JSON: "STRING",
}
CODES = {
    "BOOLEAN": 0,
    "INT32": 1,
    "INT64": 2,
    "FLOAT": 3,
    "DOUBLE": 4,
    "TIMESTAMP": 8,
    "STRING": 11,
}
_TAG, _FIELD = 0, 1

_WORD = 8
_MIXED = np.random.default_rng(7).integers(1, 2**63, 32, dtype=np.uint64) | np.uint64(1)
"""Factors of the words of a device's name, whose sum tells most devices apart."""


_ID_DIGITS = 11
_ROWS_OF_RUN = 24
"""What takes as long for so many rows as for one run."""


class TableColumn(NamedTuple):
    """A column of a table, but for the time."""

    name: str
    column: Column
    is_tag: bool
    """Whether it is a part of what tells devices apart."""
    is_device: bool
    """Whether its values are the devices' names, and not those of the events' column."""

    is_of_device: bool
    """Whether it follows from the device's name alone."""

    @property
    def type(self) -> str:
        """As SQL calls it."""
        return TYPES[self.column.type]


def list_columns(schema: Schema) -> list[TableColumn]:
    """The columns of a schema's table but for the time.

    The device's name is a tag, and so is each text that describes the device. A device that is named in a
    document gets a column of its own for that.
    """
    found = []
    if schema.tags is Tags.TABLE:
        # An id tells devices apart, and what does is a text.
        tag = TableColumn(ID, Column(ID, ColumnType.TEXT), True, True, True)
        return [
            tag if column.name == ID else TableColumn(column.name, column, False, False, False)
            for column in schema.row
            if column.name != schema.time
        ]
    if schema.device_path:
        device = Column(schema.device_path, ColumnType.TEXT)
        found.append(TableColumn(schema.device_path, device, True, True, True))
    for column in schema.columns:
        if column.name == schema.time:
            continue
        is_device = column.name == schema.device and not schema.device_path
        is_tag = is_device or (column.tag and column.type is ColumnType.TEXT)
        is_of_device = column.tag or column.name == schema.device
        found.append(TableColumn(column.name, column, is_tag, is_device, is_of_device))
    return found


def describe_tags(schema: Schema) -> Schema:
    """The tags' table, as a schema whose events are devices; all have the same time."""
    names = [Column(schema.device_path, ColumnType.TEXT)] if schema.device_path else []
    tags = [replace(column, tag=False) for column in schema.tags_row if column.name != ID]
    columns = (Column(ID, ColumnType.TEXT), *names, *tags, Column(TIME, ColumnType.TIMESTAMP_MS))
    return Schema(schema.tags_table, columns, TIME, ID, (ID, TIME))


def make_tags(schema: Schema, columns: Mapping[str, NDArray[Any]]) -> EventBlock:
    """Rows of the tags' table, given as in `Schema.tags_row`, as events of `describe_tags`."""
    ids = spell_ids(columns[ID])
    found = {**columns, ID: ids, TIME: np.zeros(len(ids), dtype=np.int64)}
    if schema.device_path:
        octets = octets_of(ids)
        names = np.insert(octets, (0, 5), [ord("w"), ord("d")], axis=1)
        found[schema.device_path] = names.view(f"S{names.shape[1]}")[:, 0]
    return EventBlock(describe_tags(schema), 0, 0, found, ids)


def spell_ids(ids: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Devices' ids as texts."""
    octets = digits(ids, _ID_DIGITS)
    return octets.view(f"S{_ID_DIGITS}")[:, 0]


class TabletEncoder(Encoder):
    """Encodes tablets. A payload's data: for each table that gets events the call but for the session's
    number and its end, in pieces."""

    def __init__(self, job: Job, batch: int) -> None:
        self._columns = list_columns(job.schema)
        self._time = job.schema.time
        names = [column.name for column in self._columns]
        codes = [CODES[column.type] for column in self._columns]
        kinds = [_TAG if column.is_tag else _FIELD for column in self._columns]
        self._heads = [
            b"".join(
                (
                    begin_call("insertTablet"),
                    put_text(2, table),
                    put_texts(3, names),
                    put_i32s(6, codes),
                    put_bool(8, False),
                    put_bool(9, True),
                    put_bytes_of(10, kinds),
                )
            )
            for table in job.table_names
        ]

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return self._batches(block, batch) if batch else self._singles(block)

    def _batches(self, block: EventBlock, batch: int) -> list[Payload]:
        requests = [
            deal_rows(block, start, stop, len(self._heads))
            for start, stop in bounds(len(block), batch)
        ]
        shares = [share for request in requests for share in request]
        layout = _lay_out(block, self._time, [share.rows for share in shares])
        given = [_take(column, block) for column in self._columns]
        pieces = _pack_columns(given, len(block), layout)
        missing = [None if one.missing is None else layout.arrange(one.missing) for one in given]
        stamps = Wide(layout.arrange(block.columns[self._time]).astype(">i8"))
        bodies = [
            self._make_call(share.table, begin, end, stamps, pieces, missing)
            for share, (begin, end) in zip(shares, pairwise(layout.bounds), strict=True)
        ]
        payloads, made, stop = [], 0, 0
        for request in requests:
            data = bodies[made : made + len(request)]
            events = sum(len(share.rows) for share in request)
            made, stop = made + len(request), stop + events
            payloads.append(Payload(data, events, block, stop - 1))
        return payloads

    def _make_call(
        self,
        table: int,
        begin: int,
        end: int,
        stamps: Wide,
        pieces: Sequence[Packed],
        missing: Sequence[Missing],
    ) -> list[Piece]:
        """A tablet of the rows [begin, end) of the block in its new order."""
        count = end - begin
        values: list[Piece] = []
        for piece in pieces:
            values += piece.cut(begin, end)
        values += cut_bits(missing, begin, end)
        head = b"".join((self._heads[table], put_i32(7, count), begin_bytes(5, 8 * count)))
        size = begin_bytes(4, sum(map(len, values)))
        return [head, *stamps.cut(begin, end), size, *values]

    def _singles(self, block: EventBlock) -> list[Payload]:
        payloads = []
        for share, part in deal_block(block, len(self._heads)):
            given = [_take(column, part) for column in self._columns]
            stamps = part.columns[self._time].astype(">i8")
            bodies = _make_singles(self._heads[share.table], given, stamps)
            payloads += [Payload([[body]], 1, part, row) for row, body in enumerate(bodies)]
        return payloads


class _Layout(NamedTuple):
    """Where a block's events go: to tablets, one after the other."""

    order: NDArray[np.intp] | None
    """The rows of the block as they are to stand; None: as they do."""
    bounds: Sequence[int]
    """Where each tablet begins, and where the last one ends."""
    runs: Sequence[int]
    """Where each run of one device's events begins, and where the last one ends. None goes on in the next
    tablet."""

    def arrange(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value of each event, in the new order."""
        return values if self.order is None else values[self.order]

    def find_rows(self, places: Sequence[int]) -> NDArray[np.intp]:
        """The block's rows that stand there."""
        found = np.asarray(places, dtype=np.intp)
        return found if self.order is None else self.order[found]


def _lay_out(block: EventBlock, time: str, tablets: Sequence[range]) -> _Layout:
    """Puts the events of these tablets, each with those rows of the block, in order: by device and time."""
    times, devices = block.columns[time], block.devices
    bounds = list(accumulate(map(len, tablets), initial=0))
    marks = _mark(devices)
    is_sorted = bool((times[1:] >= times[:-1]).all())
    if marks is None and is_sorted and all(rows.step == 1 for rows in tablets):
        return _Layout(None, bounds, bounds)
    order = np.concatenate([_sort(rows, marks, times, is_sorted) for rows in tablets])
    if marks is None:
        return _Layout(order, bounds, bounds)
    octets = octets_of(devices[order])
    width = octets.shape[1]
    flat = octets.reshape(-1)
    begins = np.zeros(len(order) + 1, dtype=bool)
    begins[bounds] = True
    begins[np.flatnonzero(flat[width:] != flat[:-width]) // width + 1] = True
    return _Layout(order, bounds, np.flatnonzero(begins).tolist())


def _mark(devices: NDArray[np.bytes_]) -> NDArray[np.uint16] | None:
    """A number of each device; None: there is one device.

    Of 16 bits, which numpy sorts fastest. Two devices of one number may get mixed: that costs a little
    time, and no more.
    """
    if is_constant(devices) or all_alike(devices):
        return None
    octets = octets_of(devices)
    width = octets.shape[1]
    if width < _WORD:
        octets = np.pad(octets, ((0, 0), (0, _WORD - width)))
        width = _WORD
    mixed = np.zeros(len(octets), dtype=np.uint64)
    for factor, place in zip(
        _MIXED, (*range(0, width - _WORD, _WORD), width - _WORD), strict=False
    ):
        mixed += octets[:, place : place + _WORD].view(np.uint64)[:, 0] * factor
    return (mixed >> np.uint64(48)).astype(np.uint16)


def _sort(
    rows: range, marks: NDArray[np.uint16] | None, times: NDArray[np.int64], is_sorted: bool
) -> NDArray[np.intp]:
    """These rows by device and time. `is_sorted`: by time they are already."""
    chosen = slice(rows.start, rows.stop, rows.step)
    if marks is None:
        order = np.argsort(times[chosen], kind="stable")
    elif is_sorted:
        order = np.argsort(marks[chosen], kind="stable")
    else:
        order = np.lexsort((times[chosen], marks[chosen]))
    return rows.start + order * rows.step


class _AnswerToCheck(NamedTuple):
    """A column of a block."""

    column: TableColumn
    values: NDArray[Any]
    missing: Missing


def _take(column: TableColumn, block: EventBlock) -> _AnswerToCheck:
    if column.is_device:
        is_id = column.name == ID and block.schema.tags is Tags.TABLE
        names = spell_ids(number_devices(block.devices)) if is_id else block.devices
        return _AnswerToCheck(column, names, None)
    missing = block.missing.get(column.name)
    if missing is not None and not missing.any():
        missing = None
    return _AnswerToCheck(column, block.columns[column.name], missing)


def _pack_columns(given: Sequence[_AnswerToCheck], count: int, layout: _Layout) -> list[Packed]:
    """Pieces of tablets of so many events, of neighbours of one type together."""
    pieces: list[Packed] = []
    for kind, alike in groupby(given, lambda one: BIG_ENDIAN.get(one.column.column.type)):
        if kind is None:
            pieces += [_pack_texts(one, count, layout) for one in alike]
            continue
        columns = list(alike)
        values = np.empty((len(columns), count), dtype=kind)
        for row, one in zip(values, columns, strict=True):
            row[:] = layout.arrange(one.values)
        pieces.append(Wide(values))
    return pieces


def _pack_texts(one: _AnswerToCheck, count: int, layout: _Layout) -> Packed:
    values, missing = one.values, one.missing
    if one.column.is_of_device and missing is None:
        texts = values[layout.find_rows(layout.runs[:-1])]
        # If they are of the same length, numpy is quicker with a text for each row than Python with one for
        # each of many runs.
        if _ROWS_OF_RUN * len(texts) <= count or not are_full(texts):
            return Runs(texts, layout.runs)
    if not is_constant(values):
        values = layout.arrange(values)
    return pack_texts(values, None if missing is None else layout.arrange(missing))


def _make_singles(
    head: bytes, given: Sequence[_AnswerToCheck], stamps: NDArray[np.int64]
) -> list[bytes]:
    """Calls with one row each."""
    columns = [pack(column.column, values, missing) for column, values, missing in given]
    missing = [one.missing for one in given]
    has_all = all(places is None for places in missing)
    before = b"".join((head, put_i32(7, 1), begin_bytes(5, 8)))
    even = [packed for packed in columns if isinstance(packed, EvenRows)]
    if has_all and len(even) == len(columns):
        run = Run()
        run.keep(before)
        run.take(">i8", stamps)
        run.keep(begin_bytes(4, sum(packed.width for packed in even)))
        for packed in even:
            packed.add_to(run)
        records = run.new_records(len(stamps))
        for name, moving in run.moving:
            records[name] = moving
        found: list[bytes] = records.view(f"V{records.dtype.itemsize}").tolist()
        return found
    marks: list[bytes] = stamps.view("V8").tolist()
    calls: list[bytes] = []
    rows = zip(*(packed.rows(len(stamps)) for packed in columns), strict=True)
    for row, values in enumerate(rows):
        bits = [] if has_all else cut_bits(missing, row, row + 1)
        data = b"".join((*values, *bits))
        calls.append(b"".join((before, marks[row], begin_bytes(4, len(data)), data)))
    return calls
