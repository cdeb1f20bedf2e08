"""A stand-in for ArangoDB: an HTTP server that checks each request strictly against the documented API, and
refuses paths, headers, parameters and members that it doesn't know.

https://docs.arangodb.com/stable/develop/http-api/. What it can't show: a cluster, what is written to
disk and when, what the optimizer makes of a query, speed.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .aql import AqlError, execute

_HEADERS = {
    "host", "user-agent", "authorization", "content-type", "content-length", "accept-encoding",
    "accept", "connection", "charset", "x-arango-driver",
}  # fmt: skip
_COLLECTION = {
    "name", "type", "waitForSync", "isSystem", "keyOptions", "numberOfShards", "shardKeys",
    "replicationFactor", "writeConcern", "cacheEnabled", "schema", "computedValues",
}  # fmt: skip
_CURSOR = {"query", "count", "batchSize", "ttl", "cache", "bindVars", "memoryLimit", "options"}
# python-arango sends allowRetry here, too, though it is one of the options: the server ignores it.
_CURSOR |= {"allowRetry"}
_INDEX = {"type", "name", "fields", "unique", "sparse", "inBackground"}
_KEY = re.compile(r"[A-Za-z0-9_\-:.@()+,=;$!*'%]{1,254}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,255}")
# What the answer says about a stored document; python-arango needs no more.
_STORED = {"_id": "collection/key", "_key": "key", "_rev": "_a"}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, number: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": True, "code": status, "errorNum": number, "errorMessage": message}


@dataclass
class _Collection:
    properties: dict[str, Any]
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    indexes: list[dict[str, Any]] = field(default_factory=list)


class ArangoStandIn(ThreadingHTTPServer):
    """Listens on a port of its own; user root, whose password is `password`."""

    daemon_threads = True
    password = "the-right-passw0rd"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.databases: dict[str, dict[str, _Collection]] = {"_system": {}}
        self.cursors: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        """The remaining pages of each answer, and what else each page has."""
        self.numbers = itertools.count(1)
        self.conflicts = 0
        """How many more documents meet a write conflict."""
        self.forbidden = {"compact"}
        """What its user may not do. With authentication, only tokens without a user make superusers."""
        self.requests: list[tuple[str, str]] = []
        """Method and target of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        """Status and body of an answer."""
        try:
            with self.lock:
                self.requests.append((method, target))
                return self._answer(method, target, headers, body)
        except Refused as refusal:
            return refusal.status, refusal.body

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        if unknown := {name.lower() for name in headers} - _HEADERS:
            raise Refused(400, 400, f"unknown headers {unknown}")
        right = "Basic " + base64.b64encode(f"root:{self.password}".encode()).decode()
        if headers.get("authorization") != right:
            raise Refused(401, 11, "not authorized to execute this request")
        parts = urlsplit(target)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        match = re.fullmatch(r"/_db/([^/]+)(/_(?:api|admin)/.*)", parts.path)
        if not match or len(dict(pairs)) != len(pairs):
            raise Refused(404, 404, f"unknown path {target}")
        name = unquote(match[1])
        if name not in self.databases:
            raise Refused(404, 1228, "database not found")
        return self._routed(method, name, match[2], dict(pairs), body)

    def _routed(  # noqa: PLR0912 - one case for each path
        self, method: str, name: str, path: str, params: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        database = self.databases[name]
        match [method, *path.strip("/").split("/")]:
            case ["GET", "_api", "version"]:
                _only(params, {"details"})
                return 200, {"server": "arango", "license": "stand-in", "version": "3.12.0"}
            case ["GET", "_admin", "server", "role"]:
                _only(params, set())
                return 200, {"error": False, "code": 200, "role": "SINGLE"}
            case ["POST", "_api", "database"] if name == "_system":
                _only(params, set())
                self.databases[_object(body, {"name"})["name"]] = {}
                return 201, {"error": False, "code": 201, "result": True}
            case ["DELETE", "_api", "database", other] if name == "_system":
                _only(params, set())
                del self.databases[unquote(other)]
                return 200, {"error": False, "code": 200, "result": True}
            case ["GET", "_api", "collection"]:
                _only(params, {"excludeSystem"})
                listed = [{"name": key, "type": 2, "isSystem": False} for key in database]
                return 200, {"error": False, "code": 200, "result": listed}
            case ["POST", "_api", "collection"]:
                _only(params, {"waitForSyncReplication", "enforceReplicationFactor"})
                return self._create(database, _object(body, _COLLECTION))
            case ["DELETE", "_api", "collection", collection]:
                _only(params, {"isSystem"})
                _collection(database, collection)
                del database[collection]
                return 200, {"error": False, "code": 200, "id": "1"}
            case ["GET", "_api", "collection", collection, "count"]:
                _only(params, set())
                count = len(_collection(database, collection).documents)
                return 200, {"error": False, "code": 200, "count": count}
            case ["GET", "_api", "collection", collection, "figures"]:
                _only(params, {"details"})
                return 200, _figures(_collection(database, collection))
            case ["PUT", "_admin", "wal", "flush"]:
                _only(params, {"waitForSync", "waitForCollector"})
                _booleans(params)
                self._permit("flush")
                return 200, {}
            case ["PUT", "_admin", "compact"]:
                _only(params, {"changeLevel", "compactBottomMostLevel"})
                self._permit("compact")
                return 200, {}
            case ["GET", "_api", "collection", collection, "properties"]:
                _only(params, set())
                return 200, _collection(database, collection).properties
            case ["GET", "_api", "index"]:
                _only(params, {"collection"})
                listed = _collection(database, params["collection"]).indexes
                key = {"id": f"{params['collection']}/0", "name": "primary", "type": "primary"}
                indexes = [{**key, "fields": ["_key"], "unique": True, "sparse": False}, *listed]
                return 200, {"error": False, "code": 200, "indexes": indexes}
            case ["DELETE", "_api", "index", collection, index]:
                _only(params, set())
                return _drop_index(_collection(database, collection), f"{collection}/{index}")
            case ["POST", "_api", "index"]:
                _only(params, {"collection"})
                owner = params["collection"]
                return _index(_collection(database, owner), owner, body)
            case ["POST", "_api", "document", collection]:
                _only(params, {"silent", "waitForSync", "returnNew", "returnOld", "overwrite"})
                _booleans(params)
                return self._store(_collection(database, collection), params, body)
            case ["POST", "_api", "import"]:
                _only(
                    params,
                    {"collection", "type", "details", "waitForSync", "onDuplicate", "complete"},
                )
                _booleans(params, "details", "waitForSync", "complete")
                return self._import(_collection(database, params["collection"]), params, body)
            case ["POST", "_api", "cursor"]:
                _only(params, set())
                return self._query(database, _object(body, _CURSOR))
            case ["POST", "_api", "cursor", cursor] if cursor in self.cursors:
                _only(params, set())
                return 200, self._page(cursor)
            case ["DELETE", "_api", "cursor", cursor] if cursor in self.cursors:
                del self.cursors[cursor]
                return 202, {"error": False, "code": 202, "id": cursor}
        raise Refused(404, 404, f"unknown path {method} {path}")

    def _permit(self, action: str) -> None:
        if action in self.forbidden:
            raise Refused(403, 11, "only allowed for superusers")

    def _create(
        self, database: dict[str, _Collection], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        name = body["name"]
        if not _NAME.fullmatch(name):
            raise Refused(400, 1208, "illegal name")
        if name in database:
            raise Refused(409, 1207, "duplicate name")
        kind = body.get("keyOptions", {}).get("type", "traditional")
        if kind not in ("traditional", "autoincrement", "uuid", "padded"):
            raise Refused(400, 1232, "invalid key generator type")
        defaults = {
            "id": name, "type": 2, "status": 3, "isSystem": False, "waitForSync": False,
            "numberOfShards": 1, "replicationFactor": 1, "writeConcern": 1,
        }  # fmt: skip
        properties = {"error": False, "code": 200, **defaults, **body}
        database[name] = _Collection(properties)
        return 200, properties

    def _insert(
        self, collection: _Collection, document: Any, on_duplicate: str = "error"
    ) -> dict[str, Any] | None:
        """None, or the error; its `ignored` is set if it is to be ignored."""
        if not isinstance(document, dict):
            return _error(1227, "invalid document type")
        kind = collection.properties.get("keyOptions", {}).get("type", "traditional")
        key = document.get("_key")
        if key is None:
            key = str(uuid.uuid4()) if kind == "uuid" else str(next(self.numbers))
        elif not isinstance(key, str) or not _KEY.fullmatch(key):
            return _error(1221, "illegal document key")
        if key in collection.documents:
            return _error(1210, "unique constraint violated") | {
                "ignored": on_duplicate == "ignore"
            }
        if self.conflicts:
            self.conflicts -= 1
            return _error(1200, "write-write conflict")
        collection.documents[key] = {**document, "_key": key}
        return None

    def _store(
        self, collection: _Collection, params: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        content = _json(body)
        status = 201 if _is_set(params, "waitForSync") else 202
        if not isinstance(content, list):
            if error := self._insert(collection, content):
                raise Refused(
                    409 if error["errorNum"] in (1200, 1210) else 400,
                    error["errorNum"],
                    error["errorMessage"],
                )
            return status, {} if _is_set(params, "silent") else _STORED
        results = [self._insert(collection, document) for document in content]
        if not _is_set(params, "silent"):
            return status, [error or _STORED for error in results]
        return status, [error for error in results if error] or {}

    def _import(
        self, collection: _Collection, params: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        if params.get("type") == "array":
            body = b"\n".join(json.dumps(document).encode() for document in _json(body))
        elif params.get("type") != "documents":
            raise Refused(400, 400, "invalid value for 'type'")
        before = dict(collection.documents)
        counts = {"created": 0, "errors": 0, "empty": 0, "updated": 0, "ignored": 0}
        details = []
        for position, line in enumerate(body.split(b"\n"), 1):
            if not line:
                counts["empty"] += 1
                continue
            error = self._insert(collection, _json(line), params.get("onDuplicate", "error"))
            if error is None:
                counts["created"] += 1
            elif error.get("ignored"):
                counts["ignored"] += 1
            else:
                counts["errors"] += 1
                if _is_set(params, "complete"):
                    collection.documents.clear()
                    collection.documents.update(before)
                    raise Refused(409, error["errorNum"], error["errorMessage"])
                details.append(
                    f"at position {position}: creating document failed with error "
                    f"'{error['errorMessage']}', offending document: {line.decode()}"
                )
        answer: dict[str, Any] = {"error": False, **counts}
        return 201, answer | ({"details": details} if _is_set(params, "details") else {})

    def _query(
        self, database: dict[str, _Collection], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if body.get("cache"):
            raise Refused(501, 9, "no answers from a cache")
        documents = {
            name: list(collection.documents.values()) for name, collection in database.items()
        }
        try:
            rows = execute(body["query"], body.get("bindVars", {}), documents)
        except AqlError as error:
            raise Refused(400, 1501, f"AQL: {error}") from error
        except KeyError as error:
            raise Refused(
                404, 1203, f"AQL: collection or view not found: {error.args[0]}"
            ) from error
        cursor = str(next(self.numbers))
        size = body.get("batchSize", 1000)
        pages = [rows[start : start + size] for start in range(0, len(rows), size)] or [[]]
        self.cursors[cursor] = pages, {"count": len(rows)} if body.get("count") else {}
        return 201, self._page(cursor) | {"code": 201}

    def _page(self, cursor: str) -> dict[str, Any]:
        pages, extra = self.cursors[cursor]
        answer = {"result": pages.pop(0), "hasMore": bool(pages)}
        if pages:
            answer["id"] = cursor
        else:
            del self.cursors[cursor]
        return {**answer, **extra, "cached": False, "error": False, "code": 200}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Header and body are sent apart: the latter would wait for the former's acknowledgement.
    disable_nagle_algorithm = True
    server: ArangoStandIn

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, answer = self.server.answer(self.command, self.path, headers, body)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=utf-8")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - as the library wants it

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refused(400, 600, "invalid JSON") from error


def _object(body: bytes, members: set[str]) -> dict[str, Any]:
    content = _json(body)
    if not isinstance(content, dict) or content.keys() - members:
        raise Refused(400, 400, f"unknown members {set(content) - members}")
    return content


def _only(params: dict[str, str], allowed: set[str]) -> None:
    if params.keys() - allowed:
        raise Refused(400, 400, f"unknown parameters {params.keys() - allowed}")


def _booleans(params: dict[str, str], *names: str) -> None:
    for name in names or params:
        if params.get(name, "true") not in ("true", "false", "1", "0"):
            raise Refused(400, 400, f"{name} must be true or false")


def _is_set(params: dict[str, str], name: str) -> bool:
    return params.get(name) in ("true", "1")


def _error(number: int, message: str) -> dict[str, Any]:
    return {"error": True, "errorNum": number, "errorMessage": message}


def _collection(database: dict[str, _Collection], name: str) -> _Collection:
    if name not in database:
        raise Refused(404, 1203, f"collection or view not found: {name}")
    return database[name]


def _figures(collection: _Collection) -> dict[str, Any]:
    """Sizes as JSON: documents, keys for the primary index, and the indexed values for each other one."""
    documents = collection.documents
    members = [[name.partition(".")[0] for name in index["fields"]] for index in collection.indexes]
    indexed = [
        [document.get(name) for name in names]
        for names in members
        for document in documents.values()
    ]
    size = len("".join(map(json.dumps, [*documents, *indexed])))
    figures = {
        "indexes": {"count": 1 + len(members), "size": size},
        "documentsSize": len("".join(map(json.dumps, documents.values()))),
        "cacheInUse": False, "cacheSize": 0, "cacheUsage": 0,
    }  # fmt: skip
    return collection.properties | {"figures": figures}


def _drop_index(collection: _Collection, handle: str) -> tuple[int, dict[str, Any]]:
    remaining = [index for index in collection.indexes if index["id"] != handle]
    if len(remaining) == len(collection.indexes):
        raise Refused(404, 1212, "index not found")
    collection.indexes[:] = remaining
    return 200, {"error": False, "code": 200, "id": handle}


def _index(collection: _Collection, owner: str, body: bytes) -> tuple[int, dict[str, Any]]:
    index = _object(body, _INDEX)
    if index.get("type") != "persistent" or not index.get("fields"):
        raise Refused(400, 10, "invalid index type or fields")
    same = [existing for existing in collection.indexes if existing["name"] == index["name"]]
    if same and same[0]["fields"] != index["fields"]:
        raise Refused(409, 1207, "duplicate name")
    if not same:
        collection.indexes.append({"id": f"{owner}/1-{index['name']}", **index})
    return 200 if same else 201, {"error": False, "code": 200, "isNewlyCreated": not same} | (
        same[0] if same else collection.indexes[-1]
    )


@contextmanager
def arango_stand_in() -> Iterator[ArangoStandIn]:
    """The stand-in, for a while."""
    server = ArangoStandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
