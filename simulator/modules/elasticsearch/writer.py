"""Writes documents to Elasticsearch and OpenSearch, each event once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import orjson

from ...contract import PrimaryKey
from ...errors import Retryable, SimulatorError
from .._base.errors import connection_lost
from .._base.exactly_once import Span, Wanted, find_missing, keep_refused, settle
from .._base.http import parse_body
from ..base import Job
from ..sending import Encoder, Payload, Writer
from ..waiting import limit_wait
from .encoding import DocumentEncoder, InsertMode, NamedRequest, Request
from .options import ElasticsearchOptions
from .queries import fetch_groups, find_field, require_all, search
from .server import CONFLICT, CREATED, OK, SERVER_ERROR, Connection, describe_error

# How long a request whose answer was lost may go on before the next try.
_TASK_END_S = 10.0
_TASK_POLL_S = 0.05

# How long a request must be unlisted to count as ended: a node lists it only once it has read it.
_SETTLE_S = 1.0

# 201, or 200 where the servers sent it again among themselves, as when a node went away: "updated" is what
# was stored then, of an event without an id of ours.
_STORED = b'"status":20'


class DocumentWriter(Writer):
    """Knows how to find out what is stored of a request, however that is sent: the data of its payloads
    are a `NamedRequest`. Several threads share it if several may be in flight."""

    def __init__(self, encoder: Encoder, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None
        self._own = threading.local()
        """Each thread's name at the server, which has to tell requests under way apart."""
        self._numbers = itertools.count()

    def open(self) -> None:
        connection = Connection(self._options, self._job)
        connection.check()
        connection.expects_tables = True
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _thread_name(self, connection: Connection) -> str:
        name: str | None = getattr(self._own, "name", None)
        if name is None:
            # Names are few and used again: a server logs each deprecation once per name.
            name = self._own.name = f"{connection.name} {id(self):x}-{next(self._numbers)}"
        return name

    def _doubt(self, request: NamedRequest, name: str) -> None:
        request.doubt_under(name)
        # A request that is still at work under this name must be told from later ones.
        self._own.name = None

    def settle(self, payload: Payload) -> bool:
        """Find out what is stored of a request in doubt; whether nothing of it is left to be sent."""

        def find_missing(request: NamedRequest) -> list[int]:
            if self._job.load.primary_key is PrimaryKey.CLIENT:
                # All of them can be sent again: stored events are refused.
                return list(range(len(request.rows)))
            self._await_end(request.name)
            return self._find_missing(request, payload)

        return settle([payload.data], payload, find_missing)

    def _await_end(self, name: str) -> None:
        """Wait until no node is at work on what was sent under that name, nor begins to."""
        assert self._connection is not None
        began = idle_since = time.monotonic()
        while (now := time.monotonic()) - idle_since < _SETTLE_S:
            answer = self._connection.ask("GET", "/_tasks?actions=indices:data/write/*")
            if "node_failures" in answer:
                raise connection_lost(
                    f"a node doesn't answer: {describe_error(answer['node_failures'])}"
                )
            tasks = [task for node in answer["nodes"].values() for task in node["tasks"].values()]
            if any(task["headers"].get("X-Opaque-Id") == name for task in tasks):
                if now - began > limit_wait(_TASK_END_S):
                    raise connection_lost("the server is still at work on the request")
                idle_since = time.monotonic()
            # The server announces no end of a task of another connection.
            time.sleep(_TASK_POLL_S)

    def _find_missing(self, request: NamedRequest, payload: Payload) -> list[int]:
        """The positions of the request's rows that aren't stored."""
        connection, schema = self._connection, self._job.schema
        assert connection is not None
        names = ",".join(map(self._options.index, self._job.table_names))
        connection.refresh(names)
        key = {name: {"terms": {"field": find_field(schema, name)}} for name in schema.key}

        def find(wanted: Wanted) -> set[tuple[Any, ...]]:
            conditions: list[dict[str, Any]] = []
            for name, values in wanted.items():
                field = find_field(schema, name)
                if isinstance(values, Span):
                    span = {"gte": values.first, "lte": values.last}
                    conditions.append({"range": {field: span}})
                else:
                    conditions.append({"terms": {field: values}})
            question = {
                "size": 0,
                "track_total_hits": False,
                "query": require_all(*conditions),
            }
            return {
                tuple(bucket["key"][name] for name in schema.key)
                for bucket in fetch_groups(partial(search, connection, names), question, key, {})
            }

        return find_missing(request, payload, find)


class ElasticsearchWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder` as they stand."""

    encoder: DocumentEncoder

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        request: Request = payload.data
        if request.in_doubt and self.settle(payload):
            return payload.events
        name = self._thread_name(connection)
        try:
            status, answer = connection.write(request, name)
        except Retryable:
            self._doubt(request, name)
            raise
        if status == CREATED or (status == OK and self.encoder.mode is not InsertMode.BULK):
            return request.stored + 1
        if status == OK and self.encoder.mode is InsertMode.BULK:
            if answer.startswith(b'{"errors":false'):
                return request.stored + answer.count(_STORED)
            meanings = self._interpret_items(request, name, orjson.loads(answer)["items"])
            failure = keep_refused(request, payload, meanings)
            if failure is not None:
                raise failure
            return request.stored
        if status == CONFLICT and request.sent_before:
            return request.stored + 1
        if status >= SERVER_ERROR:
            self._doubt(request, name)
        raise connection.interpret(status, parse_body(answer))

    def _interpret_items(
        self, request: Request, name: str, items: Iterable[Mapping[str, Any]]
    ) -> Iterable[Retryable | SimulatorError | None]:
        """What is said of each event of a bulk request; None: it is stored."""
        assert self._connection is not None
        sent_before = request.sent_before
        for item in items:
            [result] = item.values()
            status = result["status"]
            if status in (OK, CREATED) or (status == CONFLICT and sent_before):
                yield None
                continue
            if status >= SERVER_ERROR:
                self._doubt(request, name)
            yield self._connection.interpret(status, result)
