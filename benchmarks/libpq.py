"""The thinnest COPY there is: libpq's own functions on payloads that lie ready in memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

# https://www.postgresql.org/docs/current/libpq-exec.html: enum ExecStatusType
_COMMAND_OK = 1
_COPY_IN = 4


@lru_cache(maxsize=1)
def _library(folder: Path) -> ctypes.CDLL:
    """libpq of a PostgreSQL installation's lib folder."""
    library = ctypes.CDLL(str(next(folder.glob("libpq.so.5*"))))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("PQconnectdb", pointer, [text]),
        ("PQerrorMessage", text, [pointer]),
        ("PQexec", pointer, [pointer, text]),
        ("PQputCopyData", ctypes.c_int, [pointer, text, ctypes.c_int]),
        ("PQputCopyEnd", ctypes.c_int, [pointer, text]),
        ("PQgetResult", pointer, [pointer]),
        ("PQresultStatus", ctypes.c_int, [pointer]),
        ("PQclear", None, [pointer]),
        ("PQfinish", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Connection:
    """A connection by libpq alone."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._pq = _library(folder)
        self._connection = self._pq.PQconnectdb(dsn.encode())

    def close(self) -> None:
        self._pq.PQfinish(self._connection)

    def copy(self, statement: str, payloads: Sequence[bytes]) -> tuple[float, float]:
        """One COPY, and so one commit, per payload; (wall, CPU) seconds."""
        pq, connection, copy = self._pq, self._connection, statement.encode()
        wall, cpu = time.perf_counter(), time.process_time()
        for payload in payloads:
            self._expect(pq.PQexec(connection, copy), _COPY_IN)
            if pq.PQputCopyData(connection, payload, len(payload)) != 1:
                raise self._last_error()
            if pq.PQputCopyEnd(connection, None) != 1:
                raise self._last_error()
            self._expect(pq.PQgetResult(connection), _COMMAND_OK)
            if pq.PQgetResult(connection) is not None:
                raise self._last_error()
        return time.perf_counter() - wall, time.process_time() - cpu

    def _expect(self, result: int | None, status: int) -> None:
        found = self._pq.PQresultStatus(result)
        self._pq.PQclear(result)
        if found != status:
            raise self._last_error()

    def _last_error(self) -> RuntimeError:
        return RuntimeError(self._pq.PQerrorMessage(self._connection).decode())


@contextmanager
def connect(folder: Path, dsn: str) -> Iterator[Connection]:
    """A connection, closed afterwards."""
    connection = Connection(folder, dsn)
    try:
        yield connection
    finally:
        connection.close()
