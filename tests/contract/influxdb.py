"""How to look into InfluxDB, by InfluxQL and not by Flux as the module does, and how to make it fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest

from simulator.modules.base import Job
from simulator.workloads.base import ColumnType, Schema

from ..certificates import self_signed
from ..helpers import eventually
from .http_proxy import DropAnswer, DropRequest, Fate, HttpProxy, Refuse, proxy_to
from .server import Fault, Refusal, ServerUnderTest, Strike


def writes(method: str, path: str) -> bool:
    """Whether a request writes events."""
    return method == "POST" and path.startswith("/api/v2/write")


def refuse(status: int, message: str, **headers: str) -> Refuse:
    """An error as InfluxDB words it."""
    body = json.dumps({"code": "unavailable", "message": message}).encode()
    return Refuse(status, body, {"Content-Type": "application/json", **headers})


class InfluxUnderTest(ServerUnderTest):
    """A bucket of its own on an InfluxDB server, reached by a proxy."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "integer",
        ColumnType.INT64: "integer",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "float",
        ColumnType.TEXT: "string",
        ColumnType.JSON: "string",
    }
    tables_come_with_events = True
    reconnects_unasked = True
    locks = False

    def __init__(self, url: str, org: str, token: str, bucket: str, folder: Path) -> None:
        self.proxy = HttpProxy(url, writes)
        self._real_url = url
        self._folder = folder
        self.bucket, self.org = bucket, org
        super().__init__(
            "influxdb",
            {"endpoint": self.proxy.url, "org": org, "token": token, "bucket": bucket},
        )
        self.http = httpx.Client(
            base_url=url, headers={"Authorization": f"Token {token}"}, timeout=30
        )
        self._silent = socket.create_server(("127.0.0.1", 0))
        """Takes connections and never answers."""
        self._closed = socket.socket()
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))

    def close(self) -> None:
        """Drop the bucket and disconnect."""
        self.clear()
        self.http.close()
        self.proxy.close()
        self._silent.close()
        self._closed.close()

    @classmethod
    @contextmanager
    def started(
        cls, request: pytest.FixtureRequest, url: str, org: str, token: str
    ) -> Iterator[InfluxUnderTest]:
        """A bucket of a name of its own: others may be using the rest."""
        folder = request.getfixturevalue("tmp_path_factory").mktemp("influxdb")
        bucket = f"iot test {os.getpid()} ${{}} {uuid.uuid4().hex[:8]}"
        found = cls(url, org, token, bucket, folder)
        try:
            yield found
        finally:
            found.close()

    def asked(self, statement: str) -> list[dict[str, Any]]:
        """The series of an InfluxQL statement's answer; the bucket's name is that of its database."""
        answer = self.http.get(
            "/query", params={"db": self.bucket, "q": statement, "epoch": "ms"}
        ).json()
        [result] = answer["results"]
        series: list[dict[str, Any]] = result.get("series", [])
        return series

    def buckets(self) -> list[dict[str, Any]]:
        """The bucket, as often as it is there."""
        answer = self.http.get("/api/v2/buckets", params={"org": self.org, "name": self.bucket})
        found: list[dict[str, Any]] = answer.json().get("buckets", [])
        return found

    def make_bucket(self, **changes: Any) -> None:
        """As an administrator would."""
        [org] = self.http.get("/api/v2/orgs", params={"org": self.org}).json()["orgs"]
        bucket = {"orgID": org["id"], "name": self.bucket, "retentionRules": [], **changes}
        self.http.post("/api/v2/buckets", json=bucket).raise_for_status()

    def write(self, lines: str) -> None:
        """Line protocol with times in nanoseconds, by nobody's module."""
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
                found = dict(zip(series["columns"], values, strict=True))
                rows.append([self._value(schema, found, column.name) for column in schema.columns])
        return rows

    def _value(self, schema: Schema, found: dict[str, Any], name: str) -> Any:
        if name == schema.time:
            return found["time"]
        if name == schema.device and schema.device_path:
            fields = {column.name for column in schema.columns}
            return {k: v for k, v in found.items() if k not in fields | {"time"}}
        if schema.column(name).type is ColumnType.JSON:
            return json.loads(found[name])
        return found[name]

    def keys(self, table: str) -> list[str]:
        return []

    def tables(self) -> set[str]:
        return {name for series in self.asked("SHOW MEASUREMENTS") for [name] in series["values"]}

    def columns(self, table: str) -> dict[str, str]:
        fields = self.asked(f"SHOW FIELD KEYS FROM {_quoted(table)}")
        tags = self.asked(f"SHOW TAG KEYS FROM {_quoted(table)}")
        found = {name: kind for series in fields for name, kind in series["values"]}
        return found | {name: "tag" for series in tags for [name] in series["values"]}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        """Of a schema without tags of its own."""
        found = super().expected_columns(schema)
        # Each point has a time, which is no column.
        del found[schema.time]
        return found | {schema.device: "tag"}

    def indices(self, table: str) -> set[str]:
        return set()

    def clear(self) -> None:
        for bucket in self.buckets():
            self.http.delete(f"/api/v2/buckets/{bucket['id']}").raise_for_status()

    def connections(self, run_id: str) -> set[str]:
        return {str(n) for n in self.proxy.connections(f"iot-benchmark/{run_id}").values()}

    def kill_connections(self, run_id: str) -> int:
        found = self.proxy.connections(f"iot-benchmark/{run_id}")
        self.proxy.cut(found)
        return len(found)

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-t0ken"
        here = self.proxy.url.removeprefix("http://")
        ports = [found.getsockname()[1] for found in (self._closed, self._silent)]
        refusals = [
            Refusal(
                {"endpoint": f"http://127.0.0.1:{port}", "token": secret},
                f"127.0.0.1:{port}",
                "check that the server runs",
                secret,
            )
            for port in ports
        ]
        right = self.options["token"]
        refusals.append(Refusal({"token": secret}, here, "check token", secret))
        refusals.append(Refusal({"org": "no such org"}, here, "check org", right))
        return refusals

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def fated(self, fate: Fate, wait_s: float = 0.0) -> Iterator[Strike]:
        """The proxy does something to the next write; it is not sent again before `wait_s`."""

        def blow() -> None:
            self.proxy.write_times.clear()
            self.proxy.fate = fate

        yield Strike(blow)
        assert self.proxy.fate is None, "no request met its fate"
        if wait_s:
            assert self.proxy.write_times[1] - self.proxy.write_times[0] >= wait_s

    @contextmanager
    def away(self, job: Job) -> Iterator[Strike]:
        """The connection is cut, and for two attempts there is no server."""

        def blow() -> None:
            self.kill_connections(job.run_id)
            self.proxy.refusals = 2

        yield Strike(blow)
        assert not self.proxy.refusals

    FAULTS = (
        Fault(
            "answer lost", {"connection_lost": 1},
            lambda server, job: server.fated(DropAnswer()), thorough=True,
        ),
        Fault(
            "request lost", {"connection_lost": 1},
            lambda server, job: server.fated(DropRequest()),
        ),
        Fault("away for a while", {"connection_lost": 2}, away),
        Fault(
            "too many requests", {"too_many_requests": 1},
            lambda server, job: server.fated(refuse(429, "slow down", **{"Retry-After": "1"}), 1),
        ),
        Fault(
            "unavailable", {"unavailable": 1},
            lambda server, job: server.fated(refuse(503, "unavailable", **{"Retry-After": "1"}), 1),
        ),
        Fault(
            "cache full", {"cache_full": 1},
            lambda server, job: server.fated(
                refuse(500, "unexpected error writing points to database: engine: cache-max-memory-size"
                " exceeded: (1073741847/1073741824)")
            ),
        ),
    )  # fmt: skip

    @contextmanager
    def encrypted(self) -> Iterator[tuple[str, Path]]:
        """(URL, certificate) of the same server behind TLS."""
        certificate = self_signed(self._folder)
        with proxy_to(self._real_url, writes, certificate) as proxy:
            yield proxy.url, certificate


class OwnServer:
    """An InfluxDB that a test may stop: another process of the program that serves `url`."""

    ORG, TOKEN = "own", "own-token"

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        port = httpx.URL(url).port
        pids = [
            found.pid
            for found in psutil.net_connections("tcp")
            if found.status == psutil.CONN_LISTEN and found.laddr[1:] == (port,) and found.pid
        ]
        if not pids:
            pytest.skip("the server must be a process of this machine")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self._command = [
            psutil.Process(pids[0]).exe(), f"--http-bind-address={address}", "--reporting-disabled",
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

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/health").status_code == httpx.codes.OK
            return False

        eventually(answers, "answer from InfluxDB")

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
    found = OwnServer(url, folder, *arguments)
    try:
        yield found
    finally:
        found.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'
