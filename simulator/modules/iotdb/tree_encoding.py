"""Tablets of IoTDB's tree model: a request is one for each device, all sent by one `insertTablets`.

A tablet's values are columns of bytes, as in the table model (`encoding.py`), but it is of one device, whose
path it names. A block's events are put in order once: by request, table, device and time. Then each tablet
is a run of neighbours, and numpy makes many at once (`tree_tablets.py`).

A single insert is an `insertRecord`: each value has its type before it, and missing ones aren't named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ...workloads.events import EventBlock
from ..base import Job
from ..sending import Encoder, Payload
from .encoding import CODES
from .paths import Paths, name_table, write_node
from .thrift import (
    begin_bytes,
    begin_call,
    begin_i32s,
    begin_lists,
    begin_texts,
    put_bool,
    put_i64,
    put_texts,
    write_i32s,
    write_texts,
)
from .tree_columns import Measured, find_runs, measure, measure_times
from .tree_schema import list_measurements
from .tree_tablets import Tablets, make_groups
from .values import Piece


class TreeEncoder(Encoder):
    """Encodes tablets of devices. A payload's data: the one call but for the session's number and its end,
    in pieces."""

    def __init__(self, job: Job, database: str) -> None:
        self._columns = list_measurements(job.schema)
        self._time = job.schema.time
        self._names = [write_node(column.name) for column in self._columns]
        self._codes = [CODES[column.type] for column in self._columns]
        self._written_names = write_texts(self._names)
        self._written_codes = write_i32s(self._codes)
        self._paths = [Paths(name_table(database, table)) for table in job.table_names]
        self._records: dict[bytes, bytes] = {}

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return self._batches(block, batch) if batch else self._singles(block)

    def _batches(self, block: EventBlock, batch: int) -> list[Payload]:
        runs = find_runs(block, self._time, batch, len(self._paths))
        columns = [measure(column, block, runs) for column in self._columns]
        stamps = measure_times(block.columns[self._time])
        paths = self._find_paths(runs.tables, runs.devices)
        requests = -(-len(block) // batch)
        groups = make_groups(runs, requests, columns, stamps, paths)
        cuts = [
            np.searchsorted(runs.requests[group.runs], range(requests + 1)).tolist()
            for group in groups
        ]
        payloads = []
        for request in range(requests):
            parts = [
                group.cut(cut[request], cut[request + 1])
                for group, cut in zip(groups, cuts, strict=True)
                if cut[request] < cut[request + 1]
            ]
            events = min(batch, len(block) - request * batch)
            last = request * batch + events - 1
            payloads.append(Payload([self._make_call(parts)], events, block, last))
        return payloads

    def _make_call(self, parts: Sequence[Tablets]) -> list[Piece]:
        count = sum(len(part.paths) for part in parts)
        paths = chain.from_iterable(part.paths for part in parts)
        sizes = [part.size.to_bytes(4, "big") * len(part.paths) for part in parts]
        return [
            b"".join((begin_call("insertTablets"), begin_texts(2, count), *paths)),
            begin_lists(3, count),
            self._written_names * count,
            begin_texts(4, count),
            *chain.from_iterable(part.values for part in parts),
            begin_texts(5, count),
            *(part.stamps for part in parts),
            begin_lists(6, count),
            self._written_codes * count,
            b"".join((begin_i32s(7, count), *sizes, put_bool(8, True))),
        ]

    def _singles(self, block: EventBlock) -> list[Payload]:
        columns = [measure(column, block) for column in self._columns]
        stamps = measure_times(block.columns[self._time]).spell(slice(None))
        tables = (block.first + np.arange(len(block))) % len(self._paths)
        paths = self._find_paths(tables, block.devices)
        rows = zip(paths, self._list_values(columns, len(block)), stamps, strict=True)
        head = begin_call("insertRecord")
        path, end = begin_bytes(2, 0)[:-4], put_bool(6, True)
        stamp = put_i64(5, 0)[:-8]
        return [
            Payload([[b"".join((head, path, where, values, stamp, time, end))]], 1, block, row)
            for row, (where, values, time) in enumerate(rows)
        ]

    def _find_paths(self, tables: NDArray[np.intp], devices: NDArray[np.bytes_]) -> Sequence[bytes]:
        """The paths of devices of those tables."""
        if len(self._paths) == 1:
            return list(map(self._paths[0].__getitem__, devices.tolist()))
        pairs = zip(tables.tolist(), devices.tolist(), strict=True)
        return [self._paths[table][device] for table, device in pairs]

    def _list_values(self, columns: Sequence[Measured], count: int) -> Iterable[bytes]:
        """Of each event the names and the values of its measurements, as two fields."""
        typed = [
            [bytes([code]) + value for value in column.spell(slice(None))]
            for column, code in zip(columns, self._codes, strict=True)
        ]
        masks = [column.missing for column in columns]
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
