"""The vendor's client as a module's writer and asker, for `client=official`: declared in `Module.CLIENTS`.

A module has it in `official.py`: a writer that creates the client, translates its errors, and whose `insert`
is one call of its documented bulk method, with the client's defaults; an encoder of rows or documents of
Python values, as in an application; and an asker whose answers the client decodes. Everything else is as on
the lean path: events, tables, counting and the queries' texts are the module's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import numpy as np
import orjson
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, TEXTS, bounds, with_client_key
from ...errors import Retryable, SimulatorError
from ...workloads.schema import FLOATS, Column, ColumnType, EventBlock
from ..base import AnyModule, Job
from ..sending import (
    Asker,
    BlockingChannel,
    Encoder,
    Received,
    Request,
    deal_rows,
    wrap_requests,
)
from ..sending import Rows as Answer
from .exactly_once import ConnectedWriter, TablePart
from .module import ConnectedModule, ConnectionT


class OfficialEncoder(Encoder):
    """Makes what a client accepts. Rows are built between two requests, as in an application, and not in a
    thread beside a client that needs the interpreter itself."""

    overlaps = False

    def encode(self, block: EventBlock) -> list[Request]:
        return wrap_requests(self.make_requests(block), block, self.size)

    @abstractmethod
    def make_requests(self, block: EventBlock) -> Sequence[Any]:
        """Input for the writer's `send`: requests of `size` events each."""


@dataclass(slots=True)
class Rows(TablePart):
    """A client's input for the events of one table."""

    values: Sequence[Any]

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        self.values = [self.values[position] for position in positions]


class RowsEncoder(OfficialEncoder):
    """A payload's data: a list of `Rows`, one for each table that gets events."""

    ROUNDS: ClassVar[bool] = True
    """Whether floats are sent with their decimals, as in an application."""

    def make_requests(self, block: EventBlock) -> list[list[Rows]]:
        values, tables = self.list_values(block), len(self.job.table_names)
        return [
            [
                Rows(
                    range(rows.start - start, stop - start, tables),
                    values[rows.start : stop : tables],
                    table=table,
                )
                for table, rows in deal_rows(block, start, stop, tables)
            ]
            for start, stop in bounds(len(block), self.size)
        ]

    def list_values(self, block: EventBlock) -> Sequence[Any]:
        """The client's input for these events, one item each: rows of the table's columns, preceded by the
        client's key, if there is one."""
        columns: Sequence[Column] = block.schema.row
        values: Mapping[str, NDArray[Any]] = block.row_columns
        if self.job.load.primary_key is PrimaryKey.CLIENT:
            columns, values = with_client_key(block)
        return list(
            zip(*list_columns(columns, values, block.missing, rounds=self.ROUNDS), strict=True)
        )


class ClientWriter(ConnectedWriter[ConnectionT]):
    """A writer with a vendor's client. The module's own connection is opened first: it checks the login, with
    remedies, and translates errors."""

    def __init__(self, module: ConnectedModule[Any, ConnectionT]) -> None:
        super().__init__(module)
        self._client: Any = None

    @abstractmethod
    def make_encoder(self, module: AnyModule) -> Encoder:
        """The encoder of the client's input."""

    @abstractmethod
    def make_client(self) -> Any:
        """The client, connected if it has a way to; Retryable or SimulatorError."""

    def open(self) -> None:
        super().open()
        self._client = self.make_client()

    def close(self) -> None:
        self.end_threads()
        if self._client is not None:
            self.close_client(self._client)
            self._client = None
        super().close()

    def close_client(self, client: Any) -> None:
        """Disconnect it; must not fail on a broken connection."""
        client.close()

    @property
    def client(self) -> Any:
        """The client, created again after `drop_client`."""
        if self._client is None:
            self._client = self.make_client()
        return self._client

    def drop_client(self) -> None:
        """Close the client, so that the next request uses another one."""
        client, self._client = self._client, None
        if client is not None:
            self.close_client(client)


class OfficialWriter(ClientWriter[ConnectionT]):
    """Sends each request with one call of the client. (A writer that has to find out about lost requests is a
    `SettlingWriter` and a `ClientWriter`.)"""

    @abstractmethod
    def insert(self, data: Any) -> None:
        """Insert everything from the encoder; raises the client's errors."""

    @abstractmethod
    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        """What an error of the client means; None: it isn't the client's."""

    def send(self, payload: Request) -> int:
        try:
            self.insert(payload.data)
        except (Retryable, SimulatorError):
            raise
        except Exception as error:
            meaning = self.explain(error)
            if meaning is None:
                raise
            raise meaning from error
        return payload.events


class ClientAsker(Asker, BlockingChannel, Generic[ConnectionT]):
    """Queries with a vendor's client, which decodes each answer; several in flight use as many clients. The
    module's own connection is opened first, as for a `ClientWriter`."""

    module: ConnectedModule[Any, ConnectionT]

    def __init__(self, module: ConnectedModule[Any, ConnectionT], in_flight: int) -> None:
        super().__init__(module, in_flight)
        self._connection: ConnectionT | None = None
        self._idle: list[Any] = []
        """Idle clients."""

    @abstractmethod
    def make_client(self) -> Any:
        """A client, connected if it has a way to; Retryable or SimulatorError."""

    @abstractmethod
    def execute(self, client: Any, statement: Any) -> Answer:
        """The rows of an answer; raises the client's errors."""

    @abstractmethod
    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        """What an error of the client means; None: it isn't the client's."""

    def close_client(self, client: Any) -> None:
        """Disconnect it; must not fail on a broken connection."""
        client.close()

    @property
    def connection(self) -> ConnectionT:
        """The module's own connection, of an open asker."""
        assert self._connection is not None
        return self._connection

    def open(self) -> None:
        self._connection = self.module.connect()
        for _ in range(self.max_in_flight):
            self._idle.append(self.make_client())

    def close(self) -> None:
        self.end_threads()
        while self._idle:
            self.close_client(self._idle.pop())
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def encode_statement(self, statement: Any) -> Any:
        return statement

    def send(self, request: Request) -> Received:
        client = self._take()
        try:
            rows = self.execute(client, request.data)
        except Exception as error:
            is_ours = isinstance(error, Retryable | SimulatorError)
            meaning = error if is_ours else self.explain(error)
            if isinstance(meaning, SimulatorError):
                self._idle.append(client)
            else:
                # Another one is created for the next query.
                self.close_client(client)
            if meaning is None or meaning is error:
                raise
            raise meaning from error
        self._idle.append(client)
        return Received(len(rows), 0, rows)

    def _take(self) -> Any:
        """An idle client, or another if one was lost."""
        try:
            # No check first: another thread could take the last client in between.
            return self._idle.pop()
        except IndexError:
            return self.make_client()

    def decode(self, received: Received) -> Answer:
        rows: Answer = received.data
        return rows


def sent_columns(job: Job) -> list[str]:
    """Names of the columns of the events' rows, preceded by the client's key, if there is one."""
    names = [column.name for column in job.schema.row]
    return [KEY_COLUMN, *names] if job.load.primary_key is PrimaryKey.CLIENT else names


def list_columns(
    columns: Sequence[Column],
    values: Mapping[str, NDArray[Any]],
    missing: Mapping[str, NDArray[np.bool_]],
    *,
    parse_json: bool = False,
    rounds: bool = True,
) -> list[list[Any]]:
    """Each column as a list of Python values: texts are `str`, a missing value is None, a document is its
    text, or parsed; floats have their decimals, as in an application, or are exact."""
    lists = []
    for column in columns:
        own, is_missing = values[column.name], missing.get(column.name)
        cells: list[Any]
        if column.type is ColumnType.JSON and parse_json:
            cells = [orjson.loads(text) for text in own.tolist()]
        elif column.type in TEXTS:
            cells = [text.decode() for text in own.tolist()]
        elif column.type in FLOATS and column.decimals is not None and rounds:
            # 21.4, and not the float32 next to it as a float64.
            cells = np.round(own.astype(np.float64), column.decimals).tolist()
        else:
            cells = own.tolist()
        if is_missing is not None:
            for row in np.flatnonzero(is_missing).tolist():
                cells[row] = None
        lists.append(cells)
    return lists


def list_documents(block: EventBlock) -> list[dict[str, Any]]:
    """The events' rows as documents."""
    columns = block.schema.row
    names = [column.name for column in columns]
    rows = list_columns(columns, block.row_columns, block.missing, parse_json=True)
    return [dict(zip(names, row, strict=True)) for row in zip(*rows, strict=True)]
