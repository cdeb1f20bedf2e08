"""Writes imports to VictoriaMetrics, each event once."""

from __future__ import annotations

import time
from typing import Any

from ...errors import Retryable
from ...workloads.queries import BoundQuery, Query
from .._base.exactly_once import Span, Wanted, find_missing, settle
from ..base import Job
from ..sending import Payload, Writer
from .encoding import Import, ImportEncoder
from .options import VictoriaMetricsOptions
from .queries import compile_query
from .server import VISIBLE_S, Connection, connect, find_span, removes_duplicates

# How far apart the two look-ups are that must agree on what a lost request has stored.
_SETTLE_S = 0.5


class VictoriaMetricsWriter(Writer):
    """Sends payloads of `ImportEncoder`."""

    encoder: ImportEncoder

    def __init__(self, encoder: ImportEncoder, options: VictoriaMetricsOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None
        self._is_idempotent = False
        """Whether the server counts a sample once that it gets twice."""

    def open(self) -> None:
        self._connection = connect(self._options, self._job)
        metrics = self._connection.read_flags()
        self._is_idempotent = removes_duplicates(metrics)
        self.encoder.taken = find_span(metrics)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def send(self, payload: Payload) -> int:
        connection, lines = self._connection, payload.data
        assert connection is not None
        if lines.in_doubt and self._settle(lines, payload):
            return payload.events
        try:
            connection.write(lines.target, lines.body)
        except Retryable:
            if not self._is_idempotent:
                lines.doubt()
            raise
        return payload.events

    def _settle(self, lines: Import, payload: Payload) -> bool:
        """Find out what is stored of a request in doubt; whether nothing of it is left to be sent."""
        return settle([lines], payload, lambda request: self._find_missing(request, payload))

    def _find_missing(self, lines: Import, payload: Payload) -> list[int]:
        """The positions of the request's rows that the server doesn't have."""
        connection, schema = self._connection, self._job.schema
        assert connection is not None
        query = Query(name="stored", events=schema.row_key)

        def find(wanted: Wanted) -> list[tuple[Any, ...]]:
            devices, times = wanted[schema.device], wanted[schema.time]
            assert isinstance(times, Span) and not isinstance(devices, Span)
            bound = BoundQuery(query, tuple(devices), times.first, times.last + 1)
            return [
                row
                for table in self._job.table_names
                for row in compile_query(bound, schema, self._options.db, table)(connection)
            ]

        before: list[int] | None = None
        while True:
            if not connection.flush():
                # What isn't visible yet would be stored twice.
                time.sleep(VISIBLE_S)
            missing = find_missing(lines, payload, find)
            if missing == before:
                return missing
            before = missing
            # The server may still be at work on the request, or on making its samples visible.
            time.sleep(_SETTLE_S)
