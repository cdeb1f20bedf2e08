"""How to look into VictoriaMetrics, by its export API, and how to make it fail."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import httpx

from simulator.modules.base import Job
from simulator.testing.events import TESTED, Losses, Sparse, make_texts
from simulator.testing.server import Refusal
from simulator.workloads.schema import ColumnType, EventBlock, Schema

from .http_proxy import HttpRequest, Refuse
from .http_server import LOST, NO_ANSWER_IN_TIME, HttpServerUnderTest, refused

_SAMPLE = "float64"


def writes(request: HttpRequest) -> bool:
    """Whether a request writes events."""
    return request.method == "POST" and request.target.startswith("/api/v1/import")


class VictoriaMetricsUnderTest(HttpServerUnderTest):
    """The metrics of the tests' workloads on a server, reached by a proxy."""

    column_types: ClassVar[Mapping[ColumnType, str]] = dict.fromkeys(ColumnType, _SAMPLE)
    tables_come_with_events = True
    tells_missing_tables = False
    # It reports the size of all that it has, which merges make smaller: test_victoriametrics.py asks a server
    # of its own.
    tells_size = False

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.db = f'iot "test" {os.getpid()} {uuid.uuid4().hex[:8]}'
        super().__init__(
            "victoriametrics",
            [url],
            writes,
            lambda endpoints: {"endpoint": endpoints[0], "db": self.db},
            stack,
        )
        self.http = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        self._metrics: dict[str, tuple[str, str]] = {}
        """Name of a series -> table and column."""
        for kind in (*TESTED.values(), Sparse):
            self.learn(kind.schema)
        self.learn(make_texts(["a"], in_events=False).schema)
        self.guarded = self.encrypting(authorization="Basic YmVuY2g6cmlnaHQtcGFzc3dvcmQ=")
        """The same server behind TLS, for the user bench with the password right-password."""

    def learn(self, schema: Schema) -> None:
        """Know the series of a workload's tables by their names."""
        tables = [schema.table, *(f"{schema.table}{number}" for number in range(4))]
        for table in tables:
            for name in _names(schema):
                self._metrics[f"{table}:{name}"] = (table, name)

    @classmethod
    @contextmanager
    def started(cls, url: str) -> Iterator[VictoriaMetricsUnderTest]:
        """An adapter with a label of its own: others may be using the rest."""
        with ExitStack() as stack:
            adapter = cls(url, stack)
            stack.callback(adapter.clear)
            yield adapter

    @property
    def _all(self) -> str:
        return f"{{_db={json.dumps(self.db)}}}"

    def _flush(self) -> None:
        self.http.get("/internal/force_flush").raise_for_status()

    def series(self, *tables: str) -> list[dict[str, Any]]:
        """All series of these tables, with the names of table and column instead of their own."""
        self._flush()
        result = []
        answer = self.http.post("/api/v1/export", data={"match[]": self._all, "start": "0"})
        for line in answer.raise_for_status().content.splitlines():
            series = json.loads(line)
            labels = series["metric"]
            assert labels.pop("_db") == self.db
            name = labels.pop("__name__")
            table, column = self._metrics.get(name) or name.split(":", 1)
            if table in tables:
                result.append({**series, "table": table, "column": column})
        return result

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        """Events by labels and time; one that is stored twice is returned twice."""
        events: dict[tuple[str, int, int], dict[str, Any]] = {}
        for series in self.series(table):
            labels = series["metric"]
            seen: dict[int, int] = {}
            for time_ms, value in zip(series["timestamps"], series["values"], strict=True):
                again = seen[time_ms] = seen.get(time_ms, -1) + 1
                key = (json.dumps(labels, sort_keys=True), time_ms, again)
                events.setdefault(key, dict(labels))[series["column"]] = value
        return [
            [self._value(schema, event, name, time_ms) for name in _names(schema)]
            for (_, time_ms, _), event in events.items()
        ]

    def _value(self, schema: Schema, event: dict[str, Any], name: str, time_ms: int) -> Any:
        if name == schema.time:
            return time_ms
        if name == schema.device and schema.device_path:
            fields = set(_names(schema))
            return {key: value for key, value in event.items() if key not in fields}
        column = schema.column(name)
        if column.tag and column.type is not ColumnType.TEXT:
            return json.loads(event[name])
        return event.get(name, "" if column.tag else None)

    def keys(self, table: str) -> list[str]:
        return []

    def tables(self) -> set[str]:
        self._flush()
        answer = self.http.get(
            "/api/v1/label/__name__/values",
            params={"start": "1", "end": "4102444800", "match[]": self._all},
        ).json()
        return {self._metrics[name][0] for name in answer["data"]}

    def columns(self, table: str) -> dict[str, str]:
        columns: dict[str, str] = {}
        for series in self.series(table):
            columns |= dict.fromkeys(series["metric"], "label") | {series["column"]: _SAMPLE}
        return columns

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        columns = super().expected_columns(schema)
        # Each sample has a time, which is no column.
        del columns[schema.time]
        return (
            columns | {schema.device: "label"} | {c.name: "label" for c in schema.columns if c.tag}
        )

    def indices(self, table: str) -> set[str]:
        return set()

    marks: ClassVar = False

    def make_neighbour(self, name: str) -> object:
        # Other names than those of the workload's columns are nobody's tables.
        labels = {"__name__": f"{name}:temperature", "_db": self.db, "serial": "seven"}
        line = {"metric": labels, "values": [7], "timestamps": [1_704_067_200_000]}
        self.http.post("/api/v1/import", content=json.dumps(line)).raise_for_status()
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        self._flush()
        match = {
            "match[]": f'{{__name__="{name}:temperature",_db={json.dumps(self.db)}}}',
            "start": "0",
        }
        return self.http.post("/api/v1/export", data=match).raise_for_status().text

    def clear(self) -> None:
        self._flush()
        self._delete(self._all)

    def _delete(self, selector: str) -> None:
        answer = self.http.post("/api/v1/admin/tsdb/delete_series", data={"match[]": selector})
        answer.raise_for_status()

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        pairs = [(device, name) for device, names in losses.items() for name in names]
        for table in job.table_names:
            for device, name in pairs:
                labels = {
                    "__name__": f"{table}:{name}",
                    "_db": self.db,
                    block.schema.device: device,
                }
                conditions = [f"{label}={json.dumps(value)}" for label, value in labels.items()]
                self._delete(f"{{{','.join(conditions)}}}")

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        refusals = self.unreachable(secret, username="bench", password=secret)
        [url] = self.guarded.endpoints
        wrong = {
            "endpoint": url, "ca_certs": self.trusted, "username": "bench", "password": secret,
        }  # fmt: skip
        here = url.removeprefix("https://")
        refusals.append(Refusal(wrong, here, "check username and password", secret))
        untrusted = {"endpoint": url, "username": "bench", "password": secret}
        refusals.append(Refusal(untrusted, here, "ca_certs", secret))
        return refusals

    FAULTS = (
        *LOST,
        NO_ANSWER_IN_TIME,
        refused(
            "unavailable", "unavailable",
            Refuse(503, "cannot process insert request for 1m0s", {"Retry-After": "1"}), 1,
        ),
    )  # fmt: skip


def _names(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns]
