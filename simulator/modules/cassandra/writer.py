"""Sends what `CassandraEncoder` makes, by connections of its own to the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cassandra.protocol import BatchMessage, ExecuteMessage

from ..kit.connected import ConnectedWriter
from ..sending import Outcome, Payload
from .encoding import CassandraEncoder, Prepared, Request
from .pool import ConnectionPool
from .server import ERRORS, RECONNECT_S, ClusterSession

if TYPE_CHECKING:
    from . import Cassandra


class CassandraWriter(ConnectedWriter[ClusterSession]):
    """A writer with prepared INSERTs. Its session tells of the cluster's nodes."""

    encoder: CassandraEncoder
    _pool: ConnectionPool | None = None

    def __init__(self, encoder: CassandraEncoder, module: Cassandra) -> None:
        super().__init__(encoder, module)
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._statements = encoder.insert_statements(module.options.name_table)
        self._timeout_s = module.options.request_timeout

    def open(self) -> None:
        super().open()
        session = self.connection
        names: dict[str, Prepared] = {}
        self._pool = ConnectionPool(
            session.keep_topology(),
            lambda node: session.connect(node, self._statements, names),
            self._timeout_s,
            session.translate,
        )
        try:
            self._pool.open()
        except ERRORS as error:
            raise session.refuse(error) from error
        session.expects_tables = True
        self.encoder.use_statements([names[text] for text in self._statements], session.version)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        super().close()

    @property
    def pool(self) -> ConnectionPool:
        """The connections of an open writer."""
        assert self._pool is not None
        return self._pool

    def send(self, payload: Payload) -> int:
        self.submit(payload, None)
        [outcome] = self.outcomes(None)
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def submit(self, payload: Payload, request: object) -> None:
        data: Request = payload.data
        self.pool.submit(data.partition, self._operation, data.body, request, payload.events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[int]]:
        return self.pool.outcomes(timeout_s)

    def stop_submitting(self) -> None:
        self.pool.finish()

    def recover(self, payload: Payload) -> bool:
        self.pool.await_connection(RECONNECT_S)
        return False
