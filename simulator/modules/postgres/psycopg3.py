"""Inserts by psycopg 3, which is imported with this module.

https://www.psycopg.org/psycopg3/docs/basic/copy.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg

from ...errors import Retryable, SimulatorError
from .._base.errors import connection_lost
from .dialects import Connection
from .encoding import InsertMode
from .official import DriverLink, Part
from .server import explain_refusal, list_parameters


class Psycopg3Link(DriverLink):
    """By psycopg 3: `copy` with `write_row`, `executemany` and `execute`."""

    DRIVER_ERROR = psycopg.Error

    def _connect(self) -> Connection:
        dsn = self._options.dsn
        try:
            # What this package asks has its parameters in the text, as psycopg2 puts them there: not every
            # statement of a dialect can be prepared.
            with self._limits.attempt() as limit_s:
                made: Any = psycopg.connect(
                    autocommit=True,
                    cursor_factory=psycopg.ClientCursor,
                    **list_parameters(dsn, self._job.run_id, limit_s),
                )
        except psycopg.Error as error:
            raise SimulatorError(explain_refusal(dsn, str(error).strip())) from error
        # It has what this package uses of psycopg2's connections.
        self._connection = cast(Connection, made)
        return self._connection

    def explain_driver(
        self, connection: Connection, error: Exception
    ) -> Retryable | SimulatorError:
        if (complaint := self._watchdog.complaint) is not None:
            return connection_lost(complaint)
        assert isinstance(error, psycopg.Error)
        return self._translate(error.sqlstate, error, bool(connection.closed))

    def _insert(self, connection: Any, parts: Sequence[Part]) -> None:
        with psycopg.Cursor(connection) as cursor:
            for part in parts:
                statement = self._statements[part.table]
                if self._mode is InsertMode.COPY:
                    with cursor.copy(statement) as copy:
                        for row in part.data:
                            copy.write_row(row)
                elif self._mode is InsertMode.TRANSACTION:
                    cursor.executemany(statement, part.data)
                else:
                    cursor.execute(statement, part.data[0])
        if self._mode is not InsertMode.SINGLE:
            connection.commit()
