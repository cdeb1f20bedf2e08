"""What is specific to Azure Data Explorer and needs no server: CSV, options, messages, KQL."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.kusto.data.data_format import DataFormat, IngestionMappingKind
from azure.kusto.data.exceptions import KustoAuthenticationError
from azure.kusto.ingest import BlobDescriptor, IngestionProperties
from azure.kusto.ingest.base_ingest_client import BaseIngestClient
from azure.kusto.ingest.ingestion_blob_info import IngestionBlobInfo

from simulator.contract import Load, StoredPart, Tables
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.azure_data_explorer import AdxOptions, AzureDataExplorer
from simulator.modules.azure_data_explorer.ingestion import (
    MAPPING,
    CsvEncoder,
    encode_devices,
    make_message,
)
from simulator.modules.azure_data_explorer.queries import (
    compile_query,
    select_ids,
    select_stored,
)
from simulator.modules.azure_data_explorer.server import (
    Connection,
    ask_extents,
    check_rows,
    read_error,
)
from simulator.modules.base import Job
from simulator.modules.kit.http_answer import Answer
from simulator.modules.options import parse_options
from simulator.testing.server import new_job
from simulator.testing.suite.test_answers import APART, list_queries
from simulator.testing.suite.test_answers import WORKLOADS as DESCRIBED
from simulator.testing.suite.test_tags import READING, TRUCKS
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery, Stored, bind, draw
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, Schema, Tags
from simulator.workloads.temperature import Temperature

JOB = Job(Temperature.schema, Load(batch=10))
HERE = {"kusto_uri": "http://127.0.0.1:1", "kusto_db": "x"}
THERE = {"kusto_uri": "https://name.region.kusto.windows.net", "kusto_db": "x"}
LOGIN = {"adx_aad_app_id": "an-id", "adx_app_key": "a-s3cret", "adx_authority_id": "a-tenant"}


def options(**values: Any) -> AdxOptions:
    return parse_options(AdxOptions, values, str)


# --- CSV ------------------------------------------------------------------------------------------


def test_a_line() -> None:
    block = Temperature(seed=4, device_spread=2).block(3, 10, 2)
    [payload] = CsvEncoder(Job(Temperature.schema, Load(batch=5))).encode(block)
    [part] = payload.data
    text = gzip.decompress(part.body)
    assert (part.table, part.size) == ("events", len(text))
    last = part.block.key_of(len(part.block) - 1)
    assert last["device_id"] == "w00003d000001"
    assert last["timestamp"] == block.columns["timestamp"][1]
    first, _ = text.decode().split("\n")
    time, device, number, value = first.split(",")
    assert time.startswith("2024-01-01T00:00:04.")
    assert (device, number) == ('"w00003d000000"', "10")
    assert value == f"{block.columns['temperature'][0]:.2f}"


def test_documents_are_quoted() -> None:
    block = Cpu(seed=1).block(0, 0, 1)
    [part] = CsvEncoder(Job(Cpu.schema)).encode(block)[0].data
    assert gzip.decompress(part.body).startswith(b'"{""arch"":""x64"",""datacenter"":')


@pytest.mark.parametrize(("batch", "sizes"), [(4, [4, 4, 1]), (100, [9]), (0, [1] * 9)])
def test_events_are_dealt_to_the_tables_by_their_number(batch: int, sizes: list[int]) -> None:
    block = Temperature().block(0, 6, 9)
    job = Job(Temperature.schema, Load(batch=batch, tables=Tables.MULTIPLE))
    payloads = CsvEncoder(job).encode(block)
    assert [payload.events for payload in payloads] == sizes
    tables = {}
    for payload in payloads:
        for part in payload.data:
            for line in gzip.decompress(part.body).decode().split("\n"):
                tables[int(line.split(",")[2])] = part.table
    assert tables == {number: f"events{number % 4}" for number in range(6, 15)}


# --- options --------------------------------------------------------------------------------------


def test_a_login_is_needed_but_for_a_stand_in() -> None:
    options(**HERE).check_login()
    options(**THERE, **LOGIN).check_login()
    for name in LOGIN:
        incomplete = {key: value for key, value in LOGIN.items() if key != name}
        for place in (HERE, THERE):
            with pytest.raises(OptionError, match=f"option {name} is missing.*existingSecret"):
                options(**place, **incomplete).check_login()
    with pytest.raises(OptionError, match="option adx_aad_app_id, adx_app_key, adx_authority_id"):
        options(**THERE).check_login()


def test_the_key_is_a_secret() -> None:
    adx_options = options(**THERE, **LOGIN)
    assert adx_options.secrets() == ["a-s3cret"]
    assert "a-s3cret" not in repr(adx_options)
    assert adx_options.public()["adx_app_key"] == "***"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("name.kusto.windows.net", "must be a URL like https://name"),
        ("http://name.kusto.windows.net", "must begin with https://"),
        ("https://name.kusto.windows.net;Fed=True", "must be a URL like https://name"),
    ],
)
def test_a_uri_that_is_none(uri: str, text: str) -> None:
    for key in ("kusto_uri", "kusto_ingest_uri"):
        with pytest.raises(OptionError, match=f"option {key}: .*{text}"):
            options(**(HERE | {key: uri}))


@pytest.mark.parametrize("batch", ["true", "false"])
def test_a_worker_may_have_several_requests_in_flight(batch: str) -> None:
    several = new_job(Temperature.schema, batch=10, in_flight=4)
    module = AzureDataExplorer(options(**HERE, batch=batch), several)
    assert module.writer().max_in_flight == 4


@pytest.mark.parametrize(
    "uri",
    [
        "https://name.region.kusto.windows.net",
        "https://ingest-name.region.kusto.windows.net",
        "https://10.1.2.3:8443",
        "http://localhost:8080",
        "http://127.0.0.1:8080",
    ],
)
def test_where_to_ingest_is_what_microsofts_client_takes_it_for(uri: str) -> None:
    adx_options = options(kusto_uri=uri, kusto_db="x")
    assert adx_options.ingest_uri == BaseIngestClient.get_ingestion_endpoint(uri)
    other = options(kusto_uri=uri, kusto_db="x", kusto_ingest_uri="https://other.example")
    assert other.ingest_uri == "https://other.example"


def test_errors_of_the_clients_say_what_to_do() -> None:
    connection = Connection(options(**HERE), JOB)
    login = connection.interpret(
        KustoAuthenticationError("key", ValueError("AADSTS7000215:\nno"), x=1)
    )
    assert str(login) == (
        "can't log in to 127.0.0.1:1: AADSTS7000215: no; check adx_aad_app_id, adx_app_key and"
        " adx_authority_id"
    )
    connection.close()


def kusto_error(code: str, permanent: bool, text: str = "why") -> bytes:
    error = {"code": code, "message": "x", "@message": text, "@permanent": permanent}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (429, b"", "throttled", "127.0.0.1:1 throttled the request"),
        (503, kusto_error("Internal", False), "server_error", "Internal: why"),
        (400, kusto_error("BadRequest", True), None, "refused a request: BadRequest: why"),
        (400, kusto_error("BadRequest_EntityNotFound", True), None, "run insert first"),
        (401, b"", None, "refused the login: 401.*ingestor and admin of the database x"),
        (403, kusto_error("Forbidden", True), None, "refused the login: Forbidden: why; make the"),
        (404, b"", None, "404.*enable streaming ingestion on the cluster"),
        (502, b"<html>bad\ngateway</html>", None, "502.*<html>bad gateway</html>"),
        (500, b'"oh"', None, '500.*"oh"'),
        (200, b"<html>welcome</html>", None, "200.*<html>welcome</html>"),
    ],
)
def test_what_an_answer_to_streaming_means(
    status: int, body: bytes, kind: str | None, said: str
) -> None:
    connection = Connection(options(**HERE), JOB)
    meaning = connection.interpret(read_error(Answer(status, body, []), is_streamed=True))
    connection.close()
    assert (meaning.kind if isinstance(meaning, Retryable) else None) == kind
    assert re.search(said, str(meaning))


def test_a_message_is_that_of_microsofts_client() -> None:
    ours = json.loads(make_message("https://a/b?sig=c", 1234, "base", "events", "t0ken"))
    properties = IngestionProperties(
        "base",
        "events",
        data_format=DataFormat.CSV,
        ingestion_mapping_kind=IngestionMappingKind.CSV,
        ingestion_mapping_reference=MAPPING,
    )
    blob = BlobDescriptor("https://a/b?sig=c", 1234)
    theirs = json.loads(IngestionBlobInfo(blob, properties, "t0ken").to_json())
    for message in (ours, theirs):
        uuid.UUID(message.pop("Id"))
        created = datetime.fromisoformat(message.pop("SourceMessageCreationTime"))
        assert abs(datetime.now(UTC) - created.replace(tzinfo=UTC)) < timedelta(minutes=1)
    assert ours == theirs


def test_a_cluster_that_is_not_there() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{closed.getsockname()[1]}"
        module = AzureDataExplorer(options(kusto_uri=f"http://{here}", kusto_db="x"), JOB)
        for connect in (module.open, module.writer().open):
            with pytest.raises(SimulatorError, match=f"{here}: .*refused.*check that kusto_uri"):
                connect()


# --- tags in a table of their own -----------------------------------------------------------------


def test_tags_are_looked_up_where_they_are_read() -> None:
    schema = Cpu(tags="table").schema

    def compiled(**values: Any) -> list[str]:
        query = Query.model_validate({"name": "q", **values})
        return compile_query(bind(query, 0), schema).text.split(" | ", 1)

    host = "tostring(['tags']['hostname'])"
    ids = f"toscalar(['cpu_tags'] | where {host} == 'w0' | project ['tags_id'])"
    assert compiled(events=["ts"], devices=["w0"]) == [
        "['cpu']", f"where ['tags_id'] == {ids} | project v0 = ['ts']",
    ]  # fmt: skip
    count: Any = [{"function": "count"}]
    tags = f"(['cpu_tags'] | project ['tags_id'], t0 = {host})"
    steps = (
        f"summarize v1 = count() by ['tags_id'] | lookup kind=inner {tags} on ['tags_id']"
        " | project v0 = t0, v1"
    )
    assert compiled(compute=count, per=["tags"]) == ["['cpu']", steps]


def test_devices_are_stored_in_commands_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Cpu(device_spread=100, tags="table")
    [rows] = workload.device_rows(7)
    [whole] = encode_devices(workload.schema, rows)
    monkeypatch.setattr("simulator.modules.azure_data_explorer.ingestion.COMMAND_BYTES", 5_000)
    parts = encode_devices(workload.schema, rows)
    assert b"\n".join(parts) == whole
    assert max(map(len, parts)) <= 5_000 < len(whole)
    assert re.match(rb'7000000,"{""\w+.+""hostname"":""w00007d000000"",', whole)


# --- KQL ------------------------------------------------------------------------------------------


def compile_all(workload: Workload) -> list[str]:
    """Queries of every shape, each with parameters of an execution."""
    stored = Stored(workload, [StoredPart(0, 0, 500)])
    schema = workload.schema
    bounds = [draw(query, stored, 0, 0) for query in list_queries(workload)]
    return [compile_query(bound, schema).text for bound in bounds]


def test_the_parser_of_microsoft_accepts_the_queries(tmp_path: Path) -> None:
    """Syntax, names and types, against the tables that `prepare` makes."""
    checker = os.environ.get("KQL_CHECK")
    if not checker:
        required = [name.strip() for name in os.environ.get("REQUIRE_SERVERS", "").split(",")]
        assert "kql-check" not in required, "set KQL_CHECK (REQUIRE_SERVERS demands it)"
        pytest.skip("no checker of KQL: set KQL_CHECK")
    schemas = {}
    queries = []
    for workload in (*DESCRIBED, APART, TRUCKS):
        schema = workload.schema
        module = AzureDataExplorer(options(**HERE), Job(schema))
        create = module.table_commands(schema.table)[0]
        schemas[schema.table] = create[create.index("(") :]
        if schema.tags is Tags.TABLE:
            create = module.tags_command()
            schemas[schema.tags_table] = create[create.index("(") :]
            queries.append(select_ids(schema, 7_000_000, 7_000_042))
        queries += [*compile_all(workload), select_stored(schema.table, workload.block(0, 0, 1))]
        queries.append(ask_extents(schema.table))
    reading = [Query.model_validate({"name": "q", **values}) for values in READING]
    queries += [compile_query(bind(query, 0), TRUCKS.schema).text for query in reading]
    (tmp_path / "schema.json").write_text(json.dumps(schemas))

    # It does look at names.
    queries.append("events | summarize max(temprature)")
    queries.append(ask_extents("events").replace("IndexSize", "IndexBytes"))
    file = tmp_path / "queries.kql"
    file.write_text("\n\n".join(queries))
    checked = subprocess.run(
        [checker, "--schema", tmp_path / "schema.json", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    events, extents = checked.stderr.splitlines()
    assert "temprature" in events
    assert "IndexBytes" in extents
    assert checked.stdout.strip() == f"{len(queries)} queries checked, 2 bad"


def test_no_size_is_told_while_events_are_in_row_stores() -> None:
    check_rows(20, 20)
    with pytest.raises(SimulatorError, match=r"8 of 20 events .* batch: true"):
        check_rows(8, 20)


FLOATS = Schema(
    "t",
    (
        Column("at", ColumnType.TIMESTAMP_MS),
        Column("device", ColumnType.TEXT),
        Column("some", ColumnType.FLOAT32, decimals=2),
        Column("all", ColumnType.FLOAT32),
        Column("double", ColumnType.FLOAT64),
    ),
    "at",
    "device",
    ("device", "at"),
)


@pytest.mark.parametrize(
    ("column", "limit", "written"),
    [
        # Of a float32, the digits that were sent are stored: two decimals, or nine digits.
        ("some", 12.34, "12.34"),
        ("some", 12.345, "12.3450003"),
        ("all", 0.1, "0.100000001"),
        ("all", -1e300, "real(-inf)"),
        ("double", 0.1, "0.1"),
        ("double", -3.0, "-3"),
        ("double", 1e300, "1e+300"),
        ("double", 1e-7, "1e-07"),
    ],
)
def test_conditions_compare_in_the_precision_of_what_is_stored(
    column: str, limit: float, written: str
) -> None:
    query = Query.model_validate(
        {"name": "q", "events": ["at"], "where": {"column": column, "above": limit}}
    )
    text = compile_query(BoundQuery(query), FLOATS).text
    assert text == f"['t'] | where ['{column}'] > {written} | project v0 = ['at']"
