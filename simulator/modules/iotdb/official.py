"""Asks by the vendor's client, as its documentation has it: `client=official`.

`execute_query_statement`, and all rows by `has_next` and `next`, each of whose fields is taken as a Python
value. Several in flight are as many threads, each with a session. Inserts have the lean path only, whose
tablets are the client's own (`tests/simulator/test_iotdb.py`).

https://iotdb.apache.org/UserGuide/latest/API/Programming-Python-Native-API_apache.html
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from iotdb.Session import Session as Client
from iotdb.utils.exception import IoTDBConnectionException, StatementExecutionException
from iotdb.utils.IoTDBConstants import TSDataType
from thrift.Thrift import TException

from .._base.row_order import Row
from ..asking import Received
from ..sending import note_arrival
from .asking import IotdbAsker
from .connection import Question, ServerError
from .server import Sessions
from .tree_queries import Selection


class OfficialAnswer:
    """What a statement found, decoded."""

    bytes = 0
    """The client doesn't say."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = len(rows)
        self._rows = rows

    def read(self) -> list[Row]:
        """The rows."""
        return self._rows


class OfficialSession:
    """A session of the client's, to be used as a `Connection`."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float,
        login: tuple[str, str],
        configuration: Mapping[str, str],
        *_: object,
        answer_s: float,
    ) -> None:
        """As `Connection`. The client has one time limit, for all that it does: `answer_s`."""
        self._session = Client(
            *address, *login, zone_id="UTC", connection_timeout_in_ms=round(answer_s * 1000)
        )
        # As the client's TableSession does it.
        self._session.sql_dialect = configuration["sql_dialect"]
        self._session.database = configuration.get("db")
        self.is_open = False
        self._do(self._session.open)
        self.is_open = True

    def _do(self, call: Any, *arguments: Any) -> Any:
        """A call of the client's; raises what a `Connection` does."""
        try:
            return call(*arguments)
        except StatementExecutionException as error:
            code, _, text = str(error).partition(": ")
            raise ServerError(int(code) if code.isdigit() else 0, text, False) from error
        except (IoTDBConnectionException, TException) as error:
            raise ConnectionResetError(str(error)) from error

    def fetch(self, question: Question, timeout_s: float) -> OfficialAnswer:
        """All rows of an answer."""
        return OfficialAnswer(self._do(self._ask, question.statement, round(timeout_s * 1000)))

    def _ask(self, statement: str, timeout_ms: int) -> list[Row]:
        rows = []
        with self._session.execute_query_statement(statement, timeout_ms) as data_set:
            has_time = not data_set.iotdb_rpc_data_set.ignore_timestamp
            while data_set.has_next():
                record = data_set.next()
                values = map(_read, record.get_fields())
                rows.append((int(record.get_timestamp()), *values) if has_time else tuple(values))
        return rows

    def close(self) -> None:
        """End the session; no error if that was lost already."""
        self.is_open = False
        with suppress(OSError, IoTDBConnectionException, TException):
            self._session.close()

    cut = close


def _read(field: Any) -> Any:
    """A field's value; times in ms since 1970."""
    kind = field.get_data_type()
    is_time = kind == TSDataType.TIMESTAMP
    value = field.get_long_value() if is_time else field.get_object_value(kind)
    return value.item() if isinstance(value, np.generic) else value


class OfficialAsker(IotdbAsker):
    """Asks what `Iotdb.compile` gives."""

    def make_sessions(self) -> Sessions[OfficialSession]:
        options = self.module.options
        make = partial(OfficialSession, answer_s=options.query_timeout_s)
        return Sessions(options, self.module.job, make)

    def collect(self, answer: OfficialAnswer, selection: Selection | None) -> Received:
        rows = answer.read()
        if selection is not None:
            selection.expect(answer.rows)
            rows = selection.read(rows)
        note_arrival()
        return Received(len(rows), 0, rows)
