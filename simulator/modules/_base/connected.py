"""What modules that ask by a single connection have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from ..base import EncodingT, Module, OptionsT


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
