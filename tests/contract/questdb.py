"""How to look into QuestDB, by PostgreSQL's protocol and not over HTTP as the module does, and how to make it
fail, by proxies for both."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import psycopg2

from simulator.testing.server import FaultHandle, Refusal
from simulator.workloads.schema import Column, ColumnType, Schema, Tags

from ..helpers import eventually
from . import http_server
from .http_proxy import Fate, HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused
from .postgres import ask, connected
from .postgres_proxy import proxy_to


def writes(request: HttpRequest) -> bool:
    """Whether a request stores lines."""
    return request.target.startswith("/write")


class QuestdbUnderTest(HttpServerUnderTest):
    """Tables with a prefix of their own on a QuestDB, reached by way of proxies."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "TIMESTAMP",
        ColumnType.INT64: "LONG",
        ColumnType.INT32: "INT",
        ColumnType.FLOAT32: "FLOAT",
        ColumnType.FLOAT64: "DOUBLE",
        ColumnType.BOOL: "BOOLEAN",
        ColumnType.TEXT: "VARCHAR",
        ColumnType.JSON: "VARCHAR",
    }
    # The newest partition has room for some 100,000 more events in each of its files.
    events_for_size = 40_000

    def __init__(self, url: str, dsn: str, stack: ExitStack) -> None:
        self.prefix = f"t{os.getpid()}_{uuid.uuid4().hex[:8]}_"
        self.pgwire = stack.enter_context(proxy_to(dsn))
        self.inside: psycopg2.extensions.connection = connected(dsn)
        stack.callback(self.inside.close)
        super().__init__(
            "questdb",
            [url],
            writes,
            lambda endpoints: {
                "endpoint": endpoints,
                "connection_string": self.pgwire.dsn,
                "table_prefix": self.prefix,
                "partition_by": "hour",
            },
            stack,
        )
        self.url = url
        self.encrypted = self.encrypting("Bearer a-token").endpoints
        """The same server behind TLS, for whoever has the token."""

    @classmethod
    @contextmanager
    def started(cls, url: str, dsn: str) -> Iterator[QuestdbUnderTest]:
        """Tables that are dropped at the end."""
        with ExitStack() as stack:
            adapter = cls(url, dsn, stack)
            yield adapter
            adapter.clear()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer, asked by PGWire past the proxy."""
        return ask(self.inside, statement)

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        name = self.prefix + table
        eventually(lambda: self.is_applied(name), "application of the write-ahead log")
        columns = ", ".join(f'"{column.name}"' for column in schema.columns)
        tags = f"{self.prefix}{schema.table}_tags"
        joined = f' JOIN "{tags}" ON "{tags}"."tags_id" = "{name}"."tags_id"'
        rows = self.sql(
            f'SELECT {columns} FROM "{name}"{joined if schema.tags is Tags.TABLE else ""}'
        )
        return [
            [_read(column, value) for column, value in zip(schema.columns, row, strict=True)]
            for row in rows
        ]

    def is_applied(self, name: str) -> bool:
        """Whether all that was acknowledged is in the table."""
        rows = self.sql(f"SELECT writerTxn = sequencerTxn FROM wal_tables() WHERE name = '{name}'")
        return rows == [(True,)]

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [row[0] for row in self.sql(f'SELECT "id" FROM "{self.prefix}{table}"')]

    def tables(self) -> set[str]:
        names = [name for (name,) in self.sql("SELECT table_name FROM tables()")]
        return {name.removeprefix(self.prefix) for name in names if name.startswith(self.prefix)}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.sql(f'SHOW COLUMNS FROM "{self.prefix}{table}"')
        return {name: kind for name, kind, *_ in rows}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        return {
            column.name: "SYMBOL"
            if column.name == schema.device
            else self.column_types[column.type]
            for column in schema.columns
        }

    def indices(self, table: str) -> set[str]:
        return set()

    marks: ClassVar = False

    def make_neighbour(self, name: str) -> object:
        table = f'"{self.prefix}{name}"'
        self.sql(f"CREATE TABLE {table} (serial_number INT, note VARCHAR)")
        self.sql(f"INSERT INTO {table} VALUES (7, 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.sql(f'SELECT serial_number, note FROM "{self.prefix}{name}"')

    def clear(self) -> None:
        for table in self.tables():
            self.sql(f'DROP TABLE IF EXISTS "{self.prefix}{table}"')

    # --- failures ---------------------------------------------------------------------------------

    def connections(self, run_id: str) -> set[str]:
        # Only writers connect by PGWire here, and by the vendor's client, which names no run.
        pgwire = {f"pgwire {number}" for number in self.pgwire.list_open()}
        client = {str(line.number) for line in self.proxy.lines("user-agent", "questdb/")}
        return super().connections(run_id) | pgwire | client

    def kill_connections(self, run_id: str) -> int:
        pgwire = len(self.pgwire.list_open())
        self.pgwire.cut()
        return super().kill_connections(run_id) + pgwire

    @contextmanager
    def fated(self, fate: Fate, wait_s: float = 0.0, **options: Any) -> Iterator[FaultHandle]:
        """The next request that writes meets its fate, whichever way it goes."""
        if fate not in ("drop answer", "drop request"):
            # These are struck over HTTP alone.
            with super().fated(fate, wait_s, **options) as strike:
                yield strike
            return

        def trigger() -> None:
            self.proxy.fate = fate
            self.pgwire.fate = fate

        yield FaultHandle(trigger, options)
        met = (self.proxy.fate is None, self.pgwire.fate is None)
        self.proxy.fate = self.pgwire.fate = None
        assert any(met), "no request met its fate"

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"username": "somebody", "password": secret}
        [encrypted] = self.encrypted
        server, here = (url.partition("://")[2] for url in (encrypted, self.url))
        trusted = {"ca_certs": self.trusted}
        return [
            *self.unreachable(secret, request_timeout_s=2, **wrong),
            Refusal({"endpoint": encrypted, **trusted, **wrong}, server, "check username", secret),
            Refusal({"endpoint": encrypted, **trusted, "token": secret}, server, "token", secret),
            Refusal({"endpoint": encrypted, **wrong}, server, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "check that endpoint", secret),
        ]

    FAULTS = (
        *http_server.LOST,
        replace(
            refused("unavailable", "unavailable", Refuse(503, {"message": "overloaded"})), once=True
        ),
        replace(http_server.GATEWAY_GAVE_UP, once=True),
        http_server.NO_ANSWER_IN_TIME,
    )


def _read(column: Column, value: Any) -> Any:
    """A value as it was generated."""
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp() * 1000)
    if column.type is ColumnType.JSON:
        return value and json.loads(value)
    return value
