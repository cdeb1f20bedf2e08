"""Sends INSERTs to ClickHouse."""

from __future__ import annotations

from ..base import Job
from ..sending import Payload, Writer
from .encoding import NativeEncoder
from .options import ClickhouseOptions
from .server import Connection


class ClickhouseWriter(Writer):
    """Sends payloads of `NativeEncoder`; by several threads if several may be in flight.

    A request whose fate is unknown is sent again as it is: the server knows it by its token.
    """

    def __init__(self, encoder: NativeEncoder, options: ClickhouseOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None

    def open(self) -> None:
        connection = Connection(self._options, self._job)
        connection.check()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        assert self._connection is not None
        for part in payload.data:
            if not part.is_stored:
                self._connection.insert(part)
                part.is_stored = True
        return payload.events
