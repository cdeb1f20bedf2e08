"""Options that modules of several databases share, and their checks."""

from __future__ import annotations

import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from tempfile import NamedTemporaryFile
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load
from ...errors import OptionError, SimulatorError
from ..options import PAYLOAD, InsertMode, Options, among, choose_mode
from .http import basic_auth, scheme_port

TRUST_REMEDY = "ca_certs (or set verify_certs=false)"
"""The remedy for an untrusted server certificate, for the options of `TlsOptions`."""

# The characters of names and addresses. Any other may have a meaning to a client.
_HOST = re.compile(r"[\w.:%-]+")

IN_FLIGHT_MEANING = "requests that each worker may have in flight, like --in-flight"
"""Description of a module's own option for this."""


BATCH_MODES = (InsertMode.BATCH, InsertMode.SINGLE)


class BatchOptions(Options):
    """Options of a database that takes any number of events in the same way."""

    insert_mode: Annotated[InsertMode | None, among(*BATCH_MODES), Condition.BATCH, PAYLOAD] = (
        Field(None, description="batch (default with --batch) or single (default without)")
    )

    def mode(self, load: Load) -> InsertMode:
        return choose_mode(
            "insert_mode", self.insert_mode, load, InsertMode.SINGLE, InsertMode.BATCH
        )


def check_url(value: str, example: str, login: str, path: bool = True) -> str:
    """The URL of a server; ValueError, which doesn't quote it, if it is invalid or has a password.

    `example`: of a valid one; `login`: the options for the login; `path`: whether it may have one.
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.port != 0
        usable = usable and _HOST.fullmatch(parts.hostname or "") is not None
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not (path or parts.path in ("", "/")):
        raise ValueError(f"must be a URL like {example}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must not contain a user or password: use {login}")
    return value


def server_name(url: str, default_port: int) -> str:
    """A URL's host:port, for messages."""
    parts = urlsplit(url)
    return join_address(parts.hostname or "", parts.port or default_port)


def check_hosts(values: Sequence[str]) -> list[str]:
    """Names and addresses of servers whose port is a separate option; ValueError if one isn't."""
    hosts = [value.removeprefix("[").removesuffix("]") for value in values]
    if not all(_HOST.fullmatch(host) and host.count(":") != 1 for host in hosts):
        raise ValueError("write only names or addresses, and the port as option port")
    return hosts


HostList = Annotated[CommaList, AfterValidator(check_hosts), Field(min_length=1)]
"""Servers whose port is a separate option."""


def join_address(host: str, port: int | str) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"{bracket(host)}:{port}"


def bracket(host: str) -> str:
    """The host in the form for a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


# --- TLS: certificates to trust and to present ------------------------------------------------------


def is_pem(text: str) -> bool:
    """Whether this is the content of a PEM file, and not its path."""
    return "-----BEGIN" in text


def make_tls_context(
    ca_certs: str | None,
    verify_certs: bool = True,
    client_cert: str | None = None,
    client_key: str | None = None,
) -> ssl.SSLContext:
    """A client's context that checks certificates and host names, unless told not to.

    `ca_certs`: the authorities to trust, instead of the system's; `client_cert`: to present to a server that
    asks for it, with `client_key` unless that is in the same file. Each is the path of a PEM file, or its
    content (a pod may have no place for a file). Raises SimulatorError if one can't be used.
    """
    try:
        if ca_certs is not None and is_pem(ca_certs):
            context = ssl.create_default_context(cadata=ca_certs)
        else:
            context = ssl.create_default_context(cafile=ca_certs)
    except OSError as error:  # ssl.SSLError is one
        raise SimulatorError(
            f"ca_certs can't be used: {error}; give the path of a PEM file, or its text"
        ) from error
    if not verify_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client_cert is None:
        return context
    with ExitStack() as files:

        def find_file(pem: str) -> str:
            if not is_pem(pem):
                return pem
            # OpenSSL reads only files; nobody else may read this one, which is deleted at once.
            file = files.enter_context(NamedTemporaryFile("w", encoding="utf-8", suffix=".pem"))
            file.write(pem + "\n")
            file.flush()
            return file.name

        try:
            key = client_key and find_file(client_key)
            # A passphrase would be requested on the terminal.
            context.load_cert_chain(find_file(client_cert), key, lambda: b"")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SimulatorError(
                f"client_cert and client_key can't be used: {error}; give paths or texts of PEM"
                " files, with a key that has no passphrase"
            ) from error
    return context


def any_encrypted(urls: Iterable[str]) -> bool:
    """Whether one of the URLs says https."""
    return any(urlsplit(url).scheme == "https" for url in urls)


class ClientCertOptions(Options):
    """The certificate to present to a server that asks its clients for one."""

    client_cert: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None,
        description="client certificate for a server that requires one: a PEM file, or its text",
    )
    client_key: str | None = Field(
        None,
        repr=False,
        description=(
            "key of client_cert, without a passphrase: a PEM file, or its text (default: in"
            " client_cert)"
        ),
    )

    @model_validator(mode="after")
    def _check_client_cert(self) -> Self:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key needs client_cert")
        return self

    def find_file(self, option: str) -> str | None:
        """The file named by an option, for a client that accepts nothing else; OptionError if the option has
        the file's content."""
        value: str | None = getattr(self, option)
        if value is not None and is_pem(value):
            raise OptionError(f"client={self.client} takes {option} only as a file")
        return value


class TlsOptions(ClientCertOptions):
    """Which server certificates to trust, and which certificate to present."""

    ca_certs: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None,
        description="trusted certificate authorities: a PEM file, or its text (default: the system's)",
    )
    verify_certs: Annotated[bool, Condition.NONE, ACCESS] = Field(
        True, description="check the server's certificate"
    )

    def make_context(self) -> ssl.SSLContext:
        """A context for encrypted connections; SimulatorError if a certificate can't be used."""
        return make_tls_context(self.ca_certs, self.verify_certs, self.client_cert, self.client_key)


class HttpOptions(Options, ABC):
    """The nodes of a server with an HTTP interface."""

    DEFAULT_PORT: ClassVar[int | None] = None
    """For an endpoint without one; None: HTTP's default."""
    EXAMPLE_URL: ClassVar[str]
    LOGIN: ClassVar[str] = "username and password"
    """The options for the login."""
    TRUST_REMEDY: ClassVar[str] = TRUST_REMEDY
    PATH_ALLOWED: ClassVar[bool] = True
    """Whether URLs may have a path."""

    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1, description="the nodes' URLs, separated by commas"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for an answer, in seconds"
    )

    @field_validator("endpoint")
    @classmethod
    def _check_urls(cls, value: list[str]) -> list[str]:
        return [check_url(url, cls.EXAMPLE_URL, cls.LOGIN, cls.PATH_ALLOWED) for url in value]

    @property
    def server(self) -> str:
        """The nodes' host:port, for messages."""
        return ", ".join(
            server_name(url, self.DEFAULT_PORT or scheme_port(url)) for url in self.endpoint
        )

    @abstractmethod
    def make_tls_context(self) -> ssl.SSLContext | None:
        """The certificates to trust for https endpoints; SimulatorError if they can't be used."""


class EndpointOptions(HttpOptions, TlsOptions):
    """The nodes, and the certificates to trust with `TlsOptions`."""

    def make_tls_context(self) -> ssl.SSLContext | None:
        return self.make_context() if any_encrypted(self.endpoint) else None


class LoginOptions(Options):
    """The user to log in as, if any."""

    username: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="user name, with password"
    )
    password: str | None = Field(None, repr=False, description="the user's password")

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        return self

    def login(self) -> dict[str, str]:
        if self.username is None or self.password is None:
            return {}
        return {"authorization": basic_auth(self.username, self.password)}


class InFlightOptions(Options):
    """How many requests a worker keeps in flight."""

    IN_FLIGHT: ClassVar[str | None] = "max_in_flight"

    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description=IN_FLIGHT_MEANING
    )
