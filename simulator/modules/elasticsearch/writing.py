"""Sends events to Elasticsearch and OpenSearch, each once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from ...errors import Retryable, SimulatorError
from ..kit.exactly_once import Request as AnyRequest
from ..kit.exactly_once import SettlingWriter, Span, Wanted, keep_refused
from ..kit.module import connection_lost
from ..options import InsertMode
from ..sending import Encoder, Payload
from ..waiting import limit_wait
from .encoding import DocumentEncoder, Request
from .paging import GroupPages, Pages, ScannedPage, Statement
from .queries import PAGE, find_field, require_all
from .server import CONFLICT, CREATED, OK, SERVER_ERROR, Connection, describe_error

if TYPE_CHECKING:
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
