"""What IoTDB alone has: sessions over TLS; tags on disk that conditions on the events' time must not hide."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from simulator.errors import SimulatorError
from simulator.testing.events import insert_with
from simulator.testing.server import new_job
from simulator.testing.suite.test_answers import APART, fill_and_draw, find_wrong
from simulator.testing.suite.test_queries import prepare_queries
from simulator.workloads.drawing import bind
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature

from .iotdb import IotdbUnderTest
from .iotdb_proxy import Proxy

pytestmark = pytest.mark.module("iotdb")

EVENTS = Query(name="all", events=("timestamp", "device_id", "temperature"))
AUTHORITY = trustme.CA()
TRUSTED = AUTHORITY.cert_pem.bytes().decode()


@pytest.fixture
def encrypted(server: IotdbUnderTest) -> Iterator[Proxy]:
    """The server behind TLS, which it offers by itself only with a Java key store; for one of the models."""
    if server.model != "table":
        pytest.skip("sessions are the same in both models")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(tls)
    with Proxy(os.environ["IOTDB_HOST"], int(os.environ["IOTDB_PORT"]), tls) as proxy:
        yield proxy


def test_sessions_over_tls(server: IotdbUnderTest, encrypted: Proxy, tmp_path: Path) -> None:
    """Requests and answers are larger than a TLS record; one connection is cut."""
    file = tmp_path / "ca.pem"
    file.write_text(TRUSTED)
    way_in = {"host": "localhost", "port": encrypted.port, "tls": True}
    job = new_job(Temperature.schema, batch=2000)
    workload = Temperature(device_spread=3)
    trusting: list[dict[str, object]] = [
        {"ca_certs": TRUSTED}, {"ca_certs": str(file)}, {"verify_certs": False}
    ]  # fmt: skip
    for number, trust in enumerate(trusting):
        module = server.module(job, options={**way_in, **trust, "max_in_flight": 1 + number})
        module.open()
        module.prepare()
        encrypted.fate = "drop answer"
        insert_with(module, workload, 6000)
        assert encrypted.fate is None
        assert module.count() == 6000
        bound = bind(EVENTS, workload.schema.epoch_ms)
        assert len(module.fetch(module.compile(bound))) == 6000
        module.close()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"tls": True}, r"no TLS with IoTDB at localhost:\d+: .*check tls, and ca_certs"),
        ({"tls": True, "host": "127.0.0.1", "ca_certs": TRUSTED}, "check tls, and ca_certs"),
        ({"tls": True, "ca_certs": "no-such-file.pem"}, "ca_certs can't be used"),
        ({}, "can't connect to IoTDB at localhost:.* and host, port and tls"),
    ],
)
def test_who_does_not_trust_learns_why(
    server: IotdbUnderTest, encrypted: Proxy, changes: dict[str, object], remedy: str
) -> None:
    options = {"host": "localhost", "port": encrypted.port, **changes}
    module = server.module(new_job(Temperature.schema), options=options)
    for enter in (module.open, module.writer().open):
        with pytest.raises(SimulatorError, match=remedy):
            enter()


def test_a_node_without_tls(server: IotdbUnderTest) -> None:
    """It takes the handshake for the beginning of a frame, and waits for the rest."""
    module = server.module(
        new_job(Temperature.schema), options={"tls": True, "request_timeout_s": 1}
    )
    with pytest.raises(SimulatorError, match=r"TLS handshake.* and host, port and tls"):
        module.open()


def test_tags_of_a_table_are_there_once_they_are_on_disk(server: IotdbUnderTest) -> None:
    """Tags are at time 0, and 2.0.1 reads no file whose events are outside of a statement's only window."""
    questions = fill_and_draw(server, APART)
    with prepare_queries(server, APART) as module:
        module.storage()  # flushes
        assert not find_wrong(module, questions)
