"""Client CPU per event: generating, encoding and sending to Azure Data Explorer, without the service's.

    python -m benchmarks.adx_cost [--quick]

The real insert loop with the real writer against a server in a process of its own that accepts each
request, blob and message, so no service is measured. It's compared with Microsoft's own way: a line of
CSV per event and `ingest_from_stream` of its clients for queued and streaming ingestion. The best round
of each counts, since other work on the machine can only add to CPU time.

Goal: <= 0.8 µs at batch 1,000. That is for one machine, so `--quick`, meant for any, judges the ratio to
Microsoft's way instead: <= 0.15.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO, StringIO

from azure.kusto.data import KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat
from azure.kusto.ingest import (
    IngestionProperties,
    KustoStreamingIngestClient,
    QueuedIngestClient,
    StreamDescriptor,
)

from simulator.contract import Load, PrimaryKey
from simulator.modules.azure_data_explorer import AzureDataExplorer
from simulator.modules.azure_data_explorer.encoding import InsertMode
from simulator.modules.azure_data_explorer.options import AdxOptions
from simulator.modules.base import Job
from simulator.modules.options import parse_options

from .client_cost import Event, batches, generate_events
from .support import (
    Cost,
    conclude_cost,
    figures,
    http_server,
    is_quick,
    show,
    temperature,
    worker_path,
)

GOAL_US, QUICK_GOAL = 0.8, 0.15
EVENTS = 100_000
CASES = [(mode, batch) for mode in InsertMode for batch in (1_000, 10_000)]

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


def answer(url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
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


def ours(url: str, mode: InsertMode, batch: int, events: int) -> Cost:
    """A worker's own path."""
    queued = "true" if mode is InsertMode.QUEUED else "false"
    values = {"kusto_uri": url, "kusto_db": "bench", "batch": queued}
    options = parse_options(AdxOptions, values, str)
    job = Job(temperature().schema, Load(batch=batch, primary_key=PrimaryKey.NONE))
    module = AzureDataExplorer(options, job)
    return worker_path(module.writer(batch), temperature(), events, batch)


def microsofts_way(url: str, mode: InsertMode, batch: int, events: int) -> Cost:
    """`ingest_from_stream` of lines made event by event."""
    kind = QueuedIngestClient if mode is InsertMode.QUEUED else KustoStreamingIngestClient
    properties = IngestionProperties("bench", "events", data_format=DataFormat.CSV)
    with kind(KustoConnectionStringBuilder.with_no_authentication(url)) as client:
        cpu, wall = time.process_time(), time.perf_counter()
        for chunk in batches(generate_events(events), batch):
            body = BytesIO(_lines(chunk))
            client.ingest_from_stream(StreamDescriptor(body), properties)
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


def main() -> int:
    """Run all cases; 0 if the goal is met."""
    quick = is_quick(__doc__)
    events, rounds = (EVENTS // 5, 2) if quick else (EVENTS, 5)
    rows = []
    judged = ratio = 0.0
    with http_server(answer) as url:
        for mode, batch in CASES:
            costs = []
            theirs = float("inf")
            for _ in range(rounds):
                costs.append(ours(url, mode, batch, events))
                theirs = min(theirs, microsofts_way(url, mode, batch, events).us)
            cost = min(costs, key=lambda found: found.us)
            if batch == 1_000:
                judged, ratio = max(judged, cost.us), max(ratio, cost.us / theirs)
            ratio_text = f"{cost.us / theirs:.3f}"
            rows.append([str(mode), f"{batch:,}", *figures(cost, theirs), ratio_text])
    show(
        ["Mode", "Batch", "Generate", "Encode", "Send", "All µs", "Microsoft's way µs", "Ratio"],
        rows,
    )
    return conclude_cost("adx_cost", judged, GOAL_US, ratio, QUICK_GOAL, quick)


if __name__ == "__main__":
    sys.exit(main())
