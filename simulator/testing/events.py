"""Events in the form in which the suite compares them, the most awkward ones, and inserting like a worker."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import orjson

from ..modules.base import AnyModule, connect
from ..modules.sending import Request, Writer
from ..worker.feed import Feed
from ..worker.loop import InsertLoop
from ..worker.measure import Recorder
from ..worker.writing import store_devices
from ..workloads import WORKLOADS
from ..workloads.base import Workload
from ..workloads.defined import define
from ..workloads.schema import (
    FIRST_TIMESTAMP_MS,
    FLOATS,
    Column,
    ColumnType,
    EventBlock,
    Schema,
    Tags,
)
from ..workloads.yaml_source import parse_definition

Row = tuple[object, ...]


def rows_of(*blocks: EventBlock) -> list[Row]:
    """The events as rows of plain values, in the schema's order of columns and sortable."""
    rows: list[Row] = []
    for block in blocks:
        columns = {
            column.name: block.columns[column.name].tolist() for column in block.schema.columns
        }
        for name, missing in block.missing.items():
            for row in np.flatnonzero(missing):
                columns[name][row] = None
        rows += normalise(block.schema, zip(*columns.values(), strict=True))
    return rows


def normalise(schema: Schema, rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Rows in one form, whether from numpy or from a database's driver. A FLOAT32 becomes the float32 that it
    represents, a JSON document a text with sorted keys. A missing value is None."""
    types = [column.type for column in schema.columns]
    return [
        tuple(_normal(kind, value) for kind, value in zip(types, row, strict=True)) for row in rows
    ]


def _normal(kind: ColumnType, value: Any) -> object:
    if value is None:
        return None
    if kind is ColumnType.JSON:
        # Bytes are numpy's text of a document; a value from a database is parsed already.
        document = orjson.loads(value) if isinstance(value, bytes) else value
        return json.dumps(document, sort_keys=True)
    if kind is ColumnType.TEXT:
        return value.decode() if isinstance(value, bytes) else value
    if kind in FLOATS:
        number = float(np.float32(value) if kind is ColumnType.FLOAT32 else value)
        # The same object, which Python's lists and tuples treat as equal.
        return math.nan if math.isnan(number) else number
    if kind is ColumnType.BOOL:
        assert value in (True, False)
        return bool(value)
    return int(value)


TEXTS = (
    "",
    "plain",
    "it's, it''s",
    'say "hello"',
    "back\\slash, \\n and \\t are no escapes, \\\\ are two",
    "\\N",
    "\\.",
    "tab\there",
    "line\nbreak",
    "carriage\rreturn\r\n",
    " spaces around ",
    "Grüße, 温度 21 °C 🌡",
    "100 %, %s, %d, %%",
    "'; DROP TABLE awkward; --",
    "{braces}, [brackets], a=b,c=d",
    "\x01 and \x7f",
    "x" * 300,
)

DOCUMENTS: tuple[object, ...] = (
    {},
    {"quote": 'it\'s "so"', "path": "C:\\temp\\new", "per cent": "100 %s"},
    {"lines": "a\nb\tc\r", "empty": "", "Grüße": "温度 🌡"},
    [1, -2.5, None, True, {"nested": [[], {}]}],
    "a lone text with ' and \\ and \"",
)

_SMALLS = (0, -1, 4711)
_BIGS = (0, -1, -123_456_789_012)
_MEASURES = (0.0, -273.15, 0.1, 3.4028235e38, -3.4028235e38, 1.1754944e-38, 1e-45, 16777217.0)


def make_schema(table: str, *columns: Column, device: str = "device") -> Schema:
    """Events at a time `at` of a device, with these further columns."""
    return Schema(
        table,
        (Column("at", ColumnType.TIMESTAMP_MS), Column(device, ColumnType.TEXT), *columns),
        time="at",
        device=device,
        key=(device, "at"),
    )


class Awkward(Workload):
    """Everything that could trip up an encoder: texts of any length with every character that some format
    escapes, empty ones, the ends of the integer ranges, floats without fixed decimals."""

    name = "awkward"
    schema = Schema(
        table="awkward",
        columns=(
            Column("note", ColumnType.TEXT),
            Column("noted_at", ColumnType.TIMESTAMP_MS),
            Column("small", ColumnType.INT32),
            Column("document", ColumnType.JSON),
            # A keyword in nearly every query language.
            Column("order", ColumnType.INT64),
            Column("device", ColumnType.TEXT),
            Column("measure", ColumnType.FLOAT32),
        ),
        time="noted_at",
        device="device",
        key=("device", "noted_at"),
    )
    int32_range = (-(2**31), 2**31 - 1)
    int64_range = (-(2**63), 2**63 - 1)
    """The ends of its range are among the numbers: the range of a database's type."""

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.devices(worker)[numbers % self.device_spread]

        # Cycles of different lengths, so that all pairs occur.
        def dealt(values: Sequence[Any], kind: Any) -> np.ndarray[Any, Any]:
            return np.array([values[number % len(values)] for number in numbers.tolist()], kind)

        return EventBlock(
            self.schema,
            worker,
            first,
            {
                "note": dealt([text.encode() for text in TEXTS], None),
                "noted_at": FIRST_TIMESTAMP_MS + (numbers - time_origin) * 1000,
                "small": dealt((*_SMALLS, *self.int32_range), np.int32),
                "document": dealt([orjson.dumps(document) for document in DOCUMENTS], None),
                "order": dealt((*_BIGS, *self.int64_range), np.int64),
                "device": devices,
                "measure": dealt(_MEASURES, np.float32),
            },
            devices,
        )


SUNDRY = r"""
name: sundry
about: A column of each type, and of each signal
table: where
time: timestamp
device: user
devices: 7
interval: 10s
jitter: 2s
late: {share: 10%, most: 2m}
columns:
  - {name: timestamp, type: timestamp_ms}
  - {name: user, type: text}
  - {name: order, type: text, tag: true,
     signal: {kind: choice, values: [B, "a,\tC=", 'd "\d', "", Ä, ﬀ, 🌡]}}
  - {name: table, type: int32, tag: true, signal: {kind: choice, values: [1, -2]}}
  - {name: select, type: float32, decimals: 2, missing: 5%,
     signal: {kind: wander, low: -5, high: 5, period: 10m}}
  - {name: from, type: float32, missing: 5%, signal: {kind: uniform, low: -5, high: 5}}
  - {name: limit, type: float32, missing: 5%, signal: {kind: uniform, low: 0, high: 5}}
  - {name: return, type: float64, signal: {kind: normal, mean: 0, deviation: 1}}
  - {name: by, type: int32, missing: 50%, signal: {kind: uniform, low: -3.5, high: 3}}
  - {name: group, type: int64, signal: {kind: counter, every: 1s, spread: 9}}
  - {name: filter, type: float32, signal: {kind: cycle, low: 0, high: 9, period: 1h, noise: 0.1}}
  - {name: and, type: bool, missing: 1%, signal: {kind: hold, lasts: 1m, values: [yes, no]}}
  - {name: let, type: text, missing: 30%, signal: {kind: choice, values:
     [Küche, x, X, é, "e\u0301", a b, "tab\t", "line\nbreak", it''s, 'say "\"', \N, ﬀ, 🌡, 温度]}}
  - {name: in, type: json, missing: 20%, signal: {kind: choice, values:
     [{a: 1, r: {h: 40.5}, s: {"it's é": Küche}}, {a: 2, b: [null], r: {h: 2}, s: {"it's é": x}},
      {"\"\\": "a\\b\n\t'", é: 🌡}]}}
  - {name: date, type: timestamp_ms, signal: {kind: uniform, low: 0, high: 1.0e+12}}
queries:
  - {name: in-documents, compute: [{function: max, column: in.a}, {function: p50, column: in.r.h}],
     per: ["in.s.it's é"]}
"""
"""Every type, every signal, tags and missing values. Its names are words of some query language. Its texts
have what some protocol escapes, and their order differs by case, by accents, and in UTF-16."""

PATHS = ("a", "r.h", "s.it's é")
"""Paths to query in its documents."""

Sundry = define(parse_definition(SUNDRY, "sundry.yaml"))
Sundry.window = 20_000  # smaller than usual, so that tests are quick


def make_texts(texts: Sequence[str], in_events: bool) -> Workload:
    """Events with one of these texts as a tag, and optionally another in a column of their own."""
    signal = f"signal: {{kind: choice, values: {orjson.dumps(texts).decode()}}}"
    note = f"  - {{name: note, type: text, {signal}}}\n" * in_events
    definition = f"""\
name: texts
about: Texts
table: texts
time: at
device: device
devices: 9
interval: 1s
columns:
  - {{name: at, type: timestamp_ms}}
  - {{name: device, type: text}}
  - {{name: place, type: text, tag: true, {signal}}}
{note}  - {{name: value, type: int32, signal: {{kind: uniform, low: 0, high: 9}}}}
"""
    return define(parse_definition(definition, "texts.yaml"))()


SPARSE = """\
name: sparse
about: Numbers, some of which are missing
table: sparse
time: timestamp
device: user
devices: 3
interval: 10s
late: {share: 20%, most: 1m}
columns:
  - {name: timestamp, type: timestamp_ms}
  - {name: user, type: text}
  - {name: level, type: int32, missing: 30%, signal: {kind: uniform, low: 0, high: 9}}
  - {name: speed, type: float64, decimals: 2, signal: {kind: uniform, low: 0, high: 9}}
  - {name: power, type: float32, decimals: 1, signal: {kind: uniform, low: 0, high: 9}}
  - {name: state, type: int32, signal: {kind: uniform, low: 0, high: 9}}
"""

Sparse = define(parse_definition(SPARSE, "sparse.yaml"))
"""Events whose values every database can store."""
Sparse.window = 20_000

TESTED: dict[str, type[Workload]] = {**WORKLOADS, Sundry.name: Sundry}
"""The workloads whose events the suite stores: shipped definitions consist of the same parts."""


# --- inserting ------------------------------------------------------------------------------------


class NotingRecorder(Recorder):
    """Records when each request was in flight: (submitted, answered), by `time.perf_counter`."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[float, float]] = []

    def record(self, sent: float, answered: float, events: int) -> None:
        self.spans.append((sent, answered))
        super().record(sent, answered, events)


class HookedLoop(InsertLoop):
    """Calls functions right before certain requests are sent: the only moment that is known exactly."""

    before: Mapping[int, Callable[[], object]] = {}
    _number = 0

    def begin(self, request: Request) -> bool:
        if hook := self.before.get(self._number):
            hook()
        self._number += 1
        return super().begin(request)


def insert(
    writer: Writer,
    workload: Workload,
    count: int,
    *,
    worker: int = 0,
    first: int = 0,
    before: Mapping[int, Callable[[], object]] | None = None,
    max_retries: int = 8,
    patience_s: float | None = None,
    abort: Callable[[], object] = lambda: None,
) -> NotingRecorder:
    """Insert events like a worker. Returns the recorder. `before`: request number -> hook."""

    def generate(start: int, size: int) -> EventBlock:
        return workload.block(worker, start, size)

    feed = Feed(generate, writer.encoder, first, count)
    feed.prime()
    recorder = NotingRecorder()
    recorder.begin(0.0)
    loop = HookedLoop(writer, recorder, max_retries, abort, patience_s=patience_s)
    loop.before = before or {}
    loop.run(feed)
    recorder.end()
    return recorder


def store_devices_of(module: AnyModule, workload: Workload, worker: int) -> None:
    """Insert the rows of a worker's devices, if there is a table for them."""
    if workload.schema.tags is Tags.TABLE:
        store_devices(module, workload, worker)


def insert_with(
    module: AnyModule, workload: Workload, count: int, *, worker: int = 0, first: int = 0
) -> NotingRecorder:
    """Insert the rows of the events' devices, then the events, with a writer of the module's own job."""
    store_devices_of(module, workload, worker)
    with connect(module.writer()) as writer:
        return insert(writer, workload, count, worker=worker, first=first)


Losses = Mapping[str, Collection[str]]
"""Device -> columns."""


def lose(block: EventBlock, losses: Losses) -> EventBlock:
    """The events without these columns' values for these devices."""
    missing = dict(block.missing)
    for device, names in losses.items():
        for name in names:
            before = missing.get(name, np.zeros(len(block), dtype=np.bool_))
            missing[name] = before | (block.devices == device.encode())
    columns = [replace(c, nullable=c.nullable or c.name in missing) for c in block.schema.columns]
    return replace(block, schema=replace(block.schema, columns=tuple(columns)), missing=missing)


def insert_block(module: AnyModule, block: EventBlock) -> None:
    """Insert a block's events with a writer of the module's own job."""
    with connect(module.writer()) as writer:
        for payload in writer.encoder.encode(block):
            writer.call(payload)


def most_at_once(recorder: NotingRecorder) -> int:
    """The most requests that were in flight at once. Not an average: a busy machine may keep a client waiting
    between two requests for longer than all of them took."""
    changes = [(sent, 1) for sent, _ in recorder.spans]
    changes += [(answered, -1) for _, answered in recorder.spans]
    # Of two at the same instant, the end comes first.
    return max(accumulate(change for _, change in sorted(changes)))
