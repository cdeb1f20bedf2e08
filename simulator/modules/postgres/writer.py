"""Sends payloads, one transaction each, and finds out what became of one whose answer never came."""

from __future__ import annotations

import time
from contextlib import suppress
from io import BytesIO
from typing import Any

import psycopg2
import psycopg2.extensions

from ...contract import PrimaryKey
from ...encoding import client_keys
from ...errors import Retryable, SimulatorError
from ..base import Job, Payload, Writer
from ..shared.errors import CONNECTION_LOST, connection_lost
from ..shared.sql import quote_name
from .dialects import Connection, Dialect
from .encoding import InsertMode, PostgresEncoder
from .options import ServerOptions
from .server import connect, connect_plainly, translate
from .watchdog import Watchdog

# How long the old backend may take to end before the next try.
_BACKEND_END_S = 10.0


class PostgresWriter(Writer):
    """Sends payloads of `PostgresEncoder`, one transaction each."""

    encoder: PostgresEncoder

    def __init__(
        self, encoder: PostgresEncoder, options: ServerOptions, job: Job, dialect: Dialect
    ) -> None:
        super().__init__(encoder)
        self._dsn = options.dsn
        self._watchdog = Watchdog(options.request_timeout_s)
        self._job = job
        self._dialect = dialect
        self._connection: Connection | None = None
        self._in_doubt = False
        """Whether the last request may have been committed without our knowing."""
        self._backend: Any = None
        """What tells this connection's backend from all others."""
        self._lost_backend: Any = None
        """The one that may still be at work on the request in doubt."""
        self._lost_at = 0.0
        """When it was given up, by the monotonic clock."""
        self._needs_transaction = encoder.mode is InsertMode.COPY and not dialect.COPY_IS_ATOMIC
        tables = range(len(job.table_names))
        self._copies = [encoder.copy_statement(table) for table in tables]

    def open(self) -> None:
        self._connection = connect(self._dsn, self._job.run_id)
        self._watchdog.watch(self._connection)
        try:
            with self._watchdog.limit():
                self._backend = self._dialect.backend(self._connection)
        except psycopg2.Error as error:
            raise self._translate(error) from error

    def close(self) -> None:
        self._watchdog.release()
        if self._connection is not None:
            with suppress(psycopg2.Error):
                self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        parts = payload.data
        statements = isinstance(parts[0][1], list)
        self._watchdog.begin()
        try:
            cursor = connection.cursor()
            if len(parts) == 1 and not statements and not self._needs_transaction:
                return self._send_part(cursor, *parts[0])
            cursor.execute("BEGIN")
            stored = 0
            for table, data in parts:
                for item in data if statements else (data,):
                    stored += self._send_part(cursor, table, item)
            cursor.execute("COMMIT")
            return stored
        except psycopg2.Error as error:
            meaning = self._translate(error)
            self._in_doubt = isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST
            raise meaning from error
        finally:
            self._watchdog.end()

    def _translate(self, error: psycopg2.Error) -> Retryable | SimulatorError:
        if (complaint := self._watchdog.complaint) is not None:
            return connection_lost(complaint)
        assert self._connection is not None
        return translate(error, self._connection, self._dialect, self._job)

    def _send_part(self, cursor: psycopg2.extensions.cursor, table: int, data: bytes) -> int:
        """Data for one table; the number of rows that it got."""
        if self.encoder.mode is InsertMode.COPY:
            # The whole payload in one read: with the default of 8 KiB psycopg2 asks Python for
            # each piece, which costs more CPU than building the payload.
            cursor.copy_expert(self._copies[table], BytesIO(data), size=len(data))
        else:
            cursor.execute(data)
        return cursor.rowcount

    def recover(self, payload: Payload) -> bool:
        if not self._in_doubt and self._roll_back():
            return False
        # Every further try begins here again until it's known what became of the request.
        self._in_doubt = True
        if self._lost_backend is None:
            self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self.close()
        try:
            self.open()
            assert self._connection is not None
            self._await_end_of_lost_backend(self._connection)
            with self._watchdog.limit():
                stored = self._is_stored(self._connection, payload)
        except (SimulatorError, psycopg2.Error) as error:
            raise connection_lost(error) from error
        self._in_doubt = False
        return stored

    def _roll_back(self) -> bool:
        assert self._connection is not None
        try:
            with self._watchdog.limit(), self._connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
        except psycopg2.Error:
            return False
        return True

    def _await_end_of_lost_backend(self, connection: Connection) -> None:
        """Make sure that the lost connection's transaction can't be committed any more."""
        if self._lost_backend is None:
            return
        deadline = time.monotonic() + _BACKEND_END_S
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
        node = psycopg2.extensions.make_dsn(self._dsn, host=host, port=port, connect_timeout=3)
        return connect_plainly(node, self._job.run_id)

    def _is_stored(self, connection: Connection, payload: Payload) -> bool:
        """Whether the payload's last event, and so the whole transaction, is in the database."""
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
