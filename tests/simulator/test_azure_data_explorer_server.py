"""What is specific to Azure Data Explorer on a server: policies, queues, logins."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from simulator.contract import Load, Tables
from simulator.errors import Retryable, SimulatorError
from simulator.modules.azure_data_explorer.ingestion import (
    QueuedIngestion,
)
from simulator.modules.azure_data_explorer.server import Connection
from simulator.modules.base import Job, await_count
from simulator.testing.events import insert, rows_of
from simulator.testing.server import new_job
from simulator.worker import connect
from simulator.workloads.temperature import Temperature

from ..contract.entries import server_fixtures
from ..contract.http_proxy import Fate, HttpProxy, Refuse, http_proxy
from ..contract.kusto import KustoUnderTest
from ..helpers import eventually

INGESTION = "simulator.modules.azure_data_explorer.ingestion"
JOB = Job(Temperature.schema, Load(batch=10))
LOGIN = {"adx_aad_app_id": "an-id", "adx_app_key": "a-s3cret", "adx_authority_id": "a-tenant"}


_server, server = server_fixtures("kusto")


def prepare(server: KustoUnderTest, **changes: Any) -> None:
    with server.prepare(JOB, options=changes):
        pass


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
    with connect(module.writer()) as writer:
        recorder = insert(writer, Temperature(), 200)
    assert recorder.events == 200
    module.open()
    assert await_count(module.count, 200, 30) == 200
    module.close()
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 200))
    )


@dataclass(frozen=True)
class Storage:
    """What the module takes for Azure Storage: proxies to the server's."""

    blobs: HttpProxy
    queues: HttpProxy
    asked: list[str]
    """Commands by which the module asked for it."""


@pytest.fixture
def storage(server: KustoUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    resources = dict(server.asked(".get ingestion resources"))
    urls = []
    for kind in ("TempStorage", "SecuredReadyForAggregationQueue"):
        parts = urlsplit(resources[kind])
        urls.append(f"{parts.scheme}://{parts.netloc}")
    blobs = HttpProxy([urls[0]], lambda request: request.method == "PUT")
    queues = HttpProxy([urls[1]], lambda request: request.method == "POST")
    storage = Storage(blobs, queues, [])
    ask = QueuedIngestion._ask

    def asked(queue: QueuedIngestion, command: str) -> list[list[str]]:
        storage.asked.append(command)
        rows = ask(queue, command)
        places = ((urls[0], blobs.endpoints[0]), (urls[1], queues.endpoints[0]))
        return [[text.replace(*places[0]).replace(*places[1]) for text in row] for row in rows]

    monkeypatch.setattr(QueuedIngestion, "_ask", asked)
    with http_proxy(blobs), http_proxy(queues):
        yield storage
        # Queued messages name blobs by the proxy's address.
        eventually(server.drained, "empty queue")


def sas(server: KustoUnderTest) -> list[str]:
    """What nobody may see: the signatures that let requests in."""
    queries = [parse_qs(urlsplit(uri).query) for _, uri in server.asked(".get ingestion resources")]
    return [signature for query in queries for signature in query["sig"]]


def storage_refuses(status: int, code: str) -> Refuse:
    text = f"<Error><Code>{code}</Code><Message>sig=s3cret</Message></Error>"
    return Refuse(status, text.encode(), {"x-ms-error-code": code})


@pytest.mark.parametrize(
    ("place", "fate", "kind", "renewed"),
    [
        ("blobs", "drop answer", "blob_not_stored", False),
        ("blobs", "drop request", "blob_not_stored", False),
        ("blobs", storage_refuses(503, "ServerBusy"), "blob_not_stored", False),
        ("blobs", storage_refuses(500, "OperationTimedOut"), "blob_not_stored", False),
        ("blobs", storage_refuses(403, "AuthenticationFailed"), "blob_not_stored", True),
        ("queues", storage_refuses(503, "ServerBusy"), "message_not_queued", False),
        ("queues", storage_refuses(403, "AuthenticationFailed"), "message_not_queued", True),
        ("queues", storage_refuses(404, "QueueNotFound"), "message_not_queued", True),
    ],
)
def test_what_is_surely_not_queued_is_sent_again(
    server: KustoUnderTest,
    storage: Storage,
    caplog: pytest.LogCaptureFixture,
    place: str,
    fate: Fate,
    kind: str,
    renewed: bool,
) -> None:
    prepare(server, batch=True)
    proxy: HttpProxy = getattr(storage, place)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})
    with caplog.at_level(logging.DEBUG), connect(module.writer()) as writer:
        recorder = insert(
            writer, Temperature(), 30, before={1: lambda: setattr(proxy, "fate", fate)}
        )
    assert recorder.errors == {kind: 1}
    assert len(storage.asked) == (4 if renewed else 2)
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 30))
    )
    address = urlsplit(proxy.endpoints[0]).netloc
    if isinstance(fate, Refuse):
        message = (
            f"retry 1 after {kind}: {address}: {fate.status} {fate.headers['x-ms-error-code']}"
        )
    else:
        message = f"retry 1 after {kind}: {address}: the server closed the connection"
    assert message in caplog.text
    assert not any(secret in caplog.text for secret in [*sas(server), "s3cret"])


def test_what_is_surely_not_queued_is_sent_again_beside_others_in_flight(
    server: KustoUnderTest, storage: Storage
) -> None:
    prepare(server, batch=True)
    job = new_job(Temperature.schema, batch=5, in_flight=8)
    struck: dict[int, Callable[[], object]] = {
        8: lambda: setattr(storage.blobs, "fate", "drop answer"),
        16: lambda: setattr(storage.queues, "fate", storage_refuses(503, "ServerBusy")),
        24: storage.blobs.cut,
    }
    with connect(server.module(job, options={"batch": True}).writer()) as writer:
        recorder = insert(writer, Temperature(), 160, before=struck)
    assert recorder.errors["message_not_queued"] == 1
    assert 1 <= recorder.errors["blob_not_stored"] <= 1 + 8
    assert recorder.retries == sum(recorder.errors.values())
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 160))
    )


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        ("drop answer", "the server closed the connection"),
        ("drop request", "the server closed the connection"),
        (storage_refuses(500, "OperationTimedOut"), "500 OperationTimedOut"),
    ],
)
def test_a_message_that_may_have_been_queued_ends_the_run(
    server: KustoUnderTest, storage: Storage, fate: Fate, said: str
) -> None:
    prepare(server, batch=True)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})
    with (
        connect(module.writer()) as writer,
        pytest.raises(SimulatorError, match="whether it was queued is unknown") as caught,
    ):
        insert(
            writer, Temperature(), 30,
            before={1: lambda: setattr(storage.queues, "fate", fate)},
        )  # fmt: skip
    address = urlsplit(storage.queues.endpoints[0]).netloc
    assert f"the run can't continue: {address}: {said}" in str(caught.value)
    assert not any(secret in str(caught.value) for secret in [*sas(server), "s3cret"])


@pytest.mark.parametrize(
    ("place", "kind"), [("blobs", "blob_not_stored"), ("queues", "message_not_queued")]
)
def test_storage_that_can_not_be_reached(
    server: KustoUnderTest, storage: Storage, place: str, kind: str
) -> None:
    """Nothing was sent, so it is tried again, for a while."""
    prepare(server, batch=True)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})
    getattr(storage, place).close()
    with (
        connect(module.writer()) as writer,
        pytest.raises(SimulatorError, match=rf"gave up after 1 retries \({kind}\): .*refused"),
    ):
        insert(writer, Temperature(), 30, max_retries=1)


def test_storage_connections_outlive_a_renewal(
    server: KustoUnderTest, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(server, batch=True)
    module = server.module(new_job(Temperature.schema, batch=10), options={"batch": True})

    def connections() -> list[list[int]]:
        name = f"iot-benchmark/{module.job.run_id}"
        proxies = (storage.blobs, storage.queues)
        return [[line.number for line in proxy.lines("user-agent", name)] for proxy in proxies]

    monkeypatch.setattr(INGESTION + "._RESOURCES_GOOD_S", 0.0)
    with connect(module.writer()) as writer:
        insert(writer, Temperature(), 10)
        first = connections()
        insert(writer, Temperature(), 20, first=10)
        assert connections() == first
    assert [len(numbers) for numbers in first] == [1, 1]
    assert storage.asked.count(".get ingestion resources") == 4
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 30))
    )


# --- logging in -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kept_s", "token"), [(60.0, "token-1"), (0.0, "token-3")])
def test_streaming_over_tls_with_the_clients_token(
    server: KustoUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kept_s: float,
    token: str,
) -> None:
    """The token is asked for again when it may be about to expire; MSAL, which would ask Azure, is faked."""
    prepare(server)
    authority = tmp_path / "authority.pem"
    authority.write_text(server.trusted)
    proxy = server.encrypting()
    tokens: list[str] = []

    class Application:
        def __init__(self, **_: object) -> None:
            pass

        def acquire_token_for_client(self, scopes: list[str]) -> dict[str, str]:
            assert scopes == ["https://kusto.kusto.windows.net/.default"]
            tokens.append(f"token-{len(tokens)}")
            return {"token_type": "Bearer", "access_token": tokens[-1]}

    monkeypatch.setattr(
        "azure.kusto.data._token_providers.ConfidentialClientApplication", Application
    )
    monkeypatch.setattr("simulator.modules.azure_data_explorer.server._TOKEN_KEPT_S", kept_s)
    place = {"kusto_uri": proxy.endpoints[0], "kusto_ingest_uri": proxy.endpoints[0], **LOGIN}
    module = server.module(new_job(Temperature.schema, batch=10), options=place)
    with pytest.raises(SimulatorError, match="certificate verify failed"):
        module.writer().open()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    tokens.clear()
    with connect(module.writer()) as writer:
        # The client asks with its first token; what streams has its second.
        insert(writer, Temperature(), 20)
        assert len(proxy.lines("authorization", f"Bearer {token}")) == 1
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 20))
    )


def test_an_ingestion_uri_where_nobody_is(server: KustoUnderTest) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{closed.getsockname()[1]}"
        module = server.module(JOB, options={"batch": True, "kusto_ingest_uri": f"http://{here}"})
        with pytest.raises(SimulatorError, match=f"{here}: .*refused.*kusto_ingest_uri name"):
            module.writer().open()


def test_who_streams_must_be_answered_by_the_cluster(server: KustoUnderTest) -> None:
    prepare(server)
    module = server.module(new_job(Temperature.schema, batch=10))
    with connect(module.writer()) as writer:
        server.proxy.fate = Refuse(200, b"<html>welcome</html>")
        with pytest.raises(SimulatorError, match="200, not an answer of Azure Data Explorer"):
            insert(writer, Temperature(), 10)


def test_what_is_stored_after_we_gave_up_waiting_is_not_sent_again(server: KustoUnderTest) -> None:
    prepare(server)
    # Long enough for any request but one.
    options = {"request_timeout_s": 3}
    module = server.module(new_job(Temperature.schema, batch=10), options=options)
    with connect(module.writer()) as writer:
        server.proxy.hold_s = 4.0
        recorder = insert(writer, Temperature(), 20)
    assert recorder.errors == {"timeout": 1}
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 20))
    )


def test_an_acknowledged_part_is_not_sent_again(server: KustoUnderTest) -> None:
    """A request of four tables is four requests: only those that failed are repeated."""
    job = new_job(Temperature.schema, batch=8, tables=Tables.MULTIPLE)
    module = server.module(job)
    module.open()
    module.prepare()
    sent: list[str] = []
    stream = Connection.stream

    def second_fails(connection: Connection, table: str, body: bytes) -> None:
        sent.append(table)
        if len(sent) == 2:
            raise Retryable("throttled", "later", backoff_s=0.01)
        stream(connection, table, body)

    with pytest.MonkeyPatch.context() as patch, connect(module.writer()) as writer:
        patch.setattr(Connection, "stream", second_fails)
        recorder = insert(writer, Temperature(), 8)
    assert sent == ["events0", "events1", "events1", "events2", "events3"]
    assert recorder.errors == {"throttled": 1}
    assert module.count() == 8
    module.close()
