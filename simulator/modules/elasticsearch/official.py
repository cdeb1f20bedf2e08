"""Writes by the vendors' clients: `client=official` (`helpers.bulk`) and `client=streaming_bulk`.

`elasticsearch` writes to Elasticsearch, `opensearch-py` to OpenSearch: their helpers are alike, and send 500
documents at a time (their default), so a larger batch is several requests. Of a batch that failed, each event
is looked up as by the lean path.

https://www.elastic.co/docs/reference/elasticsearch/clients/python/client-helpers
https://docs.opensearch.org/latest/clients/python-low-level/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...errors import Retryable, SimulatorError
from ...workloads.events import EventBlock
from .._base.http import AnswerTimeout, ConnectionLost, NoAnswer, TlsRefused, interpret_no_answer
from .._base.official import OfficialEncoder, list_documents
from .._base.options import TRUST_REMEDY
from .._base.tables import deal_in_turn
from ..base import Job
from ..sending import Payload
from ..waiting import limit_wait
from .encoding import InsertMode, NamedRequest
from .options import STREAMING_BULK, ElasticsearchOptions, Flavor
from .server import CONFLICT, Connection, configure_nodes
from .writer import DocumentWriter


@dataclass(slots=True)
class ActionsRequest(NamedRequest):
    """What the helpers take."""

    actions: Sequence[dict[str, Any]]

    def cut(self, positions: Sequence[int], payload: Payload) -> None:
        self.actions = [self.actions[position] for position in positions]


class ActionsEncoder(OfficialEncoder):
    """A payload's data: an `ActionsRequest`. Documents are created under the keys that the client makes."""

    def __init__(self, job: Job, aliases: Sequence[str]) -> None:
        super().__init__(job)
        self._aliases = aliases

    def _requests(self, block: EventBlock, size: int) -> list[ActionsRequest]:
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
            ActionsRequest(range(stop - start), actions[start:stop])
            for start, stop in bounds(len(block), size)
        ]


class Client(ABC):
    """A vendor's client."""

    helpers: Any
    """The module with its helpers."""

    @abstractmethod
    def name_requests(self, name: str) -> tuple[Any, dict[str, Any]]:
        """The client, and what its calls take besides, so that the server knows requests by that name."""

    @abstractmethod
    def create(self, client: Any, action: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        """Store one document."""

    @abstractmethod
    def interpret(self, error: Exception, connection: Connection) -> Retryable | SimulatorError:
        """What an error means; raises it if it isn't the client's."""

    @abstractmethod
    def status_of(self, error: Exception) -> object:
        """The HTTP status that an error is about, if any."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class ElasticsearchClient(Client):
    """Elastic's."""

    def __init__(self, options: ElasticsearchOptions) -> None:
        from elasticsearch import Elasticsearch, helpers

        self.helpers = helpers
        self._options = options
        nodes = configure_nodes(options, options.login(), options.make_tls_context())
        # Retrying is the loop's affair, which counts.
        self._client = Elasticsearch(nodes, max_retries=0, retry_on_status=())

    def name_requests(self, name: str) -> tuple[Any, dict[str, Any]]:
        timeout_s = limit_wait(self._options.request_timeout_s)
        named = self._client.options(opaque_id=name, request_timeout=timeout_s)
        return named, {"require_alias": True}

    def create(self, client: Any, action: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        index, document = action["_index"], action["_source"]
        if "_id" in action:
            client.create(index=index, id=action["_id"], document=document, **more)
        else:
            client.index(index=index, document=document, **more)

    def interpret(self, error: Exception, connection: Connection) -> Retryable | SimulatorError:
        from elastic_transport import TransportError
        from elasticsearch import ApiError

        if isinstance(error, ApiError):
            return connection.interpret(error.status_code, error.body)
        if isinstance(error, TransportError):
            return connection.interpret_silence(error)
        raise error

    def status_of(self, error: Exception) -> object:
        return getattr(error, "status_code", None)

    def close(self) -> None:
        self._client.close()


class OpenSearchClient(Client):
    """OpenSearch's."""

    def __init__(self, options: ElasticsearchOptions) -> None:
        from opensearchpy import OpenSearch, helpers

        self.helpers = helpers
        self._options = options
        tls = options.make_tls_context()
        trust: dict[str, Any] = {} if tls is None else {"ssl_context": tls}
        if not options.verify_certs:
            trust = {"verify_certs": False, "ssl_show_warn": False}
        self._client = OpenSearch(
            options.endpoint,
            headers=options.login(),
            timeout=options.request_timeout_s,
            max_retries=0,
            **trust,
        )

    def name_requests(self, name: str) -> tuple[Any, dict[str, Any]]:
        return self._client, {
            "require_alias": True,
            "headers": {"x-opaque-id": name},
            "request_timeout": limit_wait(self._options.request_timeout_s),
        }

    def create(self, client: Any, action: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        index, document = action["_index"], action["_source"]
        headers = more["headers"]
        params = {"require_alias": "true", "request_timeout": more["request_timeout"]}
        if "_id" in action:
            client.create(index, action["_id"], document, params=params, headers=headers)
        else:
            client.index(index, document, params=params, headers=headers)

    def interpret(self, error: Exception, connection: Connection) -> Retryable | SimulatorError:
        from opensearchpy.exceptions import (
            ConnectionTimeout,
            OpenSearchException,
            SSLError,
            TransportError,
        )

        if isinstance(error, TransportError) and isinstance(error.status_code, int):
            return connection.interpret(error.status_code, error.info or error.error)
        if not isinstance(error, OpenSearchException):
            raise error
        kind: type[NoAnswer] = ConnectionLost
        if isinstance(error, ConnectionTimeout):
            kind = AnswerTimeout
        elif isinstance(error, SSLError):
            kind = TlsRefused
        return interpret_no_answer(
            kind(str(error)), Flavor.OPENSEARCH, self._options.server, TRUST_REMEDY
        )

    def status_of(self, error: Exception) -> object:
        return getattr(error, "status_code", None)

    def close(self) -> None:
        self._client.close()


class OfficialWriter(DocumentWriter):
    """Sends payloads of `ActionsEncoder` by a vendor's client."""

    def __init__(self, encoder: ActionsEncoder, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(encoder, options, job)
        self._is_single = options.mode(job.load.batch) is InsertMode.SINGLE
        self._client: Client | None = None

    def open(self) -> None:
        super().open()
        search = self._options.flavor is Flavor.OPENSEARCH
        self._client = (OpenSearchClient if search else ElasticsearchClient)(self._options)

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, payload: Payload) -> int:
        connection, client = self._connection, self._client
        assert connection is not None and client is not None
        request: ActionsRequest = payload.data
        if request.in_doubt and self.settle(payload):
            return payload.events
        name = self._thread_name(connection)
        try:
            refused = self._write(client, request, name)
        except Exception as error:
            if client.status_of(error) == CONFLICT and self._is_single and request.sent_before:
                return request.stored + 1
            meaning = client.interpret(error, connection)
            if isinstance(meaning, Retryable):
                self._doubt(request, name)
            raise meaning from error
        meanings = [
            connection.interpret(result["status"], result)
            for result in refused
            if not (result["status"] == CONFLICT and request.sent_before)
        ]
        if meanings:
            self._doubt(request, name)
            raise next((one for one in meanings if isinstance(one, SimulatorError)), meanings[0])
        return request.stored + len(request.rows)

    def _write(self, client: Client, request: ActionsRequest, name: str) -> list[dict[str, Any]]:
        """Store all documents; what the server says of those that it refused."""
        named, more = client.name_requests(name)
        if self._is_single:
            client.create(named, request.actions[0], more)
            return []
        if self._options.client == STREAMING_BULK:
            answers = client.helpers.streaming_bulk(
                named, request.actions, raise_on_error=False, **more
            )
            errors = [answer for stored, answer in answers if not stored]
        else:
            _, errors = client.helpers.bulk(named, request.actions, raise_on_error=False, **more)
        return [result for answer in errors for result in answer.values()]


def make_writer(options: ElasticsearchOptions, job: Job, batch: int) -> OfficialWriter:
    """A writer by the client that the options name."""
    aliases = [options.alias(table) for table in job.table_names]
    return OfficialWriter(ActionsEncoder(job, aliases), options, job)
