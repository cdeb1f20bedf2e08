"""Client CPU per event of databases by HTTP: generating, encoding and sending, without the server's.

    python -m benchmarks.http_cost [--quick]

The real insert loop with the real writer against a server in a process of its own that reads each request
(Azure: also each blob and message) and answers that everything is stored, so no database is measured.
Beside it the usual way: `insert_many` of ArangoDB's client with a dictionary per event; for CrateDB a list
per event, the standard library's JSON and HTTP; for Azure Data Explorer a line of CSV per event and
`ingest_from_stream` of Microsoft's clients. The best round of each counts, since other work on the machine
can only add to CPU time.

Goal: <= 0.8 µs at batch 1,000 (with keys made by the server, where there are keys). That is for one machine,
so `--quick`, meant for any, judges the ratio to the usual way instead: see `SYSTEMS`.
"""

from __future__ import annotations

import csv
import http.client
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO, StringIO
from typing import NamedTuple
from urllib.parse import urlsplit

from arango.client import ArangoClient
from azure.kusto.data import KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat
from azure.kusto.ingest import (
    IngestionProperties,
    KustoStreamingIngestClient,
    QueuedIngestClient,
    StreamDescriptor,
)

from simulator.contract import Load, PrimaryKey
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.options import parse_options

from .client_cost import Event, batches, generate_events
from .support import (
    Answering,
    Cost,
    conclude_cost,
    figures,
    http_server,
    is_quick,
    show,
    temperature,
    worker_path,
)

GOAL_US = 0.8
EVENTS = 100_000
BATCHES = (1_000, 10_000)


class Mode(NamedTuple):
    """One way of inserting."""

    name: str
    options: Mapping[str, str]
    key: PrimaryKey


@dataclass(frozen=True)
class System:
    """A database, and what is usual beside our own path."""

    address: str
    """The option that has the server's URL."""
    options: Mapping[str, str]
    modes: Sequence[Mode]
    judged: PrimaryKey
    """The goal is for this key."""
    answer: Answering
    usual: Callable[[str, str, int, int], Cost]
    """(URL, mode, batch, events)."""
    quick_goal: float


# --- ArangoDB -------------------------------------------------------------------------------------


def answer_arangodb(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each request that all of it is stored."""
    if b"/_api/import" in request:
        found = 201, b'{"created":%d,"ignored":0}' % (body.count(b"\n") + 1)
    else:
        found = 200 if b"/_api/version" in request else 202, b"{}"
    return found[0], "application/json", found[1]


def insert_many(url: str, _: str, batch: int, events: int) -> Cost:
    """A dictionary per event."""
    client = ArangoClient(hosts=url)
    collection = client.db("_system").collection("events")
    cpu, wall = time.process_time(), time.perf_counter()
    for chunk in batches(generate_events(events), batch):
        collection.insert_many([vars(event) for event in chunk], silent=True)
    cost = Cost(events, time.perf_counter() - wall, time.process_time() - cpu)
    client.close()
    return cost


# --- CrateDB --------------------------------------------------------------------------------------

_INSERT = (
    'INSERT INTO "events" ("timestamp", "device_id", "sequence_number", "temperature")'
    " VALUES (?, ?, ?, ?)"
)


def answer_cratedb(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each statement that all of it is stored."""
    asked = json.loads(body)
    found: dict[str, object] = {"cols": ["1"], "rows": [[1]], "rowcount": 1}
    if "bulk_args" in asked:
        found = {"cols": [], "results": [{"rowcount": 1}] * len(asked["bulk_args"])}
    elif "args" in asked:
        found = {"cols": [], "rows": [], "rowcount": len(asked["args"][0])}
    return 200, "application/json", json.dumps(found, separators=(",", ":")).encode()


def execute_many(url: str, _: str, batch: int, events: int) -> Cost:
    """A list per event, as a client's `executemany` takes them."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    cpu, wall = time.process_time(), time.perf_counter()
    for chunk in batches(generate_events(events), batch):
        rows = [[e.timestamp, e.device_id, e.sequence_number, e.temperature] for e in chunk]
        body = json.dumps({"stmt": _INSERT, "bulk_args": rows})
        connection.request("POST", "/_sql", body, {"content-type": "application/json"})
        stored = json.loads(connection.getresponse().read())["results"]
        if any(result["rowcount"] != 1 for result in stored):
            raise AssertionError("not all rows are stored")
    cost = Cost(events, time.perf_counter() - wall, time.process_time() - cpu)
    connection.close()
    return cost


# --- Azure Data Explorer --------------------------------------------------------------------------

_RESOURCES = {
    "TempStorage": "container",
    "SecuredReadyForAggregationQueue": "queue",
    "FailedIngestionsQueue": "failed",
    "SuccessfulIngestionsQueue": "successful",
    "IngestionsStatusTable": "status",
}
_QUEUED = (
    b"<?xml version='1.0'?><QueueMessagesList><QueueMessage><MessageId>1</MessageId>"
    b"<InsertionTime>Mon, 01 Jan 2024 00:00:00 GMT</InsertionTime>"
    b"<ExpirationTime>Mon, 08 Jan 2024 00:00:00 GMT</ExpirationTime><PopReceipt>1</PopReceipt>"
    b"<TimeNextVisible>Mon, 01 Jan 2024 00:00:00 GMT</TimeNextVisible>"
    b"</QueueMessage></QueueMessagesList>"
)


def answer_azure(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Accept what is ingested; say where blobs and messages go: here."""
    if request.startswith(b"PUT "):
        return 201, "application/xml", b""
    if b"/messages?" in request:
        return 201, "application/xml", _QUEUED
    if b"/mgmt" not in request:
        return 200, "application/json", _table([], [])
    if b"resources" in body:
        # A signature is about as long as Azure's.
        rows = [[kind, f"{url}/{name}?sig={'x' * 200}"] for kind, name in _RESOURCES.items()]
        return 200, "application/json", _table(["ResourceTypeName", "StorageRoot"], rows)
    if b"token" in body:
        return 200, "application/json", _table(["AuthorizationContext"], [["x" * 500]])
    return 200, "application/json", _table(["ServiceType"], [["DataManagement"]])


def _table(names: Iterable[str], rows: list[list[str]]) -> bytes:
    columns = [{"ColumnName": name, "DataType": "String", "ColumnType": "string"} for name in names]
    table = {"TableName": "Table_0", "Columns": columns, "Rows": rows}
    return json.dumps({"Tables": [table]}).encode()


def ingest_from_stream(url: str, mode: str, batch: int, events: int) -> Cost:
    """Lines made event by event."""
    kind = QueuedIngestClient if mode == "queued" else KustoStreamingIngestClient
    properties = IngestionProperties("bench", "events", data_format=DataFormat.CSV)
    with kind(KustoConnectionStringBuilder.with_no_authentication(url)) as client:
        cpu, wall = time.process_time(), time.perf_counter()
        for chunk in batches(generate_events(events), batch):
            client.ingest_from_stream(StreamDescriptor(BytesIO(_lines(chunk))), properties)
        return Cost(events, time.perf_counter() - wall, time.process_time() - cpu)


def _lines(events: Iterable[Event]) -> bytes:
    file = StringIO()
    writer = csv.writer(file)
    for event in events:
        moment = datetime.fromtimestamp(event.timestamp / 1000, UTC)
        writer.writerow(
            [moment.isoformat(), event.device_id, event.sequence_number, event.temperature]
        )
    return file.getvalue().encode()


# --- all ------------------------------------------------------------------------------------------

_KEYS = (PrimaryKey.DB, PrimaryKey.CLIENT)
SYSTEMS = {
    "arangodb": System(
        "endpoint", {},
        [Mode(m, {"insert_method": m}, key) for m in ("document", "import") for key in _KEYS],
        PrimaryKey.DB, answer_arangodb, insert_many, quick_goal=0.35,
    ),
    "cratedb": System(
        "endpoint", {},
        [Mode(m, {"insert_mode": m}, key) for m in ("bulk", "unnest") for key in _KEYS],
        PrimaryKey.DB, answer_cratedb, execute_many, quick_goal=0.5,
    ),
    "azure_data_explorer": System(
        "kusto_uri", {"kusto_db": "bench"},
        [
            Mode("queued", {"batch": "true"}, PrimaryKey.NONE),
            Mode("streaming", {"batch": "false"}, PrimaryKey.NONE),
        ],
        PrimaryKey.NONE, answer_azure, ingest_from_stream, quick_goal=0.15,
    ),
}  # fmt: skip


def measure_own(name: str, url: str, mode: Mode, batch: int, events: int) -> Cost:
    """A worker's own path."""
    module_type, system = load_module(name), SYSTEMS[name]
    values = {system.address: url, **system.options, **mode.options}
    options = parse_options(module_type.options_model, values, str)
    module = module_type(
        options, Job(temperature().schema, Load(batch=batch, primary_key=mode.key))
    )
    return worker_path(module.writer(batch), temperature(), events, batch)


def judge(name: str, quick: bool) -> int:
    """All modes of a system; 0 if its goal is met."""
    system = SYSTEMS[name]
    events, rounds = (EVENTS // 5, 2) if quick else (EVENTS, 5)
    rows = []
    judged = ratio = 0.0
    with http_server(system.answer) as url:
        for mode in system.modes:
            for batch in BATCHES:
                costs = [measure_own(name, url, mode, batch, events) for _ in range(rounds)]
                usual = [system.usual(url, mode.name, batch, events).us for _ in range(rounds)]
                cost = min(costs, key=lambda found: found.us)
                if batch == BATCHES[0] and mode.key is system.judged:
                    judged, ratio = max(judged, cost.us), max(ratio, cost.us / min(usual))
                rows.append([mode.name, str(mode.key), f"{batch:,}", *figures(cost, min(usual))])
    show(
        ["Mode", "Key", "Batch", "Generate", "Encode", "Send", "All µs", "Usual µs"], rows, texts=2
    )
    return conclude_cost(f"http_cost {name}", judged, GOAL_US, ratio, system.quick_goal, quick)


def main() -> int:
    """Measure all; 0 if all goals are met."""
    quick = is_quick(__doc__)
    return max([judge(name, quick) for name in SYSTEMS])


if __name__ == "__main__":
    sys.exit(main())
