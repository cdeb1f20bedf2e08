"""How events are usually sent, one by one: generated as objects, written as text or dictionaries, by a
vendor's client; and stand-ins for servers by HTTP.

A way is a context manager, connected, which yields what sends a batch of events. A stand-in reads each
request (Azure: also each blob and message) and answers that everything is stored.
"""

from __future__ import annotations

import csv
import http.client
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO, StringIO
from typing import Any
from urllib.parse import urlsplit

import psycopg2
from arango.client import ArangoClient
from azure.kusto.data import KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat
from azure.kusto.ingest import (
    IngestionProperties,
    KustoStreamingIngestClient,
    QueuedIngestClient,
    StreamDescriptor,
)
from psycopg2.extensions import connection as Connection  # noqa: N812 - it is a class
from psycopg2.extras import execute_values

from simulator.workloads.cpu import METRICS, Cpu


@dataclass
class Event:
    """An event as an object, as the reference has it."""

    timestamp: int
    device_id: str
    sequence_number: int
    temperature: float


def generate_events(count: int) -> Iterator[Event]:
    """Events one by one."""
    timestamp = 1_704_067_200_000
    for number in range(count):
        timestamp += random.randint(300, 600)
        yield Event(timestamp, "w00000d000000", number, random.uniform(-20, 35))


@dataclass
class Measurement:
    """An event of the workload cpu as an object."""

    tags: dict[str, str]
    ts: int
    metrics: list[int]


def generate_measurements(count: int) -> Iterator[Measurement]:
    """Events of the workload cpu one by one."""
    document = Cpu().block(0, 0, 1).columns["tags"].tolist()[0]
    for number in range(count):
        metrics = [random.randint(0, 100) for _ in METRICS]
        yield Measurement(json.loads(document), 1_704_067_200_000 + number * 1000, metrics)


Send = Callable[[Sequence[Any]], None]
"""Sends a batch of events."""
Way = Callable[[str, str], AbstractContextManager[Send]]
"""(URL or connection string, mode)."""


# --- PostgreSQL -----------------------------------------------------------------------------------

_COLUMNS = ("timestamp", "device_id", "sequence_number", "temperature")
_INSERT = f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES"


def by_psycopg2(send: Callable[[Connection, Sequence[Any]], None]) -> Way:
    """A way that commits each batch."""

    @contextmanager
    def way(dsn: str, _: str) -> Iterator[Send]:
        with closing(psycopg2.connect(dsn)) as connection:

            def send_and_commit(chunk: Sequence[Any]) -> None:
                send(connection, chunk)
                connection.commit()

            yield send_and_commit

    return way


def copy(connection: Connection, events: Sequence[Event]) -> None:
    """A formatted line per event."""
    file = StringIO()
    for e in events:
        file.write(f"{e.timestamp}\t{e.device_id}\t{e.sequence_number}\t{e.temperature}\n")
    _copy_file(connection, file, "events", _COLUMNS)


def copy_cpu(connection: Connection, events: Sequence[Measurement]) -> None:
    """The same for the workload cpu."""
    file = StringIO()
    for e in events:
        values = "\t".join(map(str, e.metrics))
        file.write(f"{json.dumps(e.tags)}\t{e.ts}\t{values}\n")
    _copy_file(connection, file, "cpu", ("tags", "ts", *METRICS))


def _copy_file(
    connection: Connection, file: StringIO, table: str, columns: tuple[str, ...]
) -> None:
    file.seek(0)
    with connection.cursor() as cursor:
        cursor.copy_from(file, table, columns=columns)


def _values(events: Iterable[Event]) -> list[tuple[object, ...]]:
    return [(e.timestamp, e.device_id, e.sequence_number, e.temperature) for e in events]


def values_lists(connection: Connection, events: Sequence[Event]) -> None:
    """psycopg2's own lists of values."""
    with connection.cursor() as cursor:
        execute_values(cursor, f"{_INSERT} %s", _values(events), page_size=len(events))


def statements(connection: Connection, events: Sequence[Event]) -> None:
    """A statement with parameters for each event."""
    with connection.cursor() as cursor:
        for values in _values(events):
            cursor.execute(f"{_INSERT} (%s, %s, %s, %s)", values)


# --- ArangoDB -------------------------------------------------------------------------------------


def answer_arangodb(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each request that all of it is stored."""
    if b"/_api/import" in request:
        answer = 201, b'{"created":%d,"ignored":0}' % (body.count(b"\n") + 1)
    else:
        answer = 200 if b"/_api/version" in request else 202, b"{}"
    return answer[0], "application/json", answer[1]


@contextmanager
def insert_many(url: str, _: str) -> Iterator[Send]:
    """A dictionary per event."""
    with closing(ArangoClient(hosts=url)) as client:
        collection = client.db("_system").collection("events")

        def send(events: Sequence[Event]) -> None:
            collection.insert_many([vars(event) for event in events], silent=True)

        yield send


# --- CrateDB --------------------------------------------------------------------------------------

_CRATEDB_INSERT = (
    'INSERT INTO "events" ("timestamp", "device_id", "sequence_number", "temperature")'
    " VALUES (?, ?, ?, ?)"
)


def answer_cratedb(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
    """Say of each statement that all of it is stored."""
    statement = json.loads(body)
    answer: dict[str, object] = {"cols": ["1"], "rows": [[1]], "rowcount": 1}
    if "bulk_args" in statement:
        answer = {"cols": [], "results": [{"rowcount": 1}] * len(statement["bulk_args"])}
    elif "args" in statement:
        answer = {"cols": [], "rows": [], "rowcount": len(statement["args"][0])}
    return 200, "application/json", json.dumps(answer, separators=(",", ":")).encode()


@contextmanager
def execute_many(url: str, _: str) -> Iterator[Send]:
    """A list per event, as a client's `executemany` takes them."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:

        def send(events: Sequence[Event]) -> None:
            rows = [[e.timestamp, e.device_id, e.sequence_number, e.temperature] for e in events]
            body = json.dumps({"stmt": _CRATEDB_INSERT, "bulk_args": rows})
            connection.request("POST", "/_sql", body, {"content-type": "application/json"})
            stored = json.loads(connection.getresponse().read())["results"]
            if any(result["rowcount"] != 1 for result in stored):
                raise AssertionError("not all rows are stored")

        yield send


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


@contextmanager
def ingest_from_stream(url: str, mode: str) -> Iterator[Send]:
    """Lines made event by event."""
    kind = QueuedIngestClient if mode == "queued" else KustoStreamingIngestClient
    properties = IngestionProperties("bench", "events", data_format=DataFormat.CSV)
    with kind(KustoConnectionStringBuilder.with_no_authentication(url)) as client:
        yield lambda events: client.ingest_from_stream(
            StreamDescriptor(BytesIO(_lines(events))), properties
        )


def _lines(events: Iterable[Event]) -> bytes:
    file = StringIO()
    writer = csv.writer(file)
    for event in events:
        moment = datetime.fromtimestamp(event.timestamp / 1000, UTC)
        writer.writerow(
            [moment.isoformat(), event.device_id, event.sequence_number, event.temperature]
        )
    return file.getvalue().encode()
