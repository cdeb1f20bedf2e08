"""Official clients show the certificate of `client_cert`, too, to a server that lets nobody in without."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest
import trustme

from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.arangodb import official as arangodb_writing
from simulator.modules.arangodb import server as arangodb
from simulator.modules.base import Job
from simulator.modules.cratedb import official as cratedb_writing
from simulator.modules.cratedb import server as cratedb
from simulator.modules.elasticsearch import official as elasticsearch_official
from simulator.modules.influxdb import server as influxdb
from simulator.modules.options import parse_options
from simulator.workloads.temperature import Temperature

from .listening import NOT_FOUND, serving

HOST = "127.0.0.1"
JOB = Job(Temperature.schema)


@contextmanager
def demanding(authority: trustme.CA) -> Iterator[tuple[int, list[str]]]:
    """A server's port, and the names of the clients that it has seen. It answers everybody with 404."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[str] = []

    def take(near: socket.socket) -> None:
        # Whoever has no certificate, or hangs up, fails here.
        with context.wrap_socket(near, server_side=True) as stream:
            names: Any = stream.getpeercert()
            seen.extend(value for _, value in names["subjectAltName"])
            stream.recv(65536)
            stream.sendall(NOT_FOUND)

    with serving(socket.create_server((HOST, 0)), take) as port:
        yield port, seen


def ask_arangodb(options: Any) -> None:
    with closing(arangodb.Connection(options, JOB)) as connection:
        client, database = arangodb_writing.make_client(connection, 1)
        with closing(client):
            database.version()


def ask_cratedb(options: Any) -> None:
    with (
        closing(cratedb.Connection(options, JOB)) as connection,
        closing(cratedb_writing.make_client(connection, 1)) as client,
    ):
        client.cursor().execute("SELECT 1")


def ask_elasticsearch(options: Any) -> None:
    from elasticsearch import Elasticsearch

    nodes = elasticsearch_official.configure_nodes(options)
    with closing(Elasticsearch(nodes, max_retries=0)) as client:
        client.info()


def ask_influxdb(options: Any) -> None:
    with closing(influxdb.Connection(options, JOB)) as connection:
        connection.client.buckets_api().find_buckets()


ASK: dict[str, tuple[Callable[[Any], None], dict[str, str]]] = {
    "arangodb": (ask_arangodb, {"username": "u", "password": "p"}),
    "cratedb": (ask_cratedb, {}),
    "elasticsearch": (ask_elasticsearch, {}),
    "influxdb": (ask_influxdb, {"org": "o", "token": "t"}),
}


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ASK)
def test_official_clients_show_it(
    name: str, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a target says goes before what the environment does.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    authority = trustme.CA()
    own = authority.issue_cert("me.example")
    cert, key, trusted = (tmp_path / part for part in ("tls.crt", "tls.key", "ca.crt"))
    own.cert_chain_pems[0].write_to_path(cert)
    own.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    ask, values = ASK[name]
    values = {**values, "client_cert": str(cert), "client_key": str(key)}
    trust, check = ("ca_certs", "verify_certs")
    if name == "influxdb":
        trust, check = ("ssl_ca_cert", "verify_ssl")
    values |= {trust: str(trusted)} if verify else {check: "false"}
    with demanding(authority) as (port, seen):
        values["endpoint"] = f"https://{HOST}:{port}"
        # What it makes of such an answer doesn't matter here.
        with suppress(Exception):
            ask(parse_options(load_module(name).options_model, values, str))
    assert set(seen) == {"me.example"}


def test_a_client_that_has_none_says_so() -> None:
    kind: Any = load_module("questdb")
    values = {"endpoint": f"https://{HOST}:1", "client": "official", "client_cert": "tls.crt"}
    module = kind(parse_options(kind.options_model, values, str), JOB)
    writer = module.writer()
    writer._connection = SimpleNamespace(options=module.options)
    with pytest.raises(OptionError, match="client=official can't send a client certificate"):
        writer.make_client()
