"""How a worker reports its progress to the collector, once a second for as long as a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_CONNECT_S = 5.0
_PATIENCE_S = 60.0


class ReportConnection:
    """Posts small messages over one connection, from one thread.

    Garbage collection is paused while a worker measures, and each request of httpx leaves 6 KB in reference
    cycles: a worker grew by 20 MB an hour. The standard library's client leaves none.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """`url`: the collector's, plain HTTP."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port, timeout=_CONNECT_S)
        self._headers = {**headers, "content-type": "application/json"}

    def post(self, path: str, body: str) -> tuple[int, bytes]:
        """Status and content of the answer. OSError or HTTPException if none comes."""
        try:
            return self._post(path, body)
        except ConnectionError:
            # The collector closes a connection that was idle, as between two phases. Whoever has waited in
            # vain does not wait as long again.
            return self._post(path, body)

    def _post(self, path: str, body: str) -> tuple[int, bytes]:
        try:
            if self._connection.sock is None:
                self._connect()
            self._connection.request("POST", path, body.encode(), self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self._connection.close()
            raise

    def _connect(self) -> None:
        self._connection.connect()
        self._connection.sock.settimeout(_PATIENCE_S)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
