"""A writer's connection: made, lost, made again, and what became of the requests in doubt."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ...contract import PrimaryKey
from ...encoding.columns import client_keys
from ...errors import Retryable, SimulatorError
from .._base.errors import connection_lost
from .._base.libpq import Connector, ServerError, write_constant
from .._base.libpq_pipeline import Channel
from .._base.sql_queries import quote_name
from ..base import Job
from ..sending import Payload, limit_wait
from .dialects import Connection as ServerConnection
from .dialects import Dialect
from .options import ServerOptions
from .server import repeat_refused, translate

# How long the old backend may take to end before the next try.
_BACKEND_END_S = 10.0


class Link:
    """A connection to the server, which is made again when it is asked for after it was lost.

    What became of requests whose answer never came is found out then, for all of them, before anything
    else is sent.
    """

    def __init__(
        self,
        options: ServerOptions,
        job: Job,
        dialect: Dialect,
        connect: Callable[[Mapping[str, Any]], Any],
        begin: Callable[[Any], Channel],
    ) -> None:
        """`connect`, `begin`: see `PostgresWriter`."""
        self._max_retries = options.max_retries
        self._job = job
        self._dialect = dialect
        self._make = connect
        self._begin = begin
        self._connector = Connector(options.dsn, job.run_id)
        self._connection: ServerConnection | None = None
        self.channel: Channel | None = None
        """What takes requests; None while the connection is lost."""
        self.held: deque[tuple[Payload, object]] = deque()
        """Requests (payload, and the caller's name for it) that wait until the connection is there again."""
        self._backend: Any = None
        """What tells this connection's backend from all others."""
        self._lost_backend: Any = None
        """The backend that may still be at work on requests in doubt."""
        self._lost_at = 0.0
        """When the connection was given up, by the monotonic clock."""
        self._in_doubt: dict[int, Payload] = {}
        """Id -> payload that may have been committed without our knowing."""
        self._stored: dict[int, bool] = {}
        """Id of a payload that was in doubt -> whether it is stored."""

    def open(self) -> None:
        """Connect. Raises Retryable or SimulatorError."""
        repeat_refused(self._open, self._max_retries)

    def _open(self) -> None:
        self.close()
        try:
            self._connect()
        except (OSError, ServerError) as error:
            raise self.explain(error) from error

    def _connect(self) -> None:
        """Connect, and find out what became of the requests in doubt. Raises OSError, `ServerError`,
        Retryable or SimulatorError."""
        connection = self._connection = self._connector.connect(self._make)
        self._backend = self._dialect.backend(connection)
        self._await_end_of_lost_backend(connection)
        for key, payload in list(self._in_doubt.items()):
            self._stored[key] = self._is_stored(connection, payload)
            del self._in_doubt[key]
        self.channel = self._begin(connection)

    def close(self) -> None:
        """Disconnect; no error if that was lost already."""
        if self._connection is not None:
            self._connection.close(cut=self.is_busy)
        self._connection = self.channel = None

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way."""
        return self.channel is not None and bool(self.channel.under_way)

    def take_held(self) -> list[tuple[Payload, object]]:
        """Take the requests that have waited for the connection."""
        requests = list(self.held)
        self.held.clear()
        return requests

    def lose(self, payloads: list[Payload]) -> None:
        """Give the connection up; what became of these requests on it is in doubt."""
        self.close()
        self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self._connector.shorten()
        self._in_doubt.update((id(payload), payload) for payload in payloads)

    def was_stored(self, payload: Payload) -> bool:
        """Whether a request of `lose` is in the database, asked once. Connects again if need be.

        Raises Retryable if that failed.
        """
        if self.channel is None:
            try:
                self._connect()
            except (OSError, ServerError, SimulatorError, Retryable) as error:
                self.close()
                raise connection_lost(error) from error
        return self._stored.pop(id(payload))

    def explain(self, error: ServerError | OSError) -> Retryable | SimulatorError:
        """What an error that came by the connection means."""
        return translate(error, self._dialect, self._job)

    # --- after it was lost

    def _await_end_of_lost_backend(self, connection: ServerConnection) -> None:
        """Make sure that the lost connection's transactions can't be committed any more."""
        if self._lost_backend is None:
            return
        deadline = time.monotonic() + limit_wait(_BACKEND_END_S)
        while not self._dialect.is_gone(
            connection,
            self._lost_backend,
            time.monotonic() - self._lost_at,
            self._connector.connect_to,
        ):
            if time.monotonic() > deadline:
                raise connection_lost("the old connection's backend still runs")
            # The server has no event for the end of a backend to wait for.
            time.sleep(0.02)
        self._lost_backend = None

    def _is_stored(self, connection: ServerConnection, payload: Payload) -> bool:
        """Whether the payload's last event, and so the whole transaction, is in the database. False
        without a look where sending it again does no harm."""
        if self._dialect.IS_REPEATABLE:
            return False
        schema = self._job.schema
        block, row = payload.block, payload.last
        tables = self._job.table_names
        table = tables[(block.first + row) % len(tables)]
        if self._job.load.primary_key is PrimaryKey.CLIENT:
            key = client_keys(block.part(row, row + 1))[0].decode()
            conditions = [f"id = {write_constant(key)}"]
        else:
            conditions = []
            for name, value in block.key_of(row).items():
                column = quote_name(name)
                if name == schema.device and schema.device_path:
                    column = f"{column} ->> '{schema.device_path}'"
                conditions.append(f"{column} = {write_constant(value)}")
        statement = f"SELECT 1 FROM {quote_name(table)} WHERE {' AND '.join(conditions)} LIMIT 1"
        return bool(connection.ask(statement))
