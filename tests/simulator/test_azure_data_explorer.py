"""What is Azure Data Explorer's alone: logins, policies, queues, KQL. On the stand-in where it needs a
server."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.kusto.data.exceptions import KustoAuthenticationError
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient

from simulator.contract import Tables
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.azure_data_explorer import (
    QUERIES,
    AdxOptions,
    AzureDataExplorer,
    Cluster,
    newest_of_each,
)
from simulator.modules.azure_data_explorer_encoding import CsvEncoder
from simulator.modules.base import Job, settled_count
from simulator.modules.options import parse_options
from simulator.worker import opened
from simulator.workloads import WORKLOADS
from simulator.workloads.cpu import Cpu
from simulator.workloads.temperature import Temperature

from ..contract.entries import ENTRIES
from ..contract.kusto import KustoUnderTest
from ..contract.server import new_job, observing
from ..helpers import insert, rows_of

JOB = Job(Temperature.schema, batch=10)
HERE = {"kusto_uri": "http://127.0.0.1:1", "kusto_db": "x"}
THERE = {"kusto_uri": "https://name.region.kusto.windows.net", "kusto_db": "x"}
LOGIN = {"adx_aad_app_id": "an-id", "adx_app_key": "a-s3cret", "adx_authority_id": "a-tenant"}


def options(**values: Any) -> AdxOptions:
    return parse_options(AdxOptions, values, str)


# --- CSV ------------------------------------------------------------------------------------------


def test_a_line() -> None:
    block = Temperature(seed=4, device_spread=2).block(3, 10, 2)
    [payload] = CsvEncoder(Job(Temperature.schema)).encode(block, 5)
    [part] = payload.data
    text = gzip.decompress(part.body)
    assert (part.table, part.size) == ("events", len(text))
    assert (part.device, part.time_ms) == ("w00003d000001", block.columns["timestamp"][1])
    first, _ = text.decode().split("\n")
    time, device, number, value = first.split(",")
    assert time.startswith("2024-01-01T00:00:04.")
    assert (device, number) == ('"w00003d000000"', "10")
    assert value == f"{block.columns['temperature'][0]:.2f}"


def test_documents_are_quoted() -> None:
    block = Cpu(seed=1).block(0, 0, 1)
    [part] = CsvEncoder(Job(Cpu.schema)).encode(block, 1)[0].data
    assert gzip.decompress(part.body).startswith(b'"{""arch"":""x64"",""datacenter"":')


@pytest.mark.parametrize(("batch", "sizes"), [(4, [4, 4, 1]), (100, [9]), (0, [1] * 9)])
def test_events_are_dealt_to_the_tables_by_their_number(batch: int, sizes: list[int]) -> None:
    block = Temperature().block(0, 6, 9)
    payloads = CsvEncoder(Job(Temperature.schema, tables=Tables.MULTIPLE)).encode(block, batch)
    assert [payload.events for payload in payloads] == sizes
    found = {}
    for payload in payloads:
        for part in payload.data:
            for line in gzip.decompress(part.body).decode().split("\n"):
                found[int(line.split(",")[2])] = part.table
    assert found == {number: f"events{number % 4}" for number in range(6, 15)}


# --- options --------------------------------------------------------------------------------------


def test_a_login_is_needed_but_for_a_stand_in() -> None:
    options(**HERE).check_login()
    options(**THERE, **LOGIN).check_login()
    for name in LOGIN:
        some = {key: value for key, value in LOGIN.items() if key != name}
        for place in (HERE, THERE):
            with pytest.raises(OptionError, match=f"option {name} is missing.*existingSecret"):
                options(**place, **some).check_login()
    with pytest.raises(OptionError, match="option adx_aad_app_id, adx_app_key, adx_authority_id"):
        options(**THERE).check_login()


def test_the_key_is_a_secret() -> None:
    found = options(**THERE, **LOGIN)
    assert found.secrets() == ["a-s3cret"]
    assert "a-s3cret" not in repr(found)
    assert found.public()["adx_app_key"] == "***"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("name.kusto.windows.net", "no https:// URI"),
        ("http://name.kusto.windows.net", "must begin with https://"),
        ("https://name.kusto.windows.net;Fed=True", "host and port only"),
    ],
)
def test_a_uri_that_is_none(uri: str, text: str) -> None:
    for key in ("kusto_uri", "kusto_ingest_uri"):
        with pytest.raises(OptionError, match=f"option {key}: .*{text}"):
            options(**(HERE | {key: uri}))


def test_streaming_is_one_request_at_a_time() -> None:
    """After a lost answer, the newest event of a device tells whether the request is stored."""
    assert options(**HERE, max_in_flight=4).max_in_flight == 4
    with pytest.raises(OptionError, match="max_in_flight is for batch=true"):
        options(**HERE, max_in_flight=4, batch="false")


def test_errors_of_the_clients_say_what_to_do() -> None:
    cluster = Cluster(options(**HERE), "none")
    login = cluster.meaning(KustoAuthenticationError("key", ValueError("AADSTS7000215:\nno"), x=1))
    assert str(login) == (
        "can't log in to 127.0.0.1:1: AADSTS7000215: no; check adx_aad_app_id, adx_app_key and"
        " adx_authority_id"
    )
    cluster.close()


# --- KQL ------------------------------------------------------------------------------------------


def test_the_parser_of_microsoft_accepts_the_queries(tmp_path: Path) -> None:
    """Syntax, names and types, against the tables that `prepare` makes."""
    checker = os.environ.get("KQL_CHECK")
    if not checker:
        required = [name.strip() for name in os.environ.get("REQUIRE_SERVERS", "").split(",")]
        assert "kql-check" not in required, "set KQL_CHECK (REQUIRE_SERVERS demands it)"
        pytest.skip("no checker of KQL: set KQL_CHECK")
    schemas = {}
    queries = list(QUERIES.values())
    for workload in WORKLOADS.values():
        module = AzureDataExplorer(options(**HERE), Job(workload.schema))
        create = module.table_commands(workload.schema.table)[0]
        schemas[workload.schema.table] = create[create.index("(") :]
        queries.append(newest_of_each(workload.schema, workload.schema.table))
    (tmp_path / "schema.json").write_text(json.dumps(schemas))

    def check(found: list[str]) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "queries.kql"
        file.write_text("\n\n".join(found))
        return subprocess.run(
            [checker, "--schema", tmp_path / "schema.json", file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    accepted = check(queries)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert f"{len(queries)} queries checked" in accepted.stdout + accepted.stderr
    # It does look at names.
    assert check(["events | summarize max(temprature)"]).returncode == 1


def test_every_query_of_the_workloads_is_there() -> None:
    names = [name for workload in WORKLOADS.values() for name in workload.schema.queries]
    assert list(QUERIES) == names


# --- a server -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _server(request: pytest.FixtureRequest) -> Iterator[KustoUnderTest]:
    [entry] = [entry for entry in ENTRIES if entry.name == "kusto"]
    with entry.start(request, entry.values()) as found:
        assert isinstance(found, KustoUnderTest)
        yield found


@pytest.fixture
def server(_server: KustoUnderTest) -> KustoUnderTest:
    _server.clear()
    return _server


def prepare(server: KustoUnderTest, **changes: Any) -> None:
    module = server.module(observing(JOB), options=changes)
    module.open()
    module.prepare()
    module.close()


def test_a_cluster_that_is_not_there() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{closed.getsockname()[1]}"
        module = AzureDataExplorer(options(kusto_uri=f"http://{here}", kusto_db="x"), JOB)
        for connect in (module.open, module.writer(10).open):
            with pytest.raises(SimulatorError, match=f"{here}: .*refused.*check that kusto_uri"):
                connect()


def test_policies_are_those_of_the_ingestion(server: KustoUnderTest) -> None:
    prepare(server, batch=True, batching_time_s=90)
    assert json.loads(server.policy("events", "ingestionbatching")) == {
        "MaximumBatchingTimeSpan": "00:01:30"
    }
    assert server.policy("events", "streamingingestion").strip('"') == "disable"
    prepare(server, batch=False)
    assert server.policy("events", "streamingingestion").strip('"') == "enable"
    assert server.policy("events", "ingestionbatching") == "null"


def test_the_policies_are_shown_with_the_result(server: KustoUnderTest) -> None:
    prepare(server, batch=True, batching_time_s=90)
    module = server.module(JOB, options={"batch": True})
    module.open()
    settings = module.server_info()["settings"]
    module.close()
    assert settings["ingestion"] == "queued"
    assert "00:01:30" in settings["ingestionbatching policy"]


def test_queued_requests_in_flight(server: KustoUnderTest) -> None:
    prepare(server, batch=True)
    job = new_job(Temperature.schema, batch=10)
    module = server.module(job, options={"batch": True, "max_in_flight": 4})
    with opened(module.writer(10)) as writer:
        recorder = insert(writer, Temperature(), 200, 10)
    assert recorder.events == 200
    module.open()
    assert settled_count(module.count, 200, 30) == 200
    module.close()
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 200))
    )


@pytest.mark.parametrize(
    ("method", "failure", "kind"),
    [
        ("upload_blob", ServiceResponseError("lost"), "blob_not_stored"),
        ("send_message", HttpResponseError("busy"), "message_not_queued"),
        ("send_message", ServiceRequestError("refused"), "message_not_queued"),
    ],
)
def test_what_is_surely_not_queued_is_sent_again(
    server: KustoUnderTest, method: str, failure: AzureError, kind: str
) -> None:
    prepare(server, batch=True)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})
    with failing(method, failure) as strike, opened(module.writer(10)) as writer:
        recorder = insert(writer, Temperature(), 30, 10, before={1: strike})
    assert recorder.errors == {kind: 1}
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 30))
    )


def test_a_message_that_may_have_been_queued_ends_the_run(server: KustoUnderTest) -> None:
    prepare(server, batch=True)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})
    with (
        failing("send_message", ServiceResponseError("lost")) as strike,
        opened(module.writer(10)) as writer,
        pytest.raises(SimulatorError, match="nobody knows whether it was queued"),
    ):
        insert(writer, Temperature(), 30, 10, before={1: strike})


@contextmanager
def failing(method: str, failure: AzureError) -> Iterator[Callable[[], None]]:
    """The next call of a method of Azure's clients fails, once what is yielded was called."""
    kind = ContainerClient if method == "upload_blob" else QueueClient
    real = getattr(kind, method)
    left: list[AzureError] = []

    def call(client: Any, *values: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return real(client, *values, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, call)
        yield lambda: left.append(failure)
        assert not left


def test_an_acknowledged_part_is_not_sent_again(server: KustoUnderTest) -> None:
    """A request of four tables is four requests: only those that failed are repeated."""
    job = new_job(Temperature.schema, batch=8, tables=Tables.MULTIPLE)
    module = server.module(job)
    module.open()
    module.prepare()
    sent: list[str] = []
    stream = Cluster.stream

    def second_fails(cluster: Cluster, table: str, body: bytes) -> None:
        sent.append(table)
        if len(sent) == 2:
            raise Retryable("throttled", "later", backoff_s=0.01)
        stream(cluster, table, body)

    with pytest.MonkeyPatch.context() as patch, opened(module.writer(8)) as writer:
        patch.setattr(Cluster, "stream", second_fails)
        recorder = insert(writer, Temperature(), 8, 8)
    assert sent == ["events0", "events1", "events1", "events2", "events3"]
    assert recorder.errors == {"throttled": 1}
    assert module.count() == 8
    module.close()
