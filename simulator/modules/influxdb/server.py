"""Connections to InfluxDB: requests, answers, and the meaning of errors; its writer and asker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlencode

import orjson
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.domain.bucket import Bucket
from influxdb_client.rest import ApiException
from influxdb_client.service.backup_service import BackupService
from influxdb_client.service.metrics_service import MetricsService
from urllib3.exceptions import HTTPError, ReadTimeoutError, SSLError

from ...contract import Storage
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..base import Job
from ..kit.exactly_once import ConnectedWriter
from ..kit.http import CONNECT_TIMEOUT_S, parse_body
from ..kit.http_answer import Answer, ConnectionLost, NoAnswer
from ..kit.http_connection import AnswerTimeout, HttpRequest, TlsRefused
from ..kit.http_database import SHOWN, Conversation, HttpDatabase, TemplateAsker, read_retry_after_s
from ..kit.module import MissingTable, missing_table
from ..own_statements import Literals
from ..sending import Received, Request, Rows
from . import InfluxOptions
from .encoding import PRECISION
from .flux import Question, Result, count_lines, parse_csv, parse_results, quote_text, write_time

if TYPE_CHECKING:
    from . import Influxdb

_MAX_RETRY_AFTER_S = 60.0
"""A server that demands a longer wait isn't overloaded but down."""

_CACHE_FULL = "cache-max-memory-size exceeded"
"""The text of a 500 until the cache has been written to disk."""

_QUESTION_HEADERS = {"content-type": "application/json", "accept": "application/csv"}
_QUESTION_END = (
    b',"dialect":{"header":true,"annotations":["datatype"],"delimiter":","},"type":"flux"}'
)

# The sizes of data files and write-ahead log, since `storage_shard_disk_size` lags behind.
# https://docs.influxdata.com/influxdb/v2/reference/internals/metrics/
_DATA, _LOG = "storage_tsm_files_disk_bytes", "storage_wal_size"
_SAMPLE = re.compile(
    rf'^({_DATA}|{_LOG})\{{bucket="(\w+)",.*?\bid="(\d+)".*\}} (\S+)$', re.MULTILINE
)
_SOURCE = "metrics of the bucket's shards: TSM files"
_LOGGED = " and write-ahead log, which only an operator's token can flush to TSM files"
_LEFT_OUT = "; without the series index and the series files, which no metric reports"

OWN_ERRORS = (ApiException, HTTPError)
"""Errors that calls of the client raise."""

_ResultT = TypeVar("_ResultT")


class Connection(HttpDatabase[InfluxOptions]):
    """Writes and queries use our own connections; all else, and writes of `official`, the official client:
    its APIs for writes and queries work per event, on the client's CPU."""

    SYSTEM = "InfluxDB"
    PASSING: ClassVar[Mapping[int, str]] = {
        **HttpDatabase.PASSING,
        **dict.fromkeys((500, 502, 504), "server_error"),
    }

    def __init__(self, options: InfluxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.client = InfluxDBClient(
            options.endpoint[0],
            options.token,
            org=options.org,
            enable_gzip=options.gzip,
            verify_ssl=options.verify_ssl,
            ssl_context=options.make_tls_context(),
        )
        self.client.api_client.user_agent = self.headers["user-agent"]
        write = {"org": options.org, "bucket": options.bucket, "precision": PRECISION}
        self.write_target = f"/api/v2/write?{urlencode(write)}"
        self.write_headers = {"content-encoding": "gzip"} if options.gzip else {}
        """The headers of a write, besides `headers`."""

    def close(self) -> None:
        super().close()
        # The client leaves this to the garbage collector, which is off during a run.
        pools = self.client.api_client.rest_client.pool_manager.pools
        for key in pools.keys():  # noqa: SIM118 - it can't be iterated over
            pools[key].close()
        pools.clear()

    def ping(self, timeout_s: float) -> None:
        self.request("GET", "/ping", timeout_s=timeout_s)
        self.find_bucket()

    def write(self, body: bytes) -> None:
        """Send a write request; Retryable if it may be sent again."""
        answer = self.request("POST", self.write_target, body, self.write_headers)
        if answer.status == 204:
            return
        if answer.status >= 400:
            raise self.explain(answer)
        raise SimulatorError(
            f"{self.place} answered a write with {answer.status} instead of 204: check that"
            " endpoint names the server itself"
        )

    def rows(self, query: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """The answer to a Flux query: the values of these columns, times in ms since 1970."""
        request = make_question(name_query_target(self.options), query)
        answer = self.fetch(*request, timeout_s=self.options.query_timeout_s)
        return parse_csv(answer.body.decode(), columns)

    # --- by the client ----------------------------------------------------------------------------

    def ask(
        self,
        call: Callable[..., _ResultT],
        *arguments: Any,
        timeout_s: float = CONNECT_TIMEOUT_S,
        **more: Any,
    ) -> _ResultT:
        """The result of a call of the client; Retryable or SimulatorError for its errors."""
        configuration = self.client.api_client.configuration
        configuration.timeout = (CONNECT_TIMEOUT_S * 1000, timeout_s * 1000)
        try:
            return call(*arguments, **more)
        except OWN_ERRORS as error:
            raise self.explain_client(error) from error

    def find_bucket(self) -> Bucket | None:
        """The server's description of the bucket; None if there is none."""
        options = self.options
        find = self.client.buckets_api().find_buckets
        try:
            buckets: list[Bucket] = self.ask(find, org=options.org, name=options.bucket).buckets
        except MissingTable:
            return None
        if not buckets:
            raise SimulatorError(
                f"{self.place} has a bucket {options.bucket} that it hides from this token: allow"
                " the token to read and write it"
            )
        return buckets[0]

    def read_storage(self, bucket: str, others: int) -> Storage:
        """The size of the bucket with this id, once its events are in data files; SimulatorError if the
        server's metrics lack it. `others`: measurements in it that aren't the job's."""
        shards = self._read_sizes(bucket)
        if any(sizes.get(_LOG) for sizes in shards.values()):
            # A remaining log is counted, too: only an operator's token may have shards written.
            with suppress(SimulatorError, Retryable):
                for shard, sizes in shards.items():
                    if sizes.get(_LOG):
                        self.ask(self._flush, shard, timeout_s=self.options.query_timeout_s)
            shards = self._read_sizes(bucket)
        source = _SOURCE + _LOGGED * any(sizes.get(_LOG) for sizes in shards.values())
        if others:
            plural = "s" * (others > 1)
            source += f"; of the whole bucket, with {others} other measurement{plural} in it"
        total = sum(sum(sizes.values()) for sizes in shards.values())
        return Storage(total_bytes=total, shared=others > 0, source=source + _LEFT_OUT)

    def _flush(self, shard: str) -> None:
        # A backup begins with writing the cache, and sends nothing before; the rest isn't needed.
        backup = BackupService(self.client.api_client)
        answer = backup.get_backup_shard_id(shard, _preload_content=False)
        try:
            answer.read(1)
        finally:
            answer.close()

    def _read_sizes(self, bucket: str) -> dict[str, dict[str, int]]:
        """Bytes of a bucket's shards, by shard id and metric name."""
        read = MetricsService(self.client.api_client).get_metrics
        try:
            metrics = self.ask(read, timeout_s=self.options.query_timeout_s)
        except SimulatorError as error:
            raise SimulatorError(f"reading the size from /metrics failed: {error}") from error
        shards: dict[str, dict[str, int]] = {}
        for name, owner, shard, value in _SAMPLE.findall(metrics):
            if owner == bucket:
                shards.setdefault(shard, {})[name] = int(float(value))
        if not shards:
            raise SimulatorError(
                "/metrics has no size of the bucket: is metrics-disabled set, or is it InfluxDB"
                " Cloud, which doesn't report it?"
            )
        return shards

    # --- errors -----------------------------------------------------------------------------------

    def explain_client(self, error: Exception) -> Retryable | SimulatorError:
        """What one of `OWN_ERRORS` means."""
        if isinstance(error, ApiException) and error.status:
            body = error.body or error.reason or ""
            content = body if isinstance(body, bytes) else body.encode()
            headers = [
                (name.encode(), value.encode()) for name, value in (error.headers or {}).items()
            ]
            return self.explain(Answer(error.status, content, headers))
        kind: type[NoAnswer] = ConnectionLost
        if isinstance(error, ApiException | SSLError):
            kind = TlsRefused
        elif isinstance(error, ReadTimeoutError):
            kind = AnswerTimeout
        return self.explain_silence(kind(one_line(getattr(error, "reason", None) or error)))

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        options, status = self.options, answer.status
        reply = parse_body(answer.body)
        text = one_line(reply.get("message", reply) if isinstance(reply, dict) else reply, SHOWN)
        if status in self.PASSING:
            wait_s = read_retry_after_s(answer)
            if wait_s > _MAX_RETRY_AFTER_S:
                return SimulatorError(
                    f"{self.place} rejects requests for the next {wait_s:g} s ({text})"
                )
            kind = "cache_full" if _CACHE_FULL in text else None
            return self.explain_status(answer, f"{status}: {text}", kind)
        if status in (401, 403):
            return SimulatorError(
                f"{self.place} refused the token ({text}): check token, and that it may read and"
                f" write buckets in the organisation {options.org}"
            )
        if status == 404 and "organization" in text:
            return SimulatorError(f"{self.place}: {text}; check org")
        if status == 404 and "bucket" in text:
            problem = f"{self.place} has no bucket {options.bucket} with events ({text})"
            return missing_table(problem, self.job)
        if status == 413:
            return SimulatorError(f"{self.place}: {text}; use a smaller --batch")
        return SimulatorError(f"{self.place} refused a request ({status}): {text}")


def name_query_target(options: InfluxOptions) -> str:
    """The target for queries."""
    return f"/api/v2/query?{urlencode({'org': options.org})}"


def make_question(target: str, query: str) -> HttpRequest:
    """The request for a query in Flux."""
    body = b'{"query":' + orjson.dumps(query) + _QUESTION_END
    return HttpRequest("POST", target, body, _QUESTION_HEADERS)


class InfluxWriter(ConnectedWriter[Connection]):
    """Sends payloads of `LineEncoder`."""

    def send(self, payload: Request) -> int:
        self.connection.write(payload.data)
        return payload.events


FluxRequest = tuple[Question, HttpRequest]
"""A query, which counts and reads the answer, and its request. Another execution's query serves as well if it
`is_scanned`."""

_LITERALS = Literals(quote_text, write_time)


class InfluxAsker(TemplateAsker[Connection]):
    """Sends the queries of `Influxdb.compile`. Receives the query, and its answers."""

    module: Influxdb

    def __init__(self, module: Influxdb, in_flight: int) -> None:
        super().__init__(module, _LITERALS, in_flight, module.options.query_timeout_s)
        self._target = name_query_target(module.options)
        self._questions: dict[str, Question] = {}
        """Query -> one execution of it."""

    def encode(self, bounds: BoundQueries) -> Iterable[FluxRequest]:
        name = bounds.query.name
        if name not in self._questions:
            self._questions[name] = self.module.compile(bounds[0])
        question = self._questions[name]
        if not question.is_scanned:
            return (self.encode_statement(self.module.compile(bound)) for bound in bounds)
        return ((question, self._make_request(text)) for text in self.fill(bounds))

    def encode_statement(self, statement: Question) -> FluxRequest:
        return statement, make_question(self._target, statement.text)

    def write_statement(self, bound: BoundQuery) -> str:
        return self.module.compile(bound).text

    def write_instant(self, time_ms: int) -> str:
        # It contains nothing to escape.
        return write_time(time_ms)

    def _make_request(self, escaped: str) -> HttpRequest:
        body = b'{"query":"%b"%b' % (escaped.encode(), _QUESTION_END)
        return HttpRequest("POST", self._target, body, _QUESTION_HEADERS)

    def converse(self, request: FluxRequest) -> Conversation:
        question, http = request
        bodies = [(yield http)]
        lines = count_lines(bodies[0], question.counted)
        if question.is_scanned:
            return Received(question.count(lines), len(bodies[0]), (question, bodies))
        missing = question.find_missing(_parse(question, bodies[0]))
        if missing is not None:
            bodies.append((yield make_question(self._target, missing)))
            count_lines(bodies[1], None)
        rows = len(_read(question, bodies))
        return Received(rows, sum(map(len, bodies)), (question, bodies))

    def decode(self, received: Received) -> Rows:
        return _read(*received.data)


def _read(question: Question, bodies: Sequence[bytes]) -> Rows:
    """The rows of answers; SimulatorError if they aren't in the expected form."""
    return question.read([_parse(question, body) for body in bodies])


def _parse(question: Question, body: bytes) -> list[Result]:
    try:
        return list(parse_results(body.decode(), question.columns))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SimulatorError(f"unreadable answer of InfluxDB: {error!r}") from error
