"""How to look into Elasticsearch and OpenSearch, and how to make them fail: an index that refuses to be
written to, and a proxy for what happens on the way."""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from simulator.modules.base import Job
from simulator.testing.server import Fault, FaultHandle, Refusal
from simulator.workloads.schema import ColumnType, Schema

from . import http_server
from .http_proxy import HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# What a node answers while its queue of writes is full, and to an unknown user. (The test servers
# have neither such a short queue nor Elastic's security.)
_QUEUE_FULL = {
    "error": {
        "type": "es_rejected_execution_exception",
        "reason": "rejected execution of coordinating operation",
    },
    "status": 429,
}
_UNKNOWN_USER = {
    "error": {
        "type": "security_exception",
        "reason": "unable to authenticate user [elastic] for REST request [/]",
    },
    "status": 401,
}


def ask(url: str, method: str, target: str, body: object = None) -> Any:
    """Send a request that isn't part of the test; HTTPError if it is refused."""
    request = urllib.request.Request(
        url + target,
        None if body is None else json.dumps(body).encode(),
        {"content-type": "application/json"},
        method=method,
    )
    with _NO_PROXY.open(request, timeout=60) as answer:
        return json.load(answer)


def writes(request: HttpRequest) -> bool:
    """Whether a request stores documents."""
    path = request.target.partition("?")[0].split("/")
    return path[-1] in ("_bulk", "_doc") or "_create" in path


class SearchUnderTest(HttpServerUnderTest):
    """Indices with a prefix of their own in a cluster, reached by way of a proxy."""

    agent_header = "x-opaque-id"
    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "date",
        ColumnType.INT64: "long",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "float",
        ColumnType.FLOAT64: "double",
        ColumnType.BOOL: "boolean",
        ColumnType.TEXT: "keyword",
        ColumnType.JSON: "object",
    }

    def __init__(self, urls: Sequence[str], flavor: str, stack: ExitStack) -> None:
        self.urls = urls
        self.url = urls[0]
        self.prefix = f"iot-test-{os.getpid()}-{uuid.uuid4().hex[:8]}-"
        single = len(urls) == 1
        super().__init__(
            "elasticsearch",
            urls,
            writes,
            lambda endpoints: {
                "endpoint": endpoints,
                "flavor": flavor,
                "index_prefix": self.prefix,
                "shards": 1 if single else 3,
                "replicas": 0 if single else 1,
            },
            stack,
        )
        self.guarded = self.encrypting(
            "Basic " + base64.b64encode(b"elastic:right").decode(), Refuse(401, _UNKNOWN_USER)
        ).endpoints
        """Endpoints that speak TLS and want user `elastic` with password `right`."""

    @classmethod
    @contextmanager
    def started(cls, urls: Sequence[str], flavor: str) -> Iterator[SearchUnderTest]:
        """A prefix on the cluster, whose indices are deleted at the end."""
        with ExitStack() as stack:
            adapter = cls(urls, flavor, stack)
            yield adapter
            adapter.clear()

    def ask(self, method: str, target: str, body: object = None) -> Any:
        return ask(self.url, method, target, body)

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        """From the indexed columns, and not from the documents as they were sent, except for JSON."""
        names = [column.name for column in schema.columns if column.type is not ColumnType.JSON]
        index = self.prefix + table
        self.ask("POST", f"/{index}/_refresh")
        question = {"size": 10_000, "sort": ["_doc"], "docvalue_fields": names}
        answer = self.ask("POST", f"/{index}/_search?scroll=1m", question)
        rows = []
        while hits := answer["hits"]["hits"]:
            for hit in hits:
                values = {name: value for name, (value,) in hit.get("fields", {}).items()}
                rows.append([(hit["_source"] | values)[column.name] for column in schema.columns])
                needed = {c.name for c in schema.columns if not c.nullable} & set(names)
                assert needed <= set(values) <= set(names)
            scroll = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
            answer = self.ask("POST", "/_search/scroll", scroll)
        self.ask("DELETE", "/_search/scroll", {"scroll_id": answer["_scroll_id"]})
        return rows

    def keys(self, table: str) -> list[str]:
        index = self.prefix + table
        self.ask("POST", f"/{index}/_refresh")
        answer = self.ask("POST", f"/{index}/_search", {"size": 10_000, "_source": False})
        return [hit["_id"] for hit in answer["hits"]["hits"]]

    def tables(self) -> set[str]:
        rows = self.ask("GET", f"/_cat/indices/{self.prefix}*?format=json&h=index")
        return {row["index"].removeprefix(self.prefix) for row in rows}

    def columns(self, table: str) -> dict[str, str]:
        index = self.prefix + table
        properties = self.ask("GET", f"/{index}/_mapping")[index]["mappings"]["properties"]
        # A document's id is no field.
        return {"id": "_id"} | {
            name: field.get("type", "object") for name, field in properties.items()
        }

    def indices(self, table: str) -> set[str]:
        return set()

    def size_on_disk(self, table: str) -> int:
        """By kinds of files instead of segments: OpenSearch reports those in full once all are merged."""
        stats = self.ask(
            "GET", f"/{self.prefix}{table}/_stats/segments?include_segment_file_sizes=true"
        )
        kinds = stats["_all"]["total"]["segments"]["file_sizes"].values()
        return sum(kind["size_in_bytes"] for kind in kinds)

    def make_neighbour(self, name: str) -> object:
        target = f"/{self.prefix}{name}/_doc/7?refresh=true"
        self.ask("PUT", target, {"serial_number": 7, "note": "keep me"})
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        index = self.prefix + name
        hits = self.ask("GET", f"/{index}/_search")["hits"]["hits"]
        return self.ask("GET", f"/{index}/_alias"), [hit["_source"] for hit in hits]

    def clear(self) -> None:
        if tables := self.tables():
            self.ask("DELETE", "/" + ",".join(self.prefix + table for table in tables))

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"username": "elastic", "password": secret}
        guarded = {"endpoint": self.guarded, "ca_certs": self.trusted}
        server = self.guarded[0].removeprefix("https://")
        here = self.url.removeprefix("http://")
        return [
            *self.unreachable(secret, request_timeout_s=2, **wrong),
            Refusal({**guarded, **wrong}, server, "check username and password", secret),
            Refusal({**guarded, "api_key": secret}, server, "or api_key", secret),
            Refusal({"endpoint": self.guarded, **wrong}, server, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "check that endpoint", secret),
        ]

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def blocked(self, job: Job) -> Iterator[FaultHandle]:
        """One index takes no documents for the time of one request, as on a full disk: with several
        tables, a part of the request is stored and a part refused."""
        index = self.prefix + job.table_names[-2 % len(job.table_names)]

        def block(on: bool) -> None:
            setting = {"index.blocks.read_only_allow_delete": on or None}
            self.ask("PUT", f"/{index}/_settings", setting)

        yield FaultHandle(lambda: block(True), abort=lambda: block(False))
        block(False)

    FAULTS = (
        *http_server.LOST,
        Fault("index blocked", {"too_many_requests": 1}, blocked, thorough=True),
        refused("queue full", "too_many_requests", Refuse(429, _QUEUE_FULL)),
        http_server.GATEWAY_GAVE_UP,
        http_server.NO_ANSWER_IN_TIME,
    )
