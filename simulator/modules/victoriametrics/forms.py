"""Building blocks of MetricsQL, requests to VictoriaMetrics's HTTP API, and their answers: JSON for
MetricsQL's values, lines of JSON for exported samples. Rows are counted by scans: quotes within a text are
escaped, so no text matches the patterns.

https://docs.victoriametrics.com/victoriametrics/metricsql/
https://docs.victoriametrics.com/victoriametrics/keyconcepts/#query-data
https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#how-to-export-data-in-json-line-format
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ...errors import SimulatorError, one_line
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Where
from ...workloads.schema import Schema
from ..kit.http_database import SHOWN, read_json
from ..kit.series import name_device, name_tag
from .encoding import ALL_TIME, DB, name_metric

FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded"}

PART = "__part__"
"""The label that identifies the values of an answer."""

_EXPORT = "/api/v1/export"

_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")

# --- building blocks of MetricsQL -----------------------------------------------------------------


def quote_text(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def quote_label(name: str) -> str:
    """A label's name where no string is possible: everything except letters, digits and _ is escaped."""
    return _NOT_IN_IDENTIFIERS.sub(lambda match: "\\" + match[0], name)


def any_of(label: str, values: Sequence[str], sign: str = "=") -> str:
    """The condition that a label has one of these values, or none of them if `sign` has `!`."""
    name = quote_label(label)
    if len(values) == 1:
        return f"{name}{'!=' if sign == '!' else '='}{quote_text(values[0])}"
    return f"{name}{sign}~{quote_text('|'.join(map(re.escape, values)))}"


def write_choice(value: str, several: bool) -> str:
    """A value in the literal of `any_of`, alone or as one of several."""
    return quote_text(re.escape(value) if several else value)[1:-1]


def select_series(
    schema: Schema,
    db: str | None,
    tables: Sequence[str],
    columns: Sequence[str],
    devices: Sequence[str] | None = None,
    where: Where | None = None,
) -> str:
    """The selector of the series of columns, for some devices or all; `where`: a condition on a tag's text.
    `db`: series with that value of the label, or, if it is None, without that label, so that others' are
    left alone."""
    names = [name_metric(table, column) for table in tables for column in columns]
    conditions = [any_of("__name__", names), any_of(DB, [db or ""])]
    if devices is not None:
        conditions.append(any_of(name_device(schema), devices))
    if where is not None:
        sign = "=" if where.one_of else "!"
        conditions.append(any_of(name_tag(where.column, schema), where.texts, sign))
    return f"{{{','.join(conditions)}}}"


def bound_times(bound: BoundQuery) -> tuple[int, int]:
    """The times that a query selects, in ms, excluding the end."""
    if bound.start_ms is None or bound.end_ms is None:
        return ALL_TIME
    return bound.start_ms, bound.end_ms


def write_window(span_ms: int) -> str:
    """A range vector's length. At a time t, it has the samples in (t - span, t]."""
    return f"[{span_ms}ms]"


def write_span(first_ms: int, end_ms: int) -> tuple[int, str]:
    """The time at which to query a window, excluding its end, and the window as seen from there."""
    return end_ms - 1, write_window(end_ms - first_ms)


def unite(texts: Sequence[str]) -> str:
    """The texts as one query, each with its index as a label."""
    parts = [f'label_set({text}, "{PART}", "{place}")' for place, text in enumerate(texts)]
    return f"union({', '.join(parts)})"


# --- requests -------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A request for values."""

    path: str
    fields: Mapping[str, str]
    bucket_ms: int = 0
    """The start of its bucket of time; or `step_ms`."""
    step_ms: int | None = None
    """Length of the buckets, if there are several."""


def write_form(form: Form) -> bytes:
    """The request's body."""
    return urlencode(form.fields).encode()


def describe_form(form: Form) -> str:
    """The request for people to read: its fields before encoding."""
    return "\n".join(
        [f"POST {form.path}", *(f"  {name}={text}" for name, text in form.fields.items())]
    )


def ask_at(text: str, time_ms: int, bucket_ms: int = 0) -> Form:
    """Requests MetricsQL's vector for a time."""
    fields = {"query": text, "time": write_seconds(time_ms), "nocache": "1"}
    return Form("/api/v1/query", fields, bucket_ms)


def ask_steps(text: str, first_ms: int, last_ms: int, step_ms: int) -> Form:
    """Requests MetricsQL's matrix for these times."""
    fields = {
        "query": text,
        "start": write_seconds(first_ms),
        "end": write_seconds(last_ms),
        "step": f"{step_ms}ms",
        "nocache": "1",
        # Otherwise the last points of a time close to now would repeat those before.
        "latency_offset": "1ms",
    }
    return Form("/api/v1/query_range", fields, step_ms=step_ms)


def export(selector: str, first_ms: int, last_ms: int) -> Form:
    """Requests the stored samples of series in this time, including both ends."""
    fields = {
        "match[]": selector,
        "start": write_seconds(first_ms),
        "end": write_seconds(last_ms),
    }
    return Form(_EXPORT, fields)


def write_seconds(time_ms: int) -> str:
    """A time in the API's form."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{seconds}.{milliseconds:03d}"


# --- answers --------------------------------------------------------------------------------------

_BEGIN = re.compile(
    rb'\{"status":"success",(?:"isPartial":false,)?"data":\{"resultType":"(?:vector|matrix)","result":\['
)
_END = re.compile(rb'\]\}(?:,"stats":\{[^{}]*\})?\}\s*\Z')
_END_BYTES = 300

_LINE, _LINE_END = b'{"metric":{', b"]}\n"
_SERIES, _POINTS, _NEXT = b'{"metric":', b'"values":[[', b'"],['
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+")


def check_answer(form: Form, body: bytes, place: str) -> None:
    """SimulatorError if an answer of status 200 has an error, doesn't cover all data, or is cut off. `place`:
    the server, for the start of the message."""
    if form.path == _EXPORT:
        lines = body.count(b"\n" + _LINE) + body.startswith(_LINE)
        if lines != body.count(b"\n") or (body and not body.endswith(_LINE_END)):
            # An error in the middle ends the answer.
            text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
            raise SimulatorError(f"{place} ended an answer early ({text})")
        return
    if _BEGIN.match(body) and _END.search(body, max(0, len(body) - _END_BYTES)):
        return
    answer = read_json(body)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        error = answer.get("error", answer) if isinstance(answer, dict) else answer
        raise SimulatorError(f"{place} aborted a query: {one_line(error, SHOWN)}")
    if answer.get("isPartial"):
        raise SimulatorError(
            f"{place} returned partial data (isPartial): a storage node is unavailable"
        )


def read_result(body: bytes) -> list[dict[str, Any]]:
    """The vector or matrix of an answer; SimulatorError if there is none."""
    result: list[dict[str, Any]] = read_json(body, "data", "result")
    return result


def has_series(body: bytes) -> bool:
    """Whether an answer has any series."""
    return _SERIES in body


def count_parts(body: bytes, place: int) -> int:
    """The number of values of the part with this index in a vector or matrix."""
    part = f'"{PART}":"{place}"'.encode()
    if _POINTS not in body:
        return body.count(part)
    count = 0
    for series in body.split(_SERIES):
        if part in series:
            count += series.count(_NEXT, series.rindex(_POINTS)) + 1
    return count


def write_line_begin(metric: str) -> bytes | None:
    """The beginning of a metric's lines in an export; None if its name could be written in several ways."""
    return _LINE + f'"__name__":"{metric}",'.encode() if _PLAIN.fullmatch(metric) else None


def count_samples(body: bytes, begin: bytes) -> int:
    """The number of samples in the exported lines that begin with `begin`."""
    count = 0
    at = body.find(begin)
    while at >= 0:
        end = body.index(b"\n", at)
        count += body.count(b",", body.rindex(b"[", at, end), end) + 1
        at = body.find(begin, end)
    return count
