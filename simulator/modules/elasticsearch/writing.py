"""Sends events to Elasticsearch and OpenSearch, each once: by the lean path, and by the vendors' clients
(`client=official`: `helpers.bulk`, and `client=streaming_bulk`).

`elasticsearch` writes to Elasticsearch, `opensearch-py` to OpenSearch: their helpers are alike, and send 500
documents at a time (their default), so a larger batch is several requests. Of a batch that failed, each event
is looked up as by the lean path.

https://www.elastic.co/docs/reference/elasticsearch/clients/python/client-helpers
https://docs.opensearch.org/latest/clients/python-low-level/
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import orjson

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.schema import EventBlock
from ..base import Job
from ..kit.errors import connection_lost
from ..kit.exactly_once import Request as AnyRequest
from ..kit.exactly_once import SettlingWriter, Span, Wanted, keep_refused
from ..kit.http import AnswerTimeout, ConnectionLost, NoAnswer, TlsRefused
from ..kit.official import ClientWriter, OfficialEncoder, Rows, list_documents
from ..kit.tables import deal_in_turn
from ..sending import Encoder, Payload, limit_wait
from .encoding import DocumentEncoder, InsertMode, Request
from .options import STREAMING_BULK, ElasticsearchOptions, Flavor
from .paging import GroupPages, Pages, ScannedPage, Statement
from .queries import PAGE, find_field, require_all
from .server import CONFLICT, CREATED, OK, SERVER_ERROR, Connection, describe_error

if TYPE_CHECKING:
    from elastic_transport import NodeConfig

    from . import Elasticsearch

# How long a request whose answer was lost may go on before the next try.
_TASK_END_S = 10.0
_TASK_POLL_S = 0.05

# How long a request must be unlisted to count as ended: a node lists it only once it has read it.
_SETTLE_S = 1.0

# 201, or 200 where the servers sent it again among themselves, as when a node went away: "updated" is what
# was stored then, of an event without an id of ours.
_STORED = b'"status":20'


class DocumentWriter(SettlingWriter[Connection]):
    """Finds out what is stored of a request, however that is sent."""

    REFUSES_KEYS: ClassVar[bool] = True

    def __init__(self, encoder: Encoder, module: Elasticsearch) -> None:
        super().__init__(encoder, module)
        self._own = threading.local()
        """Each thread's name at the server, which has to tell requests under way apart."""
        self._numbers = itertools.count()

    def open(self) -> None:
        super().open()
        self.connection.expects_tables = True

    def name_thread(self) -> str:
        """The name under which this thread sends."""
        name: str | None = getattr(self._own, "name", None)
        if name is None:
            # Names are few and used again: a server logs each deprecation once per name.
            name = self._own.name = f"{self.connection.name} {id(self):x}-{next(self._numbers)}"
        return name

    def doubt(self, request: AnyRequest, name: str) -> None:
        """Note that it is unknown how much the server has stored of what was sent under this name."""
        request.doubt()
        request.name = name
        # A request that is still at work under this name must be told from later ones.
        self._own.name = None

    def await_end(self, payload: Payload) -> None:
        [request] = payload.data
        began = idle_since = time.monotonic()
        while (now := time.monotonic()) - idle_since < _SETTLE_S:
            answer = self.connection.ask("GET", "/_tasks?actions=indices:data/write/*")
            if "node_failures" in answer:
                raise connection_lost(
                    f"a node doesn't answer: {describe_error(answer['node_failures'])}"
                )
            tasks = [task for node in answer["nodes"].values() for task in node["tasks"].values()]
            if any(task["headers"].get("X-Opaque-Id") == request.name for task in tasks):
                if now - began > limit_wait(_TASK_END_S):
                    raise connection_lost("the server is still processing the request")
                idle_since = time.monotonic()
            # The server announces no end of a task of another connection.
            time.sleep(_TASK_POLL_S)

    @property
    def _names(self) -> str:
        return self.connection.options.join_indices(self.job.table_names)

    def show_events(self, request: Any) -> None:
        self.connection.refresh(self._names)

    def find(self, request: Any, wanted: Wanted) -> set[tuple[Any, ...]]:
        schema = self.job.schema
        conditions: list[dict[str, Any]] = []
        for name, values in wanted.items():
            field = find_field(schema, name)
            if isinstance(values, Span):
                conditions.append({"range": {field: {"gte": values.first, "lte": values.last}}})
            else:
                conditions.append({"terms": {field: values}})
        key = {name: {"terms": {"field": find_field(schema, name)}} for name in schema.key}
        plan = GroupPages(key, {}, lambda group: tuple(group["key"][name] for name in key), PAGE)
        begin = Statement(
            {"track_total_hits": False, "query": require_all(*conditions)}, plan
        ).begin
        pages, body = Pages(begin, plan), begin + plan.tail
        while body:
            body = pages.add(ScannedPage(self.connection.search(self._names, body)))
        return set(plan.read([orjson.loads(page) for page in pages.contents]))


class ElasticsearchWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder` as they stand."""

    encoder: DocumentEncoder

    def send_request(self, request: Request, payload: Payload) -> None:
        name = self.name_thread()
        try:
            answer = self.connection.write(request, name)
        except Retryable:
            self.doubt(request, name)
            raise
        status, body = answer.status, answer.body
        is_bulk = self.encoder.mode is InsertMode.BULK
        if status == OK and is_bulk:
            count = len(request.rows)
            if body.startswith(b'{"errors":false') and body.count(_STORED) == count:
                return
            meanings = self._interpret_items(request, name, orjson.loads(body)["items"])
            failure = keep_refused(request, payload, meanings)
            if failure is not None:
                raise failure
            return
        if status in (OK, CREATED) or (status == CONFLICT and request.sent_before):
            return
        if status >= SERVER_ERROR:
            self.doubt(request, name)
        raise self.connection.explain(answer)

    def _interpret_items(
        self, request: Request, name: str, items: Iterable[Mapping[str, Any]]
    ) -> Iterable[Retryable | SimulatorError | None]:
        """What the answer says of each event of a bulk request; None: it is stored."""
        sent_before = request.sent_before
        for item in items:
            [result] = item.values()
            status = result["status"]
            if status in (OK, CREATED) or (status == CONFLICT and sent_before):
                yield None
                continue
            if status >= SERVER_ERROR:
                self.doubt(request, name)
            yield self.connection.interpret(status, result)


# --- by the vendors' clients ----------------------------------------------------------------------


class ActionsEncoder(OfficialEncoder):
    """A payload's data: a list of one `Rows`, of what the helpers take. Documents are created under the keys
    that the client makes."""

    def __init__(self, job: Job, aliases: Sequence[str]) -> None:
        super().__init__(job)
        self._aliases = aliases

    def _requests(self, block: EventBlock, size: int) -> list[list[Rows]]:
        documents = list_documents(block)
        aliases = deal_in_turn(block, self._aliases)
        actions: list[dict[str, Any]] = [
            {"_op_type": "index", "_index": alias, "_source": document}
            for alias, document in zip(aliases, documents, strict=True)
        ]
        if self._job.load.primary_key is PrimaryKey.CLIENT:
            for action, key in zip(actions, client_keys(block).tolist(), strict=True):
                action |= {"_op_type": "create", "_id": key.decode()}
        return [
            [Rows(range(stop - start), actions[start:stop])]
            for start, stop in bounds(len(block), size)
        ]


class Client(NamedTuple):
    """A vendor's client."""

    client: Any
    helpers: Any
    """The module with its helpers."""
    errors: tuple[type[Exception], ...]
    """The client's own errors."""
    name: Callable[[str, float], tuple[Any, dict[str, Any]]]
    """Takes a request's name and time limit; returns the client to call, and what its calls take besides."""

    def close(self) -> None:
        """Disconnect."""
        self.client.close()


class OfficialWriter(ClientWriter[Connection], DocumentWriter):
    """Sends payloads of `ActionsEncoder` by a vendor's client."""

    def __init__(self, module: Elasticsearch, batch: int) -> None:
        options = module.options
        aliases = [options.alias(table) for table in module.job.table_names]
        super().__init__(ActionsEncoder(module.job, aliases), module)
        self._is_single = options.mode(batch) is InsertMode.SINGLE

    def make_client(self) -> Client:
        return make_client(self.connection.options)

    def send_request(self, request: Rows, payload: Payload) -> None:
        connection, name = self.connection, self.name_thread()
        try:
            refused = self._write(request.values, name)
        except self.client.errors as error:
            status: Any = getattr(error, "status_code", None)
            if status == CONFLICT and self._is_single and request.sent_before:
                return
            meaning = explain_error(connection, error)
            if isinstance(meaning, Retryable):
                self.doubt(request, name)
            raise meaning from error
        meanings = [
            connection.interpret(result["status"], result)
            for result in refused
            if not (result["status"] == CONFLICT and request.sent_before)
        ]
        if meanings:
            self.doubt(request, name)
            raise next(
                (meaning for meaning in meanings if isinstance(meaning, SimulatorError)),
                meanings[0],
            )

    def _write(self, actions: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
        """Store all documents. Returns what the server says of those that it refused."""
        options, helpers = self.connection.options, self.client.helpers
        client, arguments = self.client.name(name, limit_wait(options.request_timeout_s))
        arguments["require_alias"] = True
        if self._is_single:
            [action] = actions
            place = {"index": action["_index"], "body": action["_source"], **arguments}
            if "_id" in action:
                client.create(id=action["_id"], **place)
            else:
                client.index(**place)
            return []
        if options.client == STREAMING_BULK:
            answers = helpers.streaming_bulk(client, actions, raise_on_error=False, **arguments)
            errors = [answer for stored, answer in answers if not stored]
        else:
            _, errors = helpers.bulk(client, actions, raise_on_error=False, **arguments)
        return [result for answer in errors for result in answer.values()]


def explain_error(connection: Connection, error: Exception) -> Retryable | SimulatorError:
    """What an error of a vendor's client means (`Client.errors`)."""
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int):
        body: Any = getattr(error, "body", None) or getattr(error, "info", None)
        return connection.interpret(status, body or getattr(error, "error", ""))
    kinds = {"ConnectionTimeout": AnswerTimeout, "TlsError": TlsRefused, "SSLError": TlsRefused}
    kind: type[NoAnswer] = kinds.get(type(error).__name__, ConnectionLost)
    return connection.explain_silence(kind(one_line(error)))


def make_client(options: ElasticsearchOptions) -> Client:
    """The vendor's client of the server."""
    is_open = options.flavor is Flavor.OPENSEARCH
    return (_connect_opensearch if is_open else _connect_elasticsearch)(options)


def _connect_elasticsearch(options: ElasticsearchOptions) -> Client:
    from elastic_transport import TransportError
    from elasticsearch import ApiError, Elasticsearch, helpers

    # Retrying is the loop's affair, which counts.
    client = Elasticsearch(configure_nodes(options), max_retries=0, retry_on_status=())

    def name_requests(name: str, timeout_s: float) -> tuple[Any, dict[str, Any]]:
        return client.options(opaque_id=name, request_timeout=timeout_s), {}

    return Client(client, helpers, (ApiError, TransportError), name_requests)


def configure_nodes(options: ElasticsearchOptions) -> list[NodeConfig]:
    """How Elastic's client reaches each node."""
    from elastic_transport import NodeConfig

    trust: dict[str, Any] = {"ssl_context": options.make_tls_context()}
    if not options.verify_certs:
        # As the context has it; and the client warns of it otherwise.
        trust |= {"verify_certs": False, "ssl_show_warn": False}
    nodes = []
    for url in options.endpoint:
        parts = urlsplit(url)
        assert parts.hostname is not None
        nodes.append(
            NodeConfig(
                parts.scheme,
                parts.hostname,
                parts.port or options.DEFAULT_PORT,
                path_prefix=parts.path.rstrip("/"),
                headers=options.login(),
                request_timeout=options.request_timeout_s,
                **(trust if parts.scheme == "https" else {}),
            )
        )
    return nodes


def _connect_opensearch(options: ElasticsearchOptions) -> Client:
    from opensearchpy import OpenSearch, helpers
    from opensearchpy.exceptions import OpenSearchException

    tls = options.make_tls_context()
    trust: dict[str, Any] = {} if tls is None else {"ssl_context": tls}
    if not options.verify_certs and options.client_cert is None:
        # Without its warnings; but then it shows no certificate.
        trust = {"verify_certs": False, "ssl_show_warn": False}
    client = OpenSearch(
        options.endpoint,
        headers=options.login(),
        timeout=options.request_timeout_s,
        max_retries=0,
        **trust,
    )

    def name_requests(name: str, timeout_s: float) -> tuple[Any, dict[str, Any]]:
        return client, {"headers": {"x-opaque-id": name}, "request_timeout": timeout_s}

    return Client(client, helpers, (OpenSearchException,), name_requests)
