"""What modules that ask by one connection have in common: the module, its writers, and tables of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..base import EncodingT, Module, OptionsT
from ..sending import Encoder, Writer
from .errors import QUERY_REMEDY, made_otherwise, nothing_to_query


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Disconnect; must not fail on a broken connection."""


ConnectionT = TypeVar("ConnectionT", bound=Closable)


class ConnectedModule(Module[OptionsT, EncodingT], Generic[OptionsT, EncodingT, ConnectionT]):
    """A module that does everything but writing by one connection."""

    _connection: ConnectionT | None = None

    @abstractmethod
    def connect(self) -> ConnectionT:
        """A new connection; SimulatorError if the server doesn't answer."""

    def open(self) -> None:
        self._connection = self.connect()

    def close(self) -> None:
        super().close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> ConnectionT:
        """The connection, made if it isn't there."""
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection


class ConnectedWriter(Writer, Generic[ConnectionT]):
    """A writer with a connection like its module's, shared by the threads that have requests in flight."""

    def __init__(self, encoder: Encoder, module: ConnectedModule[Any, Any, ConnectionT]) -> None:
        super().__init__(encoder)
        self.job = module.job
        self.max_in_flight = module.options.in_flight(module.job.load)
        self._connect = module.connect
        self._connection: ConnectionT | None = None

    def open(self) -> None:
        self._connection = self._connect()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> ConnectionT:
        """The connection of an open writer."""
        assert self._connection is not None
        return self._connection


class CountingModule(ConnectedModule[OptionsT, EncodingT, ConnectionT]):
    """A module that counts table by table."""

    @property
    def tables(self) -> list[str]:
        """The run's tables: those of events, and that of tags if there is one."""
        return [*self.job.table_names, *self.job.tags_tables]

    @abstractmethod
    def count_rows(self, table: str) -> int:
        """All rows that a reader would find now."""

    def count(self) -> int:
        return sum(map(self.count_rows, self.job.table_names))

    def count_devices(self) -> int | None:
        counts = [self.count_rows(table) for table in self.job.tags_tables]
        return counts[0] if counts else None


class TableModule(CountingModule[OptionsT, EncodingT, ConnectionT]):
    """A module whose tables have columns, with types."""

    @abstractmethod
    def read_columns(self, table: str) -> Mapping[str, str]:
        """A table's columns and their types as the server names them; none if there is no such table."""

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        """The columns that the run's rows need, and their types; None: any."""
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: None for column in columns}

    def fits(self, actual: str, expected: str) -> bool:
        """Whether a column of the first type is one of the second."""
        return actual == expected

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        """SimulatorError if one of these tables, or that of the tags, is there and has other columns than are
        needed now; `remedy`: see `made_otherwise`."""
        for table in [*tables, *self.job.tags_tables]:
            # A table that the user may not use has none, either; whoever asks for it is told.
            if not (columns := self.read_columns(table)):
                continue
            for name, kind in self.expect_columns(table).items():
                if name not in columns:
                    raise made_otherwise(table, f"it has no column {name}", remedy)
                if kind is not None and not self.fits(columns[name], kind):
                    raise made_otherwise(table, f"{name} is {columns[name]}, not {kind}", remedy)

    def prepare_queries(self) -> None:
        for table in (self.job.schema.table, *self.job.tags_tables):
            if not self.read_columns(table):
                raise nothing_to_query(table, self.job)
        self.check_columns([self.job.schema.table], QUERY_REMEDY)
