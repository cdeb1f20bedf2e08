"""Writes lines to InfluxDB."""

from __future__ import annotations

from ..base import Job
from ..sending import Payload, Writer
from .encoding import LineEncoder
from .options import InfluxOptions
from .server import Connection, connect


class InfluxWriter(Writer):
    """Sends payloads of `LineEncoder`."""

    def __init__(self, encoder: LineEncoder, options: InfluxOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None

    def open(self) -> None:
        self._connection = connect(self._options, self._job)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def send(self, payload: Payload) -> int:
        assert self._connection is not None
        self._connection.write(payload.data)
        return payload.events
