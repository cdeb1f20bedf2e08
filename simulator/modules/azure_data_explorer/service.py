"""Requests to a cluster, over connections of our own (`_base/http.py`), for what is measured.

With Microsoft's clients, whose connections are kept open, the same requests take about ten times the CPU. All
else stays with those clients: commands, tokens, and what blobs and queues there are. The same authorities are
trusted as by them, but no proxy that the environment names is used for these requests.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress

import certifi
import orjson
from azure.kusto.data import KustoClient
from azure.kusto.data.exceptions import (
    KustoApiError,
    KustoError,
    KustoServiceError,
    KustoThrottlingError,
)

from ...errors import one_line
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    Connection,
    HttpClient,
    HttpPool,
    HttpRequest,
    NoAnswer,
    scheme_port,
)
from .._base.http_database import SHOWN
from .._base.tls import any_encrypted, make_tls_context

# Whenever the client is asked for its token, that is good for five minutes more. Asking costs more than
# the request: https://github.com/AzureAD/microsoft-authentication-library-for-python/blob/dev/msal/application.py
_TOKEN_KEPT_S = 60.0

_UNAUTHORIZED, _TOO_MANY_REQUESTS = 401, 429


def make_pool(uri: str, headers: Mapping[str, str], timeout_s: float) -> HttpPool:
    """Connections; the authorities that Microsoft's clients trust are trusted."""
    authorities = os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
    tls = make_tls_context(authorities) if any_encrypted([uri]) else None
    return HttpPool([uri], scheme_port(uri), headers, timeout_s, tls)


class Service(HttpClient):
    """A cluster's URI, asked with the login of a client of Microsoft's."""

    def __init__(self, client: KustoClient, uri: str, timeout_s: float) -> None:
        """`client`: Microsoft's, of the same URI. Requests identify themselves as it does."""
        # There is no public way to the client's token.
        self._helper = client._aad_helper
        self._login: dict[str, str] = {}
        self._login_kept_until = 0.0
        details = client.client_details
        headers = {
            "accept": "application/json",
            "x-ms-version": client.API_VERSION,
            "x-ms-client-version": details.version_for_tracing,
            "x-ms-app": details.application_for_tracing,
            "x-ms-user": details.user_name_for_tracing,
        }
        ascii_only = {
            name: value.encode("ascii", "replace").decode() for name, value in headers.items()
        }
        self._pool = make_pool(uri, ascii_only, timeout_s)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def reach(self) -> None:
        """Connect and log in for the first request, so that it doesn't have to."""
        self._authorize()
        # The client asks this, too, before it logs in.
        self._pool.request("GET", "/v1/rest/auth/metadata", timeout_s=CONNECT_TIMEOUT_S)

    def begin(self, request: HttpRequest, timeout_s: float | None = None) -> Connection:
        """NoAnswer if it can't be sent; KustoError without a token."""
        headers = {**(request.headers or {}), **self._authorize()}
        return self._pool.begin(request._replace(headers=headers), timeout_s)

    def receive(self, connection: Connection) -> Answer | None:
        """NoAnswer if there is none."""
        return self._pool.receive(connection)

    def give_up(self, connection: Connection) -> NoAnswer:
        return self._pool.give_up(connection)

    def _authorize(self) -> dict[str, str]:
        """The header that lets a request in, from the client, which renews its token in time."""
        if self._helper is not None and time.monotonic() >= self._login_kept_until:
            self._login = {"authorization": self._helper.acquire_authorization_header()}
            self._login_kept_until = time.monotonic() + _TOKEN_KEPT_S
        return self._login


def name_request(kind: str) -> dict[str, str]:
    """The header by which the service's logs know a request."""
    return {"x-ms-client-request-id": f"IotBenchmark.{kind};{uuid.uuid4()}"}


def read_error(answer: Answer) -> KustoError:
    """What the client would raise for the same answer."""
    text = one_line(answer.body.decode(errors="replace"), SHOWN)
    if answer.status == _TOO_MANY_REQUESTS:
        return KustoThrottlingError(text)
    if answer.status == _UNAUTHORIZED:
        return KustoServiceError("401. Missing adequate access rights.")
    with suppress(ValueError, KeyError, TypeError):
        return KustoApiError(orjson.loads(answer.body))
    return KustoServiceError(f"{answer.status}, not an answer of Azure Data Explorer: {text}")
