"""Writes to QuestDB, over HTTP and by PGWire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import SimulatorError
from ..base import Job
from ..postgres.dialects import Connection as PgConnection
from ..postgres.dialects import Dialect
from ..postgres.writer import PostgresWriter
from ..sending import Payload, Writer
from .lines import LineEncoder, LineFormat
from .options import QuestdbOptions
from .server import BINARY_VERSION, Connection, connect
from .statements import StatementEncoder


class LineWriter(Writer):
    """Sends payloads of `LineEncoder`; by several threads if several may be in flight."""

    def __init__(self, encoder: LineEncoder, options: QuestdbOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None

    def open(self) -> None:
        connection = connect(self._options, self._job)
        self._connection = connection
        is_binary = self._options.line_format is LineFormat.BINARY
        if is_binary and not connection.supports(BINARY_VERSION):
            raise SimulatorError(
                f"QuestDB at {self._options.server} takes no binary lines, which came with version 9:"
                " use line_format=text"
            )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        assert self._connection is not None
        self._connection.write(payload.data)
        return payload.events


class PgWire(Dialect):
    """PostgreSQL's protocol as QuestDB speaks it."""

    IS_REPEATABLE = True

    def backend(self, connection: PgConnection) -> Any:
        return None


def make_statement_writer(
    encoder: StatementEncoder, options: QuestdbOptions, job: Job
) -> PostgresWriter:
    """A writer that sends payloads of `StatementEncoder`; OptionError without a connection string."""
    # The load says here what the target's own option may say.
    load = job.load.model_copy(update={"in_flight": options.in_flight(job.load)})
    return PostgresWriter(encoder, options.pgwire(), replace(job, load=load), PgWire())
