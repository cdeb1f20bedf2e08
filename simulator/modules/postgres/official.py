"""Inserts by psycopg2 or psycopg 3, as their documentation has it: `client=official`, `client=psycopg3`.

One call for each request, in a transaction of its own, with the drivers' defaults. A lost connection is
treated as that of the lean path: its backend is ended, and the request in doubt looked for (`link`).

https://www.psycopg.org/docs/extras.html#fast-execution-helpers
https://www.psycopg.org/docs/cursor.html#cursor.copy_expert
https://www.psycopg.org/psycopg3/docs/basic/copy.html
"""

from __future__ import annotations

import io
import math
import os
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import psycopg
import psycopg2
from psycopg2.extras import execute_values

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, bounds
from ...workloads.schema import EventBlock
from .._base.official import OfficialEncoder, list_rows
from .._base.sql_queries import quote_name
from .._base.tables import deal_block
from ..base import Job
from ..sending import limit_wait
from .connection import ServerError, fill, lost, no_answer
from .encoding import InsertMode
from .options import PSYCOPG3, ServerOptions
from .pipeline import Answer, Channel
from .writer import PostgresWriter

if TYPE_CHECKING:
    from . import Postgres

_LONGEST_PAUSE_S = 1.0

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""https://www.postgresql.org/docs/current/sql-copy.html, "Text Format"."""


class Part(NamedTuple):
    """What one table gets of a request: rows, or the text of a COPY."""

    table: int
    events: int
    data: Any


class RowsEncoder(OfficialEncoder):
    """A payload's data: a list of `Part`, with rows as tuples, or with `as_text` what a COPY reads."""

    def __init__(self, job: Job, as_text: bool) -> None:
        super().__init__(job)
        self._as_text = as_text
        self._tables = job.table_names
        self.columns = [column.name for column in job.schema.row]
        if job.load.primary_key is PrimaryKey.CLIENT:
            self.columns.insert(0, KEY_COLUMN)

    def _requests(self, block: EventBlock, size: int) -> Sequence[list[Part]]:
        if len(self._tables) == 1:
            rows = list_rows(block, self._job)
            return [[self._part(0, rows[start:stop])] for start, stop in bounds(len(block), size)]
        return [
            [
                self._part(share.table, list_rows(part, self._job))
                for share, part in deal_block(block.part(start, stop), len(self._tables))
            ]
            for start, stop in bounds(len(block), size)
        ]

    def _part(self, table: int, rows: list[tuple[Any, ...]]) -> Part:
        return Part(table, len(rows), write_copy(rows) if self._as_text else rows)


def write_copy(rows: Sequence[Sequence[Any]]) -> str:
    """The rows as text of a COPY, made as an application makes it: value by value."""
    return "".join("\t".join(map(_write_value, row)) + "\n" for row in rows)


def _write_value(value: object) -> str:
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    return "\\N" if value is None else str(value)


class DriverConnection:
    """A driver's connection, asked as `Connection` is.

    libpq waits for an answer for as long as the connection lives, and a proxy that stalls keeps it alive.
    So a thread shuts the connection's socket down when a request has taken too long, and the call that waits
    for the answer ends with an error like that of any connection that is lost.
    """

    def __init__(self, driver: Any, error: type[Exception], limit_s: float) -> None:
        """`driver`: the connection, as `error`s come from it; `limit_s`: how long a statement may take."""
        self.driver = driver
        self._error = error
        self._limit_s = self._waits_s = limit_s
        self._due_s = math.inf
        """When the request under way will have taken too long."""
        self._is_cut = False
        self._lock = threading.Lock()
        """A descriptor may mean something else once its connection is closed."""
        self._is_over = threading.Event()
        threading.Thread(None, self._watch, "watchdog", daemon=True).start()

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.limit(limit_wait(self._limit_s)), self.driver.cursor() as cursor:
            cursor.execute(fill(statement, values))
            return cursor.fetchall() if cursor.description else []

    def close(self, *, cut: bool = False) -> None:
        """Hang up. `cut`: another thread waits for an answer, which closing would wait for as well."""
        with self._lock:
            self._is_over.set()
            if cut:
                self._shut_down()
        with suppress(self._error):
            self.driver.close()

    @contextmanager
    def limit(self, timeout_s: float) -> Iterator[None]:
        """A request from its beginning to its end; OSError or `ServerError` for the driver's errors."""
        self._waits_s = timeout_s
        self._due_s = time.monotonic() + timeout_s
        try:
            yield
        except self._error as error:
            raise self._explain(error) from error
        finally:
            self._due_s = math.inf

    def _explain(self, error: Any) -> OSError | ServerError:
        if self._is_cut:
            return no_answer(self._waits_s)
        code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        # A server that was killed hangs up without a word: psycopg2 calls that an error without a code, and
        # the connection not closed, until it is used once more.
        is_unspecific = type(error).__name__ in ("OperationalError", "DatabaseError")
        if self.driver.closed or (is_unspecific and code is None):
            return lost(error)
        return ServerError(code or "", str(error))

    def _watch(self) -> None:
        while not self._is_over.wait(min(_LONGEST_PAUSE_S, self._limit_s / 4)):
            with self._lock:
                if time.monotonic() < self._due_s or self._is_over.is_set():
                    continue
                self._is_cut, self._due_s = True, math.inf
                self._shut_down()

    def _shut_down(self) -> None:
        """End whatever waits for the server."""
        # The connection's own descriptor is libpq's affair.
        with (
            suppress(OSError, self._error),
            socket.socket(fileno=os.dup(self.driver.fileno())) as stream,
        ):
            stream.shutdown(socket.SHUT_RDWR)


class DriverClient:
    """A driver, and how it inserts."""

    DRIVER: ClassVar[Any]
    """The driver's module."""
    INSERT = "INSERT INTO {table} ({columns}) VALUES "
    COPY = "COPY {table} ({columns}) FROM STDIN"

    def __init__(
        self, options: ServerOptions, job: Job, encoder: RowsEncoder, mode: InsertMode
    ) -> None:
        self.mode = mode
        self._limit_s = options.request_timeout_s
        columns = ", ".join(map(quote_name, encoder.columns))
        marks = ", ".join(["%s"] * len(encoder.columns))
        form = {
            InsertMode.COPY: self.COPY,
            InsertMode.VALUES_LISTS: self.INSERT + "%s",
        }.get(mode, f"{self.INSERT}({marks})")
        names = [(quote_name(table), columns) for table in job.table_names]
        if mode is not InsertMode.COPY:
            # What has values, the drivers format.
            names = [(table.replace("%", "%%"), own.replace("%", "%%")) for table, own in names]
        self._statements = [form.format(table=table, columns=own) for table, own in names]

    def connect(self, parameters: Mapping[str, Any]) -> DriverConnection:
        try:
            driver = self.DRIVER.connect(**parameters)
        except self.DRIVER.Error as error:
            raise ConnectionRefusedError(str(error)) from error
        driver.autocommit = True
        return DriverConnection(driver, self.DRIVER.Error, self._limit_s)

    def begin(self, connection: DriverConnection) -> DriverChannel:
        # As the drivers have it by default; single inserts are committed each at once.
        connection.driver.autocommit = self.mode is InsertMode.SINGLE
        return DriverChannel(connection, self)

    def insert(self, driver: Any, parts: Sequence[Part]) -> None:
        """All parts in one transaction."""
        with driver.cursor() as cursor:
            for part in parts:
                self._insert(cursor, self._statements[part.table], part.data)
        if self.mode is not InsertMode.SINGLE:
            driver.commit()

    @abstractmethod
    def _insert(self, cursor: Any, statement: str, data: Any) -> None:
        """One part, by the driver's documented way."""


class DriverChannel(Channel):
    """Requests by a driver, one at a time."""

    def __init__(self, connection: DriverConnection, client: DriverClient) -> None:
        super().__init__()
        self._connection = connection
        self._client = client

    def ask(self, request: Sequence[Part], timeout_s: float) -> Answer:
        driver = self._connection.driver
        try:
            with self._connection.limit(timeout_s):
                self._client.insert(driver, request)
        except ServerError as error:
            with self._connection.limit(timeout_s):
                driver.rollback()
            return Answer(0, error)
        return Answer(sum(part.events for part in request), None)


class Psycopg2Client(DriverClient):
    """psycopg2: `copy_expert`, `execute_values`, `executemany` and `execute`."""

    DRIVER: ClassVar = psycopg2

    def _insert(self, cursor: Any, statement: str, data: Any) -> None:
        if self.mode is InsertMode.COPY:
            cursor.copy_expert(statement, io.StringIO(data))
        elif self.mode is InsertMode.VALUES_LISTS:
            execute_values(cursor, statement, data)
        elif self.mode is InsertMode.TRANSACTION:
            cursor.executemany(statement, data)
        else:
            cursor.execute(statement, data[0])


class Psycopg3Client(DriverClient):
    """psycopg 3: `copy` with `write_row`, `executemany` and `execute`."""

    DRIVER: ClassVar = psycopg

    def _insert(self, cursor: Any, statement: str, data: Any) -> None:
        if self.mode is InsertMode.COPY:
            with cursor.copy(statement) as copy:
                for row in data:
                    copy.write_row(row)
        elif self.mode is InsertMode.TRANSACTION:
            cursor.executemany(statement, data)
        else:
            cursor.execute(statement, data[0])


def make_writer(module: Postgres, batch: int) -> PostgresWriter:
    """The writer with the driver that the option `client` names."""
    options, job = module.options, module.job
    mode = options.mode(batch)
    by_psycopg3 = options.client == PSYCOPG3
    encoder = RowsEncoder(job, as_text=mode is InsertMode.COPY and not by_psycopg3)
    client = (Psycopg3Client if by_psycopg3 else Psycopg2Client)(options, job, encoder, mode)
    return PostgresWriter(encoder, options, job, module.dialect, client)
