"""How to look into a Kusto cluster, and how to make it fail.

The server is a stand-in: its protocol, blobs and queues are real, but it has hardly any query language.
Queries beyond a count are evaluated here (kql.py), over the rows that it has. So are extents: one for each
table, of columns compressed by zlib.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from typing import Any, ClassVar

import httpx
import pytest
from azure.storage.queue import QueueClient

from simulator.testing.server import FaultHandle, Refusal
from simulator.workloads.schema import Column, ColumnType, Schema, Tags

from ..helpers import eventually
from . import kql
from .http_proxy import Fate, HttpRequest, Refuse
from .http_server import HttpServerUnderTest, refused
from .lost import ANSWER_LOST, REQUEST_LOST

_FRESH_S = 0.1
"""For how long a table that was read is used again, for requests that follow one another."""


def streams(request: HttpRequest) -> bool:
    """Whether a request is streaming ingestion."""
    return request.method == "POST" and request.target.startswith("/v1/rest/ingest/")


def refuse(status: int, permanent: bool = False, text: str = "not now") -> Refuse:
    """An error in Kusto's format."""
    error = {"code": "Internal", "message": "no", "@message": text, "@permanent": permanent}
    return Refuse(status, {"error": error})


class KustoUnderTest(HttpServerUnderTest):
    """A database of its own, reached by a proxy. It exists as soon as it is named."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "datetime",
        ColumnType.INT64: "long",
        ColumnType.INT32: "int",
        ColumnType.FLOAT32: "real",
        ColumnType.FLOAT64: "real",
        ColumnType.BOOL: "bool",
        ColumnType.TEXT: "string",
        ColumnType.JSON: "dynamic",
    }
    events_for_size = 1_000
    agent_header = "x-ms-app"
    agent = "iot-benchmark/{run_id}"

    def __init__(self, url: str, database: str, stack: ExitStack) -> None:
        self.database = database
        self._known: dict[str, tuple[float, kql.Table]] = {}
        """Tables that were read, and when."""
        self._docs: dict[str, str] = {}
        """What the module has said of tables, which the stand-in forgets."""
        super().__init__(
            "azure_data_explorer",
            [url],
            streams,
            lambda endpoints: {
                "kusto_uri": endpoints[0],
                "kusto_ingest_uri": endpoints[0],
                "kusto_db": database,
                "batch": False,
            },
            stack,
        )
        self.http = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        resources = self.asked(".get ingestion resources")
        [queue] = [uri for kind, uri in resources if kind == "SecuredReadyForAggregationQueue"]
        self._queue = stack.enter_context(closing(QueueClient.from_queue_url(queue)))

    @classmethod
    @contextmanager
    def started(cls, url: str, database: str) -> Iterator[KustoUnderTest]:
        """A database with a name of its own: others may be using the rest."""
        with ExitStack() as stack:
            adapter = cls(url, f"{database}_test_{os.getpid()}_{uuid.uuid4().hex[:8]}", stack)
            stack.callback(adapter.clear)
            yield adapter

    def asked(self, text: str) -> list[list[Any]]:
        """The rows of a command's or a query's answer."""
        rows: list[list[Any]] = self._ask(text)["Rows"]
        return rows

    def _ask(self, text: str) -> Any:
        """The table that a command or a query is answered with."""
        command = text.startswith(".")
        path = "/v1/rest/mgmt" if command else "/v2/rest/query"
        answer = self.http.post(path, json={"db": self.database, "csl": text})
        answer.raise_for_status()
        content = answer.json()
        return content["Tables"][0] if command else content[1]

    def answer_instead(self, request: HttpRequest) -> Refuse | None:
        if request.target.startswith("/v1/rest/mgmt"):
            command = json.loads(request.body)["csl"]
            answer = self._show_extents(command) or self._describe_tables(command)
            if answer is not None:
                return answer
        query = ""
        if request.target.startswith("/v2/rest/query"):
            query = json.loads(request.body)["csl"]
        if not query or re.fullmatch(r"\['\w+'\] \| count", query):
            # Whoever has changed a table, or has counted until all events are there, sees it as it is.
            self._known.clear()
            return None
        result = self._execute(query, self._read_table)
        if isinstance(result, Refuse):
            return result
        columns = [{"ColumnName": name, "ColumnType": "dynamic"} for name in result.columns]
        rows = [[kql.write_value(row[name]) for name in result.columns] for row in result.rows]
        table = {
            "FrameType": "DataTable", "TableId": 0, "TableKind": "PrimaryResult",
            "TableName": "PrimaryResult", "Columns": columns, "Rows": rows,
        }  # fmt: skip
        return Refuse(
            200,
            [
                {"FrameType": "DataSetHeader", "IsProgressive": False, "Version": "v2.0"},
                table,
                {"FrameType": "DataSetCompletion", "HasErrors": False, "Cancelled": False},
            ],
        )

    def _execute(self, query: str, table: Callable[[str], kql.Table]) -> kql.Table | Refuse:
        try:
            return kql.execute(query, table)
        except httpx.HTTPStatusError as error:
            return Refuse(error.response.status_code, error.response.json())
        except kql.KqlError as error:
            return refuse(400, permanent=True, text=f"{error}: {query}")

    def _describe_tables(self, command: str) -> Refuse | None:
        """https://learn.microsoft.com/kusto/management/show-tables-command"""
        if made := re.fullmatch(
            r"\.create-merge table (\S+) .* with \(docstring = \"(.+)\"\)", command
        ):
            self._docs[made[1].strip("[']")] = made[2]
        elif dropped := re.fullmatch(r"\.drop table (\S+) ifexists", command):
            self._docs.pop(dropped[1].strip("[']"), None)
        if command != ".show tables":
            return None
        names = ("TableName", "DatabaseName", "Folder", "DocString")
        columns = [{"ColumnName": n, "DataType": "String", "ColumnType": "string"} for n in names]
        rows = [[*row, "", self._docs.get(row[0], "")] for row in self.asked(command)]
        return Refuse(200, {"Tables": [{"TableName": "Table_0", "Columns": columns, "Rows": rows}]})

    def _show_extents(self, command: str) -> Refuse | None:
        match = re.fullmatch(r"\.show table (\['\w+'\]) extents (\|.+)", command)
        if match is None:
            return None
        result = self._execute(f"{match[1]} {match[2]}", self._read_extents)
        if isinstance(result, Refuse):
            return result
        columns = [
            {"ColumnName": name, "DataType": "Double", "ColumnType": "real"}
            for name in result.columns
        ]
        rows = [[row[name] for name in result.columns] for row in result.rows]
        return Refuse(200, {"Tables": [{"TableName": "Table_0", "Columns": columns, "Rows": rows}]})

    def _read_extents(self, name: str) -> kql.Table:
        """A single extent, with an index of its texts."""
        answer = self._ask(f"['{name}'] | take 1000000")
        columns = list(zip(*answer["Rows"], strict=True))
        compressed = sum(len(zlib.compress(json.dumps(column).encode(), 1)) for column in columns)
        terms = {value for column in columns for value in column if isinstance(value, str)}
        index = len(zlib.compress(json.dumps(sorted(terms)).encode(), 1))
        extent = {
            "ExtentSize": float(compressed + index), "CompressedSize": float(compressed),
            "IndexSize": float(index), "RowCount": len(answer["Rows"]),
        }  # fmt: skip
        return kql.Table(list(extent), [extent])

    def _read_table(self, name: str) -> kql.Table:
        read_s, table = self._known.get(name, (0.0, None))
        if table is None or time.monotonic() - read_s > _FRESH_S:
            read_s = time.monotonic()
            table = self._fetch_table(name)
            self._known[name] = read_s, table
        return table

    def _fetch_table(self, name: str) -> kql.Table:
        answer = self._ask(f"['{name}'] | take 1000000")
        kinds = {column["ColumnName"]: column["ColumnType"] for column in answer["Columns"]}
        rows = [
            {
                column: kql.read_value(kind, value)
                for (column, kind), value in zip(kinds.items(), row, strict=True)
            }
            for row in answer["Rows"]
        ]
        return kql.Table(list(kinds), rows)

    def drained(self) -> bool:
        """Whether all that was queued is stored."""
        return not self._queue.get_queue_properties().approximate_message_count

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        eventually(self.drained, "empty queue")
        rows = self._list_rows(schema.row, table)
        if schema.tags is Tags.TABLE:
            tags = self._list_rows(schema.tags_row, f"{schema.table}_tags")
            by_id = {row["tags_id"]: row for row in tags}
            rows = [by_id[row["tags_id"]] | row for row in rows]
        return [[row[column.name] for column in schema.columns] for row in rows]

    def _list_rows(self, columns: Sequence[Column], table: str) -> list[dict[str, Any]]:
        return [
            {
                column.name: self._value(column, value)
                for column, value in zip(columns, row, strict=True)
            }
            for row in self.asked(f"['{table}'] | take 1000000")
        ]

    def _value(self, column: Column, value: Any) -> Any:
        # A string has no null: an empty one is all that there can be.
        if column.nullable and value in (None, ""):
            return None
        if column.type is ColumnType.TIMESTAMP_MS:
            return round(datetime.fromisoformat(value).timestamp() * 1000)
        return json.loads(value) if column.type is ColumnType.JSON else value

    def keys(self, table: str) -> list[str]:
        return []

    def tables(self) -> set[str]:
        return {row[0] for row in self.asked(".show tables")}

    def columns(self, table: str) -> dict[str, str]:
        [[_, schema, _]] = self.asked(f".show table ['{table}'] cslschema")
        return dict(part.split(":") for part in schema.split(","))

    def indices(self, table: str) -> set[str]:
        return set()

    def policy(self, table: str, name: str) -> str:
        """A policy of a table; "null" if it has none."""
        return str(self.asked(f".show table ['{table}'] policy {name}")[0][2])

    def make_neighbour(self, name: str) -> object:
        self.asked(f".create table ['{name}'] (serial_number: int, note: string)")
        self.asked(f".ingest inline into table ['{name}'] <|\n7,keep me")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.asked(f"['{name}'] | take 10")

    def clear(self) -> None:
        # What is in the queue for a table that is gone would fail, and be reported for ever.
        eventually(self.drained, "empty queue")
        self._docs.clear()
        for table in self.tables():
            self.asked(f".drop table ['{table}']")
        # A query right afterwards may still find it.
        eventually(lambda: not self.tables(), "tables that are gone")

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-k3y"
        options = {
            "kusto_uri": "https://127.0.0.1", "adx_app_key": secret, "adx_authority_id": "t",
        }  # fmt: skip
        return [Refusal(options, "https://127.0.0.1", "option adx_aad_app_id is missing", secret)]

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def fated(self, fate: Fate, wait_s: float = 0.0, **options: Any) -> Iterator[FaultHandle]:
        with pytest.MonkeyPatch.context() as patch:
            # The stand-in shows streamed events at once.
            patch.setattr("simulator.modules.azure_data_explorer.server.STREAMED_VISIBLE_S", 0.2)
            with super().fated(fate, wait_s, batch=False, **options) as strike:
                yield strike

    FAULTS = (
        ANSWER_LOST,
        REQUEST_LOST,
        refused("throttled", "throttled", refuse(429)),
        refused("server error", "server_error", refuse(503)),
    )
