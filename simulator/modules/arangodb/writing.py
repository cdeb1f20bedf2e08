"""Sends documents to ArangoDB, each event once: by the lean path, and by python-arango as it comes
(`client=official`): `insert_many`, `import_bulk` and `insert`, over its own HTTP layer.

If a request of the client's failed, each of its events is looked up, as by the lean path. With several
endpoints the client itself sends a request whose fate nobody knows to the next coordinator, so those need
keys that are made here.

https://docs.python-arango.com/en/main/document.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from arango.client import ArangoClient
from arango.database import StandardDatabase
from arango.exceptions import ArangoServerError
from arango.http import DefaultHTTPClient
from arango.response import Response
from requests import Session
from requests.exceptions import ReadTimeout, RequestException
from requests.utils import get_environ_proxies

from ...contract import PrimaryKey
from ...encoding.columns import client_keys
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.schema import EventBlock
from ..kit.exactly_once import SettlingWriter, Span, Wanted
from ..kit.http import Answer, parse_body
from ..kit.module import connection_lost, stored_by_earlier_run
from ..kit.official import ClientWriter, Rows, RowsEncoder, list_documents
from ..options import InsertMode
from ..sending import Encoder, Payload
from ..waiting import limit_wait
from .encoding import DocumentEncoder, Request
from .options import ArangoOptions
from .queries import name_field
from .server import SHOWN, TOO_MANY_REQUESTS, UNIQUE, Connection, read_error_number

if TYPE_CHECKING:
    from . import Arangodb


class DocumentWriter(SettlingWriter[Connection]):
    """Finds out what is stored of a request, however that is sent."""

    LOOKUPS_APART_S: ClassVar[float | None] = 0.3
    REFUSES_KEYS: ClassVar[bool] = True

    def __init__(self, encoder: Encoder, module: Arangodb) -> None:
        super().__init__(encoder, module)
        self._sync = module.options.sync

    def open(self) -> None:
        super().open()
        self.connection.expects_tables = True

    def find(self, request: Any, wanted: Wanted) -> list[tuple[Any, ...]]:
        schema = self.job.schema
        paths = {name: name_field(schema, name) for name in schema.row_key}
        conditions: list[str] = []
        values: dict[str, Any] = {"@collection": self.job.table_names[request.table]}
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
        return self.connection.rows(query, values)

    def may_be_there(self, request: Any) -> bool:
        """Whether an earlier try may have stored a document whose key is refused."""
        return self.may_repeat and bool(request.sent_before)


class ArangoWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder`."""

    def __init__(self, encoder: DocumentEncoder, module: Arangodb) -> None:
        super().__init__(encoder, module)
        sync, names = str(self._sync).lower(), module.job.table_names
        self._document_paths = [
            f"/_api/document/{name}?silent=true&waitForSync={sync}" for name in names
        ]
        self._import_paths = [_import_path(name, self._sync) for name in names]

    def send_request(self, request: Request, payload: Payload) -> None:
        try:
            if request.method is InsertMode.IMPORT:
                self._import(request)
            else:
                self._store(request)
        except Retryable as error:
            if error.kind != TOO_MANY_REQUESTS:
                request.doubt()
            raise

    def _store(self, request: Request) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/documents/#create-multiple-documents"""
        answer = self.connection.post(self._document_paths[request.table], request.body)
        status = answer.status
        # With `silent`, the answer says nothing of the documents that are stored.
        if status in (201, 202) and answer.body in (b"{}", b"[]"):
            return
        reply = parse_body(answer.body)
        errors = reply if status in (201, 202) else [reply]
        if not isinstance(errors, list):
            raise SimulatorError(
                f"ArangoDB gave an unreadable answer: {one_line(answer.body, SHOWN)}"
            )
        again = self.may_be_there(request)
        failures = [error for error in errors if not (again and read_error_number(error) == UNIQUE)]
        if not failures:
            return
        if errors is reply:
            # The errors don't say which documents they are about.
            request.doubt()
        meanings = [self.connection.interpret(status, error) for error in failures]
        ends = (meaning for meaning in meanings if isinstance(meaning, SimulatorError))
        raise next(ends, meanings[-1])

    def _import(self, request: Request) -> None:
        again = self.may_be_there(request)
        path = self._import_paths[request.table] + ("ignore" if again else "error")
        answer = self.connection.post(path, request.body)
        details = _read_refusals(self.connection, answer, len(request.rows))
        if not details:
            return
        refused = [detail for detail in details if "conflict" not in detail]
        if not refused:
            raise Retryable("write_conflict", one_line(details[0], SHOWN), backoff_s=0.01)
        text = f"{self.connection.place}: {one_line(refused[0], SHOWN)}"
        if "unique constraint violated" in refused[0]:
            raise stored_by_earlier_run(text)
        raise SimulatorError(text)


def _import_path(table: str, sync: bool) -> str:
    """The path for imports, but for what becomes of documents that are there.

    https://docs.arangodb.com/stable/develop/http-api/import/
    """
    return (
        f"/_api/import?collection={table}&type=documents&details=true&waitForSync={str(sync).lower()}"
        "&onDuplicate="
    )


def _read_refusals(connection: Connection, answer: Answer, documents: int) -> list[str]:
    """Why some of `documents` imported documents were refused; empty if all are there."""
    if answer.status != 201:
        raise connection.explain(answer)
    reply = parse_body(answer.body)
    if reply["created"] + reply["ignored"] == documents:
        return []
    return reply.get("details") or [one_line(answer.body, SHOWN)]


def import_missing(
    connection: Connection, table: str, body: bytes, documents: int, sync: bool
) -> None:
    """Store documents with keys by the import API, except those that are there; Retryable or
    SimulatorError if some aren't stored."""
    answer = connection.post(f"{_import_path(table, sync)}ignore", body)
    if refusals := _read_refusals(connection, answer, documents):
        raise Retryable("documents_refused", one_line(refusals[0], SHOWN))


# --- by the client --------------------------------------------------------------------------------


class DocumentsEncoder(RowsEncoder):
    """A payload's data: a list of `Rows`, of documents."""

    def list_values(self, block: EventBlock) -> Sequence[Any]:
        documents = list_documents(block)
        if self.job.load.primary_key is not PrimaryKey.CLIENT:
            return documents
        keys = client_keys(block).tolist()
        return [
            {"_key": key.decode(), **document}
            for key, document in zip(keys, documents, strict=True)
        ]


class NamedHttpClient(DefaultHTTPClient):
    """The client's own layer, under a name by which an administrator knows the run."""

    def __init__(self, name: str, options: ArangoOptions, connections: int) -> None:
        # Retrying is the loop's affair, which counts.
        super().__init__(
            request_timeout=options.request_timeout_s, retry_attempts=0, pool_maxsize=connections
        )
        self._name = name
        self._timeout_s = options.request_timeout_s
        cert, key = options.find_file("client_cert"), options.find_file("client_key")
        self._cert = (cert, key) if cert and key else cert
        self._has_own_trust = options.ca_certs is not None or not options.verify_certs

    def create_session(self, host: str) -> Session:
        """A session like the client's, with the name."""
        session = super().create_session(host)
        session.headers["user-agent"] = self._name
        session.cert = self._cert
        if self._has_own_trust:
            # REQUESTS_CA_BUNDLE would go before it: https://github.com/psf/requests/issues/3829
            session.trust_env = False
            session.proxies.update(get_environ_proxies(host))
        return session

    def send_request(self, session: Session, *args: Any, **more: Any) -> Response:
        """Sends as the client does, within what is left of the patience."""
        self.request_timeout = limit_wait(self._timeout_s)
        return super().send_request(session, *args, **more)


def make_client(connection: Connection, connections: int) -> tuple[ArangoClient, StandardDatabase]:
    """A client that reaches the coordinators as the module's own connection does, and its database."""
    options = connection.options
    client = ArangoClient(
        hosts=options.endpoint,
        resolver_max_tries=len(options.endpoint),
        http_client=NamedHttpClient(connection.headers["user-agent"], options, connections),
        verify_override=options.find_file("ca_certs") or options.verify_certs,
    )
    database = client.db(options.database, username=options.username, password=options.password)
    return client, database


UNANSWERED = (RequestException, ConnectionAbortedError)
"""What the client raises if it got no answer."""


def explain_silence(connection: Connection, error: Exception) -> Retryable:
    """What an error of `UNANSWERED` means."""
    text = f"{connection.options.server}: {error}"
    return Retryable("timeout", text) if isinstance(error, ReadTimeout) else connection_lost(text)


class OfficialWriter(ClientWriter[Connection], DocumentWriter):
    """Sends payloads of `DocumentsEncoder` by the client."""

    def __init__(self, module: Arangodb) -> None:
        """OptionError where it couldn't store each event once."""
        if (
            len(module.options.endpoint) > 1
            and module.job.load.primary_key is not PrimaryKey.CLIENT
        ):
            raise OptionError(
                "client=official with several endpoints may store events twice, since the client"
                " itself repeats requests: name one endpoint, or use --primary-key client"
            )
        super().__init__(DocumentsEncoder(module.job), module)
        self._method = module.mode

    def make_client(self) -> ArangoClient:
        client, self._database = make_client(self.connection, max(10, self.max_in_flight))
        return client

    def send_request(self, request: Rows, payload: Payload) -> None:
        connection = self.connection
        try:
            self._store(request)
        except UNANSWERED as error:
            request.doubt()
            raise explain_silence(connection, error) from error
        except ArangoServerError as error:
            if self._is_there(request, error) and self._method is InsertMode.SINGLE:
                return
            meaning = connection.explain_client(error)
            if not (isinstance(meaning, Retryable) and meaning.kind == TOO_MANY_REQUESTS):
                request.doubt()
            raise meaning from error

    def _store(self, request: Rows) -> None:
        """Raises what the client does, or the first error of a document."""
        collection = self._database.collection(self.job.table_names[request.table])
        documents = list(request.values)
        if self._method is InsertMode.SINGLE:
            collection.insert(documents[0], sync=self._sync)
        elif self._method is InsertMode.DOCUMENT:
            results: Any = collection.insert_many(documents, sync=self._sync)
            for result in results:
                if isinstance(result, ArangoServerError) and not self._is_there(request, result):
                    raise result
        else:
            repeated = "ignore" if self.may_be_there(request) else "error"
            collection.import_bulk(documents, sync=self._sync, on_duplicate=repeated)

    def _is_there(self, request: Rows, error: ArangoServerError) -> bool:
        """Whether an earlier try has stored the document that the error is about."""
        return error.error_code == UNIQUE and self.may_be_there(request)
