"""Databases with a driver that has Python's usual interface (https://peps.python.org/pep-0249/): statements,
and a transaction for each request.

A module says how to connect, and what its driver's errors mean. If a connection can be lost while a request
is under way, it also extends the writer's `recover`, which finds out whether the request was stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError
from ..options import Job, OptionsT
from ..sending import Payload
from .exactly_once import ConnectedWriter
from .official import RowsEncoder, sent_columns
from .sql_module import SqlModule

Meaning = Retryable | SimulatorError | None
"""What an error of a driver's means; None: it isn't one of its own."""


class DbapiConnection:
    """A driver's connection, which begins a transaction by itself."""

    def __init__(self, connect: Callable[[], Any], explain: Callable[[Exception], Meaning]) -> None:
        self._explain = explain
        with self._translating():
            self.driver = connect()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if (meaning := self._explain(error)) is None:
                raise
            raise meaning from error

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor, whose statements are stored as a whole or not at all."""
        with self._translating():
            cursor = self.driver.cursor()
            try:
                yield cursor
                self.driver.commit()
            except BaseException:
                with suppress(Exception):
                    self.driver.rollback()
                raise

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; none if it has none."""
        with self.transaction() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Disconnect."""
        self.driver.close()


class RowEncoder(RowsEncoder):
    """A payload's data: rows of Python values, by table. (What is to be measured builds bytes in bulk.)"""

    ROUNDS = False


class DbapiWriter(ConnectedWriter[DbapiConnection]):
    """Sends payloads of `RowEncoder`, each in a transaction."""

    def __init__(self, module: DbapiModule[Any]) -> None:
        super().__init__(module.encoder(module.options, module.job), module)
        columns = sent_columns(module.job)
        names, marks = ", ".join(map(quote_name, columns)), ", ".join([module.MARK] * len(columns))
        self._statements = [
            f"INSERT INTO {module.name_table(table)} ({names}) VALUES ({marks})"
            for table in module.job.table_names
        ]

    def send(self, payload: Payload) -> int:
        with self.connection.transaction() as cursor:
            for part in payload.data:
                cursor.executemany(self._statements[part.table], part.values)
        return payload.events


class DbapiModule(SqlModule[OptionsT, DbapiConnection]):
    """A module of such a database."""

    MARK: ClassVar[str] = "?"
    """Stands for a value in a statement."""

    @classmethod
    def encoder(cls, options: OptionsT, job: Job) -> RowEncoder:
        return RowEncoder(job)

    def make_writer(self) -> DbapiWriter:
        return DbapiWriter(self)

    def connect(self) -> DbapiConnection:
        return DbapiConnection(self.connect_driver, self.explain)

    @abstractmethod
    def connect_driver(self) -> Any:
        """The driver's connection; raises what the driver does."""

    @abstractmethod
    def explain(self, error: Exception) -> Meaning:
        """What an error of the driver's means: worth another try, or the end of the run."""
