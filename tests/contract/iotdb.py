"""How to look into IoTDB, and how to make it fail: by a proxy, as it lists no connections by name."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

from simulator.contract import PrimaryKey
from simulator.modules.base import Job
from simulator.modules.iotdb.connection import Connection, Question, ServerError
from simulator.testing.events import Losses, insert_block, lose
from simulator.testing.server import Fault, FaultHandle, Refusal, ServerUnderTest
from simulator.workloads.schema import ColumnType, EventBlock, Schema, Tags

from ..helpers import eventually
from .iotdb_proxy import Fate, Proxy
from .lost import ANSWER_LOST, REQUEST_LOST

_PATIENCE_S = 60.0


def quoted(name: str) -> str:
    """An identifier. Not by the function of the code under test, which may be wrong."""
    return '"' + name.replace('"', '""') + '"'


class IotdbUnderTest(ServerUnderTest):
    """A database of its own on an IoTDB server, reached by way of a proxy."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "TIMESTAMP",
        ColumnType.INT64: "INT64",
        ColumnType.INT32: "INT32",
        ColumnType.FLOAT32: "FLOAT",
        ColumnType.FLOAT64: "DOUBLE",
        ColumnType.BOOL: "BOOLEAN",
        ColumnType.TEXT: "STRING",
        ColumnType.JSON: "STRING",
    }
    locks: ClassVar = False
    time_column: ClassVar = "time"
    keyless: ClassVar = frozenset({PrimaryKey.DB, PrimaryKey.NONE})
    model: ClassVar = "table"
    # By 2.0.1-beta under other load: for the tree's events, for seconds after a FLUSH.
    false_refusals: ClassVar = ("is not in tsFileMetaData",)

    def __init__(
        self, address: tuple[str, int], login: tuple[str, str], proxy: Proxy, stack: ExitStack
    ) -> None:
        self.database = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.proxy = proxy
        options = {
            "host": "127.0.0.1",
            "port": proxy.port,
            "username": login[0],
            "password": login[1],
            "database": self.database,
            "model": self.model,
        }
        super().__init__("iotdb", options)
        self._connection = Connection(
            address, _PATIENCE_S, login, {"version": "V_1_0", "sql_dialect": self.model}
        )
        stack.callback(self._connection.close)
        self._silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        """Takes connections and never answers."""
        self._closed = stack.enter_context(socket.socket())
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))

    @classmethod
    @contextmanager
    def started(
        cls, host: str, port: str, username: str, password: str
    ) -> Iterator[IotdbUnderTest]:
        """A database of its own, dropped at the end: others may be using the rest."""
        with ExitStack() as stack:
            proxy = stack.enter_context(Proxy(host, int(port)))
            adapter = cls((host, int(port)), (username, password), proxy, stack)
            adapter.make_database(stack)
            eventually(adapter.makes_regions, "regions of a new database")
            yield adapter

    def make_database(self, stack: ExitStack) -> None:
        """Make it, with one region of each kind: each takes some of the server's memory for buffers."""
        self.ask(
            f"CREATE DATABASE {self.database} WITH (data_region_group_num=1, schema_region_group_num=1)"
        )
        stack.callback(self.ask, f"DROP DATABASE {self.database}")
        # It makes them for its first row.
        self.ask(f"CREATE TABLE {self.database}.first (time TIMESTAMP TIME, v INT32 FIELD)")

    def makes_regions(self) -> bool:
        """Whether a row could be stored."""
        try:
            self.ask(f"INSERT INTO {self.database}.first(time, v) VALUES (1, 1)")
        except ServerError:
            return False
        return True

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.run(
            self._connection.fetch(Question(statement), _PATIENCE_S), _PATIENCE_S
        ).read()

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        names = ["time" if c.name == schema.time else c.name for c in schema.columns]
        documents = [c.type is ColumnType.JSON for c in schema.columns]
        name = f"{self.database}.{quoted(table)}"
        if schema.tags is Tags.TABLE:
            apart = [quoted(c.name) for c in schema.tags_row]
            tags = f"{self.database}.{quoted(schema.tags_table)}"
            name += (
                f" AS e JOIN (SELECT {', '.join(apart)} FROM {tags}) AS t ON e.tags_id = t.tags_id"
            )
        statement = f"SELECT {', '.join(map(quoted, names))} FROM {name}"
        return [
            [
                json.loads(v) if parse and v is not None else v
                for v, parse in zip(row, documents, strict=True)
            ]
            for row in self.ask(statement)
        ]

    def keys(self, table: str) -> list[str]:
        return []

    def tables(self) -> set[str]:
        return {row[0] for row in self.ask(f"SHOW TABLES FROM {self.database}")}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.ask(f"DESC {self.database}.{quoted(table)}")
        return {name: kind for name, kind, *_ in rows}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        columns = super().expected_columns(schema)
        return {"time" if name == schema.time else name: kind for name, kind in columns.items()}

    def indices(self, table: str) -> set[str]:
        return set()

    marks: ClassVar = False

    def make_neighbour(self, name: str) -> object:
        table = f"{self.database}.{quoted(name)}"
        self.ask(
            f"CREATE TABLE {table} (time TIMESTAMP TIME, serial STRING TAG, note STRING FIELD)"
        )
        self.ask(f"INSERT INTO {table}(time, serial, note) VALUES (7, 'seven', 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.ask(f"SELECT time, serial, note FROM {self.database}.{quoted(name)}")

    def clear(self) -> None:
        for table in self.tables():
            # As the module does, and for its reason.
            self.ask(f"DELETE FROM {self.database}.{quoted(table)}")
            self.ask(f"DROP TABLE {self.database}.{quoted(table)}")

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        for device, table in product(losses, job.table_names):
            where = f"{quoted(block.schema.device)} = '{device}'"
            self.ask(f"DELETE FROM {self.database}.{quoted(table)} WHERE {where}")
        rest = lose(block, losses)
        insert_block(self.module(replace(job, schema=rest.schema)), rest)

    def connections(self, run_id: str) -> set[str]:
        return set(map(str, self.proxy.lines(run_id)))

    def kill_connections(self, run_id: str) -> int:
        lines = self.proxy.lines(run_id)
        for line in lines.values():
            line.close()
        return len(lines)

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        unreachable = [
            Refusal(
                {"port": port, "password": secret, "request_timeout_s": 2},
                f"127.0.0.1:{port}",
                "check that the server runs",
                secret,
            )
            for port in (endpoint.getsockname()[1] for endpoint in (self._closed, self._silent))
        ]
        wrong = Refusal(
            {"password": secret}, f"127.0.0.1:{self.proxy.port}", "check username", secret
        )
        return [*unreachable, wrong]

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def killed(self, job: Job) -> Iterator[FaultHandle]:
        """The writer's connection is cut before the request is sent."""

        def trigger() -> None:
            assert self.kill_connections(job.run_id)

        yield FaultHandle(trigger)

    @contextmanager
    def fated(self, fate: Fate, **options: Any) -> Iterator[FaultHandle]:
        """The proxy does something to the next insert. `options`: of the writer's module."""

        def trigger() -> None:
            self.proxy.fate = fate

        yield FaultHandle(trigger, options)
        assert self.proxy.fate is None, "no insert met its fate"

    FAULTS: ClassVar[Sequence[Fault]] = (
        Fault("killed", {"connection_lost": 1}, killed, thorough=True),
        ANSWER_LOST,
        replace(REQUEST_LOST, once=True),
        Fault(
            "no answer", {"timeout": 1},
            lambda server, job: server.fated("swallow answer", request_timeout_s=0.5),
            reconnects=True, once=True,
        ),
        Fault(
            "rejected", {"write_rejected": 1},
            lambda server, job: server.fated("rejected"), once=True,
        ),
        Fault(
            "stored but refused", {"internal_timeout": 1},
            lambda server, job: server.fated("stored but refused"),
        ),
    )  # fmt: skip
