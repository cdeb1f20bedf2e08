"""Tablets of IoTDB's tree model: a request has one per device, all sent in one `insertTablets`.

A tablet's values are columns of bytes, as in the table model (`tablets.py`), but it belongs to one device,
whose path it names: a run of a block's events. Many are built at once: tablets with the same number of events
and the same lengths of texts are rows of one array of bytes, which numpy fills column by column. Where
devices take turns, such a row has all tablets of a request, and the values of one device are a slice with a
step. Where texts of one device differ in length, or few tablets share the same lengths, each tablet is built
by itself.

A single insert is an `insertRecord`: each value follows its type, and missing ones are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...workloads.schema import EventBlock
from ..base import Job
from ..sending import Encoder, Request
from .schema import Paths, list_measurements, name_table, write_node
from .tablets import Rows, Runs, Values, find_runs, join_parts, measure, measure_times, pack_bits
from .thrift import (
    I32,
    LIST,
    TEXT,
    Piece,
    begin_bytes,
    begin_call,
    begin_list,
    put_bool,
    put_i64,
    put_list,
    write_i32s,
    write_texts,
)

_FEW = 8
"""The number of a request's events at which building an array takes as long as building each tablet by
itself."""

_MANY = 512
"""From this number of rows on, copying a device's rows is at least as fast as picking them one by one."""

_Octets = NDArray[np.uint8]
"""Bytes, a row of the array for each tablet or request."""


class TreeEncoder(Encoder):
    """Encodes tablets of devices. A payload's data: the call in pieces, without the session's number and its
    end."""

    def __init__(self, job: Job, database: str) -> None:
        super().__init__(job)
        self._columns = list_measurements(job.schema)
        self._time = job.schema.time
        self._names = [write_node(column.name) for column in self._columns]
        self._codes = [column.code for column in self._columns]
        self._written_names = write_texts(self._names)
        self._written_codes = write_i32s(self._codes)
        self._paths = [Paths(name_table(database, table)) for table in job.table_names]

    def encode(self, block: EventBlock) -> list[Request]:
        return self._batches(block) if self.job.load.batch else self._singles(block)

    def _batches(self, block: EventBlock) -> list[Request]:
        batch = self.size
        runs = find_runs(block, self._time, batch, len(self._paths))
        columns = [measure(column, block, runs) for column in self._columns]
        stamps = measure_times(block.columns[self._time])
        paths = self._find_paths(runs.tables, block.devices[runs.firsts])
        requests = -(-len(block) // batch)
        groups = _make_groups(runs, requests, columns, stamps, paths)
        ends = [
            np.searchsorted(runs.requests[group.runs], range(requests + 1)).tolist()
            for group in groups
        ]
        payloads = []
        for request in range(requests):
            spans = [
                (group, end[request], end[request + 1])
                for group, end in zip(groups, ends, strict=True)
                if end[request] < end[request + 1]
            ]
            last = min(request * batch + batch, len(block)) - 1
            call = self._make_call(spans)
            payloads.append(Request([call], last + 1 - request * batch, block, last))
        return payloads

    def _make_call(self, spans: Sequence[tuple[_Group, int, int]]) -> list[Piece]:
        count = sum(end - begin for _, begin, end in spans)
        paths = chain.from_iterable(group.paths[begin:end] for group, begin, end in spans)
        sizes = [group.size.to_bytes(4, "big") * (end - begin) for group, begin, end in spans]
        return [
            b"".join((begin_call("insertTablets"), begin_list(2, TEXT, count), *paths)),
            begin_list(3, LIST, count),
            self._written_names * count,
            begin_list(4, TEXT, count),
            *chain.from_iterable(
                group.cut(group.values, begin, end) for group, begin, end in spans
            ),
            begin_list(5, TEXT, count),
            *chain.from_iterable(
                group.cut(group.stamps, begin, end) for group, begin, end in spans
            ),
            begin_list(6, LIST, count),
            self._written_codes * count,
            b"".join((begin_list(7, I32, count), *sizes, put_bool(8, True))),
        ]

    def _singles(self, block: EventBlock) -> list[Request]:
        columns = [measure(column, block) for column in self._columns]
        stamps = measure_times(block.columns[self._time]).spell(slice(None))
        tables = (block.first + np.arange(len(block))) % len(self._paths)
        paths = self._find_paths(tables, block.devices)
        rows = zip(paths, *self._list_values(columns, len(block)), stamps, strict=True)
        head, end = begin_call("insertRecord") + begin_bytes(2, 0)[:-4], put_bool(6, True)
        stamp = put_i64(5, 0)[:-8]
        return [
            Request(
                [
                    [
                        b"".join(
                            (head, path, names, begin_bytes(4, len(data)), data, stamp, time, end)
                        )
                    ]
                ],
                1,
                block,
                row,
            )
            for row, (path, names, data, time) in enumerate(rows)
        ]

    def _find_paths(self, tables: NDArray[np.intp], devices: NDArray[np.bytes_]) -> Sequence[bytes]:
        if len(self._paths) == 1:
            return list(map(self._paths[0].__getitem__, devices.tolist()))
        pairs = zip(tables.tolist(), devices.tolist(), strict=True)
        return [self._paths[table][device] for table, device in pairs]

    def _list_values(
        self, columns: Sequence[Values], count: int
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """For each event, the names of its measurements, as a field, and their values."""
        codes = [bytes([code]) for code in self._codes]
        if all(column.missing is None for column in columns):
            parts: list[bytes | Values] = []
            for code, column in zip(codes, columns, strict=True):
                parts += [code, column]
            return [put_list(3, self._written_names)] * count, join_parts(parts, count)
        masks = [
            np.zeros(count, bool) if column.missing is None else column.missing
            for column in columns
        ]
        names, values = [], []
        fields: dict[tuple[bool, ...], bytes] = {}
        rows = zip(*(column.spell(slice(None)) for column in columns), strict=True)
        for gaps, row in zip(
            zip(*(mask.tolist() for mask in masks), strict=True), rows, strict=True
        ):
            if gaps not in fields:
                present = [
                    name for name, is_gap in zip(self._names, gaps, strict=True) if not is_gap
                ]
                fields[gaps] = put_list(3, write_texts(present))
            names.append(fields[gaps])
            typed = (
                c + value for c, value, is_gap in zip(codes, row, gaps, strict=True) if not is_gap
            )
            values.append(b"".join(typed))
        return names, values


class _Group:
    """Tablets of all of a block's requests that are built together: all have the same number of events."""

    def __init__(
        self,
        runs: NDArray[np.intp],
        size: int,
        paths: Sequence[bytes],
        values: _Octets | Sequence[bytes],
        stamps: _Octets,
    ) -> None:
        """`paths`: of all runs; `values`: as rows of bytes, or for each tablet by itself, after its
        length."""
        self.runs = runs
        self.size, self.paths = size, [paths[run] for run in runs.tolist()]
        self.values = values.reshape(-1).data if isinstance(values, np.ndarray) else values
        self.stamps = stamps.reshape(-1).data

    def cut(self, values: memoryview | Sequence[bytes], begin: int, end: int) -> Sequence[Piece]:
        """The timestamps or values of the runs [begin, end) of this group, which are all its runs in some
        requests. Either all runs take the same number of bytes, or all requests do and have the same
        number of runs."""
        if not isinstance(values, memoryview):
            return values[begin:end]
        runs = len(self.paths)
        return [values[len(values) * begin // runs : len(values) * end // runs]]


def _make_groups(
    runs: Runs, requests: int, columns: Sequence[Values], stamps: Values, paths: Sequence[bytes]
) -> list[_Group]:
    """The tablets of this many requests. `paths`: of each run's device."""
    kinds = list(_sort(runs, requests, columns))
    if len(kinds) > 1 and _can_take_turns(runs, requests, columns):
        order = np.concatenate([chosen[chosen < runs.turns] for chosen, _ in kinds])
        return [_take_turns(runs, order, columns, stamps, paths)]
    groups = []
    for chosen, widths in kinds:
        size = int(runs.sizes[chosen[0]])
        rows = runs.find_rows(chosen, size)
        gaps = [None if column.missing is None else rows.pick(column.missing) for column in columns]
        bits = pack_bits(gaps, rows.runs, size)
        values = (
            _join(columns, rows, bits) if widths is None else _fill(columns, widths, rows, bits)
        )
        times = _fill([stamps], [stamps.width], rows, bits[:, :0])
        groups.append(_Group(chosen, size, paths, values, times))
    return groups


def _can_take_turns(runs: Runs, requests: int, columns: Sequence[Values]) -> bool:
    """Whether devices take turns, each one's tablets take the same number of bytes in all requests, and there
    are enough rows per device."""
    if not runs.turns or int(runs.sizes[0]) * requests < _MANY:
        return False
    for column in columns:
        if column.missing is not None:
            return False
        if column.lengths is not None:
            after = column.lengths[runs.turns :]
            if not column.per_run or not np.array_equal(after, column.lengths[: -runs.turns]):
                return False
    return True


def _take_turns(
    runs: Runs,
    order: NDArray[np.intp],
    columns: Sequence[Values],
    stamps: Values,
    paths: Sequence[bytes],
) -> _Group:
    """The tablets of devices that take turns, as one row of bytes per request, in the order of the first
    request's runs. So each column of a device is copied for all requests at once."""
    requests, size = runs.sizes.size // runs.turns, int(runs.sizes[0])
    taken = []
    for run in order.tolist():
        widths = [
            column.width if column.lengths is None else 4 + int(column.lengths[run])
            for column in columns
        ]
        # The rows of this run of the first request, and of its device's runs in all others.
        chosen = np.arange(run, runs.starts.size, runs.turns)
        rows = Rows(chosen, slice(int(runs.firsts[run]), None, runs.turns), size)
        taken.append((rows, widths))
    width = sum(4 + size * sum(widths) for _, widths in taken)
    values = np.empty((requests, width), np.uint8)
    times = np.empty((requests, len(taken) * (4 + size * stamps.width)), np.uint8)
    end, end_of_times = 0, 0
    for rows, widths in taken:
        end = _put(values, end, columns, widths, rows)
        end_of_times = _put(times, end_of_times, [stamps], [stamps.width], rows)
    chosen = np.arange(0, runs.sizes.size, runs.turns)[:, None] + order
    return _Group(chosen.reshape(-1), size, paths, values, times)


def _sort(
    runs: Runs, requests: int, columns: Sequence[Values]
) -> Iterator[tuple[NDArray[np.intp], Sequence[int] | None]]:
    """Runs that can be built together, and the bytes per value of each column, unless they differ."""
    plain = 2 * runs.sizes
    masks = [column.missing for column in columns if column.missing is not None]
    if masks:
        # Runs with missing values apart from those without.
        gaps = runs.arrange(np.logical_or.reduce(masks))
        plain += np.logical_or.reduceat(gaps, runs.starts)
    kinds, are_alike = plain, np.ones(len(plain), bool)
    shortest: list[NDArray[np.int64] | None] = []
    for column in columns:
        least = column.lengths
        if least is not None:
            if not column.per_run:
                lengths = runs.arrange(least)
                least = np.minimum.reduceat(lengths, runs.starts)
                are_alike &= least == np.maximum.reduceat(lengths, runs.starts)
            # Renumbered for each column, so that kinds can't become too large.
            _, kinds = np.unique(kinds * (1 + column.data.itemsize) + least, return_inverse=True)
        shortest.append(least)
    if kinds is not plain:
        events = np.bincount(kinds, runs.sizes)
        are_alike &= events[kinds] >= _FEW * requests
        kinds = np.where(are_alike, kinds, ~plain)
    for kind in np.unique(kinds).tolist():
        chosen = np.flatnonzero(kinds == kind)
        first = int(chosen[0])
        widths = [
            column.width if least is None else 4 + int(least[first])
            for column, least in zip(columns, shortest, strict=True)
        ]
        yield chosen, widths if are_alike[first] else None


def _fill(columns: Sequence[Values], widths: Sequence[int], rows: Rows, bits: _Octets) -> _Octets:
    """The values of tablets, column by column, and the bits of missing ones, all after their length.
    `widths`: bytes per value of each column."""
    end = 4 + rows.size * sum(widths)
    octets = np.empty((rows.runs, end + bits.shape[1]), np.uint8)
    _put(octets, 0, columns, widths, rows, bits.shape[1])
    octets[:, end:] = bits
    return octets


def _put(
    octets: _Octets,
    at: int,
    columns: Sequence[Values],
    widths: Sequence[int],
    rows: Rows,
    more: int = 0,
) -> int:
    """Put the values of `rows` into `octets`, a run into each row, from `at` on. The length before them
    includes `more` bytes that follow. Returns where the values end."""
    size = rows.size
    _view(octets, at, ">i4", 1, 4)[:] = size * sum(widths) + more
    at += 4
    for column, width in zip(columns, widths, strict=True):
        if column.kind:
            _view(octets, at, column.kind, size, width)[:] = column.pick(rows)
        else:
            _view(octets, at, ">i4", size, width)[:] = width - 4
            if width > 4:
                _view(octets, at + 4, f"S{width - 4}", size, width)[:] = column.pick(rows)
        at += size * width
    return at


def _view(octets: _Octets, at: int, kind: str, count: int, step: int) -> NDArray[Any]:
    """A view of `count` values of a type in each row, the first of them at `at`."""
    shape = (len(octets), count)
    return np.ndarray(shape, kind, octets.data, at, (octets.shape[1], step))


def _join(columns: Sequence[Values], rows: Rows, bits: _Octets) -> list[bytes]:
    """The same as `_fill`, each tablet by itself."""
    size = rows.size
    repeated = np.repeat(rows.chosen, size)
    parts = [column.spell(repeated if column.per_run else rows.places) for column in columns]
    if size > 1:
        begins = range(0, rows.runs * size, size)
        parts = [[b"".join(values[at : at + size]) for at in begins] for values in parts]
    if bits.shape[1]:
        parts.append([row.tobytes() for row in bits])
    bodies = map(b"".join, zip(*parts, strict=True))
    return [len(body).to_bytes(4, "big") + body for body in bodies]
