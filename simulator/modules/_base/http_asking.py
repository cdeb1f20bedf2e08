"""Asks questions by HTTP: a request is made whole before it is due, and of its answer rows and bytes are
counted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ..asking import Asker, Received
from .connected import ConnectedModule
from .http import Answer
from .http_database import HttpDatabase

_SUCCESS = range(200, 300)

DatabaseT = TypeVar("DatabaseT", bound=HttpDatabase[Any])


class HttpRequest(NamedTuple):
    """A question, ready to be sent."""

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] | None = None


class HttpAsker(Asker, Generic[DatabaseT]):
    """Asks by an `HttpDatabase` of its own, which several in flight share: its pool has a connection for
    each. A node that is lost is its affair, too."""

    module: ConnectedModule[Any, Any, DatabaseT]

    def __init__(self, module: ConnectedModule[Any, Any, DatabaseT], in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._database: DatabaseT | None = None

    def open(self) -> None:
        self._database = self.module.connect()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def database(self) -> DatabaseT:
        """What an open asker asks."""
        assert self._database is not None
        return self._database

    def send(self, request: Any) -> Received:
        body = self.exchange(request).body
        return Received(self.count_rows(body), len(body), body)

    def exchange(self, request: HttpRequest) -> Answer:
        """One request and its answer, which is a success by its status; Retryable or SimulatorError."""
        answer = self.database.request(*request)
        if answer.status not in _SUCCESS:
            raise self.database.explain(answer)
        return answer

    @abstractmethod
    def count_rows(self, body: bytes) -> int:
        """The rows of a complete answer, by what the protocol says or by a scan that costs nanoseconds a byte.
        Retryable or SimulatorError if it holds an error, whatever its status, or is cut off."""
