"""Writes by python-arango as it comes: `insert_many`, `import_bulk` and `insert`, over its own HTTP layer.

Of a request that failed, each event is looked up as by the lean path. With several endpoints the client sends
a request whose fate nobody knows to the next coordinator by itself, so those need keys of the client.

https://docs.python-arango.com/en/main/document.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arango.client import ArangoClient
from arango.database import StandardDatabase
from arango.exceptions import ArangoServerError
from arango.http import DefaultHTTPClient
from arango.response import Response
from requests import Session
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ReadTimeout, RequestException

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...errors import OptionError, Retryable, SimulatorError
from ...workloads.events import EventBlock
from .._base.errors import connection_lost
from .._base.official import OfficialEncoder, list_documents
from .._base.tables import deal_block
from ..base import Job
from ..sending import Payload
from ..waiting import limit_wait
from .encoding import InsertMethod, TableRequest
from .options import ArangoOptions
from .server import TOO_MANY_REQUESTS, UNIQUE
from .writer import DocumentWriter


@dataclass(slots=True)
class DocumentsRequest(TableRequest):
    """What goes to one collection."""

    documents: Sequence[dict[str, Any]]

    def cut(self, positions: Sequence[int], payload: Payload) -> None:
        self.documents = [self.documents[position] for position in positions]


class DocumentsEncoder(OfficialEncoder):
    """A payload's data: a `DocumentsRequest` for each collection that gets some."""

    def _requests(self, block: EventBlock, size: int) -> list[list[DocumentsRequest]]:
        return [self._deal(block.part(*span)) for span in bounds(len(block), size)]

    def _deal(self, block: EventBlock) -> list[DocumentsRequest]:
        return [
            DocumentsRequest(share.rows, self._list(part), table=share.table)
            for share, part in deal_block(block, len(self._job.table_names))
        ]

    def _list(self, block: EventBlock) -> list[dict[str, Any]]:
        documents = list_documents(block)
        if self._job.load.primary_key is not PrimaryKey.CLIENT:
            return documents
        keys = client_keys(block).tolist()
        return [
            {"_key": key.decode(), **document}
            for key, document in zip(keys, documents, strict=True)
        ]


class NamedHttpClient(DefaultHTTPClient):
    """The client's own layer, under a name by which an administrator knows the run."""

    def __init__(self, name: str, timeout_s: float, connections: int) -> None:
        # Retrying is the loop's affair, which counts.
        super().__init__(request_timeout=timeout_s, retry_attempts=0, pool_maxsize=connections)
        self._name = name
        self._timeout_s = timeout_s

    def create_session(self, host: str) -> Session:
        """As the client's, with the name."""
        session = super().create_session(host)
        session.headers["user-agent"] = self._name
        return session

    def send_request(self, session: Session, *args: Any, **more: Any) -> Response:
        """As the client's, within what is left of the patience."""
        self.request_timeout = limit_wait(self._timeout_s)
        return super().send_request(session, *args, **more)


class OfficialWriter(DocumentWriter):
    """Sends payloads of `DocumentsEncoder` by the client."""

    def __init__(
        self, encoder: DocumentsEncoder, options: ArangoOptions, job: Job, method: InsertMethod
    ) -> None:
        super().__init__(encoder, options, job)
        self._method = method
        self._client: ArangoClient | None = None
        self._database: StandardDatabase | None = None

    def open(self) -> None:
        super().open()
        options = self._options
        http = NamedHttpClient(
            f"iot-benchmark {self._job.run_id}",
            options.request_timeout_s,
            max(10, self.max_in_flight),
        )
        self._client = ArangoClient(
            hosts=options.endpoint,
            resolver_max_tries=len(options.endpoint),
            http_client=http,
            verify_override=options.ca_certs or options.verify_certs,
        )
        self._database = self._client.db(
            options.database, username=options.username, password=options.password
        )

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, payload: Payload) -> int:
        if any(request.in_doubt for request in payload.data) and self.settle(payload):
            return payload.events
        for request in payload.data:
            if request.rows:
                self._send_request(request, payload)
        return payload.events

    def _send_request(self, request: DocumentsRequest, payload: Payload) -> None:
        try:
            self._store(request)
        except ReadTimeout as error:
            request.doubt()
            raise Retryable("timeout", f"{self._options.server}: {error}") from error
        except (RequestsConnectionError, RequestException, ConnectionAbortedError) as error:
            request.doubt()
            raise connection_lost(f"{self._options.server}: {error}") from error
        except ArangoServerError as error:
            if self._is_there(request, error) and self._method is InsertMethod.SINGLE:
                request.keep((), payload)
                return
            meaning = self._interpret(error)
            if not (isinstance(meaning, Retryable) and meaning.kind == TOO_MANY_REQUESTS):
                request.doubt()
            raise meaning from error
        request.keep((), payload)

    def _store(self, request: DocumentsRequest) -> None:
        """Raises what the client does, or the first error of a document."""
        assert self._database is not None
        collection = self._database.collection(self._job.table_names[request.table])
        documents, sync = list(request.documents), self._options.sync
        if self._method is InsertMethod.SINGLE:
            collection.insert(documents[0], sync=sync)
        elif self._method is InsertMethod.DOCUMENT:
            results: Any = collection.insert_many(documents, sync=sync)
            for result in results:
                if isinstance(result, ArangoServerError) and not self._is_there(request, result):
                    raise result
        else:
            again = self._client_key and request.sent_before
            collection.import_bulk(
                documents, sync=sync, on_duplicate="ignore" if again else "error"
            )

    def _is_there(self, request: DocumentsRequest, error: ArangoServerError) -> bool:
        """Whether an earlier try has stored the document that this is about."""
        return error.error_code == UNIQUE and self._client_key and request.sent_before

    def _interpret(self, error: ArangoServerError) -> Retryable | SimulatorError:
        assert self._connection is not None
        answer = {"errorNum": error.error_code, "errorMessage": error.message}
        return self._connection.http.interpret(error.http_code, answer)


def make_writer(options: ArangoOptions, job: Job, batch: int) -> OfficialWriter:
    """A writer by the client; OptionError where it couldn't store each event once."""
    if len(options.endpoint) > 1 and job.load.primary_key is not PrimaryKey.CLIENT:
        raise OptionError(
            "client=official with several endpoints may store events twice, as the client repeats requests"
            " itself: name one, or use --primary-key client"
        )
    return OfficialWriter(DocumentsEncoder(job), options, job, options.mode(batch))
