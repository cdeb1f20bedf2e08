"""Sends what `CassandraEncoder` makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cassandra.connection import ConnectionException
from cassandra.protocol import BatchMessage, ExecuteMessage

from ...errors import SimulatorError
from .._base.sql_queries import quote_name
from ..base import Job
from ..sending import Outcome, Payload, Writer
from .encoding import CassandraEncoder, Prepared, Request
from .errors import ERRORS, translate
from .options import CassandraOptions
from .pool import ConnectionPool
from .server import RECONNECT_S, ClusterSession
from .wire import Connection, Node


class CassandraWriter(Writer):
    """Sends what `CassandraEncoder` makes, by connections of its own."""

    encoder: CassandraEncoder

    def __init__(self, encoder: CassandraEncoder, options: CassandraOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._options = options
        self._job = job
        self._session: ClusterSession | None = None
        self._pool: ConnectionPool | None = None
        self._prepared: list[Prepared] = []

    def open(self) -> None:
        session = ClusterSession(self._options, self._job)
        self._session = session
        keyspace = quote_name(self._options.keyspace)
        columns = self.encoder.columns
        names, marks = ", ".join(map(quote_name, columns)), ", ".join("?" for _ in columns)
        statements = [
            f"INSERT INTO {keyspace}.{quote_name(table)} ({names}) VALUES ({marks})"
            for table in self._job.table_names
        ]
        self._pool = ConnectionPool(
            session.keep_topology(),
            partial(self._connect, session, statements),
            self._options.request_timeout,
            partial(translate, options=self._options, job=self._job, expects_tables=True),
        )
        try:
            self._pool.open()
        except ERRORS as error:
            # While connecting nothing is tried again.
            meaning = translate(error, self._options, self._job)
            if isinstance(meaning, SimulatorError):
                raise meaning from error
            raise SimulatorError(str(meaning)) from error
        self.encoder.use_statements(self._prepared, session.version)

    def _connect(
        self, session: ClusterSession, statements: Sequence[str], node: Node
    ) -> Connection:
        """A connection to the node, on which the statements are prepared."""
        connection, prepared = session.connect(node, statements)
        self._prepared = self._prepared or prepared
        if prepared != self._prepared:
            connection.close()
            # What it calls them is in the requests already. It is computed from their texts.
            raise ConnectionException(
                "the node calls prepared statements otherwise than the others"
            )
        if self._job.stamps_arrivals:
            connection.stamp_arrivals()
        return connection

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(self, payload: Payload) -> int:
        self.submit(payload, None)
        [outcome] = self.outcomes(None)
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def submit(self, payload: Payload, request: object) -> None:
        assert self._pool is not None
        data: Request = payload.data
        self._pool.submit(data.partition, self._operation, data.body, request, payload.events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome]:
        assert self._pool is not None
        return self._pool.outcomes(timeout_s)

    def stop_submitting(self) -> None:
        assert self._pool is not None
        self._pool.finish()

    def recover(self, payload: Payload) -> bool:
        assert self._pool is not None
        self._pool.await_connection(RECONNECT_S)
        return False
