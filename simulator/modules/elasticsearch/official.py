"""The vendors' clients: `client=official` writes with `helpers.bulk` and queries with `search`;
`client=streaming_bulk` writes with the helper of that name.

`elasticsearch` writes to Elasticsearch, `opensearch-py` to OpenSearch: their helpers are alike, and send 500
documents at a time (their default), so a larger batch is several requests. After a failure, each event of the
batch is looked up, as on the lean path.

https://www.elastic.co/docs/reference/elasticsearch/clients/python/client-helpers
https://docs.opensearch.org/latest/clients/python-low-level/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import orjson
from elastic_transport import NodeConfig, TransportError

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.schema import EventBlock
from ..base import AnyModule, Job
from ..kit.http_answer import ConnectionLost, NoAnswer
from ..kit.http_connection import AnswerTimeout, TlsRefused
from ..kit.official import ClientAsker, ClientWriter, OfficialEncoder, Rows, list_documents
from ..options import InsertMode
from ..sending import Request, deal_in_turn
from ..sending import Rows as Answer
from ..waiting import limit_wait
from . import STREAMING_BULK, ElasticsearchOptions, Flavor
from .paging import Pages, ParsedPage, Plan, Question, Statement
from .server import CONFLICT, Connection, DocumentWriter, read_rows

if TYPE_CHECKING:
    from . import Elasticsearch


class ActionsEncoder(OfficialEncoder):
    """A payload's data: a list of one `Rows`, with actions for the helpers. Documents are created under the
    client's keys."""

    def __init__(self, job: Job, aliases: Sequence[str]) -> None:
        super().__init__(job)
        self._aliases = aliases

    def make_requests(self, block: EventBlock) -> list[list[Rows]]:
        documents = list_documents(block)
        aliases = deal_in_turn(block, self._aliases)
        actions: list[dict[str, Any]] = [
            {"_op_type": "index", "_index": alias, "_source": document}
            for alias, document in zip(aliases, documents, strict=True)
        ]
        if self.job.load.primary_key is PrimaryKey.CLIENT:
            for action, key in zip(actions, client_keys(block).tolist(), strict=True):
                action |= {"_op_type": "create", "_id": key.decode()}
        return [
            [Rows(range(stop - start), actions[start:stop])]
            for start, stop in bounds(len(block), self.size)
        ]


class Client(NamedTuple):
    """A vendor's client."""

    client: Any
    helpers: Any
    errors: tuple[type[Exception], ...]
    name: Callable[[str, float], tuple[Any, dict[str, Any]]]
    """Takes a request's name and time limit; returns the client to call, and further arguments for its
    calls."""

    def close(self) -> None:
        """Disconnect."""
        self.client.close()


class OfficialWriter(ClientWriter[Connection], DocumentWriter):
    """Sends payloads of `ActionsEncoder` through a vendor's client."""

    def __init__(self, module: Elasticsearch) -> None:
        super().__init__(module)
        self._is_single = module.mode is InsertMode.SINGLE

    def make_encoder(self, module: AnyModule) -> ActionsEncoder:
        aliases = [module.options.alias(table) for table in module.job.table_names]
        return ActionsEncoder(module.job, aliases)

    def make_client(self) -> Client:
        return make_client(self.connection.options)

    def send_request(self, request: Rows, payload: Request) -> None:
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
        """Store all documents. Returns the server's results for the refused ones."""
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
    """The vendor's client of the server. The loop retries, and counts it."""
    if options.flavor is Flavor.ELASTICSEARCH:
        from elasticsearch import ApiError, Elasticsearch, helpers

        elastic = Elasticsearch(configure_nodes(options), max_retries=0, retry_on_status=())
        return Client(
            elastic,
            helpers,
            (ApiError, TransportError),
            lambda name, limit_s: (elastic.options(opaque_id=name, request_timeout=limit_s), {}),
        )
    from opensearchpy import OpenSearch
    from opensearchpy import helpers as open_helpers
    from opensearchpy.exceptions import OpenSearchException

    tls = options.make_tls_context()
    trust: dict[str, Any] = {} if tls is None else {"ssl_context": tls}
    if not options.verify_certs and options.client_cert is None:
        # Suppresses its warnings, but then it shows no certificate.
        trust = {"verify_certs": False, "ssl_show_warn": False}
    client = OpenSearch(
        options.endpoint,
        headers=options.login(),
        timeout=options.request_timeout_s,
        max_retries=0,
        **trust,
    )
    return Client(
        client,
        open_helpers,
        (OpenSearchException,),
        lambda name, limit_s: (
            client,
            {"headers": {"x-opaque-id": name}, "request_timeout": limit_s},
        ),
    )


def configure_nodes(options: ElasticsearchOptions) -> list[NodeConfig]:
    """How Elastic's client reaches each node."""
    trust: dict[str, Any] = {"ssl_context": options.make_tls_context()}
    if not options.verify_certs:
        # Set in the context; otherwise the client warns about it.
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


class OfficialElasticsearchAsker(ClientAsker[Connection]):
    """Queries with the client's `search`."""

    _errors: tuple[type[Exception], ...] = ()
    """The client's own errors."""

    def make_client(self) -> Any:
        client = make_client(self.connection.options)
        self._errors = client.errors
        own, named = client.name(self.connection.name, self.connection.options.request_timeout_s)
        search = partial(
            own.search,
            index=self.module.options.index(self.module.job.schema.table),
            request_cache=False,
            allow_partial_search_results=False,
            **named,
        )
        return client, search

    def close_client(self, client: Any) -> None:
        client[0].close()

    def encode_statement(self, statement: Statement) -> tuple[bytes, Plan, Question]:
        # The first search, in an application's form.
        question = orjson.loads(statement.begin + statement.plan.tail)
        return statement.begin, statement.plan, question

    def execute(self, client: Any, statement: tuple[bytes, Plan, Question]) -> Answer:
        _, search = client
        begin, plan, question = statement
        pages = Pages(begin, plan)
        while True:
            response = search(body=question)
            answer = getattr(response, "body", response)
            self.connection.check_shards(answer)
            following = pages.add(ParsedPage(answer))
            if not following:
                return read_rows(pages.plan, pages.contents)
            question = orjson.loads(following)

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return explain_error(self.connection, error) if isinstance(error, self._errors) else None
