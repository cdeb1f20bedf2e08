"""Connections to a Kusto cluster: Microsoft's clients, ingestion, questions, and what an error means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
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
from .._base.errors import connection_lost, missing_table
from .._base.http import Answer, HttpClient, HttpRequest, NoAnswer, interpret_no_answer
from .._base.http import Connection as HttpConnection
from .._base.http_database import SHOWN
from ..base import Job
from .ingestion import QueuedIngestion, StreamingIngestion
from .options import AdxOptions
from .queries import quote_name
from .service import Service, read_error

_SOURCE = (
    "extents: compressed columns and their indexes; without the copies in Azure's storage and the"
    " cache"
)

_ResultT = TypeVar("_ResultT")


class Connection(HttpClient):
    """The official clients, with errors translated."""

    def __init__(self, options: AdxOptions, job: Job) -> None:
        """Connects to nothing yet; OptionError without a way to log in."""
        options.check_login()
        self.options = options
        self._job = job
        self._client = KustoClient(self.describe_place(options.kusto_uri))
        self._streaming: StreamingIngestion | None = None
        self._queue: QueuedIngestion | None = None
        self._service: Service | None = None
        self.properties = make_properties(options)
        """The properties of each query."""

    def describe_place(self, uri: str) -> KustoConnectionStringBuilder:
        """How a client of Microsoft's reaches a URI, and as whom."""
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
        for opened in (self._streaming, self._queue, self._service):
            if opened is not None:
                opened.close()

    def call(
        self, call: Callable[..., _ResultT], *arguments: Any, uri: str | None = None
    ) -> _ResultT:
        """What a call of a client, or of an ingestion, returns; its errors translated. `uri`: what it calls
        (default: `kusto_uri`)."""
        try:
            return call(*arguments)
        except NoAnswer as error:
            raise self._explain_silence(error) from error
        except KustoError as error:
            raise self.interpret(error, uri) from error

    def ask(self, query: str) -> list[list[Any]]:
        """All rows of a query's or a command's answer, as JSON has them."""
        properties = None if query.startswith(".") else self.properties
        answer = self.call(self._client.execute, self.options.kusto_db, query, properties)
        rows: list[list[Any]] = answer.primary_results[0].raw_rows
        return rows

    def reach(self, first: Callable[[], object]) -> None:
        """Reach the cluster by a first call. If that fails, all is closed; SimulatorError with the
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

    def open_service(self) -> None:
        """Make ready for requests."""
        options = self.options
        self._service = Service(self._client, options.kusto_uri, options.request_timeout_s)
        self.call(self._service.reach)

    @property
    def service(self) -> Service:
        """What `open_service` made ready."""
        assert self._service is not None
        return self._service

    def begin(self, request: HttpRequest, timeout_s: float | None = None) -> HttpConnection:
        """Send a request; Retryable or SimulatorError if it can't be sent."""
        return self.call(self.service.begin, request, timeout_s)

    def receive(self, connection: HttpConnection) -> Answer | None:
        """The answer, if it is complete; Retryable or SimulatorError if there is none."""
        return self.call(self.service.receive, connection)

    def give_up(self, connection: HttpConnection) -> Retryable | SimulatorError:
        return self._explain_silence(self.service.give_up(connection))

    def _explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        host = urlsplit(self.options.kusto_uri).netloc
        return interpret_no_answer(error, "Azure Data Explorer", host, "REQUESTS_CA_BUNDLE")

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an answer means whose status is no success."""
        return self.interpret(read_error(answer))

    def open_streaming(self) -> None:
        """Make ready for `stream`."""
        options = self.options
        self._streaming = StreamingIngestion(
            self._client, options.kusto_uri, options.kusto_db, options.request_timeout_s
        )
        self.call(self._streaming.reach)

    def stream(self, table: str, body: bytes) -> None:
        """Streaming ingestion of compressed CSV."""
        assert self._streaming is not None
        self.call(self._streaming.put, table, body)

    def open_queue(self) -> None:
        """Make ready for `enqueue`."""
        options = self.options
        client = KustoClient(self.describe_place(options.ingest_uri))
        self._queue = QueuedIngestion(client, options.kusto_db, options.request_timeout_s)
        self.call(self._queue.renew, uri=options.ingest_uri)

    def enqueue(self, table: str, body: bytes, size: int) -> None:
        """Queued ingestion of compressed CSV that was `size` bytes long."""
        assert self._queue is not None
        self.call(self._queue.put, table, body, size, uri=self.options.ingest_uri)

    def read_extents(self, tables: Iterable[str]) -> Storage:
        """What the tables' extents take, and how many rows they hold.

        By `.show table extents` rather than `.show table details`, whose figures may be 15 minutes old:
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
        """What an error from `uri` (default: `kusto_uri`) means: another try, or the end of the run."""
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
        api_error = _find_api_error(error)
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


def _find_api_error(error: KustoError) -> OneApiError | None:
    """What the service says of an error, or of the first error in an answer."""
    if isinstance(error, KustoApiError):
        return error.get_api_error()
    if isinstance(error, KustoMultiApiError) and error.get_api_errors():
        return error.get_api_errors()[0]
    return None


def make_properties(options: AdxOptions) -> ClientRequestProperties:
    """What each query says besides its text."""
    properties = ClientRequestProperties()
    # Otherwise an answer of more than 500,000 rows would be an error.
    # https://learn.microsoft.com/azure/data-explorer/kusto/concepts/querylimits
    properties.set_option("notruncation", True)
    timeout = timedelta(seconds=options.query_timeout_s)
    properties.set_option(properties.request_timeout_option_name, timeout)
    return properties


def ask_extents(table: str) -> str:
    """The command that adds up a table's extents: bytes in all, bytes of indexes, rows."""
    sums = "v0 = sum(ExtentSize), v1 = sum(IndexSize), v2 = sum(RowCount)"
    return f".show table {quote_name(table)} extents | summarize {sums}"


def check_rows(rows: int, stored: int) -> None:
    """SimulatorError unless extents hold all rows: what was streamed is in row stores at first, and nothing
    tells how large it is there."""
    if rows < stored:
        raise SimulatorError(
            f"{rows:,} of {stored:,} events are in extents so far; the others, in row stores, have"
            " no known size (with batch: true there are none)"
        )
