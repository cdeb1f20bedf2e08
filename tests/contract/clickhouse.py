"""How to look into ClickHouse, by its HTTP interface without the module's settings, and how to make it
fail, by a proxy."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from urllib.parse import urlencode

from simulator.contract import PrimaryKey
from simulator.testing.server import Refusal
from simulator.workloads.schema import Column, ColumnType, Schema, Tags

from . import http_server
from .http_proxy import HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TOO_MANY_PARTS = Refuse(
    500,
    b"Code: 252. DB::Exception: Too many parts (3004 with average size of 1.00 KiB). Merges are processing"
    b" significantly slower than inserts. (TOO_MANY_PARTS) (version 26.9.2.1)\n",
    {"X-ClickHouse-Exception-Code": "252"},
)


def writes(request: HttpRequest) -> bool:
    """Whether a request stores events. The official client asks for a table's columns with the same
    parameters."""
    return "insert_deduplication_token=" in request.target and b"DESCRIBE" not in request.body[:20]


class ClickhouseUnderTest(HttpServerUnderTest):
    """A database of its own on a ClickHouse, reached by way of a proxy."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "DateTime64(3, 'UTC')",
        ColumnType.INT64: "Int64",
        ColumnType.INT32: "Int32",
        ColumnType.FLOAT32: "Float32",
        ColumnType.FLOAT64: "Float64",
        ColumnType.BOOL: "Bool",
        ColumnType.TEXT: "String",
        ColumnType.JSON: "String",
    }
    keyless: ClassVar = frozenset({PrimaryKey.NONE, PrimaryKey.DB, PrimaryKey.SQL})

    def __init__(self, url: str, user: str, password: str, stack: ExitStack) -> None:
        self.url = url
        self.login = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
        # With characters that have to be quoted in a name or a text.
        self.database = f"iot test's {os.getpid()} {uuid.uuid4().hex[:8]}"
        super().__init__(
            "clickhouse",
            [url],
            writes,
            lambda endpoints: {
                "endpoint": endpoints[0],
                "user": user,
                "password": password,
                "database": self.database,
            },
            stack,
        )
        self.queues = self._queues_inserts()
        self.encrypted = self.encrypting().endpoints[0]
        """The same server behind TLS."""

    @classmethod
    @contextmanager
    def started(cls, url: str, user: str, password: str) -> Iterator[ClickhouseUnderTest]:
        """A database, which is dropped at the end."""
        with ExitStack() as stack:
            adapter = cls(url, user, password, stack)
            yield adapter
            adapter.sql(f"DROP DATABASE IF EXISTS `{adapter.database}` SYNC")

    def sql(self, statement: str, **parameters: str) -> list[dict[str, Any]]:
        """All rows of a statement's answer, asked past the proxy; `parameters`: of `{name:Type}` in it."""
        settings = {f"param_{name}": value for name, value in parameters.items()} | {
            "default_format": "JSONEachRow",
            "date_time_output_format": "unix_timestamp",
            "output_format_json_quote_64bit_integers": "0",
            "output_format_json_quote_denormals": "1",
        }
        request = urllib.request.Request(
            f"{self.url}/?{urlencode(settings)}", statement.encode(), self.login, method="POST"
        )
        with _NO_PROXY.open(request, timeout=60) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]

    def _queues_inserts(self) -> bool:
        """Whether there is a queue for asynchronous inserts: the stand-in has none."""
        try:
            self.sql("SYSTEM FLUSH ASYNC INSERT QUEUE")
        except urllib.error.HTTPError:
            return False
        return True

    def answer_instead(self, request: HttpRequest) -> Refuse | None:
        if not self.queues and request.body == b"SYSTEM FLUSH ASYNC INSERT QUEUE":
            return Refuse(200, b"")
        return None

    def _name(self, table: str) -> str:
        return f"`{self.database}`.`{table}`"

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        source = self._name(table)
        if schema.tags is Tags.TABLE:
            source += f" ANY LEFT JOIN {self._name(schema.tags_table)} USING (tags_id)"
        columns = ", ".join(f"`{column.name}`" for column in schema.columns)
        rows = self.sql(f"SELECT {columns} FROM {source}")
        return [[_read(column, row[column.name]) for column in schema.columns] for row in rows]

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [row["id"] for row in self.sql(f"SELECT id FROM {self._name(table)}")]

    def tables(self) -> set[str]:
        rows = self.sql(
            "SELECT name FROM system.tables WHERE database = {database:String}",
            database=self.database,
        )
        return {row["name"] for row in rows}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.sql(
            "SELECT name, type FROM system.columns WHERE database = {database:String}"
            " AND table = {table:String} ORDER BY position",
            database=self.database, table=table,
        )  # fmt: skip
        return {row["name"]: row["type"] for row in rows}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        columns = {}
        for column in schema.columns:
            kind = self.column_types[column.type]
            if column.name == schema.device and schema.device_path:
                kind = f"JSON({schema.device_path} String)"
            elif column.type is ColumnType.TEXT and (column.name == schema.device or column.tag):
                kind = f"LowCardinality({kind})"
            columns[column.name] = kind
        return columns

    def indices(self, table: str) -> set[str]:
        return set()

    def size_on_disk(self, table: str) -> int | None:
        [row] = self.sql(
            "SELECT total_bytes FROM system.tables WHERE database = {database:String}"
            " AND name = {table:String}",
            database=self.database, table=table,
        )  # fmt: skip
        return int(row["total_bytes"])

    def make_neighbour(self, name: str) -> object:
        self.sql(f"CREATE DATABASE IF NOT EXISTS `{self.database}`")
        self.sql(
            f"CREATE TABLE {self._name(name)} (serial_number Int32, note String)"
            " ENGINE = MergeTree ORDER BY serial_number"
        )
        self.sql(f"INSERT INTO {self._name(name)} VALUES (7, 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.sql(f"SELECT serial_number, note FROM {self._name(name)}")

    def clear(self) -> None:
        for table in self.tables():
            self.sql(f"DROP TABLE {self._name(table)} SYNC")

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        wrong = {"user": "somebody", "password": secret}
        server, here = (url.partition("://")[2] for url in (self.encrypted, self.url))
        trusted = {"ca_certs": self.trusted}
        return [
            *self.unreachable(secret, request_timeout_s=2, **wrong),
            Refusal({"endpoint": self.url, **wrong}, here, "check user and password", secret),
            Refusal(
                {"endpoint": self.encrypted, **trusted, **wrong}, server, "check user", secret
            ),
            Refusal({"endpoint": self.encrypted, **wrong}, server, "ca_certs", secret),
            Refusal({"endpoint": f"https://{here}", **wrong}, here, "check that endpoint", secret),
        ]  # fmt: skip

    FAULTS = (
        *http_server.LOST,
        refused("too many parts", "too_many_parts", _TOO_MANY_PARTS),
        http_server.GATEWAY_GAVE_UP,
        http_server.NO_ANSWER_IN_TIME,
    )


def _read(column: Column, value: Any) -> Any:
    if value is not None and column.type is ColumnType.TIMESTAMP_MS:
        return round(float(value) * 1000)
    if isinstance(value, str) and column.type is ColumnType.JSON:
        return json.loads(value)
    return value
