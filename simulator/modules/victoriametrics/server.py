"""Connections to VictoriaMetrics: requests in, answers out, and what an error means.

https://docs.victoriametrics.com/victoriametrics/url-examples/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    HttpPool,
    NoAnswer,
    basic_auth,
    interpret_no_answer,
    parse_body,
    scheme_port,
)
from .._base.http_connection import make_tls_context_for
from .._base.options import TRUST_REMEDY
from ..base import Job
from .encoding import ALL_TIME, Span
from .metrics import Metrics, parse_metrics
from .options import VictoriaMetricsOptions

_log = logging.getLogger(__name__)

VISIBLE_S = 15.0
"""Within this time all samples are visible that are acknowledged, new series (11 s) included, if the server
doesn't let us flush it."""

_SHOWN = 500
"""Characters of an answer in a message."""
_FORM = {"content-type": "application/x-www-form-urlencoded"}
# HTTP status -> the kind that a result counts. 503: too many requests at once, or no space left on disk.
_PASSING = {
    429: "too_many_requests",
    500: "server_error",
    502: "server_error",
    503: "unavailable",
    504: "server_error",
}


class Connection:
    """An HTTP pool for writes and questions."""

    def __init__(self, options: VictoriaMetricsOptions, job: Job) -> None:
        """Connects to nothing yet."""
        self._options = options
        self._job = job
        headers = {"user-agent": f"iot-benchmark {job.run_id}"}
        if options.username is not None and options.password is not None:
            headers["authorization"] = basic_auth(options.username, options.password)
        self.write_headers = {"content-encoding": "gzip"} if options.gzip else {}
        self._pool = HttpPool(
            [options.endpoint],
            scheme_port(options.endpoint),
            headers,
            options.request_timeout_s,
            make_tls_context_for([options.endpoint], options.ca_certs, options.verify_certs),
            job.stamps_arrivals,
        )

    def close(self) -> None:
        """Close all connections that nobody uses."""
        self._pool.close()

    def check(self) -> None:
        """Connect; SimulatorError with a remedy if that fails."""
        timeout_s = min(CONNECT_TIMEOUT_S, self._options.request_timeout_s)
        try:
            self.ask("/api/v1/query", timeout_s, query="1")
        except Retryable as error:
            raise unreachable("VictoriaMetrics", error) from error

    # --- writes -----------------------------------------------------------------------------------

    def write(self, target: str, body: bytes) -> None:
        """One import; Retryable if it may be sent again."""
        answer = self._request("POST", target, body, self.write_headers)
        if answer.status != 204:
            raise self._interpret(answer)

    # --- questions --------------------------------------------------------------------------------

    def ask(self, path: str, timeout_s: float | None = None, **form: str | Sequence[str]) -> Any:
        """What the answer to a question has below `data`."""
        answer = self._post(path, form, timeout_s)
        try:
            return orjson.loads(answer.body)["data"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise SimulatorError(
                f"VictoriaMetrics at {self._options.server} gave an answer to {path} that makes no sense"
                f" ({one_line(answer.body[:_SHOWN], _SHOWN)}): check that endpoint names the server itself"
            ) from error

    def query(self, text: str, time_ms: int) -> list[dict[str, Any]]:
        """The vector that MetricsQL gives for a time."""
        answer = self.ask("/api/v1/query", query=text, time=write_seconds(time_ms), nocache="1")
        found: list[dict[str, Any]] = answer["result"]
        return found

    def query_range(
        self, text: str, first_ms: int, last_ms: int, step_ms: int
    ) -> list[dict[str, Any]]:
        """The matrix that MetricsQL gives for each of these times."""
        answer = self.ask(
            "/api/v1/query_range",
            query=text,
            start=write_seconds(first_ms),
            end=write_seconds(last_ms),
            step=f"{step_ms}ms",
            nocache="1",
            # Or the last points of a time that is near now would be those before them.
            latency_offset="1ms",
        )
        found: list[dict[str, Any]] = answer["result"]
        return found

    def export(self, selector: str, first_ms: int, last_ms: int) -> Iterator[dict[str, Any]]:
        """The samples of series in this time, both ends included, as they are stored."""
        form = {
            "match[]": selector,
            "start": write_seconds(first_ms),
            "end": write_seconds(last_ms),
        }
        answer = self._post("/api/v1/export", form)
        return map(orjson.loads, answer.body.splitlines())

    def list_metrics(self, selector: str | None = None) -> list[str]:
        """The names of all metrics that have series, or series that a selector fits."""
        form: dict[str, Any] = {} if selector is None else {"match[]": selector}
        # A start of 0 would be that of today.
        found: list[str] = self.ask(
            "/api/v1/label/__name__/values", start="1", end=write_seconds(ALL_TIME[1]), **form
        )
        return found

    # --- what an administrator does ---------------------------------------------------------------

    def flush(self) -> bool:
        """Make what is acknowledged visible; False if the server doesn't let us: then that takes seconds."""
        answer = self._request("GET", "/internal/force_flush")
        if answer.status != 200:
            _log.warning("/internal/force_flush: %s", self._interpret(answer))
        return answer.status == 200

    def delete(self, selector: str) -> None:
        """Delete series; what is on disk goes with later merges."""
        self._post("/api/v1/admin/tsdb/delete_series", {"match[]": selector}, expected=204)

    def merge(self) -> None:
        """Have all parts merged, which the server begins after its answer."""
        self._post("/internal/force_merge", {})

    def read_metrics(self) -> Metrics:
        """SimulatorError if the server doesn't show them."""
        answer = self._request("GET", "/metrics")
        if answer.status != 200:
            raise self._interpret(answer)
        return parse_metrics(answer.body.decode(errors="replace"))

    def read_flags(self) -> Metrics | None:
        """The same; None if the server doesn't show them."""
        try:
            return self.read_metrics()
        except SimulatorError as error:
            _log.warning("flags are not known: %s", error)
            return None

    # --- HTTP -------------------------------------------------------------------------------------

    def _post(
        self,
        path: str,
        form: Mapping[str, str | Sequence[str]],
        timeout_s: float | None = None,
        expected: int = 200,
    ) -> Answer:
        body = urlencode(form, doseq=True).encode()
        timeout_s = timeout_s or self._options.query_timeout_s
        answer = self._request("POST", path, body, _FORM, timeout_s)
        if answer.status != expected:
            raise self._interpret(answer)
        return answer

    def _request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        try:
            return self._pool.request(method, target, body, headers, timeout_s)
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "VictoriaMetrics", self._options.server, TRUST_REMEDY
            ) from error

    def _interpret(self, answer: Answer) -> Retryable | SimulatorError:
        """What an error means: worth another try, or the end of the run."""
        status, message = answer.status, parse_body(answer.body)
        if isinstance(message, dict):
            message = message.get("error", message)
        text = f"VictoriaMetrics at {self._options.server}: {status} {one_line(message, _SHOWN)}"
        if kind := _PASSING.get(status):
            return Retryable(kind, text, at_least_s=_read_retry_after_s(answer))
        if status in (401, 403):
            return SimulatorError(f"{text}; check username and password, or the server's auth keys")
        if status == 413:
            return SimulatorError(f"{text}; use a smaller --batch")
        if status < 300 or status in (404, 405):
            return SimulatorError(f"{text}; check that endpoint names the server itself")
        return SimulatorError(text)


def connect(options: VictoriaMetricsOptions, job: Job) -> Connection:
    """A connection to a server that has let us in; SimulatorError with its name and a remedy if not."""
    connection = Connection(options, job)
    try:
        connection.check()
    except SimulatorError:
        connection.close()
        raise
    return connection


def find_span(metrics: Metrics | None) -> Span | None:
    """Which times the server takes; None if it doesn't tell."""
    if metrics is None:
        return None
    # A number alone is of months.
    before_ms = metrics.duration_ms("retentionPeriod", "M")
    after_ms = metrics.duration_ms("futureRetention", "d")
    if before_ms is None:
        return None
    # Before there was a flag for it, it was as much.
    return Span(before_ms, 2 * 86_400_000 if after_ms is None else after_ms)


def removes_duplicates(metrics: Metrics | None) -> bool:
    """Whether the server counts a sample once that it has twice. By the millisecond, so that it leaves all
    others alone."""
    return metrics is not None and metrics.duration_ms("dedup.minScrapeInterval") == 1


def write_seconds(time_ms: int) -> str:
    """A time as the API takes it."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{seconds}.{milliseconds:03d}"


def _read_retry_after_s(answer: Answer) -> float:
    """Seconds of a Retry-After header; 0 without one."""
    try:
        return max(0.0, float(answer.header("Retry-After") or 0))
    except ValueError:
        return 0.0
