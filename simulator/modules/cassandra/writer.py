"""Writers with a session of the driver's and prepared INSERTs; among them the one that sends what
`CassandraEncoder` makes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

from cassandra.connection import ConnectionException
from cassandra.protocol import BatchMessage, ExecuteMessage

from ...errors import SimulatorError
from ..base import Job
from ..sending import Encoder, Outcome, Payload, Writer
from .encoding import CassandraEncoder, Prepared, Request
from .options import CassandraOptions
from .pool import ConnectionPool
from .server import ERRORS, RECONNECT_S, ClusterSession, translate
from .wire import Connection, Node


class SessionWriter(Writer):
    """A writer with a session of the driver's."""

    def __init__(
        self, encoder: Encoder, statements: Sequence[str], options: CassandraOptions, job: Job
    ) -> None:
        """`statements`: the INSERT of each table."""
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._statements = statements
        self._options = options
        self._job = job
        self._session: ClusterSession | None = None

    @property
    def session(self) -> ClusterSession:
        """The session, once the writer is open."""
        assert self._session is not None
        return self._session

    def open(self) -> None:
        self._session = ClusterSession(self._options, self._job)
        try:
            self._prepare()
        except ERRORS as error:
            # While connecting nothing is tried again.
            meaning = translate(error, self._options, self._job)
            if isinstance(meaning, SimulatorError):
                raise meaning from error
            raise SimulatorError(str(meaning)) from error

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare the statements. Raises `ERRORS`."""

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class CassandraWriter(SessionWriter):
    """Sends what `CassandraEncoder` makes, by connections of its own."""

    encoder: CassandraEncoder
    _pool: ConnectionPool

    def __init__(self, encoder: CassandraEncoder, options: CassandraOptions, job: Job) -> None:
        super().__init__(encoder, encoder.insert_statements(options.keyspace), options, job)
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._prepared: list[Prepared] = []

    def _prepare(self) -> None:
        self._pool = ConnectionPool(
            self.session.keep_topology(),
            partial(self._connect, self.session),
            self._options.request_timeout,
            partial(translate, options=self._options, job=self._job, expects_tables=True),
        )
        self._pool.open()
        self.encoder.use_statements(self._prepared, self.session.version)

    def _connect(self, session: ClusterSession, node: Node) -> Connection:
        """A connection to the node, on which the statements are prepared."""
        connection, prepared = session.connect(node, self._statements)
        self._prepared = self._prepared or prepared
        if prepared != self._prepared:
            connection.close()
            # What it calls them is in the requests already. It is computed from their texts.
            raise ConnectionException(
                "the node names prepared statements differently from the other nodes"
            )
        if self._job.stamps_arrivals:
            connection.stamp_arrivals()
        return connection

    def close(self) -> None:
        if self._session is not None:
            self._pool.close()
        super().close()

    def send(self, payload: Payload) -> int:
        self.submit(payload, None)
        [outcome] = self.outcomes(None)
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def submit(self, payload: Payload, request: object) -> None:
        data: Request = payload.data
        self._pool.submit(data.partition, self._operation, data.body, request, payload.events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[int]]:
        return self._pool.outcomes(timeout_s)

    def stop_submitting(self) -> None:
        self._pool.finish()

    def recover(self, payload: Payload) -> bool:
        self._pool.await_connection(RECONNECT_S)
        return False
