"""Queries with the vendor's client, as in its documentation: `client=official`.

It uses `execute_query_statement`, and fetches all rows with `has_next` and `next`, each field as a Python
value. Each query in flight has a thread with a session. Inserts have only the lean path, whose tablets equal
the client's (`tests/simulator/test_iotdb.py`).

https://iotdb.apache.org/UserGuide/latest/API/Programming-Python-Native-API_apache.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from iotdb.Session import Session
from iotdb.utils.exception import IoTDBConnectionException, StatementExecutionException
from iotdb.utils.IoTDBConstants import TSDataType
from thrift.Thrift import TException

from ...errors import Retryable, SimulatorError
from ..kit.official import ClientAsker
from ..kit.series import Row
from ..sending import carry_out
from .connection import ServerError
from .queries import Computation, Selection
from .schema import Model
from .server import ERRORS, Server


class OfficialAsker(ClientAsker[Server]):
    """Sends the queries of `Iotdb.compile`."""

    def make_client(self) -> Session:
        return self.connection.reach(self._open)

    def _open(self, address: tuple[str, int]) -> Session:
        options = self.module.options
        session = Session(
            *address,
            options.username,
            options.password,
            zone_id="UTC",
            # The client has one time limit for everything.
            connection_timeout_in_ms=round(options.query_timeout_s * 1000),
        )
        # As the client's TableSession does it.
        session.sql_dialect = options.model
        session.database = options.database if options.model is Model.TABLE else None
        with _translated():
            session.open()
        return session

    def close_client(self, client: Session) -> None:
        with suppress(OSError, IoTDBConnectionException, TException):
            client.close()

    def execute(self, client: Session, statement: str | Selection | Computation) -> list[Row]:
        def ask(text: str) -> list[Row]:
            rows = []
            timeout_ms = round(self.module.options.query_timeout_s * 1000)
            with _translated(), client.execute_query_statement(text, timeout_ms) as data_set:
                has_time = not data_set.iotdb_rpc_data_set.ignore_timestamp
                while data_set.has_next():
                    record = data_set.next()
                    values = map(_read, record.get_fields())
                    row = (int(record.get_timestamp()), *values) if has_time else tuple(values)
                    rows.append(row)
            return rows

        if isinstance(statement, Computation):
            return carry_out(statement.begin(), ask)
        if isinstance(statement, Selection):
            return statement.read(ask(statement.text))
        return ask(statement)

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.interpret(error) if isinstance(error, ERRORS) else None


@contextmanager
def _translated() -> Iterator[None]:
    """Translates the client's errors to those of a `Connection`."""
    try:
        yield
    except StatementExecutionException as error:
        code, _, text = str(error).partition(": ")
        raise ServerError(int(code) if code.isdigit() else 0, text, False) from error
    except (IoTDBConnectionException, TException) as error:
        raise ConnectionResetError(str(error)) from error


def _read(field: Any) -> Any:
    """A field's value; times in ms since 1970."""
    kind = field.get_data_type()
    is_time = kind == TSDataType.TIMESTAMP
    value = field.get_long_value() if is_time else field.get_object_value(kind)
    return value.item() if isinstance(value, np.generic) else value
