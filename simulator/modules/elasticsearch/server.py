"""Connections to both kinds of server: requests, answers, errors, and the size of indices. Queries are
searches with parameters in their bodies; hits and groups are counted in the answer's bytes. A query of
several pages is several searches, one after another. An answer is refused if it doesn't cover all shards,
or if the server didn't complete it.

Sizes come from the list of segments, since `_stats/store` may be 10 s old (each node caches it), and
`_stats/segments` leaves out parts of small segments in OpenSearch.

https://www.elastic.co/docs/reference/elasticsearch/rest-apis/paginate-search-results#search-after
https://www.elastic.co/docs/reference/aggregations/search-aggregations-bucket-composite-aggregation#_pagination
https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-indices-segments
https://docs.opensearch.org/latest/api-reference/index-apis/segment/
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import orjson
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders, NodeConfig
from elastic_transport._node import NodeApiResponse
from elasticsearch import ApiError, UnsupportedProductError
from elasticsearch import Elasticsearch as ElasticClient

from ...contract import Level, Storage
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..base import Job
from ..kit.exactly_once import SettlingWriter, Span, TablePart, Wanted, keep_refused
from ..kit.http import Probe, parse_body
from ..kit.http_answer import Answer
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SHOWN, Conversation, HttpDatabase, TemplateAsker, read_json
from ..kit.module import connection_lost, lost_table, missing_table, stored_by_earlier_run
from ..options import InsertMode
from ..own_statements import JSON_LITERALS
from ..sending import Received, Request, Rows
from ..waiting import limit_wait
from . import ALLOCATION, ElasticsearchOptions, Flavor
from .encoding import DocumentEncoder, Documents
from .paging import GroupPages, Pages, Plan, ScannedPage, Statement
from .queries import PAGE, find_field, require_all

if TYPE_CHECKING:
    from . import Elasticsearch

OK, CREATED, CONFLICT, SERVER_ERROR = 200, 201, 409, 500
_NOT_FOUND = 404
_PASSES = {408: "unavailable", 429: "too_many_requests"}
"""Status -> what it is counted as, if the same request may work a little later, as for all errors of the
server."""
_REMEDIES = {
    401: "check {login}",
    403: "grant the user the rights, or use another user",
    413: "use a smaller --batch",
}

# How long to wait for recovering shards before the next attempt.
_SHARDS_READY_S = 5

_JSON = {"content-type": "application/json"}

_SHORT = 1 << 14
"""From this size of an answer on, numpy is faster."""
_WHOLE = re.compile(
    rb'\{"took":\d+,"timed_out":false,[^{]*"_shards":\{"total":\d+,[^{}]*"failed":0[,}]'
)
"""The beginning of an answer to a search that covers all shards."""

_SOURCE = (
    "_segments, after a flush: Lucene's files of all shards and replicas, where documents and"
    " indexes share files; without the translog"
)


class Connection(HttpDatabase[ElasticsearchOptions]):
    """A cluster of either kind. Measured requests use our own; tables and settings of Elasticsearch go
    through Elastic's client, over the same connections."""

    # A node answers it once it has joined the others and knows the master, whatever is wrong with them.
    PROBE: ClassVar[Probe] = Probe("GET", "/_cluster/health")

    def __init__(self, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(options, job)
        self.expects_tables = False
        """Whether the job's indices exist: a node that doesn't know them hasn't caught up."""
        self._named = self.name_requests(job)
        self.name = self._named["x-opaque-id"]
        """The name under which the server lists the requests."""
        # Elastic's client refuses all other servers.
        is_elastic = options.flavor is Flavor.ELASTICSEARCH
        self._client = _make_client(self) if is_elastic else None

    @staticmethod
    def name_requests(job: Job) -> dict[str, str]:
        """The headers of a request with a body, with the name by which the server knows it."""
        return _JSON | {"x-opaque-id": f"iot-benchmark {job.run_id}"}

    @property
    def system(self) -> str:
        return self.options.flavor

    def ping(self, timeout_s: float) -> None:
        version = self.manage("GET", "/", timeout_s=timeout_s)["version"]
        if self.options.flavor is Flavor.OPENSEARCH and "build_flavor" in version:
            raise SimulatorError(
                f"the server at {self.options.server} is Elasticsearch: leave flavor out"
            )

    def write(self, request: Documents, name: str) -> Answer:
        """The answer to a request sent under a name, whatever it says. Retryable if there is none."""
        kind = "x-ndjson" if request.method == "POST" and "/_bulk?" in request.target else "json"
        headers = {"content-type": f"application/{kind}", "x-opaque-id": name}
        return self.request(request.method, request.target, request.body, headers)

    def ask(
        self, method: str, target: str, body: object = None, timeout_s: float | None = None
    ) -> Any:
        """The parsed answer to a request. Retryable or SimulatorError if there is none."""
        text = b"" if body is None else orjson.dumps(body)
        answer = self.fetch(method, target, text, self._named, timeout_s, (OK, CREATED))
        return parse_body(answer.body)

    def require_module(self, name: str, what_for: str) -> None:
        """SimulatorError if a module that servers have by default is missing."""
        # With the nodes' names, or a node without any module would be missing.
        answer = self.ask("GET", "/_nodes/plugins?filter_path=nodes.*.name,nodes.*.modules.name")
        nodes = answer.get("nodes", {}).values()
        if not all(
            name in {module["name"] for module in node.get("modules", ())} for node in nodes
        ):
            raise SimulatorError(f"{self.place} lacks the module {name}: {what_for}")

    def search(self, names: str, body: bytes) -> bytes:
        """The complete answer to a search of these indices; Retryable or SimulatorError if there is none."""
        answer = self.fetch("POST", find_target(names), body, self._named)
        return self.check_whole(answer.body)

    def check_whole(self, body: bytes) -> bytes:
        """An answer to a search, if it covers all shards and is complete; otherwise Retryable or
        SimulatorError."""
        # Texts may have brackets, too: then the answer is parsed, and found complete or not.
        if len(body) < _SHORT:
            opened, closed = body.count(b"{"), body.count(b"}")
        else:
            # In a seventh of the time.
            codes = np.frombuffer(body, np.uint8)
            opened, closed = (int(np.count_nonzero(codes == ord(bracket))) for bracket in "{}")
        if not (_WHOLE.match(body) and opened == closed):
            self.check_shards(read_json(body))
        return body

    def check_shards(self, answer: Any) -> None:
        """Retryable or SimulatorError if a parsed answer doesn't cover all shards or events."""
        try:
            shards, timed_out = answer["_shards"], answer["timed_out"]
            failed, total = shards["failed"], shards["total"]
        except (KeyError, TypeError) as error:
            text = one_line(answer, SHOWN)
            raise SimulatorError(f"{self.place} gave an unreadable answer ({text})") from error
        if timed_out:
            raise SimulatorError(
                f"{self.place} ended a search at its time limit and returned partial results"
            )
        if failed:
            reasons = shards.get("failures") or [{}]
            why = describe_error(reasons[0].get("reason", "without a reason"))
            raise Retryable(
                "unavailable", f"{self.place}: {failed} of {total} shards failed: {why}"
            )

    def manage(
        self, method: str, target: str, body: object = None, timeout_s: float | None = None
    ) -> Any:
        """As `ask`, for what isn't measured: through Elastic's client, if there is one."""
        if self._client is None:
            return self.ask(method, target, body, timeout_s)
        headers = {"accept": "application/json", **self._named}
        client = self._client.options(request_timeout=timeout_s or self.options.request_timeout_s)
        try:
            return client.perform_request(method, target, headers=headers, body=body).body
        except UnsupportedProductError as error:
            raise SimulatorError(
                f"the server at {self.options.server} isn't Elasticsearch; if it is OpenSearch, set"
                " flavor: opensearch"
            ) from error
        except ApiError as error:
            raise self.interpret(error.status_code, error.body) from error

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        return self.interpret(answer.status, parse_body(answer.body))

    def interpret(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an error means: a whole answer, or one item of a bulk answer."""
        text = f"{self.place}: {status} {describe_error(answer)}"
        if status in _PASSES or status >= SERVER_ERROR:
            return Retryable(_PASSES.get(status, "unavailable"), text)
        if status == _NOT_FOUND:
            return lost_table(text) if self.expects_tables else missing_table(text, self.job)
        if status == CONFLICT:
            return stored_by_earlier_run(text)
        if remedy := _REMEDIES.get(status):
            text += f"; {remedy.format(login=self.options.LOGIN)}"
        return SimulatorError(text)

    # --- visibility and size ----------------------------------------------------------------------

    def refresh(self, names: str) -> None:
        """Make everything stored visible, on every primary shard."""
        shards = self.ask("POST", f"/{names}/_refresh")["_shards"]
        if shards["successful"] < shards["total"]:
            # A refresh skips missing shards: replicas without a node, which don't matter, and primaries that
            # are recovering after a start.
            self.ask(
                "GET", f"/_cluster/health/{names}?wait_for_status=yellow&timeout={_SHARDS_READY_S}s"
            )
            self.ask("POST", f"/{names}/_refresh")

    def flush(self, names: str, how: str = "") -> None:
        """Write everything stored to disk; Retryable, or SimulatorError if the user may not."""
        target = f"/{names}/_flush?{how}wait_if_ongoing=true"
        self.manage("POST", target, timeout_s=self.options.database_timeout_s)
        self.refresh(names)

    def merge_segments(self, names: str) -> None:
        """Merge each shard into a single segment, and wait for it."""
        target = f"/{names}/_forcemerge?max_num_segments=1"
        self.manage("POST", target, timeout_s=self.options.database_timeout_s)
        # OpenSearch keeps the old segments until both are done.
        self.flush(names, "force=true&")

    def read_segments(self, names: str) -> Storage:
        """The segments that can be searched so far, on disk or on their way there; SimulatorError if no shard
        has started."""
        timeout_s = self.options.database_timeout_s
        return add_segments(self.manage("GET", f"/{names}/_segments", timeout_s=timeout_s))


def find_target(names: str) -> str:
    """The target for searches of indices: without the request cache, whose answers would measure nothing, and
    with all shards or none, since a partial answer would look complete."""
    return f"/{names}/_search?request_cache=false&allow_partial_search_results=false"


def add_segments(answer: Mapping[str, Any]) -> Storage:
    """The sum of an answer to `_segments`; Retryable or SimulatorError if it lacks shards."""
    if failed := answer["_shards"]["failed"]:
        raise Retryable("unavailable", f"{failed} shards didn't report their segments")
    shards = [
        shard
        for index in answer["indices"].values()
        for copies in index["shards"].values()
        for shard in copies
    ]
    primaries = sum(shard["routing"]["primary"] for shard in shards)
    if not primaries:
        raise SimulatorError("the cluster lists no started shards of the job's indices")
    parts = [part for shard in shards for part in shard["segments"].values()]
    size, copies = sum(part["size_in_bytes"] for part in parts), round(len(shards) / primaries)
    return Storage(
        total_bytes=size,
        copies=copies,
        level=Level(size_bytes=size, events=sum(part["num_docs"] for part in parts) // copies),
        allocation=ALLOCATION.times(len(shards)),
        source=_SOURCE,
    )


def describe_error(answer: object) -> str:
    """One line from an error's body, or from one item of a bulk answer."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict) and "type" in error:
        error = f"{error['type']}: {error.get('reason')}"
    return one_line(error, 300)


def _make_client(database: Connection) -> ElasticClient:
    """Elastic's client over the connections of `database`, which knows which nodes are dead, and whether a
    request may be repeated."""

    class Node(BaseNode):
        """All nodes of the cluster."""

        def perform_request(
            self,
            method: str,
            target: str,
            body: bytes | None = None,
            headers: HttpHeaders | None = None,
            request_timeout: Any = None,
        ) -> NodeApiResponse:
            answer = database.request(method, target, body or b"", headers, request_timeout)
            received = HttpHeaders(
                [(name.decode(), value.decode()) for name, value in answer.headers]
            )
            meta = ApiResponseMeta(answer.status, "1.1", received, 0.0, self.config)
            return NodeApiResponse(meta, answer.body)

    parts = urlsplit(database.options.endpoint[0])
    assert parts.hostname is not None
    node = NodeConfig(parts.scheme, parts.hostname, parts.port or database.options.DEFAULT_PORT)
    return ElasticClient(
        [node], node_class=Node, meta_header=False, max_retries=0, retry_on_status=()
    )


class SearchRequest(NamedTuple):
    """A query's first search, ready to be sent, and its plan. It begins as an `HttpRequest`."""

    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]
    begin: int
    """Length of the part of the body that selects events."""
    plan: Plan


class ElasticsearchAsker(TemplateAsker[Connection]):
    """Sends the queries of `Elasticsearch.compile`. Receives a plan, and its pages."""

    module: Elasticsearch

    def __init__(self, module: Elasticsearch, in_flight: int) -> None:
        super().__init__(module, JSON_LITERALS, in_flight)
        self._target = find_target(module.options.index(module.job.schema.table))
        self._headers = Connection.name_requests(module.job)
        self._plans: dict[str, Plan] = {}

    def encode(self, bounds: BoundQueries) -> Iterable[SearchRequest]:
        name = bounds.query.name
        if name not in self._plans:
            # No parameter occurs in it.
            self._plans[name] = self.module.compile(bounds[0]).plan
        plan = self._plans[name]
        return (self._make_request(begin.encode(), plan) for begin in self.fill(bounds))

    def write_statement(self, bound: BoundQuery) -> str:
        return self.module.compile(bound).begin.decode()

    def escape(self, part: str) -> str:
        return part

    def encode_statement(self, statement: Statement) -> SearchRequest:
        return self._make_request(statement.begin, statement.plan)

    def _make_request(self, begin: bytes, plan: Plan) -> SearchRequest:
        body = begin + plan.tail
        return SearchRequest("POST", self._target, body, self._headers, len(begin), plan)

    def converse(self, request: SearchRequest) -> Conversation:
        method, target, body, headers, begin, plan = request
        pages = Pages(body[:begin], plan)
        while body:
            answer = yield HttpRequest(method, target, body, headers)
            body = pages.add(ScannedPage(self.database.check_whole(answer)))
        return Received(pages.rows, pages.size, (pages.plan, pages.contents))

    def decode(self, received: Received) -> Rows:
        plan, bodies = received.data
        return read_rows(plan, [read_json(body) for body in bodies])


def read_rows(plan: Plan, answers: Sequence[Any]) -> Rows:
    """The rows of parsed pages; SimulatorError if they aren't in the expected form."""
    try:
        return plan.read(answers)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SimulatorError(f"unreadable answer: it has no {error}") from error


# How long a request whose answer was lost may continue before the next attempt.
_TASK_END_S = 10.0
_TASK_POLL_S = 0.05

# How long a request must be unlisted to count as ended: a node lists it only once it has read it.
_SETTLE_S = 1.0

# 201, or 200 where the servers repeated it among themselves, as when a node left: "updated" is the result
# then, for an event without a client's id.
_STORED = b'"status":20'


class DocumentWriter(SettlingWriter[Connection]):
    """Finds out which events of a request are stored, however it is sent."""

    REFUSES_KEYS: ClassVar[bool] = True

    def __init__(self, module: Elasticsearch) -> None:
        super().__init__(module)
        self._own = threading.local()
        """Each thread's name at the server, by which requests in flight are told apart."""
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

    def doubt(self, request: TablePart, name: str) -> None:
        """Record that it is unknown how much of the request under this name is stored."""
        request.doubt()
        request.name = name
        # A request still at work under this name must be told from later ones.
        self._own.name = None

    def await_end(self, payload: Request) -> None:
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
            # The server doesn't announce the end of another connection's task.
            time.sleep(_TASK_POLL_S)

    def show_events(self, request: Any) -> None:
        self.connection.refresh(self.connection.options.join_indices(self.job.table_names))

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
        names = self.connection.options.join_indices(self.job.table_names)
        pages, body = Pages(begin, plan), begin + plan.tail
        while body:
            body = pages.add(ScannedPage(self.connection.search(names, body)))
        return set(plan.read([orjson.loads(page) for page in pages.contents]))


class ElasticsearchWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder` as they are."""

    encoder: DocumentEncoder

    def send_request(self, request: Documents, payload: Request) -> None:
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
        self, request: Documents, name: str, items: Iterable[Mapping[str, Any]]
    ) -> Iterable[Retryable | SimulatorError | None]:
        """The result for each event of a bulk request; None: it is stored."""
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
