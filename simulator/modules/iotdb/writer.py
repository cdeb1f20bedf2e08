"""Sends what an encoder makes, by a session for each request in flight."""

from __future__ import annotations

from collections import deque

from ..base import Job
from ..sending import Encoder, Payload, Writer
from ..waiting import limit_wait
from .connection import Connection
from .errors import ServerError
from .options import IotdbOptions
from .server import ERRORS, Connector


class IotdbWriter(Writer):
    """Rows are overwritten by the same rows, so a request whose fate is unknown is sent again."""

    def __init__(self, encoder: Encoder, options: IotdbOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._connector = Connector(options, job)
        self._idle: deque[Connection] = deque()
        """Sessions that nobody uses. Threads may take and add some without a lock."""

    def open(self) -> None:
        connections = self._idle
        connections.append(self._connector.connect_first())
        while len(connections) < self.max_in_flight:
            connections.append(self._connector.connect())

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def send(self, payload: Payload) -> int:
        try:
            # It belongs to this thread until it is given back.
            connection = self._idle.pop()
        except IndexError:
            connection = self._connector.connect()
        try:
            connection.insert(payload.data, limit_wait(self._options.request_timeout_s))
        except ERRORS as error:
            if isinstance(error, ServerError):
                self._idle.append(connection)
            else:
                connection.cut()
            raise self._connector.interpret(error) from error
        self._idle.append(connection)
        return payload.events
