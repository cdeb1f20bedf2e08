"""Connections to InfluxDB: requests in, answers out, and what an error means."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import certifi
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError, ReadTimeoutError, SSLError

from ...errors import OptionError, Retryable, SimulatorError, one_line
from .._base.errors import connection_lost, missing_table, unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    HttpPool,
    NoAnswer,
    TlsRefused,
    interpret_no_answer,
    scheme_port,
)
from .._base.http_connection import make_tls_context_for
from ..base import Job
from .answers import parse_csv
from .encoding import PRECISION
from .options import InfluxOptions

_MAX_RETRY_AFTER_S = 60.0
"""A server that asks for more is not overloaded but down."""

# HTTP status -> the kind that a result counts.
_PASSING = {
    429: "too_many_requests",
    500: "server_error",
    502: "server_error",
    503: "unavailable",
    504: "server_error",
}
_CACHE_FULL = "cache-max-memory-size exceeded"
"""What a 500 says until the cache has been written to disk."""


class Connection:
    """The official client's HTTP layer, with errors translated; writes go over a pool of our own.

    What lies above that layer, points and write and query APIs, works per event, on the client's CPU.
    """

    def __init__(self, options: InfluxOptions, job: Job) -> None:
        """Connects to nothing yet."""
        self._options = options
        self._job = job
        self._client = InfluxDBClient(
            options.endpoint,
            options.token,
            org=options.org,
            verify_ssl=options.verify_ssl,
            ssl_ca_cert=options.ssl_ca_cert,
        )
        self._http = self._client.api_client.rest_client
        self.headers = {
            "Authorization": f"Token {options.token}",
            "User-Agent": f"iot-benchmark/{job.run_id}",
            "Content-Type": "application/json",
        }
        write = {"org": options.org, "bucket": options.bucket, "precision": PRECISION}
        self.write_target = f"/api/v2/write?{urlencode(write)}"
        self.write_headers = self.headers | {"Content-Type": "text/plain; charset=utf-8"}
        if options.gzip:
            self.write_headers["Content-Encoding"] = "gzip"
        self._writes = HttpPool(
            [options.endpoint],
            scheme_port(options.endpoint),
            self.write_headers,
            options.request_timeout_s,
            # The same authorities as the client trusts.
            make_tls_context_for(
                [options.endpoint], options.ssl_ca_cert or certifi.where(), options.verify_ssl
            ),
            job.stamps_arrivals,
        )

    def close(self) -> None:
        """Close all connections."""
        self._writes.close()
        # Its own `clear` leaves that to the garbage collector, which is off while a run is measured.
        pools = self._http.pool_manager.pools
        for key in pools.keys():  # noqa: SIM118 - it can't be iterated over
            pools[key].close()
        pools.clear()

    def check(self) -> None:
        """Connect for the first write, and for questions; SimulatorError if that fails."""
        try:
            self._request("GET", "/ping", timeout_s=CONNECT_TIMEOUT_S)
            self.find_bucket()
        except Retryable as error:
            raise unreachable("InfluxDB", error) from error

    def write(self, body: bytes) -> None:
        """One write request; Retryable if it may be sent again."""
        answer = self._request("POST", self.write_target, body)
        if answer.status == 204:
            return
        if answer.status >= 400:
            text = answer.body.decode(errors="replace")
            raise self.interpret(answer.status, text, answer.header("Retry-After"))
        raise SimulatorError(
            f"InfluxDB at {self._options.server} answered a write by {answer.status} instead of 204:"
            " check that endpoint names the server itself"
        )

    def _request(
        self, method: str, target: str, body: bytes = b"", timeout_s: float | None = None
    ) -> Answer:
        try:
            return self._writes.request(method, target, body, timeout_s=timeout_s)
        except TlsRefused as error:
            raise self._refuse_certificate(str(error)) from error
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "InfluxDB", self._options.server, "ssl_ca_cert"
            ) from error

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        **params: str,
    ) -> Any:
        """A request to the API, and its answer's JSON (None if it has none)."""
        url = f"{self._options.endpoint}{path}?{urlencode(params)}"
        text = self._request_by_client(method, url, self.headers, body, timeout_s).data
        return json.loads(text) if text else None

    def read_metrics(self) -> str:
        """The server's metrics, in Prometheus's text format."""
        url = f"{self._options.endpoint}/metrics"
        timeout_s = self._options.query_timeout_s
        text: str = self._request_by_client("GET", url, self.headers, None, timeout_s).data
        return text

    def flush_shard(self, shard: str) -> None:
        """Have a shard's events written to data files, which makes its write-ahead log superfluous; only an
        operator's token may."""
        url = f"{self._options.endpoint}/api/v2/backup/shards/{shard}"
        timeout_s = self._options.query_timeout_s
        # A backup begins with it, and sends nothing before it is done; the rest isn't wanted.
        answer = self._request_by_client("GET", url, self.headers, None, timeout_s, streams=True)
        try:
            answer.read(1)
        except HTTPError as error:
            raise self._interpret_silence(error, timeout_s) from error
        finally:
            answer.close()

    def rows(self, query: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """A Flux query's answer: the values of these columns, times in ms since 1970."""
        return parse_csv(self.answer(query), columns)

    def answer(self, query: str) -> str:
        """A Flux query's answer, annotated CSV."""
        dialect = {"header": True, "annotations": ["datatype"], "delimiter": ","}
        url = f"{self._options.endpoint}/api/v2/query?{urlencode({'org': self._options.org})}"
        headers = self.headers | {"Accept": "application/csv"}
        body = {"query": query, "dialect": dialect, "type": "flux"}
        answer = self._request_by_client("POST", url, headers, body, self._options.query_timeout_s)
        text: str = answer.data
        return text

    def find_bucket(self) -> Mapping[str, Any] | None:
        """What the server says of the bucket; None if there is none."""
        options = self._options
        try:
            answer = self.ask("GET", "/api/v2/buckets", org=options.org, name=options.bucket)
        except SimulatorError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiException) or cause.status != 404:
                raise
            if "bucket" not in _read_message(cause.body):
                raise
            return None
        for found in answer["buckets"]:
            bucket: Mapping[str, Any] = found
            return bucket
        raise SimulatorError(
            f"InfluxDB at {options.server} has a bucket {options.bucket} that it doesn't show to this"
            " token: let the token read and write it"
        )

    def _request_by_client(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: object,
        timeout_s: float,
        streams: bool = False,
    ) -> Any:
        timeouts_ms = (CONNECT_TIMEOUT_S * 1000, timeout_s * 1000)
        try:
            return self._http.request(
                method,
                url,
                headers=headers,
                body=body,
                _preload_content=not streams,
                _request_timeout=timeouts_ms,
            )
        except (ApiException, HTTPError) as error:
            raise self.explain(error, timeout_s) from error

    def explain(
        self, error: ApiException | HTTPError, timeout_s: float
    ) -> Retryable | SimulatorError:
        """What an error of the client means that waited for so long."""
        if isinstance(error, HTTPError):
            return self._interpret_silence(error, timeout_s)
        if not error.status:
            return self._refuse_certificate(str(error.reason))
        wait_s = error.headers.get("Retry-After") if error.headers else None
        text = error.body or error.reason or ""
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return self.interpret(error.status, text, wait_s)

    def _interpret_silence(self, error: HTTPError, timeout_s: float) -> Retryable | SimulatorError:
        """What it means that the client got no answer."""
        if isinstance(error, SSLError):
            return self._refuse_certificate(str(error))
        if isinstance(error, ReadTimeoutError):
            return Retryable("timeout", f"no answer from {self._options.server} in {timeout_s:g} s")
        return connection_lost(f"{self._options.server}: {one_line(error)}")

    def _refuse_certificate(self, reason: str) -> SimulatorError:
        return SimulatorError(
            f"can't connect to InfluxDB at {self._options.server}: {one_line(reason)};"
            " name the authority's certificate in ssl_ca_cert, or set verify_ssl=false"
        )

    def interpret(
        self, status: int, body: str, retry_after: str | None
    ) -> Retryable | SimulatorError:
        """What an error means: worth another try, or the end of the run."""
        options = self._options
        text = _read_message(body)
        if kind := _PASSING.get(status):
            if _CACHE_FULL in text:
                kind = "cache_full"
            wait_s = _read_retry_after_s(retry_after)
            if wait_s > _MAX_RETRY_AFTER_S:
                return SimulatorError(
                    f"InfluxDB at {self._options.server} wants to be left alone for {wait_s:g} s ({text})"
                )
            return Retryable(kind, f"{status}: {text}", at_least_s=wait_s)
        if status in (401, 403):
            return SimulatorError(
                f"InfluxDB at {self._options.server} refused the token ({text}): check token, and that it may"
                f" read and write buckets of the organisation {options.org}"
            )
        if status == 404 and "organization" in text:
            return SimulatorError(f"InfluxDB at {self._options.server}: {text}; check org")
        if status == 404 and "bucket" in text:
            problem = f"InfluxDB at {options.server} has no bucket {options.bucket} with events"
            return missing_table(f"{problem} ({text})", self._job)
        if status == 413:
            return SimulatorError(
                f"InfluxDB at {self._options.server}: {text}; use a smaller --batch"
            )
        return SimulatorError(
            f"InfluxDB at {self._options.server} refused a request ({status}): {text}"
        )


def connect(options: InfluxOptions, job: Job) -> Connection:
    """A connection to a server that has let us in; SimulatorError with its name and a remedy if not."""
    if options.ssl_ca_cert:
        # Otherwise each connection would fail as if the server's certificate were wrong.
        try:
            ssl.create_default_context(cafile=options.ssl_ca_cert)
        except OSError as error:
            raise OptionError(
                f"option ssl_ca_cert: {options.ssl_ca_cert} can't be read: {one_line(error)}"
            ) from error
    connection = Connection(options, job)
    try:
        connection.check()
    except SimulatorError:
        connection.close()
        raise
    return connection


def _read_message(body: str) -> str:
    """What the server says, in one line."""
    text = body
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(body)["message"]
    return one_line(text, 500)


def _read_retry_after_s(value: str | None) -> float:
    """Seconds of a Retry-After header; 0 without one. InfluxDB sends no dates."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0
