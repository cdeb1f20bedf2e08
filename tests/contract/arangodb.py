"""How to look into ArangoDB or what stands in for it, and how to make it fail: by a proxy."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import trustme

from simulator.modules.base import Job
from simulator.workloads.base import ColumnType, Schema

from .arangodb_stand_in import ArangoStandIn, arango_stand_in
from .search_proxy import Fate, HttpProxy, HttpRequest, http_proxy
from .server import Fault, Refusal, ServerUnderTest, Strike

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BUSY = {"error": True, "code": 503, "errorNum": 21003, "errorMessage": "queue is full"}


def writes(request: HttpRequest) -> bool:
    """Whether a request stores documents."""
    return "/_api/document/" in request.target or "/_api/import?" in request.target


class ArangoUnderTest(ServerUnderTest):
    """A database of its own on a server, reached by way of a proxy."""

    reconnects_unasked = True
    locks = False
    # Documents have members, collections have no columns.
    tables_come_with_events = True
    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "number",
        ColumnType.INT64: "number",
        ColumnType.INT32: "number",
        ColumnType.FLOAT32: "number",
        ColumnType.TEXT: "string",
        ColumnType.JSON: "object",
    }

    def __init__(self, url: str, password: str, stack: ExitStack) -> None:
        self.url = url
        self.password = password
        self.proxy = stack.enter_context(http_proxy(HttpProxy([url], writes, (503, _BUSY))))
        self.database = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        super().__init__(
            "arangodb",
            {
                "endpoint": self.proxy.endpoints[0],
                "database": self.database,
                "username": "root",
                "password": password,
            },
        )
        self._silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        """Takes connections and never answers."""
        self._closed = stack.enter_context(socket.socket())
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))
        self.authority = trustme.CA()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("localhost").configure_cert(tls)
        self.encrypted = stack.enter_context(http_proxy(HttpProxy([url], tls=tls))).endpoints[0]
        self.ask("POST", "/_db/_system/_api/database", {"name": self.database})
        stack.callback(self.ask, "DELETE", f"/_db/_system/_api/database/{self.database}")

    @classmethod
    @contextmanager
    def started(cls, url: str, password: str) -> Iterator[ArangoUnderTest]:
        """A new database on the server, dropped at the end."""
        with ExitStack() as stack:
            yield cls(url.rstrip("/"), password, stack)

    def ask(self, method: str, target: str, body: object = None) -> Any:
        """A request that is no part of what is tested; HTTPError if it is refused."""
        login = base64.b64encode(f"root:{self.password}".encode()).decode()
        request = urllib.request.Request(
            self.url + target,
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json", "authorization": f"Basic {login}"},
            method=method,
        )
        with _NO_PROXY.open(request, timeout=60) as answer:
            return json.load(answer)

    def _api(self, method: str, path: str, body: object = None) -> Any:
        return self.ask(method, f"/_db/{self.database}/_api{path}", body)

    def _documents(self, table: str) -> list[dict[str, Any]]:
        question = {
            "query": "FOR e IN @@collection RETURN e",
            "bindVars": {"@collection": table},
            "batchSize": 1_000_000,
        }
        found: list[dict[str, Any]] = self._api("POST", "/cursor", question)["result"]
        return found

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        names = [column.name for column in schema.columns]
        documents = self._documents(table)
        assert all(
            document.keys() - {"_key", "_id", "_rev"} == set(names) for document in documents
        )
        return [[document[name] for name in names] for document in documents]

    def keys(self, table: str) -> list[str]:
        return [document["_key"] for document in self._documents(table)]

    def tables(self) -> set[str]:
        found = self._api("GET", "/collection?excludeSystem=true")["result"]
        return {collection["name"] for collection in found}

    def columns(self, table: str) -> dict[str, str]:
        kinds = {dict: "object", str: "string", int: "number", float: "number"}
        found: dict[str, str] = {}
        for document in self._documents(table):
            for name, value in document.items():
                if not name.startswith("_") and type(value) in kinds:
                    # Any JSON value will do for an object's column.
                    found[name] = (
                        "object"
                        if "object" in (found.get(name), kinds[type(value)])
                        else (kinds[type(value)])
                    )
        return {"id": "_key", **found}

    def indices(self, table: str) -> set[str]:
        found = self._api("GET", f"/index?collection={table}")["indexes"]
        return {index["name"] for index in found if index["type"] != "primary"}

    def clear(self) -> None:
        for table in self.tables():
            self._api("DELETE", f"/collection/{table}")

    def connections(self, run_id: str) -> set[str]:
        lines = self.proxy.lines("user-agent", f"iot-benchmark {run_id}")
        return {str(line.number) for line in lines}

    def kill_connections(self, run_id: str) -> int:
        return self.proxy.cut(self.proxy.lines("user-agent", f"iot-benchmark {run_id}"))

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"password": secret}
        refusals = [
            Refusal(
                {"endpoint": f"http://127.0.0.1:{port}", "request_timeout_s": 2, **wrong},
                f"127.0.0.1:{port}", "check that the server runs", secret,
            )
            for port in (found.getsockname()[1] for found in (self._closed, self._silent))
        ]  # fmt: skip
        here = self.proxy.endpoints[0].removeprefix("http://")
        there = self.encrypted.removeprefix("https://")
        trusted = self.authority.cert_pem.bytes().decode()
        return [
            *refusals,
            Refusal(wrong, here, "check username and password", secret),
            Refusal(
                {"endpoint": self.encrypted, "ca_certs": trusted, **wrong},
                there, "check username and password", secret,
            ),
            Refusal({"database": "no-such-database"}, here, "check database", self.password),
            Refusal({"endpoint": self.encrypted, **wrong}, there, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "endpoint says https", secret),
        ]  # fmt: skip

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def fated(self, fate: Fate, **options: Any) -> Iterator[Strike]:
        """The proxy does something to the request."""

        def blow() -> None:
            self.proxy.fate = fate

        yield Strike(blow, options)
        assert self.proxy.fate is None, "no request met its fate"

    @contextmanager
    def ended(self, job: Job) -> Iterator[Strike]:
        """The writer's connections are ended before the request is sent."""

        def blow() -> None:
            assert self.kill_connections(job.run_id)

        yield Strike(blow)

    @contextmanager
    def away(self, job: Job) -> Iterator[Strike]:
        """The connections are cut, and the next two are refused."""

        def blow() -> None:
            self.proxy.refused_connections = 2
            assert self.kill_connections(job.run_id)

        yield Strike(blow)
        assert not self.proxy.refused_connections

    FAULTS: ClassVar[Sequence[Fault]] = (
        Fault(
            "answer lost", {"connection_lost": 1},
            lambda server, job: server.fated("drop answer"), thorough=True,
        ),
        Fault(
            "request lost", {"connection_lost": 1},
            lambda server, job: server.fated("drop request"),
        ),
        Fault("connection ended", {}, ended, reconnects=True),
        Fault("away for a while", {"connection_lost": 2}, away),
        Fault("queue full", {"too_many_requests": 1}, lambda server, job: server.fated("refuse")),
        Fault("gateway gave up", {"unavailable": 1}, lambda server, job: server.fated("give up")),
        Fault(
            "no answer in time", {"timeout": 1},
            lambda server, job: server.fated("hold answer", request_timeout_s=2), reconnects=True,
        ),
    )  # fmt: skip


class ArangoStandInUnderTest(ArangoUnderTest):
    """The stand-in."""

    stand_in: ArangoStandIn

    @classmethod
    @contextmanager
    def begun(cls) -> Iterator[ArangoStandInUnderTest]:
        """A stand-in of its own, ended at the end."""
        with arango_stand_in() as server, ExitStack() as stack:
            found = cls(server.url, server.password, stack)
            found.stand_in = server
            yield found

    @contextmanager
    def conflicting(self) -> Iterator[Strike]:
        """One document of the request meets another transaction; the others are stored."""

        def blow() -> None:
            self.stand_in.conflicts = 1

        yield Strike(blow)
        assert not self.stand_in.conflicts

    FAULTS: ClassVar[Sequence[Fault]] = (
        *ArangoUnderTest.FAULTS,
        Fault(
            "write conflict", {"write_conflict": 1},
            lambda server, job: server.conflicting(), thorough=True,
        ),
    )  # fmt: skip
