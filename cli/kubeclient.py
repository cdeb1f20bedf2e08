"""The Kubernetes client, with a time limit for each request and an end for those under way."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from kubernetes.client import ApiClient, Configuration
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

UNREACHABLE = (HTTPError, OSError)
"""What the client raises when the API server doesn't answer."""

# To connect, and to wait for more of an answer; whoever waits longer on purpose says so.
_REQUEST_TIMEOUT_S = (5.0, 10.0)


class TimedApiClient(ApiClient):
    """Gives each request a timeout that has none of its own: a network may swallow everything."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        pools = _make_pool_classes(self._sockets)
        self.rest_client.pool_manager.pool_classes_by_scheme = pools

    def call_api(self, *arguments: Any, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or _REQUEST_TIMEOUT_S
        return super().call_api(*arguments, **options)

    def break_off(self) -> None:
        """End the requests that other threads have under way; they raise one of UNREACHABLE.

        A thread that is still reading when the interpreter ends aborts it, and one that reads from a
        server that is gone without a word may do so for minutes.
        """
        for one in list(self._sockets):
            with suppress(OSError):
                # Of the plain socket below TLS, which has nobody left to say goodbye to.
                socket.socket.shutdown(one, socket.SHUT_RDWR)


def _make_pool_classes(sockets: WeakSet[socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
    """Pools whose connections enter their sockets there."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
