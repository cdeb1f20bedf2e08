"""Lines of JSON for `/api/v1/import`, one for each series of a request.

    {"metric":{"__name__":"events:temperature","device_id":"w00000d000000"},"values":[21.50],"timestamps":[1704067203150]}

A series' labels are said once for all its samples in a request, and not with each event as in CSV. By that
the server is quicker if requests have many events of each device. How many are enough, and how much it is,
stands in docs/measurements/import-paths.md.

A line has samples of one month, and lines of another month stand behind those of all series: of samples that
follow each other in a series, the server (1.145) looks up the first only, and takes the others for those of
a series that was deleted in their month, if there was one. (Where a request has a single series nothing can
stand between them, in CSV neither: the count after the run tells.)

Texts of whole columns are made by numpy, of rows that are put together by request, device and table, with a
mark where another series begins; what is left to Python are the lines.

https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#json-line-format
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ...encoding.columns import all_alike, bounds, escape_json, text_format
from ...encoding.rows import ROW_SEPARATOR, format_rows
from ...workloads.schema import Column, EventBlock
from ..base import Job
from .encoding import CsvEncoder, ImportEncoder, find_numbers, name_metric

_ENOUGH = 60
"""Samples of each device in a request from which on JSON is quicker: docs/measurements/import-paths.md."""

_LINE = b'{"metric":{"__name__":"%b",%b},"values":[%b],"timestamps":[%b]}'


class SeriesEncoder(ImportEncoder):
    """Lines of JSON."""

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job, compressed, db)
        self.target = "/api/v1/import" + (f"?{self._extra_label}" if self._extra_label else "")
        self._forms = [b"%b" + text_format(column) for column in self._fields]
        self._names = [
            [_quote(name_metric(table, column.name)) for table in self._tables]
            for column in self._fields
        ]

    def write(self, block: EventBlock, tables: NDArray[np.int64], batch: int) -> list[bytes]:
        size = batch or 1
        devices, labels = self._number_devices(block)
        times = block.columns[self._schema.time]
        months, span = _number_months(times)
        parts = np.arange(len(block)) // size * span + months
        key = (parts * len(labels) + devices) * len(self._tables) + tables
        order = np.argsort(key, kind="stable")
        key, times = key[order], times[order]
        begins = np.concatenate(([True], key[1:] != key[:-1]))
        first = order[begins]
        # What each run of rows belongs to: request and month, device, table.
        own_parts, own_devices, own_tables = (
            numbers[first].tolist() for numbers in (parts, devices, tables)
        )
        same_times = _write_runs(b"%b%d", times, begins)
        lines: list[list[bytes]] = [[] for _ in range(len(bounds(len(block), size)) * span)]
        for column, form, names in zip(self._fields, self._forms, self._names, strict=True):
            values = find_numbers(column, block)[order]
            missing = block.missing.get(column.name)
            if missing is None or not missing.any():
                filled = list(range(len(own_parts)))
                texts, own_times = _write_runs(form, values, begins), same_times
            else:
                present = ~missing[order]
                owners = (np.cumsum(begins) - 1)[present]
                own = np.concatenate(([True], owners[1:] != owners[:-1]))[: len(owners)]
                filled = owners[own].tolist()
                texts = _write_runs(form, values[present], own)
                own_times = _write_runs(b"%b%d", times[present], own)
            for run, text, at in zip(filled, texts, own_times, strict=True):
                name, label = names[own_tables[run]], labels[own_devices[run]]
                lines[own_parts[run]].append(_LINE % (name, label, text, at))
        return [
            b"\n".join(chain.from_iterable(lines[start : start + span]))
            for start in range(0, len(lines), span)
        ]

    def _number_devices(self, block: EventBlock) -> tuple[NDArray[np.int64], list[bytes]]:
        """The number of each event's device, and each device's labels."""
        devices = np.ascontiguousarray(block.devices)
        if all_alike(devices):
            return np.zeros(len(block), dtype=np.int64), self._write_labels(block, np.array([0]))
        _, first, numbers = np.unique(devices, return_index=True, return_inverse=True)
        return numbers.astype(np.int64), self._write_labels(block, first)

    def _write_labels(self, block: EventBlock, rows: NDArray[np.integer[Any]]) -> list[bytes]:
        """The labels of the devices of these rows, as members of a JSON object."""
        schema = self._schema
        if schema.device_path:
            members = list(map(_list_members, block.columns[schema.device][rows].tolist()))
        else:
            name = _quote(schema.device)
            texts = escape_json(block.devices[rows]).tolist()
            members = [b'"%b":"%b"' % (name, text) for text in texts]
        for tag in self._tags:
            texts = self._write_tag(tag, block.columns[tag.name][rows])
            name = _quote(tag.name)
            members = [
                b'%b,"%b":"%b"' % (before, name, text)
                for before, text in zip(members, texts, strict=True)
            ]
        return members

    def _write_tag(self, tag: Column, values: NDArray[Any]) -> list[bytes]:
        labels = self._labels.get(tag.name)
        texts: list[bytes] = (
            escape_json(values) if labels is None else labels.write(values)
        ).tolist()
        return texts


class ChoosingEncoder(ImportEncoder):
    """JSON or CSV, whichever suits the first request: the others are like it."""

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job, compressed, db)
        self._arguments = (job, compressed, db)
        self._chosen: ImportEncoder | None = None

    def write(self, block: EventBlock, tables: NDArray[np.int64], batch: int) -> list[bytes]:
        if self._chosen is None:
            self._chosen = self._choose(block.devices[: batch or 1])(*self._arguments)
        bodies = self._chosen.write(block, tables, batch)
        self.target = self._chosen.target
        return bodies

    def _choose(self, devices: NDArray[np.bytes_]) -> type[ImportEncoder]:
        """The encoder that suits a request with events of these devices."""
        if any("\n" in text for tag in self._tags for text in tag.texts):
            return SeriesEncoder  # CSV has no line breaks here
        samples = len(devices) * len(self._fields)
        are_enough = samples >= _ENOUGH * len(set(devices.tolist()))
        return SeriesEncoder if are_enough else CsvEncoder


def _number_months(times_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The month of each time, counted from the first, and how many there are from first to last."""
    ends = np.array([times_ms.min(), times_ms.max()]).astype("datetime64[ms]")
    first, last = ends.astype("datetime64[M]").astype(np.int64).tolist()
    if first == last:
        return np.zeros(len(times_ms), dtype=np.int64), 1
    months = times_ms.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
    return months - first, last - first + 1


def _write_runs(form: bytes, values: NDArray[Any], begins: NDArray[np.bool_]) -> list[bytes]:
    """The values of each run as texts with commas between them; `form` begins with what is before each."""
    if not len(values):
        return []
    marks = np.where(begins, ROW_SEPARATOR, b",")
    return format_rows(form, b"", [marks, values]).split(ROW_SEPARATOR)[1:]


def _quote(text: str) -> bytes:
    """A text as the inside of a JSON string."""
    return orjson.dumps(text)[1:-1]


@lru_cache(maxsize=65_536)
def _list_members(document: bytes) -> bytes:
    """The members of a JSON object, all of them texts. Kept, since the events of a device share one."""
    members = orjson.loads(document)
    texts = {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in members.items()
    }
    return orjson.dumps(texts)[1:-1]
