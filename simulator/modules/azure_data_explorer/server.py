"""Connections to a Kusto cluster: Microsoft's clients, ingestion, queries, and what an error means.

Measured requests use our own connections (`kit/http.py`): Microsoft's clients, although they keep connections
open, need about ten times the CPU for the same requests. They are used for everything else: commands, tokens,
and the list of blobs and queues.
"""

from __future__ import annotations

import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import orjson
from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat
from azure.kusto.data.exceptions import (
    KustoApiError,
    KustoAuthenticationError,
    KustoError,
    KustoMultiApiError,
    KustoNetworkError,
    KustoServiceError,
    KustoThrottlingError,
    OneApiError,
)

from ...contract import Level, Storage
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..base import Job
from ..kit.exactly_once import ConnectedWriter
from ..kit.http import CONNECT_TIMEOUT_S, interpret_no_answer, scheme_port
from ..kit.http_answer import Answer, NoAnswer
from ..kit.http_connection import Connection as HttpConnection
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SHOWN, Conversation, HttpClient, SqlAsker, find_redirect, read_json
from ..kit.module import CONNECTION_LOST, connection_lost, missing_table
from ..kit.sql_queries import Template
from ..sending import Received, Request, Rows
from . import STREAMED_VISIBLE_S, AdxOptions
from .ingestion import MAPPING, Part, QueuedIngestion, make_context
from .queries import LITERALS, Compiled, Read, quote_name, select_stored

if TYPE_CHECKING:
    from . import AzureDataExplorer

_SOURCE = (
    "extents: compressed columns and their indexes; without the copies in Azure's storage and the"
    " cache"
)

# A token from the client is valid for at least another five minutes. Getting it takes longer than the
# request: https://github.com/AzureAD/microsoft-authentication-library-for-python/blob/dev/msal/application.py
_TOKEN_KEPT_S = 60.0

_STREAM_QUERY = f"?streamFormat={DataFormat.CSV.kusto_value}&mappingName={MAPPING}"

_OK = 200
_UNAUTHORIZED, _NOT_FOUND, _TOO_MANY_REQUESTS = 401, 404, 429

_ResultT = TypeVar("_ResultT")


class Connection(HttpClient):
    """The official clients, and our own requests with their login. Errors are translated."""

    def __init__(self, options: AdxOptions, job: Job) -> None:
        """Connects to nothing yet. OptionError without a way to log in."""
        options.check_login()
        self.options = options
        self._job = job
        self._client = client = KustoClient(self.describe_place(options.kusto_uri))
        # There is no public way to the client's token.
        self._helper = client._aad_helper
        self._login: dict[str, str] = {}
        self._login_kept_until = 0.0
        details = client.client_details
        # Requests identify themselves as the client does.
        headers = {
            "accept": "application/json",
            "x-ms-version": client.API_VERSION,
            "x-ms-client-version": details.version_for_tracing,
            "x-ms-app": details.application_for_tracing,
            "x-ms-user": details.user_name_for_tracing,
        }
        ascii_only = {
            name: value.encode("ascii", "replace").decode() for name, value in headers.items()
        }
        uri = options.kusto_uri
        # Ignores a proxy set in the environment.
        super().__init__(
            [uri], scheme_port(uri), ascii_only, options.request_timeout_s, make_context(uri)
        )
        self._stream_path = f"/v1/rest/ingest/{quote(options.kusto_db, safe='')}/"
        self._queue: QueuedIngestion | None = None
        self.properties = make_properties(options)

    def describe_place(self, uri: str) -> KustoConnectionStringBuilder:
        """How a client of Microsoft's reaches a URI, and with which login."""
        options = self.options
        if options.adx_aad_app_id and options.adx_app_key and options.adx_authority_id:
            builder = KustoConnectionStringBuilder.with_aad_application_key_authentication(
                uri, options.adx_aad_app_id, options.adx_app_key, options.adx_authority_id
            )
        else:
            builder = KustoConnectionStringBuilder.with_no_authentication(uri)
        builder.application_for_tracing = f"iot-benchmark/{self._job.run_id}"
        return builder

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        super().close()
        if self._queue is not None:
            self._queue.close()

    def call(
        self, call: Callable[..., _ResultT], *arguments: Any, uri: str | None = None
    ) -> _ResultT:
        """The result of a client's or an ingestion's call, with its errors translated. `uri`: of the call
        (default: `kusto_uri`)."""
        try:
            return call(*arguments)
        except NoAnswer as error:
            raise self.explain_silence(error) from error
        except KustoError as error:
            raise self.interpret(error, uri) from error

    def ask(self, query: str) -> list[list[Any]]:
        """All rows of the answer to a query or command, as in JSON."""
        properties = None if query.startswith(".") else self.properties
        answer = self.call(self._client.execute, self.options.kusto_db, query, properties)
        rows: list[list[Any]] = answer.primary_results[0].raw_rows
        return rows

    def reach(self, first: Callable[[], object]) -> None:
        """Make a first call to the cluster. If that fails, everything is closed; SimulatorError with the
        cluster's name and a remedy."""
        try:
            first()
        except Retryable as error:
            self.close()
            raise SimulatorError(
                f"can't connect to Azure Data Explorer at {error}; check that kusto_uri and"
                " kusto_ingest_uri name a running cluster"
            ) from error
        except SimulatorError:
            self.close()
            raise

    # --- requests of our own ----------------------------------------------------------------------

    def log_in(self) -> None:
        """Connect and log in, so that the first request doesn't have to."""
        self._authorize()
        # The client does this, too, before it logs in.
        request = HttpRequest("GET", "/v1/rest/auth/metadata")
        self.finish(super().begin(request, CONNECT_TIMEOUT_S))

    def _authorize(self) -> dict[str, str]:
        """The header that authorises a request, from the client, which renews its token in time."""
        if self._helper is not None and time.monotonic() >= self._login_kept_until:
            token = self.call(self._helper.acquire_authorization_header)
            self._login = {"authorization": token}
            self._login_kept_until = time.monotonic() + _TOKEN_KEPT_S
        return self._login

    def begin(self, request: HttpRequest, timeout_s: float | None = None) -> HttpConnection:
        """Retryable or SimulatorError if it can't be sent."""
        headers = {**(request.headers or {}), **self._authorize()}
        return super().begin(request._replace(headers=headers), timeout_s)

    def explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        host = urlsplit(self.options.kusto_uri).netloc
        return interpret_no_answer(error, "Azure Data Explorer", host, "REQUESTS_CA_BUNDLE")

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        return self.interpret(read_error(answer))

    def stream(self, table: str, body: bytes) -> None:
        """Streaming ingestion of compressed CSV, answered when its events are stored:
        https://learn.microsoft.com/azure/data-explorer/kusto/api/rest/streaming-ingest
        """
        headers = {"content-encoding": "gzip", **name_request("stream")}
        target = f"{self._stream_path}{quote(table, safe='')}{_STREAM_QUERY}"
        answer = self.request("POST", target, body, headers)
        if answer.status != _OK or not answer.body.startswith(b"{"):
            raise self.interpret(read_error(answer, is_streamed=True))

    def open_queue(self) -> None:
        """Prepare for `enqueue`."""
        options = self.options
        client = KustoClient(self.describe_place(options.ingest_uri))
        self._queue = QueuedIngestion(client, options.kusto_db, options.request_timeout_s)
        self.call(self._queue.renew, uri=options.ingest_uri)

    def enqueue(self, table: str, body: bytes, size: int) -> None:
        """Queued ingestion of compressed CSV that was `size` bytes long."""
        assert self._queue is not None
        self.call(self._queue.put, table, body, size, uri=self.options.ingest_uri)

    def read_extents(self, tables: Iterable[str]) -> Storage:
        """The size of the tables' extents, and their number of rows.

        Uses `.show table extents`, since the figures of `.show table details` may be 15 minutes old:
        https://learn.microsoft.com/kusto/management/show-extents
        """
        sums = [self.ask(ask_extents(table))[0] for table in tables]
        total, index, rows = (sum(int(row[number] or 0) for row in sums) for number in range(3))
        return Storage(
            total_bytes=total,
            data_bytes=total - index,
            index_bytes=index,
            source=_SOURCE,
            level=Level(size_bytes=total, events=rows),
        )

    def interpret(self, error: KustoError, uri: str | None = None) -> Retryable | SimulatorError:
        """What an error from `uri` (default: `kusto_uri`) means: another attempt, or the end of the run."""
        host = urlsplit(uri or self.options.kusto_uri).netloc
        if isinstance(error, KustoThrottlingError):
            return Retryable("throttled", f"{host} throttled the request", backoff_s=1)
        if isinstance(error, KustoNetworkError):
            return connection_lost(f"{host}: {one_line(error.__cause__ or error, SHOWN)}")
        if isinstance(error, KustoAuthenticationError):
            return SimulatorError(
                f"can't log in to {host}: {one_line(error.exception, SHOWN)}; check adx_aad_app_id,"
                " adx_app_key and adx_authority_id"
            )
        text = one_line(error, SHOWN)
        # The service's text for an error, or for the first error in an answer.
        api_error: OneApiError | None = None
        if isinstance(error, KustoApiError):
            api_error = error.get_api_error()
        elif isinstance(error, KustoMultiApiError):
            api_error = next(iter(error.get_api_errors()), None)
        if api_error is not None:
            text = (
                f"{api_error.code}: {one_line(api_error.description or api_error.message, SHOWN)}"
            )
            if api_error.permanent is False:
                return Retryable("server_error", text, backoff_s=0.5)
        if "Failed to resolve table" in text or "EntityNotFound" in text:
            return missing_table(f"{host}: {text}", self._job)
        if isinstance(error, KustoServiceError) and text.startswith(("401", "Forbidden")):
            return SimulatorError(
                f"{host} refused the login: {text}; make the application a user, ingestor and"
                f" admin of the database {self.options.kusto_db}"
            )
        return SimulatorError(f"{host} refused a request: {text}")


def name_request(kind: str) -> dict[str, str]:
    """The header by which the service's logs identify a request."""
    return {"x-ms-client-request-id": f"IotBenchmark.{kind};{uuid.uuid4()}"}


def read_error(answer: Answer, is_streamed: bool = False) -> KustoError:
    """The error that the client would raise for the same answer, to streaming ingestion or not."""
    text = find_redirect(answer) or one_line(answer.body.decode(errors="replace"), SHOWN)
    if is_streamed and answer.status == _NOT_FOUND:
        return KustoServiceError(
            f"404, the cluster takes no streamed events ({text}): enable streaming ingestion on"
            " the cluster"
        )
    if answer.status == _TOO_MANY_REQUESTS:
        return KustoThrottlingError(text)
    if answer.status == _UNAUTHORIZED:
        return KustoServiceError("401. Missing adequate access rights.")
    with suppress(ValueError, KeyError, TypeError):
        return KustoApiError(orjson.loads(answer.body))
    return KustoServiceError(f"{answer.status}, not an answer of Azure Data Explorer: {text}")


def make_properties(options: AdxOptions) -> ClientRequestProperties:
    """The properties of each query, besides its text."""
    properties = ClientRequestProperties()
    # Otherwise, an answer of more than 500,000 rows would be an error.
    # https://learn.microsoft.com/azure/data-explorer/kusto/concepts/querylimits
    properties.set_option("notruncation", True)
    timeout = timedelta(seconds=options.query_timeout_s)
    properties.set_option(properties.request_timeout_option_name, timeout)
    return properties


def ask_extents(table: str) -> str:
    """The command that sums up a table's extents: total bytes, bytes of indexes, rows."""
    sums = "v0 = sum(ExtentSize), v1 = sum(IndexSize), v2 = sum(RowCount)"
    return f".show table {quote_name(table)} extents | summarize {sums}"


def check_rows(rows: int, stored: int) -> None:
    """SimulatorError unless the extents hold all rows: streamed events are in row stores first, which don't
    report their size."""
    if rows < stored:
        raise SimulatorError(
            f"{rows:,} of {stored:,} events are in extents so far; the others, in row stores, have"
            " no known size (with batch: true there are none)"
        )


_MORE = timedelta(seconds=30)
"""How much longer the client waits than the service, as Microsoft's client does."""

# Quotes within a text of an answer would be escaped.
_PRIMARY, _FRAME = b'"PrimaryResult"', b'"FrameType"'
_ROWS = re.compile(rb'"Rows":\s*\[')
_WHOLE = re.compile(rb'"HasErrors":\s*false[^\[\]{}]*\}\s*\]\s*\Z')
"""The end of an answer without errors."""
_END_BYTES = 200
_ERRORS = b'"OneApiErrors"'
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Question(NamedTuple):
    """A request, and how to read each value of a row."""

    request: HttpRequest
    reads: Sequence[Read]


class AdxAsker(SqlAsker[Connection]):
    """Sends the queries of `AzureDataExplorer.compile`. Receives the body, and how to read it."""

    module: AzureDataExplorer

    def __init__(self, module: AzureDataExplorer, in_flight: int) -> None:
        limit_s = module.options.query_timeout_s + _MORE.total_seconds()
        super().__init__(module, LITERALS, in_flight, limit_s)
        self._properties = make_properties(module.options).to_json()
        self._reads: dict[str, Sequence[Read]] = {}

    def open(self) -> None:
        super().open()
        self.database.reach(self.database.log_in)

    def encode(self, bounds: BoundQueries) -> Iterable[Question]:
        name = bounds.query.name
        if name not in self._reads:
            self._reads[name] = self.module.make_statement(bounds[0]).reads
        return (Question(request, self._reads[name]) for request in super().encode(bounds))

    def encode_statement(self, statement: Compiled) -> Question:
        return Question(super().encode_statement(statement.text), statement.reads)

    def write_statement(self, bound: BoundQuery) -> str:
        text: str = self.module.make_statement(bound).text
        return text

    def prepare(self, template: Template) -> Template:
        database = self.escape(self.module.options.kusto_db)
        parts = list(map(self.escape, template.parts))
        parts[0] = f'{{"db":"{database}","csl":"{parts[0]}'
        parts[-1] += f'","properties":"{self.escape(self._properties)}"}}'
        return Template(tuple(parts), template.places, template.devices)

    def make_request(self, escaped: str) -> HttpRequest:
        headers = {"content-type": "application/json; charset=utf-8", **name_request("query")}
        return HttpRequest("POST", "/v2/rest/query", escaped.encode(), headers)

    def converse(self, request: Question) -> Conversation:
        body = yield request.request
        return Received(self.count_rows(body), len(body), (request.reads, body))

    def count_rows(self, body: bytes) -> int:
        if _ERRORS in body or not _WHOLE.search(body, max(0, len(body) - _END_BYTES)):
            raise self._explain_errors(body)
        at = body.find(_PRIMARY)
        begin = _ROWS.search(body, at) if at >= 0 else None
        if begin is None:
            raise self._explain_errors(body)
        rows = body[begin.end() : body.find(_FRAME, begin.end())]
        # No value is a list; texts may have brackets.
        bare = _TEXT.sub(b"", rows) if b"\\" in rows else b"".join(rows.split(b'"')[::2])
        return bare.count(b"[")

    def _explain_errors(self, body: bytes) -> Retryable | SimulatorError:
        """What an answer with status 200 but without a result means."""
        frames = read_json(body)
        errors = []
        for frame in frames if isinstance(frames, list) else []:
            rows = frame.get("Rows", ()) if isinstance(frame, dict) else ()
            errors += [
                part for part in (frame, *rows) if isinstance(part, dict) and "OneApiErrors" in part
            ]
        if errors:
            return self.database.interpret(KustoMultiApiError(errors))
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        return SimulatorError(f"unreadable or incomplete answer ({text})")

    def decode(self, received: Received) -> Rows:
        reads, body = received.data
        for frame in read_json(body):
            if frame.get("TableKind") == "PrimaryResult":
                return Compiled("", reads).read(frame["Rows"])
        raise SimulatorError("unreadable answer: it has no table of results")


class PartsWriter(ConnectedWriter[Connection]):
    """Sends payloads with a deque of `Part`: a request per table."""

    def __init__(self, module: AzureDataExplorer) -> None:
        super().__init__(module)
        self.is_queued = module.options.batch

    @abstractmethod
    def ingest(self, part: Part) -> None:
        """Queue a part, or store it."""

    def send(self, payload: Request) -> int:
        # Acknowledged parts aren't sent again when another table's request fails.
        while payload.data:
            part: Part = payload.data[0]
            # Here and not in `recover`, for which other requests in flight would have to wait.
            if not part.in_doubt or not self._is_stored(part):
                part.in_doubt = False
                try:
                    self.ingest(part)
                except Retryable as error:
                    # With a queue, an event that may have been queued ends the run.
                    part.in_doubt = not self.is_queued and error.kind in _UNCLEAR
                    raise
            payload.data.popleft()
        return payload.events

    def _is_stored(self, part: Part) -> bool:
        """Whether the part's last event is stored: a request is stored as a whole or not at all."""
        query = select_stored(part.table, part.block)
        deadline = time.monotonic() + STREAMED_VISIBLE_S
        while True:
            if self.connection.ask(query)[0][0]:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_INTERVAL_S)


class AdxWriter(PartsWriter):
    """Sends payloads of `CsvEncoder`."""

    def open(self) -> None:
        super().open()
        connection = self.connection
        connection.reach(connection.open_queue if self.is_queued else connection.log_in)

    def ingest(self, part: Part) -> None:
        if self.is_queued:
            self.connection.enqueue(part.table, part.body, part.size)
        else:
            self.connection.stream(part.table, part.body)


_UNCLEAR = (CONNECTION_LOST, "timeout")
"""Kinds of errors after which a request may be stored."""


# Nothing tells when streamed events have arrived, so they are looked up repeatedly.
_LOOK_INTERVAL_S = 0.5
