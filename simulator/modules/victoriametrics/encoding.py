"""Imports: lines of CSV for `/api/v1/import/csv`, or of JSON for `/api/v1/import`, built from the schema.

    w00000d000000,1704067203150,7,21.50

The columns' meanings are in a request's URL: `1:label:device_id,2:time:unix_ms,3:metric:…`. The device is a
label, and so are columns that describe it (`Column.tag`); in a document that names the device
(`Schema.device_path`), each key is a label. Each other column except the time is a metric, named by table and
column, so a device has a series for each. An empty field is a missing value. With several tables, a line has
fields for all of them, and only one table's are filled.

With JSON, each series of a request has a line:

    {"metric":{"__name__":"events:temperature","device_id":"w00000d000000"},"values":[21.50],"timestamps":[1704067203150]}

This is faster on the server if requests have many events per device. docs/measurements/import-paths.md says
how many, and how much faster.

https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#how-to-import-csv-data
https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#json-line-format
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import NDArray

from ...encoding.columns import TEXTS, all_alike, bounds, escape_json, is_constant, text_format
from ...encoding.rows import (
    ROW_SEPARATOR,
    format_requests,
    format_rows,
    format_singles,
    text_form,
    text_values,
)
from ...errors import SimulatorError
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Job
from ..kit.exactly_once import TablePart
from ..kit.http_connection import compress
from ..kit.series import Labels, field_columns, read_labels, tag_columns
from ..sending import Encoder, Request, number_tables

ALL_TIME = (86_400_000, 4_102_444_800_000)
"""From 2 January 1970 to 2100, in ms, excluding the end. A server looks some minutes before a window, and one
of 2022 finds nothing if that is before 1970."""

MOST_WHOLE = 2**53
"""Larger integers would be rounded."""

DB = "_db"
"""The label set by the option `db`. No definition has a tag with that name."""


class Span(NamedTuple):
    """The times of the samples that a server accepts, in ms before and after now. It drops others
    silently."""

    before_ms: int
    after_ms: int

    @property
    def times_ms(self) -> tuple[int, int]:
        """The first and the last time, seen from now, since 1970."""
        now_ms = int(time.time() * 1000)
        return now_ms - self.before_ms, now_ms + self.after_ms


@dataclass(slots=True)
class Import(TablePart):
    """One import."""

    target: str
    body: bytes
    encoder: ImportEncoder

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        first = payload.last + 1 - payload.events
        rows = np.array([first + self.rows[position] for position in positions])
        self.body = self.encoder.encode_rows(payload.block, rows)


def name_metric(table: str, column: str) -> str:
    """The name of the series of a table's column, and of no other table's: table names have no colon."""
    return f"{table}:{column}"


class ImportEncoder(Encoder, ABC):
    """A payload's data: a list of one `Import`."""

    taken: Span | None = None
    """The times that the server accepts, once known."""
    target: str
    """The target of the requests that were built last."""

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job)
        self._schema = schema = job.schema
        self._compressed = compressed
        self._extra_label = "" if db is None else f"extra_label={DB}={quote(db, '')}"
        # In the stored form: a truth value is 0 or 1.
        self._fields = [
            replace(column, type=ColumnType.INT32) if column.type is ColumnType.BOOL else column
            for column in field_columns(schema)
        ]
        self._tags = tag_columns(schema)
        self._labels = {
            column.name: Labels(column) for column in self._tags if column.type not in TEXTS
        }
        self._tables = job.table_names

    @abstractmethod
    def write(self, block: EventBlock, tables: NDArray[np.int64], size: int) -> list[bytes]:
        """The bodies of requests of `size` events, uncompressed; sets their `target`. `tables`: the number of
        each event's table."""

    def encode(self, block: EventBlock) -> list[Request]:
        self.check_times(block)
        bodies = self.write(block, number_tables(block, len(self._tables)), self.size)
        if self._compressed:
            bodies = list(map(compress, bodies))
        target = self.target
        return [
            Request(
                [Import(range(stop - start), target, body, self)], stop - start, block, stop - 1
            )
            for body, (start, stop) in zip(bodies, bounds(len(block), self.size), strict=True)
        ]

    def encode_rows(self, block: EventBlock, rows: NDArray[np.integer[Any]]) -> bytes:
        """These rows of a block as one request's body."""
        tables = number_tables(block, len(self._tables))[rows]
        [body] = self.write(block.choose(rows), tables, len(rows))
        return compress(body) if self._compressed else body

    def check_times(self, block: EventBlock) -> None:
        """SimulatorError if the server would drop events."""
        if self.taken is None:
            return
        first, last = self.taken.times_ms
        times = block.columns[self._schema.time]
        for worst in (int(times.min()), int(times.max())):
            if not first <= worst <= last:
                texts = [str(np.datetime64(time_ms, "ms"))[:16] for time_ms in (worst, first, last)]
                raise SimulatorError(
                    f"VictoriaMetrics would drop an event of {texts[0]} UTC: it keeps {texts[1]}"
                    f" to {texts[2]} (-retentionPeriod, -futureRetention)"
                )


class CsvEncoder(ImportEncoder):
    """Lines of CSV."""

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job, compressed, db)
        extra = f"{self._extra_label}&" if self._extra_label else ""
        self._path = f"/api/v1/import/csv?{extra}format="
        self._forms = [b"," + text_format(column) for column in self._fields]
        self._keys: tuple[str, ...] = () if job.schema.device_path else (job.schema.device,)
        """The labels in the first column of a line."""
        self._targets: dict[tuple[str, ...], str] = {}
        values = b"".join(map(text_form, self._fields, self._forms))
        # What precedes a table's fields, and what follows them.
        self._gaps: list[tuple[bytes, bytes]] = []
        if len(self._tables) > 1:
            values = b"%b" + values + b"%b"
            width, last = len(self._fields), len(self._tables) - 1
            self._gaps = [
                (b"," * (width * place), b"," * (width * (last - place)))
                for place in range(last + 1)
            ]
        self._line = b"%b" + b",%b" * len(self._tags) + b",%d" + values

    def write(self, block: EventBlock, tables: NDArray[np.int64], size: int) -> list[bytes]:
        columns = self._columns(block, tables)
        if self._keys not in self._targets:
            labels = [*self._keys, *(column.name for column in self._tags)]
            metrics = [
                name_metric(table, column.name) for table in self._tables for column in self._fields
            ]
            for name in (*labels, *metrics):
                if "," in name:
                    raise SimulatorError(
                        f"{name}: names of labels and metrics can't contain a comma here"
                    )
            parts = [f"label:{name}" for name in labels]
            parts += ["time:unix_ms", *(f"metric:{name}" for name in metrics)]
            numbered = ",".join(f"{place}:{part}" for place, part in enumerate(parts, 1))
            self._targets[self._keys] = self._path + quote(numbered, ":,")
        self.target = self._targets[self._keys]
        if size == 1:
            return format_singles(self._line, columns)
        return format_requests(self._line, b"\n", columns, size)

    def _columns(self, block: EventBlock, tables: NDArray[np.int64]) -> list[NDArray[Any]]:
        columns = [self._devices(block)]
        for tag in self._tags:
            values = block.columns[tag.name]
            labels = self._labels.get(tag.name)
            columns.append(
                quote_labels(tag.name, values) if labels is None else labels.write(values)
            )
        columns.append(block.columns[self._schema.time])
        fields = [
            text_values(
                column, form, find_numbers(column, block), block.missing.get(column.name), b","
            )
            for column, form in zip(self._fields, self._forms, strict=True)
        ]
        if self._gaps:
            before, behind = zip(*self._gaps, strict=True)
            fields.insert(0, np.array(before)[tables])
            fields.append(np.array(behind)[tables])
        return columns + fields

    def _devices(self, block: EventBlock) -> NDArray[Any]:
        schema = self._schema
        if not schema.device_path:
            return quote_labels(schema.device, block.devices)
        documents = block.columns[schema.device]
        different = documents[:1] if is_constant(documents) else documents
        texts = different.tolist()
        labels = [_write_labels(text, self._keys) for text in texts]
        if None in labels:
            # New keys. They are kept, so that requests rarely differ.
            keys = set(self._keys).union(*map(read_labels, set(texts)))
            self._keys = tuple(sorted(keys))
            labels = [_write_labels(text, self._keys) for text in texts]
        return np.broadcast_to(np.array(labels, dtype=bytes), documents.shape)


def find_numbers(column: Column, block: EventBlock) -> NDArray[Any]:
    """A field's values in the stored form; SimulatorError if samples can't have them."""
    values = block.columns[column.name]
    if values.dtype.kind == "b":
        return values.astype(np.int32)
    if values.dtype == np.int64:
        for worst in (int(values.min(initial=0)), int(values.max(initial=0))):
            if abs(worst) > MOST_WHOLE:
                raise SimulatorError(
                    f"{column.name} is {worst}, but VictoriaMetrics stores samples as floats and"
                    f" would round numbers beyond {MOST_WHOLE} (2**53)"
                )
    return values


def quote_labels(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """A bytes column as fields of CSV; the column itself if nothing needs quotes."""
    if is_constant(values):
        return np.broadcast_to(quote_labels(name, values[:1].copy()), values.shape)
    content = values.tobytes()
    if not any(mark in content for mark in (b",", b'"', b"\n", b"\r")):
        return values
    return np.array([_quote(name, text) for text in values.tolist()])


def _quote(name: str, text: bytes) -> bytes:
    if b"\n" in text:
        raise SimulatorError(
            f"label {name}: a line of CSV can't contain a line break here: use import_format=json"
        )
    return b'"' + text.replace(b'"', b'""') + b'"' if b"," in text or b'"' in text else text


@lru_cache(maxsize=65_536)
def _write_labels(document: bytes, keys: tuple[str, ...]) -> bytes | None:
    """The members of a JSON object as fields, in the order of `keys`; None if there are others. Cached, since
    the events of a device share one document."""
    labels = read_labels(document)
    if not labels.keys() <= set(keys):
        return None
    return b",".join(_quote(key, labels.get(key, "").encode()) for key in keys)


_ENOUGH = 60
"""Samples per device in a request from which on JSON is faster: docs/measurements/import-paths.md."""

_LINE = b'{"metric":{"__name__":"%b",%b},"values":[%b],"timestamps":[%b]}'


class SeriesEncoder(ImportEncoder):
    """Lines of JSON.

    A line has samples of one month, and the lines of the next month follow those of all series: of
    consecutive samples in a series, the server (1.145) looks up only the first, and may assign the others to
    a series that was deleted in their month. (With a single series, nothing can separate them, nor in CSV:
    the count after the run shows it.)

    numpy builds the texts of whole columns, with rows sorted by request, device and table, and a mark where
    another series begins; Python only builds the lines.
    """

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job, compressed, db)
        self.target = "/api/v1/import" + (f"?{self._extra_label}" if self._extra_label else "")
        self._forms = [b"%b" + text_format(column) for column in self._fields]
        self._names = [
            [_quote_json(name_metric(table, column.name)) for table in self._tables]
            for column in self._fields
        ]

    def write(self, block: EventBlock, tables: NDArray[np.int64], size: int) -> list[bytes]:
        devices, labels = self._number_devices(block)
        times = block.columns[self._schema.time]
        months, span = _number_months(times)
        parts = np.arange(len(block)) // size * span + months
        key = (parts * len(labels) + devices) * len(self._tables) + tables
        order = np.argsort(key, kind="stable")
        key, times = key[order], times[order]
        begins = np.concatenate(([True], key[1:] != key[:-1]))
        first = order[begins]
        # The group of each run of rows: request and month, device, table.
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
            documents = map(read_labels, block.columns[schema.device][rows].tolist())
            members = [orjson.dumps(labels)[1:-1] for labels in documents]
        else:
            name = _quote_json(schema.device)
            texts = escape_json(block.devices[rows]).tolist()
            members = [b'"%b":"%b"' % (name, text) for text in texts]
        for tag in self._tags:
            values, written = block.columns[tag.name][rows], self._labels.get(tag.name)
            texts = (escape_json(values) if written is None else written.write(values)).tolist()
            name = _quote_json(tag.name)
            members = [
                b'%b,"%b":"%b"' % (before, name, text)
                for before, text in zip(members, texts, strict=True)
            ]
        return members


class ChoosingEncoder(ImportEncoder):
    """JSON or CSV, whichever suits the first request: the others resemble it."""

    def __init__(self, job: Job, compressed: bool, db: str | None) -> None:
        super().__init__(job, compressed, db)
        self._arguments = (job, compressed, db)
        self._chosen: ImportEncoder | None = None

    def write(self, block: EventBlock, tables: NDArray[np.int64], size: int) -> list[bytes]:
        if self._chosen is None:
            devices = block.devices[:size]
            enough = _ENOUGH * len(set(devices.tolist()))
            # CSV can't have line breaks here.
            has_breaks = any("\n" in text for tag in self._tags for text in tag.texts)
            is_json = has_breaks or len(devices) * len(self._fields) >= enough
            self._chosen = (SeriesEncoder if is_json else CsvEncoder)(*self._arguments)
        bodies = self._chosen.write(block, tables, size)
        self.target = self._chosen.target
        return bodies


def _number_months(times_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The month of each time, counted from the first, and the number of months from first to last."""
    ends = np.array([times_ms.min(), times_ms.max()]).astype("datetime64[ms]")
    first, last = ends.astype("datetime64[M]").astype(np.int64).tolist()
    if first == last:
        return np.zeros(len(times_ms), dtype=np.int64), 1
    months = times_ms.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
    return months - first, last - first + 1


def _write_runs(form: bytes, values: NDArray[Any], begins: NDArray[np.bool_]) -> list[bytes]:
    """The values of each run as texts with commas between them; `form` begins with what precedes each."""
    if not len(values):
        return []
    marks = np.where(begins, ROW_SEPARATOR, b",")
    return format_rows(form, b"", [marks, values]).split(ROW_SEPARATOR)[1:]


def _quote_json(text: str) -> bytes:
    """A text as the content of a JSON string."""
    return orjson.dumps(text)[1:-1]
