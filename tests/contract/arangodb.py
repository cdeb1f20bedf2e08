"""How to look into ArangoDB or what stands in for it, and how to make it fail: by a proxy."""

from __future__ import annotations

import base64
import json
import os
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from simulator.testing.server import Fault, FaultHandle, Refusal
from simulator.workloads.schema import ColumnType, Schema, Tags

from . import http_server
from .arangodb_stand_in import ArangoStandIn, arango_stand_in
from .http_proxy import HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BUSY = {"error": True, "code": 503, "errorNum": 21003, "errorMessage": "queue is full"}


def writes(request: HttpRequest) -> bool:
    """Whether a request stores documents."""
    return "/_api/document/" in request.target or "/_api/import?" in request.target


class ArangoUnderTest(HttpServerUnderTest):
    """A database of its own on a server, reached by way of a proxy."""

    # Documents have members, collections have no columns.
    tables_come_with_events = True
    # Only superusers may, and nobody who logs in with a name is one.
    compacts = False
    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "number",
        ColumnType.INT64: "number",
        ColumnType.INT32: "number",
        ColumnType.FLOAT32: "number",
        ColumnType.FLOAT64: "number",
        ColumnType.BOOL: "bool",
        ColumnType.TEXT: "string",
        ColumnType.JSON: "object",
    }

    def __init__(self, url: str, password: str, stack: ExitStack) -> None:
        self.url = url
        self.password = password
        self.database = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        super().__init__(
            "arangodb",
            [url],
            writes,
            lambda endpoints: {
                "endpoint": endpoints[0],
                "database": self.database,
                "username": "root",
                "password": password,
            },
            stack,
        )
        [self.encrypted] = self.encrypting().endpoints
        self.ask("POST", "/_db/_system/_api/database", {"name": self.database})
        stack.callback(self.ask, "DELETE", f"/_db/_system/_api/database/{self.database}")

    @classmethod
    @contextmanager
    def started(cls, url: str, password: str) -> Iterator[ArangoUnderTest]:
        """A new database on the server, dropped at the end."""
        with ExitStack() as stack:
            yield cls(url.rstrip("/"), password, stack)

    def ask(self, method: str, target: str, body: object = None) -> Any:
        """Send a request that isn't part of the test; HTTPError if it is refused."""
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
        documents: list[dict[str, Any]] = self._api("POST", "/cursor", question)["result"]
        return documents

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        documents = self._documents(table)
        stored = {column.name for column in schema.row}
        assert all(document.keys() - {"_key", "_id", "_rev"} == stored for document in documents)
        if schema.tags is Tags.TABLE:
            tags = {
                document["tags_id"]: document
                for document in self._documents(f"{schema.table}_tags")
            }
            documents = [tags[document["tags_id"]] | document for document in documents]
        return [[document[column.name] for column in schema.columns] for document in documents]

    def keys(self, table: str) -> list[str]:
        return [document["_key"] for document in self._documents(table)]

    def tables(self) -> set[str]:
        collections = self._api("GET", "/collection?excludeSystem=true")["result"]
        return {collection["name"] for collection in collections}

    def columns(self, table: str) -> dict[str, str]:
        kinds = {dict: "object", str: "string", int: "number", float: "number", bool: "bool"}
        columns: dict[str, str] = {}
        for document in self._documents(table):
            for name, value in document.items():
                if not name.startswith("_") and type(value) in kinds:
                    # Any JSON value will do for an object's column.
                    columns[name] = (
                        "object"
                        if "object" in (columns.get(name), kinds[type(value)])
                        else (kinds[type(value)])
                    )
        return {"id": "_key", **columns}

    def indices(self, table: str) -> set[str]:
        indexes = self._api("GET", f"/index?collection={table}")["indexes"]
        return {index["name"] for index in indexes if index["type"] != "primary"}

    def make_neighbour(self, name: str) -> object:
        self._api("POST", "/collection", {"name": name})
        self._api("POST", f"/document/{name}", [{"serial_number": 7, "note": "keep me"}])
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self._documents(name)

    def clear(self) -> None:
        for table in self.tables():
            self._api("DELETE", f"/collection/{table}")

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"password": secret}
        here = self.proxy.endpoints[0].removeprefix("http://")
        there = self.encrypted.removeprefix("https://")
        return [
            *self.unreachable(secret, request_timeout_s=2, **wrong),
            Refusal(wrong, here, "check username and password", secret),
            Refusal(
                {"endpoint": self.encrypted, "ca_certs": self.trusted, **wrong},
                there, "check username and password", secret,
            ),
            Refusal({"database": "no-such-database"}, here, "check that the database exists", self.password),
            Refusal({"endpoint": self.encrypted, **wrong}, there, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "endpoint says https", secret),
        ]  # fmt: skip

    FAULTS: ClassVar[Sequence[Fault]] = (
        *http_server.LOST,
        refused("queue full", "too_many_requests", Refuse(503, _BUSY)),
        http_server.GATEWAY_GAVE_UP,
        http_server.NO_ANSWER_IN_TIME,
    )


class ArangoStandInUnderTest(ArangoUnderTest):
    """The stand-in."""

    stand_in: ArangoStandIn

    @classmethod
    @contextmanager
    def begun(cls) -> Iterator[ArangoStandInUnderTest]:
        """A stand-in of its own, which is stopped at the end."""
        with arango_stand_in() as server, ExitStack() as stack:
            adapter = cls(server.url, server.password, stack)
            adapter.stand_in = server
            yield adapter

    @contextmanager
    def conflicting(self) -> Iterator[FaultHandle]:
        """One document of the request meets another transaction; the others are stored."""

        def trigger() -> None:
            self.stand_in.conflicts = 1

        yield FaultHandle(trigger)
        assert not self.stand_in.conflicts

    FAULTS: ClassVar[Sequence[Fault]] = (
        *ArangoUnderTest.FAULTS,
        Fault(
            "write conflict", {"write_conflict": 1},
            lambda server, job: server.conflicting(), thorough=True,
        ),
    )  # fmt: skip
