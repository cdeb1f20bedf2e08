"""How to look into CrateDB, by its own HTTP endpoint, and how to make it fail, by a proxy."""

from __future__ import annotations

import json
import os
import socket
import ssl
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import psycopg2
import pytest
import trustme

from simulator.modules.base import Job
from simulator.workloads.base import ColumnType, Schema

from .cratedb_stand_in import stand_in
from .postgres import ask, connected, with_options
from .search_proxy import Fate, HttpProxy, HttpRequest, http_proxy
from .server import Fault, Refusal, ServerUnderTest, Strike

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_OVERLOADED = {
    "error": {"message": "EsRejectedExecutionException[rejected execution]", "code": 5000}
}


def writes(request: HttpRequest) -> bool:
    """Whether a request stores rows."""
    return request.body.startswith(b'{"stmt":"INSERT ')


class CratedbUnderTest(ServerUnderTest):
    """A schema of its own on a CrateDB, reached by way of a proxy."""

    reconnects_unasked = True
    locks = False
    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "timestamp with time zone",
        ColumnType.INT64: "bigint",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "real",
        ColumnType.TEXT: "text",
        ColumnType.JSON: "text",
    }

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self.proxy = stack.enter_context(http_proxy(HttpProxy([url], writes, (500, _OVERLOADED))))
        self.schema = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        super().__init__(
            "cratedb",
            {"endpoint": self.proxy.endpoints, "default_schema": self.schema, "shards": 2},
        )
        self._silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        """Takes connections and never answers."""
        self._closed = stack.enter_context(socket.socket())
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))
        self.authority = trustme.CA()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("localhost").configure_cert(tls)
        self._encrypted = stack.enter_context(http_proxy(HttpProxy([url], writes, tls=tls)))

    @classmethod
    @contextmanager
    def started(cls, url: str) -> Iterator[CratedbUnderTest]:
        """A schema, whose tables are dropped at the end."""
        with ExitStack() as stack:
            found = cls(url, stack)
            yield found
            found.clear()

    @property
    def trusted(self) -> str:
        """The PEM text of the authority that the encrypting proxy's certificate is from."""
        return self.authority.cert_pem.bytes().decode()

    @property
    def encrypted(self) -> list[str]:
        """Endpoints that speak TLS."""
        return self._encrypted.endpoints

    def sql(self, statement: str, *values: Any) -> list[list[Any]]:
        """All rows of a statement's answer, not by way of the proxy."""
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
        rows = self.sql(f'SELECT {columns} FROM "{table}"')
        # A document that isn't an object is kept as text.
        texts = [
            number
            for number, column in enumerate(schema.columns)
            if column.type is ColumnType.JSON and column.name != schema.device
        ]
        for row in rows:
            for number in texts:
                row[number] = json.loads(row[number])
        return rows

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [row[0] for row in self.sql(f'SELECT "id" FROM "{table}"')]

    def tables(self) -> set[str]:
        found = self.sql(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", self.schema
        )
        return {row[0] for row in found}

    def columns(self, table: str) -> dict[str, str]:
        found = self.sql(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
            self.schema, table,
        )  # fmt: skip
        # An object's attributes are listed as columns, too.
        return {name: kind for name, kind in found if "[" not in name}

    def indices(self, table: str) -> set[str]:
        return set()

    def clear(self) -> None:
        for table in self.tables():
            self.sql(f'DROP TABLE IF EXISTS "{table}"')

    def connections(self, run_id: str) -> set[str]:
        lines = self.proxy.lines("user-agent", f"iot-benchmark {run_id}")
        return {str(line.number) for line in lines}

    def kill_connections(self, run_id: str) -> int:
        return self.proxy.cut(self.proxy.lines("user-agent", f"iot-benchmark {run_id}"))

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"user": "somebody", "password": secret}
        refusals = [
            Refusal(
                {"endpoint": f"http://127.0.0.1:{port}", "request_timeout_s": 2, **wrong},
                f"127.0.0.1:{port}", "check that the server runs", secret,
            )
            for port in (found.getsockname()[1] for found in (self._closed, self._silent))
        ]  # fmt: skip
        [encrypted] = self.encrypted
        server, here = (url.partition("://")[2] for url in (encrypted, self.url))
        trusted = {"ca_certs": self.trusted}
        return [
            *refusals,
            Refusal({"endpoint": self.url, **wrong}, here, "check user and password", secret),
            Refusal(
                {"endpoint": encrypted, **trusted, **wrong}, server, "check user", secret
            ),
            Refusal({"endpoint": encrypted, **wrong}, server, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "check that endpoint", secret),
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

    FAULTS = (
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


class CratedbStandIn(CratedbUnderTest):
    """The stand-in, whose types are PostgreSQL's."""

    column_types: ClassVar = CratedbUnderTest.column_types | {ColumnType.TIMESTAMP_MS: "bigint"}

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
                cls.started(server.url) as found,
            ):
                # The stand-in begins with a statement as soon as it has it.
                patch.setattr("simulator.modules.cratedb._SETTLE_S", 0.0)
                yield found
        finally:
            ask(administration, f"DROP DATABASE {name} WITH (FORCE)")
            administration.close()
