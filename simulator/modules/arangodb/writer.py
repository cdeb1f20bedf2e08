"""Writes documents to ArangoDB, each event once."""

from __future__ import annotations

import time
from typing import Any

from ...contract import PrimaryKey
from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import stored_by_earlier_run
from .._base.exactly_once import Span, Wanted, find_missing, settle
from .._base.http import parse_body
from ..base import Job
from ..sending import Encoder, Payload, Writer
from .encoding import DocumentEncoder, InsertMethod, Request, TableRequest
from .options import ArangoOptions
from .queries import name_field
from .server import SHOWN, TOO_MANY_REQUESTS, UNIQUE, Connection, read_error_number

# How far apart the two look-ups are that must agree on what a lost request has stored.
_SETTLE_S = 0.3


class DocumentWriter(Writer):
    """Knows how to find out what is stored of a request, however that is sent: a payload's data are requests
    with a `table`."""

    def __init__(self, encoder: Encoder, options: ArangoOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._connection: Connection | None = None

    def open(self) -> None:
        self._connection = Connection(self._options, self._job)
        self._connection.http.expects_tables = True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def settle(self, payload: Payload) -> bool:
        """Find out what is stored of a request in doubt; whether nothing of it is left to be sent."""

        def find_missing(request: TableRequest) -> list[int]:
            if self._client_key:
                # All of them can be sent again: stored events are refused.
                return list(range(len(request.rows)))
            return self._find_missing(request, payload)

        return settle(payload.data, payload, find_missing)

    def _find_missing(self, request: TableRequest, payload: Payload) -> list[int]:
        """The positions of the request's rows that the database doesn't have."""
        connection, schema = self._connection, self._job.schema
        assert connection is not None
        table = self._job.table_names[request.table]
        paths = {name: name_field(schema, name) for name in schema.row_key}

        def find(wanted: Wanted) -> list[tuple[Any, ...]]:
            conditions: list[str] = []
            values: dict[str, Any] = {"@collection": table}
            for number, (name, sought) in enumerate(wanted.items()):
                if isinstance(sought, Span):
                    conditions += [
                        f"{paths[name]} >= @first{number}",
                        f"{paths[name]} <= @last{number}",
                    ]
                    values |= {f"first{number}": sought.first, f"last{number}": sought.last}
                else:
                    conditions.append(f"{paths[name]} IN @texts{number}")
                    values[f"texts{number}"] = sought
            query = f"""
                FOR e IN @@collection
                FILTER {" AND ".join(conditions)}
                RETURN [{", ".join(paths.values())}]"""
            return connection.rows(query, values)

        before: list[int] | None = None
        while before != (missing := find_missing(request, payload, find)):
            before = missing
            # The server may still be at work on the request, and doesn't announce its end.
            time.sleep(_SETTLE_S)
        return missing


class ArangoWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder`."""

    encoder: DocumentEncoder

    def __init__(self, encoder: DocumentEncoder, options: ArangoOptions, job: Job) -> None:
        super().__init__(encoder, options, job)
        sync = str(options.sync).lower()
        names = job.table_names
        self._document_paths = [
            f"/_api/document/{name}?silent=true&waitForSync={sync}" for name in names
        ]
        self._import_paths = [
            f"/_api/import?collection={name}&type=documents&details=true&waitForSync={sync}"
            for name in names
        ]

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        if any(request.in_doubt for request in payload.data) and self.settle(payload):
            return payload.events
        return sum(self._send_request(connection, request, payload) for request in payload.data)

    def _send_request(self, connection: Connection, request: Request, payload: Payload) -> int:
        """Send what is left of a request, and return how many of its events are stored."""
        if not request.rows:
            return request.stored
        try:
            if request.method is InsertMethod.IMPORT:
                self._import(connection, request)
            else:
                self._store(connection, request)
        except Retryable as error:
            if error.kind != TOO_MANY_REQUESTS:
                request.doubt()
            raise
        request.keep((), payload)
        return request.stored

    def _store(self, connection: Connection, request: Request) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/documents/#create-multiple-documents"""
        path = self._document_paths[request.table]
        status, body = connection.http.write(path, request.body)
        # With `silent`, the answer says nothing of the documents that are stored.
        if status in (201, 202) and body in (b"{}", b"[]"):
            return
        answer = parse_body(body)
        errors = answer if status in (201, 202) else [answer]
        if not isinstance(errors, list):
            raise SimulatorError(
                f"ArangoDB gave an answer that makes no sense: {one_line(body, SHOWN)}"
            )
        again = request.sent_before and self._client_key
        left = [error for error in errors if not (again and read_error_number(error) == UNIQUE)]
        if not left:
            return
        if errors is answer:
            # The errors don't say which documents they are about.
            request.doubt()
        meanings = [connection.http.interpret(status, error) for error in left]
        ends = (meaning for meaning in meanings if isinstance(meaning, SimulatorError))
        raise next(ends, meanings[-1])

    def _import(self, connection: Connection, request: Request) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/import/"""
        again = request.sent_before and self._client_key
        path = self._import_paths[request.table] + (
            "&onDuplicate=ignore" if again else "&onDuplicate=error"
        )
        status, body = connection.http.write(path, request.body)
        answer = parse_body(body)
        if status != 201:
            raise connection.http.interpret(status, answer)
        if answer["created"] + answer["ignored"] == len(request.rows):
            return
        details = answer.get("details") or [one_line(body, SHOWN)]
        refused = [detail for detail in details if "conflict" not in detail]
        if not refused:
            raise Retryable("write_conflict", one_line(details[0], SHOWN), backoff_s=0.01)
        text = f"ArangoDB at {self._options.server}: {one_line(refused[0], SHOWN)}"
        if "unique constraint violated" in refused[0]:
            raise stored_by_earlier_run(text)
        raise SimulatorError(text)


def import_missing(
    connection: Connection, table: str, body: bytes, documents: int, sync: bool
) -> None:
    """Store documents with keys by the import API, but for those that are there; Retryable or
    SimulatorError if some aren't stored."""
    path = (
        f"/_api/import?collection={table}&type=documents&details=true"
        f"&waitForSync={str(sync).lower()}&onDuplicate=ignore"
    )
    status, content = connection.http.write(path, body)
    answer = parse_body(content)
    if status != 201:
        raise connection.http.interpret(status, answer)
    if answer["created"] + answer["ignored"] != documents:
        details = answer.get("details") or [content]
        raise Retryable("documents_refused", one_line(details[0], SHOWN))
