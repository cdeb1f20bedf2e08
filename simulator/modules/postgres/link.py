"""One of a writer's connections: made, lost, made again, and what became of the requests in doubt."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import psycopg2
import psycopg2.extensions

from ...contract import PrimaryKey
from ...encoding.columns import client_keys
from ...errors import Retryable, SimulatorError
from .._base.errors import CONNECTION_LOST, connection_lost
from .._base.sql_queries import quote_name
from ..base import Job
from ..sending import Payload
from ..waiting import limit_wait
from .dialects import Connection, Dialect
from .options import ServerOptions
from .protocol import ServerError
from .server import ConnectLimits, connect, connect_plainly, is_lost_connection, translate
from .watchdog import Watchdog
from .wire import Wire

# How long the old backend may take to end before the next try.
_BACKEND_END_S = 10.0


class Link:
    """A connection to the server, which is made again when it is asked for after it was lost.

    What became of requests whose answer never came is found out then, for all of them, before anything
    else is sent.
    """

    DRIVER_ERROR: ClassVar[type[Exception]] = psycopg2.Error
    """What the driver raises by which it connects."""

    def __init__(
        self, options: ServerOptions, job: Job, dialect: Dialect, preparation: bytes
    ) -> None:
        """`preparation`: the first request, which prepares the statements; may be empty."""
        self._options = options
        self._job = job
        self._dialect = dialect
        self._preparation = preparation
        self._watchdog = Watchdog(options.request_timeout_s)
        self._connection: Connection | None = None
        self.wire: Wire | None = None
        """None while the connection is lost."""
        self.held: deque[tuple[Payload, object]] = deque()
        """Requests (payload, and the caller's name for it) that wait until it is there again."""
        self._backend: Any = None
        """What tells this connection's backend from all others."""
        self._lost_backend: Any = None
        """The one that may still be at work on requests in doubt."""
        self._lost_at = 0.0
        """When it was given up, by the monotonic clock."""
        self._limits = ConnectLimits()
        self._in_doubt: dict[int, Payload] = {}
        """Id -> payload that may have been committed without our knowing."""
        self._stored: dict[int, bool] = {}
        """Id of a payload that was in doubt -> whether it is stored."""

    def open(self) -> None:
        """Connect. Raises Retryable or SimulatorError."""
        for attempt in range(self._options.max_retries):
            try:
                self._open()
            except Retryable as error:
                if error.kind == CONNECTION_LOST:
                    raise
                self.close()
                time.sleep(error.backoff_s * 2**attempt)
            else:
                return
        self._open()

    def _open(self) -> None:
        connection = self._connect()
        try:
            with self._watched(connection), self._watchdog.limit():
                self._backend = self._dialect.backend(connection)
        except self.DRIVER_ERROR as error:
            raise self.explain_driver(connection, error) from error
        self._take_over(connection)

    def close(self) -> None:
        """Disconnect; no error if that was lost already."""
        self._watchdog.release()
        if self.wire is not None:
            self.wire.close()
            self.wire = None
        if self._connection is not None:
            with suppress(self.DRIVER_ERROR):
                self._connection.close()
            self._connection = None

    def lose(self, payloads: list[Payload]) -> None:
        """Give the connection up; what became of these requests on it is in doubt."""
        self.close()
        self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self._limits.shorten()
        self._in_doubt.update((id(payload), payload) for payload in payloads)

    def was_stored(self, payload: Payload) -> bool:
        """Whether a request of `lose` is in the database, asked once. Connects again if need be.

        Raises Retryable if that failed.
        """
        if self.wire is None:
            self._restore()
        return self._stored.pop(id(payload))

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way."""
        return self.wire is not None and bool(self.wire.under_way)

    def take_held(self) -> list[tuple[Payload, object]]:
        """The requests that waited for the connection; they do no longer."""
        found = list(self.held)
        self.held.clear()
        return found

    def explain(self, error: ServerError) -> Retryable | SimulatorError:
        """What an error of the server means."""
        return self._translate(error.code, error, is_lost=False)

    def explain_driver(
        self, connection: Connection, error: Exception
    ) -> Retryable | SimulatorError:
        """What a DRIVER_ERROR means that came by a connection."""
        if (complaint := self._watchdog.complaint) is not None:
            return connection_lost(complaint)
        assert isinstance(error, psycopg2.Error)
        return self._translate(error.pgcode, error, is_lost_connection(connection, error))

    def _translate(
        self, code: str | None, text: object, is_lost: bool
    ) -> Retryable | SimulatorError:
        return translate(code or "", text, is_lost, self._dialect, self._job)

    def _connect(self) -> Connection:
        with self._limits.attempt() as limit_s:
            self._connection = connect(self._options.dsn, self._job.run_id, limit_s)
        return self._connection

    @contextmanager
    def _watched(self, connection: Connection) -> Iterator[None]:
        """For statements by psycopg2."""
        self._watchdog.watch(connection)
        try:
            yield
        finally:
            self._watchdog.release()

    def _take_over(self, connection: Connection) -> None:
        """Prepare the statements; from here on requests go by the wire."""
        wire = self.wire = Wire(connection, self._job.stamps_arrivals)
        if not self._preparation:
            return
        try:
            timeout_s = limit_wait(self._options.request_timeout_s)
            answer = wire.ask(self._preparation, 1, timeout_s)
        except OSError as error:
            raise connection_lost(error) from error
        if answer.error is not None:
            raise self.explain(answer.error) from answer.error

    # --- after it was lost

    def _restore(self) -> None:
        """Connect again and find out what became of the requests in doubt."""
        try:
            connection = self._connect()
            with self._watched(connection):
                with self._watchdog.limit():
                    self._backend = self._dialect.backend(connection)
                self._await_end_of_lost_backend(connection)
                for key, payload in list(self._in_doubt.items()):
                    with self._watchdog.limit():
                        self._stored[key] = self._is_stored(connection, payload)
                    del self._in_doubt[key]
            self._take_over(connection)
        except self.DRIVER_ERROR as error:
            self.close()
            raise connection_lost(self._watchdog.complaint or error) from error
        except (SimulatorError, Retryable) as error:
            self.close()
            raise connection_lost(error) from error

    def _await_end_of_lost_backend(self, connection: Connection) -> None:
        """Make sure that the lost connection's transactions can't be committed any more."""
        if self._lost_backend is None:
            return
        deadline = time.monotonic() + limit_wait(_BACKEND_END_S)
        while True:
            waited_s = time.monotonic() - self._lost_at
            with self._watchdog.limit():
                if self._dialect.is_gone(
                    connection, self._lost_backend, waited_s, self._connect_to
                ):
                    break
            if time.monotonic() > deadline:
                raise connection_lost("the old connection's backend still runs")
            # The server has no event for the end of a backend to wait for.
            time.sleep(0.02)
        self._lost_backend = None

    def _connect_to(self, host: str, port: int) -> Connection:
        """A connection to another node of the cluster."""
        node = psycopg2.extensions.make_dsn(
            self._options.dsn, host=host, port=port, connect_timeout=3
        )
        return connect_plainly(node, self._job.run_id)

    def _is_stored(self, connection: Connection, payload: Payload) -> bool:
        """Whether the payload's last event, and so the whole transaction, is in the database. False
        without a look where sending it again does no harm."""
        if self._dialect.IS_REPEATABLE:
            return False
        schema = self._job.schema
        block, row = payload.block, payload.last
        tables = self._job.table_names
        table = tables[(block.first + row) % len(tables)]
        conditions, values = [], []
        if self._job.load.primary_key is PrimaryKey.CLIENT:
            conditions.append("id = %s")
            values.append(client_keys(block.part(row, row + 1))[0].decode())
        else:
            for name, value in block.key_of(row).items():
                column = quote_name(name)
                if name == schema.device and schema.device_path:
                    column = f"{column} ->> '{schema.device_path}'"
                conditions.append(f"{column} = %s")
                values.append(value)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {quote_name(table)} WHERE {' AND '.join(conditions)} LIMIT 1",
                values,
            )
            return cursor.fetchone() is not None
