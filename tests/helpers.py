"""What several tests need: the rows that events make, an awkward workload, inserting, ready messages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from simulator.contract import (
    Client,
    DataSet,
    InsertRun,
    LatencyMs,
    Load,
    RunSettings,
    Verification,
    WorkerInsert,
    WorkerResult,
    grouped,
)
from simulator.histograms import encode_histogram, merge_histograms, new_histogram
from simulator.modules.base import AnyModule, Encoder, Payload, Writer
from simulator.worker import connect
from simulator.worker.feed import Feed
from simulator.worker.loop import insert_all
from simulator.worker.measure import Recorder
from simulator.workloads.base import (
    FIRST_TIMESTAMP_MS,
    Column,
    ColumnType,
    EventBlock,
    Schema,
    Workload,
)

Row = tuple[object, ...]


def eventually(found: Callable[[], Any], what: str, patience_s: float = 30.0) -> Any:
    """What `found` returns once it is true: for what a server has no event to wait for."""
    deadline = time.monotonic() + patience_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"no {what} within {patience_s} s"
        time.sleep(0.003)
    return result


# --- events ---------------------------------------------------------------------------------------


def rows_of(*blocks: EventBlock) -> list[Row]:
    """The events as rows of plain values in the schema's order of columns, fit to be sorted."""
    rows: list[Row] = []
    for block in blocks:
        values = [block.columns[column.name].tolist() for column in block.schema.columns]
        rows += normalised(block.schema, zip(*values, strict=True))
    return rows


def normalised(schema: Schema, rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Rows in one form, whether they come from numpy or from a database's driver.

    A FLOAT32 becomes the float32 that it stands for, a JSON document a text with sorted keys.
    """
    types = [column.type for column in schema.columns]
    return [
        tuple(_normal(kind, value) for kind, value in zip(types, row, strict=True)) for row in rows
    ]


def _normal(kind: ColumnType, value: Any) -> object:
    if kind is ColumnType.JSON:
        # Bytes are numpy's text of a document; whoever reads from a database has parsed it.
        document = orjson.loads(value) if isinstance(value, bytes) else value
        return json.dumps(document, sort_keys=True)
    if kind is ColumnType.TEXT:
        return value.decode() if isinstance(value, bytes) else value
    if kind is ColumnType.FLOAT32:
        return float(np.float32(value))
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

_SMALLS = (0, -1, 2**31 - 1, -(2**31), 4711)
_BIGS = (0, -1, 2**63 - 1, -(2**63), -123_456_789_012)
_MEASURES = (0.0, -273.15, 0.1, 3.4028235e38, -3.4028235e38, 1.1754944e-38, 1e-45, 16777217.0)


class Awkward(Workload):
    """Everything that an encoder could trip over: texts of any length with each character that some
    format escapes, empty ones, the ends of the integer ranges, floats without fixed decimals."""

    name = "awkward"
    schema = Schema(
        table="awkward",
        columns=(
            Column("note", ColumnType.TEXT),
            Column("noted_at", ColumnType.TIMESTAMP_MS),
            Column("small", ColumnType.INT32),
            Column("document", ColumnType.JSON),
            # A keyword in about every query language.
            Column("order", ColumnType.INT64),
            Column("device", ColumnType.TEXT),
            Column("measure", ColumnType.FLOAT32),
        ),
        time="noted_at",
        device="device",
        key=("device", "noted_at"),
    )

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.devices(worker)[numbers % self.device_spread]

        # Cycles of different length, so that all pairs meet.
        def dealt(values: Sequence[Any], kind: Any) -> np.ndarray[Any, Any]:
            return np.array([values[number % len(values)] for number in numbers.tolist()], kind)

        return EventBlock(
            self.schema,
            worker,
            first,
            {
                "note": dealt([text.encode() for text in TEXTS], None),
                "noted_at": FIRST_TIMESTAMP_MS + (numbers - time_origin) * 1000,
                "small": dealt(_SMALLS, np.int32),
                "document": dealt([orjson.dumps(document) for document in DOCUMENTS], None),
                "order": dealt(_BIGS, np.int64),
                "device": devices,
                "measure": dealt(_MEASURES, np.float32),
            },
            devices,
        )


# --- inserting ------------------------------------------------------------------------------------


class HookedFeed(Feed):
    """Calls functions right before certain requests are sent: the one moment that is known exactly."""

    before: Mapping[int, Callable[[], object]] = {}

    def __iter__(self) -> Iterator[Payload]:
        for number, payload in enumerate(super().__iter__()):
            if number in self.before:
                self.before[number]()
            yield payload


def insert(
    writer: Writer,
    workload: Workload,
    count: int,
    batch: int,
    *,
    worker: int = 0,
    first: int = 0,
    before: Mapping[int, Callable[[], object]] | None = None,
    max_retries: int = 8,
    abort: Callable[[], object] = lambda: None,
) -> Recorder:
    """Insert events as a worker does; what was recorded. `before`: request number -> hook."""

    def generate(start: int, size: int) -> EventBlock:
        return workload.block(worker, start, size)

    def ask() -> None:
        abort()

    feed = HookedFeed(generate, writer.encoder, first, count, batch)
    feed.before = before or {}
    feed.prime()
    recorder = Recorder()
    recorder.begin(0.0)
    insert_all(feed, writer, recorder, max_retries, ask)
    recorder.end()
    return recorder


def insert_with(
    module: AnyModule, workload: Workload, count: int, *, worker: int = 0, first: int = 0
) -> Recorder:
    """Insert events by a writer of the module's own job."""
    batch = module.job.load.batch
    with connect(module.writer(batch)) as writer:
        return insert(writer, workload, count, batch, worker=worker, first=first)


def requests_at_once(recorder: Recorder) -> float:
    """How many requests were under way on average: their latencies together by the window.

    A busy machine makes both longer, so this holds on any.
    """
    measured = recorder.result(0, 0, 0)
    histogram = merge_histograms([measured.histogram])
    together_s = histogram.get_mean_value() * histogram.get_total_count() / 1e6
    return float(together_s / (measured.end_s - measured.start_s))


class NumberEncoder(Encoder):
    """Payloads whose data are the numbers of their events: what was sent can be read at a glance."""

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        size = batch or 1
        return [
            Payload(
                list(range(block.first + start, block.first + min(start + size, len(block)))),
                min(size, len(block) - start),
                block,
                min(start + size, len(block)) - 1,
            )
            for start in range(0, len(block), size)
        ]


# --- messages -------------------------------------------------------------------------------------


def settings(**changes: Any) -> RunSettings:
    """Settings of a run of two workers into a black hole; `changes`: of load, data set, or the rest."""
    values: dict[str, Any] = {
        "run_id": "test",
        "token": "the-token",
        "target": "somewhere",
        "module": "blackhole",
        "options": {},
    }
    load: dict[str, Any] = {"workers": 2, "events": 100}
    for model, part in ((Load, load), (DataSet, values.setdefault("data", {}))):
        part |= {name: changes.pop(name) for name in model.model_fields if name in changes}
    values["groups"] = grouped(Load(**load))
    return RunSettings(**(values | changes))


def histogram_of(*latencies_us: int) -> str:
    """An encoded histogram."""
    histogram = new_histogram()
    for latency in latencies_us:
        histogram.record_value(latency)
    return encode_histogram(histogram)


def worker_insert(**changes: Any) -> WorkerInsert:
    """What a worker says that stored 100 events in 10 s, hardly working itself."""
    values: dict[str, Any] = {
        "start_s": 0.0,
        "end_s": 10.0,
        "events": 100,
        "cpu_s": 0.5,
        "generate_s": 0.1,
        "encode_s": 0.2,
        "ceiling_per_s": 1e6,
        "histogram": histogram_of(1000, 2000),
        "timeline": [(0, 60), (9, 40)],
        "retries": 0,
        "errors": {},
        "throttled_share": None,
    }
    return WorkerInsert(**(values | changes))


def worker_result(worker: int, **changes: Any) -> WorkerResult:
    """A worker's result for `insert`; `changes` are those of `worker_insert`."""
    measured = worker_insert(**changes)
    return WorkerResult(worker=worker, node=f"node-{worker}", elapsed_s=10.0, insert=measured)


def insert_run(**changes: Any) -> InsertRun:
    """A valid run of 4 workers and 1,000 events in 2 s."""
    values: dict[str, Any] = {
        "workers": 4,
        "run": 1,
        "fill_level": 0,
        "valid": True,
        "invalid_reasons": [],
        "events": 1000,
        "window_s": 2.0,
        "inserts_per_s": 500.0,
        "inserts_per_s_mean_duration": 510.0,
        "overlap": 0.98,
        "latency_ms": LatencyMs(p50=1.0, p90=2.0, p99=3.0, p99_9=4.0, max=5.0),
        "client": Client(
            cpu_s=1.0, cpu_share=0.125, generate_s=0.1, encode_s=0.2, ceiling_share=0.01,
            throttled_share=None, bound=False,
        ),
        "verification": Verification(expected=1000, stored=1000, ok=True),
    }  # fmt: skip
    return InsertRun(**(values | changes))
