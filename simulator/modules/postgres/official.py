"""Inserts by psycopg2 or psycopg 3, as their documentation has it: `client=official`, `client=psycopg3`.

One call for each request, in a transaction of its own, with the drivers' defaults. A lost connection is
treated as that of the lean path: its backend is ended, and the request in doubt looked for (`link`).

https://www.psycopg.org/docs/extras.html#fast-execution-helpers
https://www.psycopg.org/docs/cursor.html#cursor.copy_expert
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg2.extras import execute_values

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, bounds
from ...errors import Retryable
from ...workloads.events import EventBlock
from .._base.errors import CONNECTION_LOST
from .._base.official import OfficialEncoder, list_rows
from .._base.sql_queries import quote_name
from .._base.tables import deal_block
from ..base import Job
from ..sending import Payload, Writer
from .dialects import Connection
from .encoding import InsertMode
from .link import Link
from .options import ServerOptions

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""https://www.postgresql.org/docs/current/sql-copy.html, "Text Format"."""


class Part(NamedTuple):
    """What one table gets of a request: rows, or the text of a COPY."""

    table: int
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
        return Part(table, write_copy(rows) if self._as_text else rows)


def write_copy(rows: Sequence[Sequence[Any]]) -> str:
    """The rows as text of a COPY, made as an application makes it: value by value."""
    return "".join("\t".join(map(_write_value, row)) + "\n" for row in rows)


def _write_value(value: object) -> str:
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    return "\\N" if value is None else str(value)


class DriverLink(Link):
    """A connection that a driver keeps, and inserts by."""

    INSERT = "INSERT INTO {table} ({columns}) VALUES "
    COPY = "COPY {table} ({columns}) FROM STDIN"

    def __init__(
        self, options: ServerOptions, job: Job, encoder: RowsEncoder, mode: InsertMode
    ) -> None:
        super().__init__(options, job, options.find_dialect(), b"")
        self._mode = mode
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

    def insert(self, parts: Sequence[Part]) -> None:
        """All parts in one transaction. Raises Retryable or SimulatorError."""
        connection = self._connection
        assert connection is not None
        try:
            with self._watchdog.limit():
                self._insert(connection, parts)
        except self.DRIVER_ERROR as error:
            meaning = self.explain_driver(connection, error)
            if not (isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST):
                self._roll_back(connection)
            raise meaning from error

    @abstractmethod
    def _insert(self, connection: Any, parts: Sequence[Part]) -> None:
        """By the driver's documented way."""

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except self.DRIVER_ERROR as error:
            raise self.explain_driver(connection, error) from error

    def _take_over(self, connection: Connection) -> None:
        # As the drivers have it by default; single inserts are committed each at once.
        connection.autocommit = self._mode is InsertMode.SINGLE

    def open(self) -> None:
        super().open()
        self._watch()

    def was_stored(self, payload: Payload) -> bool:
        stored = super().was_stored(payload)
        self._watch()
        return stored

    def _watch(self) -> None:
        assert self._connection is not None
        self._watchdog.watch(self._connection)


class Psycopg2Link(DriverLink):
    """By psycopg2: `copy_expert`, `execute_values`, `executemany` and `execute`."""

    def _insert(self, connection: Any, parts: Sequence[Part]) -> None:
        with connection.cursor() as cursor:
            for part in parts:
                statement = self._statements[part.table]
                if self._mode is InsertMode.COPY:
                    cursor.copy_expert(statement, io.StringIO(part.data))
                elif self._mode is InsertMode.VALUES_LISTS:
                    execute_values(cursor, statement, part.data)
                elif self._mode is InsertMode.TRANSACTION:
                    cursor.executemany(statement, part.data)
                else:
                    cursor.execute(statement, part.data[0])
        if self._mode is not InsertMode.SINGLE:
            connection.commit()


class OfficialWriter(Writer):
    """Sends what `RowsEncoder` makes by a driver's connection."""

    def __init__(self, encoder: RowsEncoder, link: DriverLink) -> None:
        super().__init__(encoder)
        self._link = link
        self._lost: Payload | None = None

    def open(self) -> None:
        self._link.open()

    def close(self) -> None:
        self._link.close()

    def send(self, payload: Payload) -> int:
        try:
            self._link.insert(payload.data)
        except Retryable as error:
            if error.kind == CONNECTION_LOST:
                self._lost = payload
                self._link.lose([payload])
            raise
        return payload.events

    def recover(self, payload: Payload) -> bool:
        if self._lost is not payload:
            return False
        stored = self._link.was_stored(payload)
        self._lost = None
        return stored
