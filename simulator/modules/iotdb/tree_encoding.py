"""Tablets of IoTDB's tree model: a request is one for each device, all sent by one `insertTablets`.

A tablet's values are columns of bytes, as in the table model (`encoding.py`), but it is of one device, whose
path it names. A block's events are put in order once: by request, table, device and time. Then each tablet
is a run of neighbours, and numpy makes all tablets of the same number of rows at once. Only where texts
differ in length each tablet is put together on its own.

A single insert is an `insertRecord`: each value has its type before it, and missing ones aren't named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...workloads.base import EventBlock
from ..base import Job
from ..sending import Encoder, Payload
from .encoding import CODES
from .paths import name_table, write_node
from .thrift import (
    begin_bytes,
    begin_call,
    begin_lists,
    begin_texts,
    put_bool,
    put_i32s,
    put_i64,
    put_texts,
    write_i32s,
    write_text,
    write_texts,
)
from .tree_columns import Packed, find_runs, pack, pack_bits, pack_numbers
from .tree_schema import list_measurements

_MOST_PATHS = 100_000
"""So many are kept, some ten megabytes."""


class TreeEncoder(Encoder):
    """Encodes tablets of devices. A payload's data: the one call but for the session's number and its end,
    as bytes, in a list."""

    def __init__(self, job: Job, database: str) -> None:
        self._columns = list_measurements(job.schema)
        self._time = job.schema.time
        self._names = [write_node(column.name) for column in self._columns]
        self._codes = [CODES[column.type] for column in self._columns]
        self._tables = [f"{name_table(database, table)}." for table in job.table_names]
        self._paths: dict[tuple[int, bytes], bytes] = {}
        self._records: dict[bytes, bytes] = {}

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return self._batches(block, batch) if batch else self._singles(block)

    def _batches(self, block: EventBlock, batch: int) -> list[Payload]:
        runs = find_runs(block, self._time, batch, len(self._tables))
        columns = [pack(column, block, runs.order) for column in self._columns]
        times = block.columns[self._time]
        stamps = pack_numbers(times if runs.order is None else times[runs.order], ">i8")
        tables, devices = runs.tables.tolist(), runs.devices.tolist()
        paths = [self._path(*one) for one in zip(tables, devices, strict=True)]
        requests = -(-len(block) // batch)
        groups = [
            _make_tablets(chosen, runs.starts[chosen], rows, columns, stamps, paths)
            for chosen, rows in _group(runs.starts, runs.ends, columns)
        ]
        cuts = [np.searchsorted(runs.requests[one.runs], range(requests + 1)) for one in groups]
        payloads = []
        for request in range(requests):
            parts = [
                one.cut(int(cut[request]), int(cut[request + 1]))
                for one, cut in zip(groups, cuts, strict=True)
                if cut[request] < cut[request + 1]
            ]
            events = min(batch, len(block) - request * batch)
            last = request * batch + events - 1
            payloads.append(Payload([[self._make_call(parts)]], events, block, last))
        return payloads

    def _make_call(self, parts: Sequence[_Tablets]) -> bytes:
        count = sum(len(part.paths) for part in parts)
        return b"".join(
            (
                begin_call("insertTablets"),
                begin_texts(2, count),
                *(path for part in parts for path in part.paths),
                begin_lists(3, count),
                write_texts(self._names) * count,
                begin_texts(4, count),
                *(piece for part in parts for piece in part.values),
                begin_texts(5, count),
                *(part.stamps for part in parts),
                begin_lists(6, count),
                write_i32s(self._codes) * count,
                put_i32s(7, [part.rows for part in parts for _ in part.paths]),
                put_bool(8, True),
            )
        )

    def _path(self, table: int, device: bytes) -> bytes:
        """A device's path, with its length before it."""
        found = self._paths.get((table, device))
        if found is None:
            if len(self._paths) >= _MOST_PATHS:
                self._paths.clear()
            found = write_text(self._tables[table] + write_node(device.decode()))
            self._paths[table, device] = found
        return found

    def _singles(self, block: EventBlock) -> list[Payload]:
        columns = [pack(column, block, None) for column in self._columns]
        stamps = pack_numbers(block.columns[self._time], ">i8")
        rows = zip(
            self._list_paths(block),
            self._list_values(columns, len(block)),
            stamps.rows(),
            strict=True,
        )
        head = begin_call("insertRecord")
        path, end = begin_bytes(2, 0)[:-4], put_bool(6, True)
        stamp = put_i64(5, 0)[:-8]
        return [
            Payload([[b"".join((head, path, where, values, stamp, time, end))]], 1, block, row)
            for row, (where, values, time) in enumerate(rows)
        ]

    def _list_paths(self, block: EventBlock) -> Iterator[bytes]:
        """The path of each event's device."""
        tables = len(self._tables)
        for number, device in enumerate(block.devices.tolist(), block.first):
            yield self._path(number % tables, device)

    def _list_values(self, columns: Sequence[Packed], count: int) -> Iterable[bytes]:
        """Of each event the names and the values of its measurements, as two fields."""
        typed = [
            [bytes([code]) + value for value in packed.rows()]
            for packed, code in zip(columns, self._codes, strict=True)
        ]
        masks = [packed.missing for packed in columns]
        if all(mask is None for mask in masks):
            names = put_texts(3, self._names)
            for values in zip(*typed, strict=True):
                data = b"".join(values)
                yield b"".join((names, begin_bytes(4, len(data)), data))
            return
        there = [np.ones(count, bool) if mask is None else ~mask for mask in masks]
        rows = zip(np.stack(there, axis=1), zip(*typed, strict=True), strict=True)
        for given, values in rows:
            data = b"".join(value for value, has in zip(values, given.tolist(), strict=True) if has)
            yield b"".join((self._name_given(given), begin_bytes(4, len(data)), data))

    def _name_given(self, given: NDArray[np.bool_]) -> bytes:
        """The names of these measurements, as a field."""
        key = given.tobytes()
        if key not in self._records:
            names = [name for name, has in zip(self._names, given.tolist(), strict=True) if has]
            self._records[key] = put_texts(3, names)
        return self._records[key]


class _Tablets(NamedTuple):
    """Some tablets of one request, all of so many rows."""

    rows: int
    paths: Sequence[bytes]
    values: Sequence[bytes]
    """Of all tablets one after the other, in any number of pieces, each with its length before it."""
    stamps: bytes


class _Group:
    """The tablets of all of a block's requests that have so many rows."""

    def __init__(
        self,
        runs: NDArray[np.intp],
        rows: int,
        paths: Sequence[bytes],
        values: NDArray[np.uint8] | Sequence[bytes],
        stamps: NDArray[np.uint8],
    ) -> None:
        self.runs = runs
        self._rows, self._paths = rows, paths
        self._values, self._stamps = values, stamps

    def cut(self, begin: int, end: int) -> _Tablets:
        """Those of the runs [begin, end) of this group."""
        values = self._values[begin:end]
        pieces = [values.tobytes()] if isinstance(values, np.ndarray) else values
        stamps = self._stamps[begin:end].tobytes()
        return _Tablets(self._rows, self._paths[begin:end], pieces, stamps)


def _group(
    starts: NDArray[np.intp], ends: NDArray[np.intp], columns: Sequence[Packed]
) -> Iterator[tuple[NDArray[np.intp], int]]:
    """The runs of each length, those with missing values apart."""
    kinds = 2 * (ends - starts)
    masks = [packed.missing for packed in columns if packed.missing is not None]
    if masks:
        kinds += np.logical_or.reduceat(np.logical_or.reduce(masks), starts)
    for kind in np.unique(kinds).tolist():
        yield np.flatnonzero(kinds == kind), kind // 2


def _make_tablets(
    runs: NDArray[np.intp],
    starts: NDArray[np.intp],
    rows: int,
    columns: Sequence[Packed],
    stamps: Packed,
    paths: Sequence[bytes],
) -> _Group:
    """The tablets of runs that have so many rows, and begin there."""
    named = [paths[run] for run in runs.tolist()]
    gaps = [None if one.missing is None else one.cut_missing(starts, rows) for one in columns]
    bits = pack_bits(gaps, len(starts), rows)
    values: Any = [packed.cut(starts, rows) for packed in columns]
    are_wide = all(isinstance(value, np.ndarray) for value in values)
    joined = (
        _with_length(np.concatenate((*values, bits), axis=1)) if are_wide else _join(values, bits)
    )
    return _Group(runs, rows, named, joined, _with_length(stamps.cut(starts, rows)))


def _with_length(octets: Any) -> NDArray[np.uint8]:
    """Texts of one length, each with that before it."""
    length = np.frombuffer(octets.shape[1].to_bytes(4, "big"), np.uint8)
    return np.concatenate((np.broadcast_to(length, (len(octets), 4)), octets), axis=1)


def _join(values: Sequence[Any], bits: NDArray[np.uint8]) -> list[bytes]:
    """The same of columns some of whose texts differ in length."""
    columns: list[list[bytes]] = [
        np.ascontiguousarray(one).view(f"V{one.shape[1]}").reshape(-1).tolist()
        if isinstance(one, np.ndarray)
        else one
        for one in (*values, bits)
        if not isinstance(one, np.ndarray) or one.shape[1]
    ]
    bodies = map(b"".join, zip(*columns, strict=True))
    return [len(body).to_bytes(4, "big") + body for body in bodies]
