"""Queued ingestion: events reach Azure Data Explorer through Azure Storage. These requests are measured, so
they use our own connections (`kit/http.py`)."""

from __future__ import annotations

import os
import ssl
import threading
import time
import uuid
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import certifi
import orjson
from numpy.typing import NDArray

from ...encoding.columns import TEXTS, bounds, escape, iso_times, text_format
from ...encoding.rows import TextFormat, format_rows
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.schema import ID, Column, ColumnType, EventBlock, Schema
from ..base import Job
from ..kit.http import HttpPool, scheme_port
from ..kit.http_answer import Answer, NoAnswer
from ..kit.http_connection import NotConnected, TlsRefused, compress
from ..kit.http_database import SHOWN
from ..kit.options import any_encrypted, make_tls_context
from ..sending import Encoder, Request, deal_block, wrap_requests

if TYPE_CHECKING:  # encoding needs no client
    from azure.kusto.data import KustoClient

_ESCAPES = ((b'"', b'""'),)

COMMAND_BYTES = 500_000
"""The most bytes of CSV in one command."""


MAPPING = "iot_benchmark"
"""Name of the tables' ingestion mapping."""


@dataclass(slots=True)
class Part:
    """Events for one table: as CSV, compressed unless the client does that, with its uncompressed `size` in
    bytes."""

    table: str
    body: bytes
    size: int
    block: EventBlock
    in_doubt: bool = False
    """Whether it may be stored although no answer said so."""


def _form(column: Column) -> bytes:
    if column.type in TEXTS:
        return b'"%b"'
    return b"%b" if column.type is ColumnType.TIMESTAMP_MS else text_format(column)


def _prepare(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    if column.type in TEXTS:
        return escape(values, _ESCAPES)
    return iso_times(values) if column.type is ColumnType.TIMESTAMP_MS else values


# An empty field is null, except for strings, which have no null.
_FORMAT = TextFormat(_form, _prepare, b"")


def _row_form(columns: Sequence[Column]) -> bytes:
    return b",".join(_FORMAT.list_forms(columns))


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Rows of the tags' table as CSV, in parts that fit a command."""
    columns = schema.tags_row
    count = len(rows[ID])
    text = format_rows(_row_form(columns), b"\n", _FORMAT.write(columns, rows, {}))
    if len(text) <= COMMAND_BYTES or count < 2:
        return [text]
    halves = (slice(count // 2), slice(count // 2, count))
    return [
        part
        for half in halves
        for part in encode_devices(schema, {name: rows[name][half] for name in rows})
    ]


class CsvEncoder(Encoder):
    """A payload's data: a deque of `Part`, one per table."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._schema = job.schema
        self._tables = job.table_names
        self._row = _row_form(job.schema.row)

    def encode(self, block: EventBlock) -> list[Request]:
        spans = bounds(len(block), self.size)
        return wrap_requests([self._parts(block.part(*span)) for span in spans], block, self.size)

    def _parts(self, block: EventBlock) -> deque[Part]:
        parts: deque[Part] = deque()
        for share, events in deal_block(block, len(self._tables)):
            columns = _FORMAT.write(self._schema.row, events.row_columns, events.missing)
            text = format_rows(self._row, b"\n", columns)
            parts.append(Part(self._tables[share.table], compress(text), len(text), events))
        return parts


# As long as Microsoft's clients use them.
_RESOURCES_GOOD_S = 3600.0

# The first version with blobs of up to 5,000 MiB in one request; for queues nothing has changed since 2018.
# https://learn.microsoft.com/rest/api/storageservices/put-blob
_STORAGE_VERSION = "2019-12-12"

_CREATED = 201
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_SERVER_ERROR, _SERVER_BUSY = 500, 503


def make_context(uri: str) -> ssl.SSLContext | None:
    """The TLS context, with the authorities that Microsoft's clients trust."""
    authorities = os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
    return make_tls_context(authorities) if any_encrypted([uri]) else None


@dataclass(frozen=True, slots=True)
class _Resource:
    """A container of blobs, or a queue. Anyone with its signature may write to it."""

    pool: HttpPool
    host: str
    uri: str
    """Without the signature."""
    path: str
    signature: str = field(repr=False)


class QueuedIngestion:
    """Each request is a blob and a message that names it.

    Microsoft's ingestion client does the same, but creates new clients for each request.
    https://learn.microsoft.com/azure/data-explorer/kusto/api/netfx/kusto-ingest-client-rest
    """

    def __init__(self, client: KustoClient, database: str, timeout_s: float) -> None:
        """`client`: of the ingestion URI."""
        self._timeout_s = timeout_s
        self._client = client
        self._database = database
        self._lock = threading.Lock()
        self._turn = count()
        self._renew_at = 0.0
        self._token = ""
        self._containers: list[_Resource] = []
        self._queues: list[_Resource] = []
        self._pools: dict[str, HttpPool] = {}
        """Scheme, host and port -> connections. Resources change, but rarely these."""

    def close(self) -> None:
        self._client.close()
        for pool in self._pools.values():
            pool.close()

    def renew(self) -> None:
        """Fetch the containers, queues and token to use, which are valid for a while."""
        with self._lock:
            if time.monotonic() < self._renew_at:
                return
            resources = self._ask(".get ingestion resources")
            [[self._token]] = self._ask(".get kusto identity token")
            self._containers = [
                self._resource(uri) for kind, uri in resources if kind == "TempStorage"
            ]
            self._queues = [
                self._resource(uri)
                for kind, uri in resources
                if kind == "SecuredReadyForAggregationQueue"
            ]
            self._renew_at = time.monotonic() + _RESOURCES_GOOD_S

    def _ask(self, command: str) -> list[list[str]]:
        rows: list[list[str]] = self._client.execute_mgmt(None, command).primary_results[0].raw_rows
        return [row[:2] for row in rows]

    def _resource(self, uri: str) -> _Resource:
        parts = urlsplit(uri)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._pools:
            app = self._client.client_details.application_for_tracing
            headers = {"user-agent": app, "x-ms-version": _STORAGE_VERSION}
            self._pools[origin] = HttpPool(
                [origin], scheme_port(origin), headers, self._timeout_s, make_context(origin)
            )
        path = parts.path.rstrip("/")
        return _Resource(self._pools[origin], parts.netloc, f"{origin}{path}", path, parts.query)

    def put(self, table: str, body: bytes, size: int) -> None:
        """Hand over compressed CSV that was `size` bytes long. Raises Retryable if nothing was queued,
        SimulatorError if that is unknown, KustoError if the cluster doesn't say where to send it."""
        self.renew()
        turn = next(self._turn)
        container = self._containers[turn % len(self._containers)]
        queue = self._queues[turn % len(self._queues)]
        name = f"{quote(f'{self._database}__{table}', safe='')}__{uuid.uuid4()}.csv.gz"
        # https://learn.microsoft.com/rest/api/storageservices/put-blob
        target = f"{container.path}/{name}?{container.signature}"
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-date": formatdate(usegmt=True)}
        try:
            answer = container.pool.request("PUT", target, body, headers)
        except NoAnswer as error:
            raise Retryable("blob_not_stored", f"{container.host}: {error}") from error
        if answer.status != _CREATED:
            raise self._describe_refusal("blob_not_stored", container, answer)
        blob = f"{container.uri}/{name}?{container.signature}"
        self._put_message(queue, make_message(blob, size, self._database, table, self._token))

    def _put_message(self, queue: _Resource, message: bytes) -> None:
        """https://learn.microsoft.com/rest/api/storageservices/put-message"""
        target = f"{queue.path}/messages?{queue.signature}"
        headers = {"content-type": "application/xml", "x-ms-date": formatdate(usegmt=True)}
        text = b64encode(message)
        body = b"<QueueMessage><MessageText>%b</MessageText></QueueMessage>" % text
        try:
            answer = queue.pool.request("POST", target, body, headers)
        except (NotConnected, TlsRefused) as error:
            raise Retryable("message_not_queued", f"{queue.host}: {error}") from error
        except NoAnswer as error:
            raise report_unclear(f"{queue.host}: {error}") from error
        if answer.status == _CREATED:
            return
        refused = self._describe_refusal("message_not_queued", queue, answer)
        # An operation that "timed out" may have succeeded; a busy server hasn't begun.
        # https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
        if answer.status >= _SERVER_ERROR and answer.status != _SERVER_BUSY:
            raise report_unclear(str(refused)) from refused
        raise refused

    def _describe_refusal(self, kind: str, resource: _Resource, answer: Answer) -> Retryable:
        """The code of an error of Azure Storage. Its text isn't shown: it may quote what was signed."""
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND):
            # The next attempt fetches current resources first.
            self._renew_at = 0.0
        code = one_line(answer.header("x-ms-error-code") or "without a reason", SHOWN)
        return Retryable(kind, f"{resource.host}: {answer.status} {code}")


def report_unclear(reason: str) -> SimulatorError:
    """End the run: a message may have been queued, and nothing can tell."""
    return SimulatorError(
        "the answer to a message was lost; whether it was queued is unknown, so the run can't"
        f" continue: {reason}"
    )


def make_message(blob: str, size: int, database: str, table: str, token: str) -> bytes:
    """The message that makes the service ingest the blob at a URI.

    https://learn.microsoft.com/azure/data-explorer/kusto/api/netfx/kusto-ingest-client-rest#ingestion-message-internal-structure
    """
    from azure.kusto.data.data_format import DataFormat

    return orjson.dumps(
        {
            "Id": str(uuid.uuid4()),
            "BlobPath": blob,
            "RawDataSize": size,
            "DatabaseName": database,
            "TableName": table,
            "RetainBlobOnSuccess": True,
            "FlushImmediately": False,
            "IgnoreSizeLimit": False,
            "ReportLevel": 1,  # nothing is reported
            "ReportMethod": 0,
            "SourceMessageCreationTime": datetime.now(UTC).replace(tzinfo=None).isoformat(),
            "ApplicationForTracing": None,
            "ClientVersionForTracing": None,
            "AdditionalProperties": {
                "authorizationContext": token,
                "ingestionMappingReference": MAPPING,
                "ingestionMappingType": DataFormat.CSV.ingestion_mapping_kind.value,
                "format": DataFormat.CSV.kusto_value,
            },
        }
    )
