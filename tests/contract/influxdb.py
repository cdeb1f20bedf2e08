"""How to look into InfluxDB, by InfluxQL and not by Flux as the module does, and how to make it fail."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from simulator.modules.base import Job
from simulator.testing.events import Losses, insert_block, lose
from simulator.testing.server import Refusal
from simulator.workloads.schema import Column, ColumnType, EventBlock, Schema

from .http_proxy import HttpRequest, Refuse
from .http_server import AWAY, HttpServerUnderTest, await_health, find_program, refused
from .lost import ANSWER_LOST, REQUEST_LOST


def writes(request: HttpRequest) -> bool:
    """Whether a request writes events."""
    return request.method == "POST" and request.target.startswith("/api/v2/write")


def refuse(status: int, message: str, **headers: str) -> Refuse:
    """An error as InfluxDB words it."""
    return Refuse(status, {"code": "unavailable", "message": message}, headers)


class InfluxUnderTest(HttpServerUnderTest):
    """A bucket of its own on an InfluxDB server, reached by a proxy."""

    unfit: ClassVar = "which the client stores as"

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "integer",
        ColumnType.INT64: "integer",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "float",
        ColumnType.FLOAT64: "float",
        ColumnType.BOOL: "boolean",
        ColumnType.TEXT: "string",
        ColumnType.JSON: "string",
    }
    tables_come_with_events = True
    # Each flush makes a file.
    events_for_size = 2_000

    def __init__(
        self, url: str, org: str, token: str, bucket: str, folder: Path, stack: ExitStack
    ) -> None:
        self.bucket, self.org = bucket, org
        super().__init__(
            "influxdb",
            [url],
            writes,
            lambda endpoints: {
                "endpoint": endpoints[0],
                "org": org,
                "token": token,
                "bucket": bucket,
            },
            stack,
        )
        self.http = stack.enter_context(
            httpx.Client(base_url=url, headers={"Authorization": f"Token {token}"}, timeout=30)
        )
        [self.encrypted] = self.encrypting().endpoints
        """The same server behind TLS."""
        self.certificate = folder / "ca.pem"
        """The certificate of the authority that has signed the server's."""
        self.certificate.write_text(self.trusted)

    @classmethod
    @contextmanager
    def started(
        cls, request: pytest.FixtureRequest, url: str, org: str, token: str
    ) -> Iterator[InfluxUnderTest]:
        """A bucket with a name of its own: others may be using the rest."""
        folder = request.getfixturevalue("tmp_path_factory").mktemp("influxdb")
        bucket = f"iot test {os.getpid()} ${{}} {uuid.uuid4().hex[:8]}"
        with ExitStack() as stack:
            adapter = cls(url, org, token, bucket, folder, stack)
            stack.callback(adapter.clear)
            yield adapter

    def asked(self, statement: str) -> list[dict[str, Any]]:
        """The series of an InfluxQL statement's answer; the bucket's name is that of its database."""
        answer = self.http.get(
            "/query", params={"db": self.bucket, "q": statement, "epoch": "ms"}
        ).json()
        [result] = answer["results"]
        series: list[dict[str, Any]] = result.get("series", [])
        return series

    def buckets(self) -> list[dict[str, Any]]:
        """All buckets of that name."""
        answer = self.http.get("/api/v2/buckets", params={"org": self.org, "name": self.bucket})
        buckets: list[dict[str, Any]] = answer.json().get("buckets", [])
        return buckets

    def make_bucket(self, **changes: Any) -> None:
        """Make the bucket as an administrator would."""
        [org] = self.http.get("/api/v2/orgs", params={"org": self.org}).json()["orgs"]
        bucket = {"orgID": org["id"], "name": self.bucket, "retentionRules": [], **changes}
        self.http.post("/api/v2/buckets", json=bucket).raise_for_status()

    def write(self, lines: str) -> None:
        """Write line protocol with times in nanoseconds, without a module."""
        params = {"org": self.org, "bucket": self.bucket}
        self.http.post("/api/v2/write", params=params, content=lines).raise_for_status()

    def new_token(self, *actions: str) -> str:
        """A token that may do this with the organisation's buckets, and nothing else."""
        [org] = self.http.get("/api/v2/orgs", params={"org": self.org}).json()["orgs"]
        permissions = [
            {"action": action, "resource": {"type": "buckets", "orgID": org["id"]}}
            for action in actions
        ]
        permissions.append({"action": "read", "resource": {"type": "orgs", "id": org["id"]}})
        answer = self.http.post(
            "/api/v2/authorizations", json={"orgID": org["id"], "permissions": permissions}
        )
        return str(answer.raise_for_status().json()["token"])

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        rows = []
        for series in self.asked(f"SELECT * FROM {_quoted(table)}"):
            for values in series["values"]:
                point = dict(zip(series["columns"], values, strict=True))
                rows.append([self._value(schema, point, column.name) for column in schema.columns])
        return rows

    def _value(self, schema: Schema, point: dict[str, Any], name: str) -> Any:
        if name == schema.time:
            return point["time"]
        if name == schema.device and schema.device_path:
            fields = {column.name for column in schema.columns}
            return {k: v for k, v in point.items() if k not in fields | {"time"}}
        column = schema.column(name)
        if column.tag:
            return self._tag_value(column, point[name] or "")
        if column.type is ColumnType.JSON:
            return point[name] and json.loads(point[name])
        return point[name]

    def _tag_value(self, column: Column, text: str) -> Any:
        """What a tag's text stands for."""
        if column.type is ColumnType.TEXT:
            return text
        # As JSON writes numbers and truth values, too.
        return json.loads(text)

    def keys(self, table: str) -> list[str]:
        return []

    def tables(self) -> set[str]:
        return {name for series in self.asked("SHOW MEASUREMENTS") for [name] in series["values"]}

    def columns(self, table: str) -> dict[str, str]:
        fields = self.asked(f"SHOW FIELD KEYS FROM {_quoted(table)}")
        tags = self.asked(f"SHOW TAG KEYS FROM {_quoted(table)}")
        columns = {name: kind for series in fields for name, kind in series["values"]}
        return columns | {name: "tag" for series in tags for [name] in series["values"]}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        columns = super().expected_columns(schema)
        # Each point has a time, which is no column.
        del columns[schema.time]
        return columns | {schema.device: "tag"} | {c.name: "tag" for c in schema.columns if c.tag}

    def indices(self, table: str) -> set[str]:
        return set()

    def size_on_disk(self, table: str) -> int | None:
        [bucket] = self.buckets()
        label = f'bucket="{bucket["id"]}"'
        lines = self.http.get("/metrics").text.splitlines()
        matches = [re.search(r',path="([^"]+)"', line) for line in lines if label in line]
        shards = {Path(match[1]) for match in matches if match}
        # Seen only if the server runs on this machine.
        if not shards or not all(shard.is_dir() for shard in shards):
            return None
        return sum(file.stat().st_size for shard in shards for file in shard.glob("*.tsm"))

    marks: ClassVar = False

    def make_neighbour(self, name: str) -> object:
        if not self.buckets():
            self.make_bucket()
        self.write(f'{name},serial=seven note="keep me" 1704067200000000000')
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.asked(f"SELECT * FROM {_quoted(name)}")

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        for device, table in product(losses, job.table_names):
            # It deletes points, and no fields of them.
            times = {"start": "1970-01-01T00:00:00Z", "stop": "2200-01-01T00:00:00Z"}
            condition = f'_measurement="{table}" AND "{block.schema.device}"="{device}"'
            self.http.post(
                "/api/v2/delete",
                params={"org": self.org, "bucket": self.bucket},
                json={**times, "predicate": condition},
            ).raise_for_status()
        rest = lose(block, losses)
        insert_block(self.module(replace(job, schema=rest.schema)), rest)

    def clear(self) -> None:
        for bucket in self.buckets():
            self.http.delete(f"/api/v2/buckets/{bucket['id']}").raise_for_status()

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-t0ken"
        here = self.proxy.endpoints[0].removeprefix("http://")
        refusals = self.unreachable(secret, token=secret)
        right = self.options["token"]
        refusals.append(Refusal({"token": secret}, here, "check token", secret))
        refusals.append(Refusal({"org": "no such org"}, here, "check org", right))
        return refusals

    FAULTS = (
        ANSWER_LOST,
        REQUEST_LOST,
        AWAY,
        refused(
            "too many requests", "too_many_requests",
            refuse(429, "slow down", **{"Retry-After": "1"}), 1,
        ),
        refused(
            "unavailable", "unavailable", refuse(503, "unavailable", **{"Retry-After": "1"}), 1
        ),
        refused(
            "cache full", "cache_full",
            refuse(500, "unexpected error writing points to database: engine: cache-max-memory-size"
            " exceeded: (1073741847/1073741824)"),
        ),
    )  # fmt: skip


class OwnServer:
    """An InfluxDB that a test may stop: another process of the program that serves `url`."""

    ORG, TOKEN = "own", "own-token"

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        program = find_program(url)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self._command = [
            program, f"--http-bind-address={address}", "--reporting-disabled",
            f"--bolt-path={folder / 'bolt'}", f"--sqlite-path={folder / 'sqlite'}",
            f"--engine-path={folder / 'engine'}", "--log-level=error", *arguments,
        ]  # fmt: skip
        self._log = (folder / "log").open("wb")
        self.start()
        user = {"username": "own", "password": "own-password", "org": self.ORG, "bucket": "first"}
        answer = httpx.post(f"{self.url}/api/v2/setup", json={**user, "token": self.TOKEN})
        answer.raise_for_status()

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        await_health(self.url, "InfluxDB")

    def stop(self) -> None:
        """End it as an administrator would."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._log.close()


@contextmanager
def own_server(url: str, folder: Path, *arguments: str) -> Iterator[OwnServer]:
    """An InfluxDB for one test."""
    server = OwnServer(url, folder, *arguments)
    try:
        yield server
    finally:
        server.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'
