"""What a module says of its schema is what its `prepare` sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from simulator.contract import Load, Tables
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.kit.module import MissingTable
from simulator.modules.options import parse_options
from simulator.workloads import load_workload

ENDPOINT = {"endpoint": "http://nowhere.invalid:1"}
DSN = {"connection_string": "host=nowhere.invalid"}


class Recorder:
    """An empty server of any kind: takes all that it is sent, and has nothing."""

    expects_tables = False
    datacenter = "here"

    def __init__(self) -> None:
        self.sent: list[str] = []

    def ask(self, statement: str, *_: Any) -> list[Any]:
        self.sent.append(statement)
        return [(None,)] if statement.startswith("SHOW timescaledb") else []

    run = execute = ask

    def manage(self, method: str, target: str, body: object) -> None:
        if method == "GET":
            raise MissingTable("it is not there")
        self.sent.append(f"{method} {target}")

    def lists_jobs(self) -> bool:
        return True

    def expect_tables(self) -> None:
        """Nothing comes of it."""

    def await_node(self) -> None:
        """It is there."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("postgres", {**DSN, "install_extensions": "pgcrypto"}),
        ("timescaledb", {**DSN, "columnstore": True}),
        ("questdb", ENDPOINT),
        ("cratedb", {**ENDPOINT, "shards": 2}),
        ("clickhouse", ENDPOINT),
        ("elasticsearch", ENDPOINT),
        ("cassandra", {"contact_points": "nowhere.invalid", "local_datacenter": "here"}),
        ("iotdb", {"host": "nowhere.invalid", "username": "u", "password": "secret-word"}),
    ],
)
@pytest.mark.parametrize("tags", ["row", "table"])
def test_what_is_shown_is_what_is_sent(name: str, options: Mapping[str, Any], tags: str) -> None:
    kind = load_module(name)
    if tags == "table" and kind.CAPABILITIES.tags_table != "full":
        tags = "row"
    schema = load_workload("machines")(0, tags=tags).schema
    job = Job(schema, Load(tables=Tables.MULTIPLE))
    module: Any = kind(parse_options(kind.options_model, options, str), job)
    server = Recorder()
    module._connection = server
    shown = [text.partition("\n")[0] for text in module.describe_schema()]
    assert server.sent == []
    module.prepare()
    begins = ("CREATE ", "COMMENT ON", "SELECT * FROM create_hypertable", "ALTER TABLE", "PUT ")
    statements = [text for text in server.sent if text.startswith(begins) and "regions" not in text]
    assert statements and sorted(statements) == sorted(shown)
    assert sum("machines3" in text for text in shown) >= 1
