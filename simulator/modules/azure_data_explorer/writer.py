"""Writes CSV to Azure Data Explorer, each event once, or ends the run."""

from __future__ import annotations

import time

from ...errors import Retryable
from .._base.errors import CONNECTION_LOST
from ..base import Job
from ..sending import Encoder, Payload, Writer
from .encoding import Part
from .options import STREAMED_VISIBLE_S, AdxOptions
from .queries import select_stored
from .server import Connection, connect

_UNCLEAR = (CONNECTION_LOST, "timeout")
"""Kinds of errors after which a request may be stored."""

# Nothing tells when streamed events have arrived, so they are looked for again and again.
_LOOK_INTERVAL_S = 0.5


class AdxWriter(Writer):
    """Sends payloads of `CsvEncoder`, or others with a deque of `Part`: a request per table."""

    def __init__(self, encoder: Encoder, options: AdxOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None

    def open(self) -> None:
        mode = self._options.mode(self._job.load.batch)
        self._connection = connect(self._options, self._job, mode)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        # What was acknowledged is not sent again when another table's request fails.
        while payload.data:
            part: Part = payload.data[0]
            if self._options.batch:
                self._enqueue(connection, part)
            else:
                self._stream(connection, part)
            payload.data.popleft()
        return payload.events

    def _enqueue(self, connection: Connection, part: Part) -> None:
        """Hand over what is stored later."""
        connection.enqueue(part.table, part.body, part.size)

    def _stream(self, connection: Connection, part: Part) -> None:
        # Here and not in `recover`, which other requests in flight would have to wait for.
        if part.in_doubt and self._is_stored(connection, part):
            return
        part.in_doubt = False
        try:
            self._put(connection, part)
        except Retryable as error:
            part.in_doubt = error.kind in _UNCLEAR
            raise

    def _put(self, connection: Connection, part: Part) -> None:
        """Have it stored."""
        connection.stream(part.table, part.body)

    def _is_stored(self, connection: Connection, part: Part) -> bool:
        """Whether the part's last event is stored: a request is stored as a whole or not at all."""
        query = select_stored(self._job.schema, part.table, part.device, part.time_ms)
        deadline = time.monotonic() + STREAMED_VISIBLE_S
        while True:
            if connection.ask(query)[0][0]:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_INTERVAL_S)
