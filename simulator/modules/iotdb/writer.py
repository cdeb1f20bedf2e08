"""Sends what `TabletEncoder` makes, by a session for each request in flight."""

from __future__ import annotations

import threading

from ..base import Job
from ..sending import Payload, Writer
from .connection import Connection
from .encoding import TabletEncoder
from .errors import ServerError
from .options import IotdbOptions
from .server import ERRORS, Connector


class IotdbWriter(Writer):
    """A tablet's rows are overwritten by the same rows, so a request whose fate is unknown is sent again."""

    def __init__(self, encoder: TabletEncoder, options: IotdbOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._connector = Connector(options, job)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def open(self) -> None:
        connections = self._idle
        connections.append(self._connector.connect_first())
        while len(connections) < self.max_in_flight:
            connections.append(self._connector.connect())

    def close(self) -> None:
        with self._lock:
            connections, self._idle = self._idle, []
        for connection in connections:
            connection.close()

    def send(self, payload: Payload) -> int:
        connection = self._take() or self._connector.connect()
        try:
            connection.insert(payload.data, self._options.request_timeout_s)
        except ERRORS as error:
            if isinstance(error, ServerError):
                self._give_back(connection)
            else:
                connection.cut()
            raise self._connector.interpret(error) from error
        self._give_back(connection)
        return payload.events

    def _take(self) -> Connection | None:
        """A session that nobody uses; it then belongs to the caller."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)
