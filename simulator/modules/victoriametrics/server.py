"""Imports and queries to VictoriaMetrics, the meaning of its errors, its description, and the size on disk.

https://docs.victoriametrics.com/victoriametrics/url-examples/
https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#monitoring
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote_plus, urlencode

from ...contract import MIB, Allocation, Level, Storage
from ...errors import Retryable, SimulatorError, one_line
from ...units import parse_duration_ms
from ...workloads.drawing import BoundQueries, BoundQuery
from ...workloads.queries import Every, Query
from ..base import Job
from ..kit.exactly_once import SettlingWriter, Wanted
from ..kit.exactly_once import Span as KeySpan
from ..kit.http import parse_body
from ..kit.http_answer import Answer
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SHOWN, Conversation, HttpAsker, HttpDatabase
from ..kit.sql_queries import Template
from ..sending import Received, Request, Rows, explain_length, most_answer_bytes
from .encoding import ALL_TIME, Import, ImportEncoder, Span
from .forms import (
    FORM_HEADERS,
    Form,
    ask_at,
    check_answer,
    has_series,
    read_result,
    write_choice,
    write_form,
    write_seconds,
)
from .queries import Question, compile_query

if TYPE_CHECKING:
    from . import Victoriametrics, VictoriaMetricsOptions

_log = logging.getLogger(__name__)

VISIBLE_S = 15.0
"""Within this time, all acknowledged samples become visible, including new series (11 s), if the server
doesn't let us flush."""

# lib/storage/partition.go: maxRawRowsPerShard. 8 MiB of incoming rows become a part of at most 1 MiB.
ALLOCATION = Allocation(
    unit_bytes=MIB,
    cause="VictoriaMetrics compresses parts of about 100,000 samples, and merges them",
)
_SOURCE = (
    "vm_data_size_bytes: parts of samples and of the series index, also those in memory, which"
    " are written to disk unchanged; for the whole server, with deleted series until they are"
    " merged away"
)
_INTERVAL_S = 0.1
FIGURES_S = 1.2
"""The server updates its figures once a second."""

_SAMPLE = re.compile(
    r"^(flag|vm_data_size_bytes|vm_rows|vm_app_version|go_info|vm_active_force_merges)"
    r"(?:\{(.*)\})? (\S+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Connection(HttpDatabase["VictoriaMetricsOptions"]):
    """Imports and queries."""

    SYSTEM = "VictoriaMetrics"
    PASSING: ClassVar = {
        429: "too_many_requests",
        500: "server_error",
        502: "server_error",
        # Too many requests at once, or no space left on disk.
        503: "unavailable",
        504: "server_error",
    }

    def __init__(self, options: VictoriaMetricsOptions, job: Job) -> None:
        super().__init__(options, job)
        self.write_headers = {"content-encoding": "gzip"} if options.gzip else {}

    def ping(self, timeout_s: float) -> None:
        self.parse(self._post("/api/v1/query", {"query": "1"}, timeout_s), "data")

    def write(self, target: str, body: bytes) -> None:
        """Send an import; Retryable if it may be sent again."""
        self.fetch("POST", target, body, self.write_headers, expected=(204,))

    # --- queries ----------------------------------------------------------------------------------

    def _post(
        self,
        path: str,
        fields: Mapping[str, str],
        timeout_s: float | None = None,
        expected: int = 200,
    ) -> Answer:
        body = urlencode(fields).encode()
        timeout_s = timeout_s or self.options.query_timeout_s
        return self.fetch("POST", path, body, FORM_HEADERS, timeout_s, (expected,))

    def query(self, text: str, time_ms: int) -> list[dict[str, Any]]:
        """MetricsQL's vector for a time."""
        return read_result(self.answer(ask_at(text, time_ms)))

    def answer(self, form: Form) -> bytes:
        """A query's answer, complete and free of errors."""
        body = self._post(form.path, form.fields).body
        check_answer(form, body, self.place)
        return body

    def list_metrics(self, selector: str | None = None) -> list[str]:
        """The names of all metrics with series, or with series that match a selector."""
        return self._list("label/__name__/values", selector)

    def list_labels(self, selector: str) -> list[str]:
        """The names of all labels of the series that match a selector."""
        return self._list("labels", selector)

    def _list(self, what: str, selector: str | None) -> list[str]:
        # A start of 0 would mean today.
        fields = {"start": "1", "end": write_seconds(ALL_TIME[1])}
        if selector is not None:
            fields["match[]"] = selector
        answer = self._post(f"/api/v1/{what}", fields)
        names: list[str] = self.parse(answer, "data")
        return names

    # --- administration ---------------------------------------------------------------------------

    def flush(self) -> bool:
        """Make acknowledged samples visible; False if the server doesn't let us: then that takes seconds."""
        answer = self.request("GET", "/internal/force_flush")
        if answer.status != 200:
            _log.warning("/internal/force_flush: %s", self.explain(answer))
        return answer.status == 200

    def delete(self, selector: str) -> None:
        """Delete series; later merges free their disk space."""
        self._post("/api/v1/admin/tsdb/delete_series", {"match[]": selector}, expected=204)

    def merge_parts(self) -> None:
        """Merge all parts, which drops deleted series and duplicates, and wait for it; SimulatorError if that
        takes too long, or the server doesn't let us."""
        self.flush()
        # The server begins after its answer, and reports the end only in its metrics.
        self._post("/internal/force_merge", {})
        timeout_s = self.options.database_timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            time.sleep(_INTERVAL_S)
            if not self.read_metrics().merges:
                return
            if time.monotonic() > deadline:
                raise SimulatorError(f"merging has taken more than {timeout_s:g} s")

    def read_metrics(self) -> Metrics:
        """The server's metrics; SimulatorError if it doesn't show them."""
        answer = self.fetch("GET", "/metrics")
        return parse_metrics(answer.body.decode(errors="replace"))

    def read_flags(self) -> Metrics | None:
        """The server's metrics; None if it doesn't show them."""
        try:
            return self.read_metrics()
        except SimulatorError as error:
            _log.warning("reading the flags failed: %s", error)
            return None

    def read_storage(self, others: int, values: int | None) -> Storage:
        """The size of all parts; SimulatorError if the server doesn't show its metrics. `others`: metrics on
        the server that aren't the job's; `values`: per event, if all have the same number."""
        source = _SOURCE
        if others:
            source += f"; {others} other metric{'s' * (others > 1)} included"
        metrics = self.read_metrics()
        data, index = metrics.add_sizes("storage/"), metrics.add_sizes("indexdb/")
        total = data + index
        return Storage(
            total_bytes=total,
            data_bytes=data,
            index_bytes=index,
            level=None
            if values is None
            else Level(size_bytes=total, events=metrics.rows // values),
            shared=True,
            source=source,
        )

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        message = parse_body(answer.body)
        if isinstance(message, dict):
            message = message.get("error", message)
        text = f"{self.place}: {answer.status} {one_line(message, SHOWN)}"
        if answer.status in (401, 403):
            return SimulatorError(f"{text}; check username and password, or the server's auth keys")
        return self.explain_status(answer, text)


# --- the server's /metrics, in Prometheus's text format -------------------------------------------


@dataclass(frozen=True)
class Metrics:
    """One reading of the server's metrics."""

    version: str
    """Empty in builds that don't report it."""
    built_by: str
    """The version of Go."""
    flags: Mapping[str, str]
    """Name -> value of all flags, including unset ones; the server hides secret ones."""
    sizes: Mapping[str, int]
    """Kind of a part, as storage/small or indexdb/file -> bytes."""
    rows: int
    """Samples in these parts, of all series."""
    merges: int
    """Forced merges in progress."""

    def duration_ms(self, flag: str, unit: str = "s") -> int | None:
        """A flag's duration; a bare number is in this unit. None: there is no such flag."""
        text = self.flags.get(flag)
        length_ms = None if text is None else parse_duration_ms(text, unit)
        return None if length_ms is None else round(length_ms)

    def add_sizes(self, kind: str) -> int:
        """The bytes of parts of all kinds with this prefix; SimulatorError if there are none."""
        sizes = [size for name, size in self.sizes.items() if name.startswith(kind)]
        if not sizes:
            raise SimulatorError("/metrics tells no vm_data_size_bytes")
        return sum(sizes)


def parse_metrics(text: str) -> Metrics:
    """The relevant metrics from the text of /metrics."""
    flags: dict[str, str] = {}
    sizes: dict[str, int] = {}
    version = built_by = ""
    rows = merges = 0
    for name, labels, value in _SAMPLE.findall(text):
        label_values = dict(_LABEL.findall(labels))
        if name == "flag":
            flags[label_values["name"]] = label_values["value"]
        elif name == "vm_data_size_bytes":
            sizes[label_values["type"]] = int(float(value))
        elif name == "vm_rows":
            rows += int(float(value)) * label_values["type"].startswith("storage/")
        elif name == "vm_app_version":
            version = label_values["short_version"] or label_values["version"]
        elif name == "go_info":
            built_by = label_values["version"]
        else:
            merges = int(float(value))
    return Metrics(version, built_by, flags, sizes, rows, merges)


def find_span(metrics: Metrics | None) -> Span | None:
    """The times that the server accepts; None if it doesn't report them."""
    if metrics is None:
        return None
    # A bare number is in months.
    before_ms = metrics.duration_ms("retentionPeriod", "M")
    after_ms = metrics.duration_ms("futureRetention", "d")
    if before_ms is None:
        return None
    # Before there was a flag, it was two days.
    return Span(before_ms, 2 * 86_400_000 if after_ms is None else after_ms)


def removes_duplicates(metrics: Metrics | None) -> bool:
    """Whether the server counts a duplicate sample once. At an interval of 1 ms, so that it keeps all
    others."""
    return metrics is not None and metrics.duration_ms("dedup.minScrapeInterval") == 1


FormsRequest = tuple[Question, Sequence[bytes]]
"""A query, and the bodies of its first requests."""

# In the form for a request's body.
_NAME, _START, _END = "PLACEOFDEVICE%dEND", "PLACEOFSTART", "PLACEOFEND"
_MARK = re.compile("(PLACEOF(?:DEVICE[0-9]+END|START|END))")


class VictoriaMetricsAsker(HttpAsker[Connection]):
    """Sends the queries of `Victoriametrics.compile`. Receives the query, its requests and their answers."""

    module: Victoriametrics

    def __init__(self, module: Victoriametrics, in_flight: int) -> None:
        super().__init__(module, in_flight, module.options.query_timeout_s)
        self._made: dict[tuple[str, int, int], tuple[Question, Template]] = {}
        """For each query name, the length of its window, and its number of devices: one execution that reads
        all its answers, and the request."""

    def encode(self, bounds: BoundQueries) -> Iterable[FormsRequest]:
        # The requests for buckets of time depend on the window's position.
        if any(isinstance(part, Every) for part in bounds.query.per):
            return (self.encode_statement(self.module.compile(bound)) for bound in bounds)
        first = bounds[0]
        span_ms = (first.end_ms or 0) - (first.start_ms or 0)
        key = bounds.query.name, span_ms, len(first.devices or ())
        if key not in self._made:
            self._made[key] = self.module.compile(first), self._make_template(first)
        question, template = self._made[key]
        several = template.devices > 1
        # The end is excluded.
        lasts = bounds if bounds.end_ms is None else replace(bounds, end_ms=bounds.end_ms - 1)
        filled = template.fill(
            lasts, lambda name: quote_plus(write_choice(name, several)), write_seconds
        )
        return ((question, [body.encode()]) for body in filled)

    def _make_template(self, bound: BoundQuery) -> Template:
        """The body of the only request, with places for devices and for the window's ends."""
        count = len(bound.devices or ())
        names = tuple(_NAME % number for number in range(count))
        [form] = self.module.compile(replace(bound, devices=names or None)).forms
        fields = dict(form.fields)
        if bound.end_ms is not None:
            marks = {"start": _START, "end": _END, "time": _END}
            fields |= {name: mark for name, mark in marks.items() if name in fields}
        numbers = {name: number for number, name in enumerate(names)}
        numbers |= {_START: count, _END: count + 1}
        pieces = _MARK.split(write_form(form._replace(fields=fields)).decode())
        return Template(tuple(pieces[::2]), tuple(numbers[mark] for mark in pieces[1::2]), count)

    def encode_statement(self, statement: Question) -> FormsRequest:
        return statement, [write_form(form) for form in statement.forms]

    def converse(self, request: FormsRequest) -> Conversation:
        question, bodies = request
        forms = question.forms
        answers = yield from self._ask_all(forms, bodies)
        if question.spreads:
            forms = question.spread(answers[0])
            answers = yield from self._ask_all(forms, [write_form(form) for form in forms])
        if not any(map(has_series, answers)):
            # Missing series are no error to the server.
            self.module.require_events(self.database)
        size = sum(map(len, answers))
        return Received(question.count(forms, answers), size, (question, forms, answers))

    def _ask_all(
        self, forms: Sequence[Form], bodies: Sequence[bytes]
    ) -> Generator[HttpRequest, bytes, list[bytes]]:
        answers: list[bytes] = []
        size = 0
        for form, body in zip(forms, bodies, strict=True):
            answer = yield HttpRequest("POST", form.path, body, FORM_HEADERS)
            check_answer(form, answer, self.database.place)
            answers.append(answer)
            size += len(answer)
            if size > most_answer_bytes():
                raise explain_length(size)
        return answers

    def decode(self, received: Received) -> Rows:
        question, forms, answers = received.data
        try:
            rows: Rows = question.read(forms, answers)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SimulatorError(f"unreadable answer: {error!r}") from error
        return rows


class VictoriaMetricsWriter(SettlingWriter[Connection]):
    """Sends payloads of `ImportEncoder`."""

    encoder: ImportEncoder
    LOOKUPS_APART_S: ClassVar[float | None] = 0.5

    _is_idempotent = False
    """Whether the server counts a duplicate sample once."""

    def open(self) -> None:
        super().open()
        metrics = self.connection.read_flags()
        self._is_idempotent = removes_duplicates(metrics)
        self.encoder.taken = find_span(metrics)

    def send_request(self, request: Import, payload: Request) -> None:
        try:
            self.connection.write(request.target, request.body)
        except Retryable:
            if not self._is_idempotent:
                request.doubt()
            raise

    def show_events(self, request: Import) -> None:
        if not self.connection.flush():
            # Invisible events would be stored twice.
            time.sleep(VISIBLE_S)

    def find(self, request: Import, wanted: Wanted) -> Collection[tuple[Any, ...]]:
        schema, db = self.job.schema, self.connection.options.db
        devices, times = wanted[schema.device], wanted[schema.time]
        assert isinstance(times, KeySpan) and not isinstance(devices, KeySpan)
        query = Query(name="stored", events=schema.row_key)
        bound = BoundQuery(query, tuple(devices), times.first, times.last + 1)
        rows: list[tuple[Any, ...]] = []
        for table in self.job.table_names:
            question = compile_query(bound, schema, db, table)
            rows += question.read(question.forms, list(map(self.connection.answer, question.forms)))
        return rows
