"""How to look into CrateDB, by its own HTTP endpoint, and how to make it fail, by a proxy."""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import psycopg2
import pytest

from simulator.testing.server import Refusal
from simulator.workloads.schema import ColumnType, Schema, Tags

from . import http_server
from .cratedb_stand_in import stand_in
from .http_proxy import HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused
from .postgres import ask, connected, with_options

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_OVERLOADED = {
    "error": {"message": "EsRejectedExecutionException[rejected execution]", "code": 5000}
}


def writes(request: HttpRequest) -> bool:
    """Whether a request stores rows."""
    return request.body.startswith(b'{"stmt":"INSERT ')


class CratedbUnderTest(HttpServerUnderTest):
    """A schema of its own on a CrateDB, reached by way of a proxy."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "timestamp with time zone",
        ColumnType.INT64: "bigint",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "real",
        ColumnType.FLOAT64: "double precision",
        ColumnType.BOOL: "boolean",
        ColumnType.TEXT: "text",
        ColumnType.JSON: "text",
    }

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self.schema = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        super().__init__(
            "cratedb",
            [url],
            writes,
            lambda endpoints: {"endpoint": endpoints, "default_schema": self.schema, "shards": 2},
            stack,
        )
        self.encrypted = self.encrypting().endpoints
        """Endpoints that speak TLS."""

    @classmethod
    @contextmanager
    def started(cls, url: str) -> Iterator[CratedbUnderTest]:
        """A schema, whose tables are dropped at the end."""
        with ExitStack() as stack:
            adapter = cls(url, stack)
            yield adapter
            adapter.clear()

    def sql(self, statement: str, *values: Any) -> list[list[Any]]:
        """All rows of a statement's answer, asked past the proxy."""
        body = {"stmt": statement} | ({"args": values} if values else {})
        headers = {"content-type": "application/json", "default-schema": self.schema}
        request = urllib.request.Request(
            f"{self.url}/_sql", json.dumps(body).encode(), headers, method="POST"
        )
        with _NO_PROXY.open(request, timeout=60) as answer:
            rows: list[list[Any]] = json.load(answer)["rows"]
            return rows

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        self.sql(f'REFRESH TABLE "{table}"')
        columns = ", ".join(f'"{column.name}"' for column in schema.columns)
        tags = f"{schema.table}_tags"
        joined = f' JOIN "{tags}" ON "{tags}"."tags_id" = "{table}"."tags_id"'
        rows = self.sql(
            f'SELECT {columns} FROM "{table}"{joined if schema.tags is Tags.TABLE else ""}'
        )
        # A document that isn't an object is kept as text.
        texts = [
            number
            for number, column in enumerate(schema.columns)
            if column.type is ColumnType.JSON and column.name != schema.device
        ]
        for row in rows:
            for number in texts:
                row[number] = row[number] and json.loads(row[number])
        return rows

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [row[0] for row in self.sql(f'SELECT "id" FROM "{table}"')]

    def tables(self) -> set[str]:
        rows = self.sql(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", self.schema
        )
        return {row[0] for row in rows}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.sql(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
            self.schema, table,
        )  # fmt: skip
        # An object's attributes are listed as columns, too.
        return {name: kind for name, kind in rows if "[" not in name}

    def indices(self, table: str) -> set[str]:
        return set()

    marks: ClassVar = False

    def make_neighbour(self, name: str) -> object:
        self.sql(f'CREATE TABLE IF NOT EXISTS "{name}" ("serial_number" INTEGER, "note" TEXT)')
        self.sql(f'INSERT INTO "{name}" ("serial_number", "note") VALUES (?, ?)', 7, "keep me")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        self.sql(f'REFRESH TABLE "{name}"')
        return self.sql(f'SELECT "serial_number", "note" FROM "{name}"')

    def clear(self) -> None:
        for table in self.tables():
            self.sql(f'DROP TABLE IF EXISTS "{table}"')

    @contextmanager
    def listing_no_jobs(self) -> Iterator[None]:
        """Keeps the server from listing what it is at work on."""
        self.sql('SET GLOBAL "stats.enabled" = FALSE')
        try:
            yield
        finally:
            self.sql('SET GLOBAL "stats.enabled" = TRUE')

    @contextmanager
    def stranger(self) -> Iterator[tuple[str, str]]:
        """Name and password of a user who has no privileges."""
        name, password = f"stranger_{uuid.uuid4().hex[:8]}", "a-stranger-s-word"
        self.sql(f"CREATE USER {name} WITH (password = '{password}')")
        try:
            yield name, password
        finally:
            self.sql(f"DROP USER {name}")

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"user": "somebody", "password": secret}
        [encrypted] = self.encrypted
        server, here = (url.partition("://")[2] for url in (encrypted, self.url))
        trusted = {"ca_certs": self.trusted}
        return [
            *self.unreachable(secret, request_timeout_s=2, **wrong),
            Refusal({"endpoint": self.url, **wrong}, here, "check user and password", secret),
            Refusal(
                {"endpoint": encrypted, **trusted, **wrong}, server, "check user", secret
            ),
            Refusal({"endpoint": encrypted, **wrong}, server, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "check that endpoint", secret),
        ]  # fmt: skip

    FAULTS = (
        *http_server.LOST,
        refused("queue full", "too_many_requests", Refuse(500, _OVERLOADED)),
        http_server.GATEWAY_GAVE_UP,
        http_server.NO_ANSWER_IN_TIME,
    )


class CratedbStandIn(CratedbUnderTest):
    """The stand-in."""

    # It stores row by row.
    events_for_size = 1_000

    dsn: str
    """How to reach the PostgreSQL below it."""

    def size_on_disk(self, table: str) -> int | None:
        below: psycopg2.extensions.connection = connected(self.dsn)
        name = f'"{self.schema}"."{table}"'
        [[size]] = ask(below, "SELECT pg_total_relation_size(%s::regclass)", name)
        below.close()
        return int(size)

    @classmethod
    @contextmanager
    def on(cls, dsn: str) -> Iterator[CratedbUnderTest]:
        """On a database of its own of that server."""
        name = f"crate_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        administration: psycopg2.extensions.connection = connected(dsn)
        ask(administration, f"CREATE DATABASE {name}")
        try:
            with (
                pytest.MonkeyPatch.context() as patch,
                stand_in(with_options(dsn, dbname=name)) as server,
                cls.started(server.url) as adapter,
            ):
                assert isinstance(adapter, CratedbStandIn)
                adapter.dsn = server.dsn
                # The stand-in begins with a statement as soon as it has it.
                patch.setattr("simulator.modules.cratedb.server._SETTLE_S", 0.0)
                yield adapter
        finally:
            ask(administration, f"DROP DATABASE {name} WITH (FORCE)")
            administration.close()
