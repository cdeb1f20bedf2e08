"""python-arango with its defaults (`client=official`): `insert_many`, `import_bulk` and `insert` over its own
HTTP layer, and `aql.execute`.

If a request fails, each of its events is looked up, as on the lean path. With several endpoints, the client
itself sends a request with an unknown outcome to the next coordinator, so these need keys from the client.

https://docs.python-arango.com/en/main/document.html
https://docs.python-arango.com/en/main/aql.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from ...errors import OptionError, Retryable, SimulatorError
from ...workloads.schema import EventBlock
from ..base import AnyModule
from ..kit.module import connection_lost
from ..kit.official import ClientAsker, ClientWriter, Rows, RowsEncoder, list_documents
from ..options import InsertMode
from ..sending import Request
from ..sending import Rows as Answers
from ..waiting import limit_wait
from .encoding import ArangoOptions
from .server import TOO_MANY_REQUESTS, UNIQUE, Connection, DocumentWriter

if TYPE_CHECKING:
    from ..arangodb import Arangodb


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
    """The client's own layer, with a name by which administrators recognise the run."""

    def __init__(self, name: str, options: ArangoOptions, connections: int) -> None:
        # The loop retries, and counts it.
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
            # REQUESTS_CA_BUNDLE would take precedence: https://github.com/psf/requests/issues/3829
            session.trust_env = False
            session.proxies.update(get_environ_proxies(host))
        return session

    def send_request(self, session: Session, *args: Any, **more: Any) -> Response:
        """Send as the client does, within the rest of the patience."""
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
"""The client's errors for a missing answer."""


def explain_silence(connection: Connection, error: Exception) -> Retryable:
    """The meaning of an error in `UNANSWERED`."""
    text = f"{connection.options.server}: {error}"
    return Retryable("timeout", text) if isinstance(error, ReadTimeout) else connection_lost(text)


class OfficialWriter(ClientWriter[Connection], DocumentWriter):
    """Sends payloads of `DocumentsEncoder` through the client."""

    def __init__(self, module: Arangodb) -> None:
        """OptionError if it couldn't store each event once."""
        if (
            len(module.options.endpoint) > 1
            and module.job.load.primary_key is not PrimaryKey.CLIENT
        ):
            raise OptionError(
                "client=official with several endpoints may store events twice, since the client"
                " itself repeats requests: name one endpoint, or use --primary-key client"
            )
        super().__init__(module)
        self._method = module.mode

    def make_encoder(self, module: AnyModule) -> DocumentsEncoder:
        return DocumentsEncoder(module.job)

    def make_client(self) -> ArangoClient:
        client, self._database = make_client(self.connection, max(10, self.max_in_flight))
        return client

    def send_request(self, request: Rows, payload: Request) -> None:
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
        """Raises the client's errors, or the first error of a document."""
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
        """Whether an earlier attempt stored the document of this error."""
        return error.error_code == UNIQUE and self.may_be_there(request)


class OfficialArangoAsker(ClientAsker[Connection]):
    """Queries with `aql.execute` and the cursor that it returns."""

    def make_client(self) -> Any:
        return make_client(self.connection, 1)

    def close_client(self, client: Any) -> None:
        client[0].close()

    def execute(self, client: Any, statement: str) -> Answers:
        return list(map(tuple, client[1].aql.execute(statement, cache=False)))

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        if isinstance(error, UNANSWERED):
            return explain_silence(self.connection, error)
        if isinstance(error, ArangoServerError):
            return self.connection.explain_client(error)
        return None
