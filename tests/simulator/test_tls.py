"""Whom to trust with TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from simulator.errors import OptionError, SimulatorError
from simulator.modules import load_module
from simulator.modules.kit.options import (
    ClientCertOptions,
    EndpointOptions,
    TlsOptions,
    make_tls_context,
)
from simulator.modules.options import parse_options

SERVER = "127.0.0.1"
ENCRYPTED: Mapping[str, Mapping[str, Any]] = {
    "arangodb": {"endpoint": f"https://{SERVER}"},
    "cassandra": {"contact_points": SERVER, "tls": True},
    "clickhouse": {"endpoint": f"https://{SERVER}"},
    "cratedb": {"endpoint": f"https://{SERVER}"},
    "elasticsearch": {"endpoint": f"https://{SERVER}"},
    "influxdb": {"endpoint": f"https://{SERVER}", "org": "o", "token": "t"},
    "iotdb": {"host": SERVER, "password": "p", "tls": True},
    "questdb": {"endpoint": f"https://{SERVER}"},
    "victoriametrics": {"endpoint": f"https://{SERVER}"},
}
"""Options of each module that takes certificates. PostgreSQL's relatives take libpq's, and Azure Data
Explorer those that the environment names."""


class _Endpoints(EndpointOptions):
    EXAMPLE_URL = "https://a"


def make_tls_context_for(
    urls: list[str], ca_certs: str | None, verify_certs: bool = True
) -> ssl.SSLContext | None:
    """As a module makes it from its options."""
    values = {"endpoint": urls, "ca_certs": ca_certs, "verify_certs": verify_certs}
    return parse_options(_Endpoints, values, str).make_tls_context()


def test_only_who_says_https_needs_trust() -> None:
    assert make_tls_context_for(["http://a", "http://b"], "no-such-file.pem") is None
    # A scheme's case doesn't matter: https://www.rfc-editor.org/rfc/rfc3986#section-3.1
    for urls in (["http://a", "https://b"], ["HTTPS://a"]):
        context = make_tls_context_for(urls, None)
        assert context is not None
        assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
        unchecked = make_tls_context_for(urls, None, verify_certs=False)
        assert unchecked is not None
        assert not unchecked.check_hostname and unchecked.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("ca_certs", ["no-such-file.pem", "-----BEGIN CERTIFICATE-----"])
def test_authorities_that_can_not_be_used(ca_certs: str) -> None:
    with pytest.raises(SimulatorError, match="ca_certs can't be used"):
        make_tls_context_for(["https://a"], ca_certs)


# --- certificates of clients --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """The authority of a server that lets nobody in without a certificate from it."""
    return trustme.CA()


def shake_hands(authority: trustme.CA, client: ssl.SSLContext) -> str | None:
    """Connect to such a server; the client's name as the server sees it, or SSLError if it sees none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(SERVER).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    near, far = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        try:
            with context.wrap_socket(far, server_side=True) as stream:
                names: Any = stream.getpeercert()
                seen.extend(value for kind, value in names["subjectAltName"])
                stream.sendall(b"welcome")
        except ssl.SSLError:
            far.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(near, server_hostname=SERVER) as stream:
            # With TLS 1.3, a client hears of the refusal when it reads.
            assert stream.recv(100) == b"welcome"
    finally:
        serving.join(20)
    return seen[0]


@pytest.mark.parametrize("form", ["files", "texts", "one file", "one text"])
@pytest.mark.parametrize("name", ENCRYPTED)
def test_each_module_shows_its_certificate(
    authority: trustme.CA, tmp_path: Path, name: str, form: str
) -> None:
    own = authority.issue_cert("me.example")
    cert = b"".join(blob.bytes() for blob in own.cert_chain_pems).decode()
    key = own.private_key_pem.bytes().decode()
    trusted = authority.cert_pem.bytes().decode()
    values = {"client_cert": cert, "client_key": key}
    if form.startswith("one"):
        values = {"client_cert": key + cert}
    if "file" in form:
        for option, text in values.items():
            (tmp_path / option).write_text(text)
        values = {option: str(tmp_path / option) for option in values}
    values["ssl_ca_cert" if name == "influxdb" else "ca_certs"] = trusted
    options: Any = parse_options(
        load_module(name).options_model, {**ENCRYPTED[name], **values}, str
    )
    context = options.make_context() if "tls" in ENCRYPTED[name] else options.make_tls_context()
    assert shake_hands(authority, context) == "me.example"
    # It may be shown with everything else of a target, but not the key.
    assert key not in str(options.public()) and key not in repr(options)


def test_a_server_that_wants_a_certificate(authority: trustme.CA) -> None:
    """Or the test above would prove nothing."""
    context = make_tls_context(authority.cert_pem.bytes().decode())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(authority, context)


def test_every_module_that_encrypts_takes_one() -> None:
    for name in ENCRYPTED:
        assert issubclass(load_module(name).options_model, ClientCertOptions)


def test_certificates_that_can_not_be_used(authority: trustme.CA, tmp_path: Path) -> None:
    own, other = authority.issue_cert("me.example"), authority.issue_cert("you.example")
    cert = own.cert_chain_pems[0].bytes().decode()
    wrong = other.private_key_pem.bytes().decode()
    protected = wrong.replace("\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1)
    for pair in (("no-such-file.pem", None), (cert, None), (cert, wrong), (cert, protected)):
        with pytest.raises(
            SimulatorError, match="client_cert and client_key can't be used"
        ) as error:
            make_tls_context(None, True, *pair)
        assert "BEGIN" not in str(error.value)
    with pytest.raises(OptionError, match="client_key needs client_cert"):
        parse_options(TlsOptions, {"client_key": "key.pem"}, str)


def test_who_takes_files_alone() -> None:
    options = TlsOptions(client="official", client_cert="cert.pem", ca_certs="-----BEGIN X")
    assert options.find_file("client_cert") == "cert.pem"
    assert options.find_file("client_key") is None
    with pytest.raises(OptionError, match="client=official takes ca_certs only as a file"):
        options.find_file("ca_certs")
