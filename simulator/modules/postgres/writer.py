"""Sends requests, one transaction each, one at a time or several in flight. Reopens lost connections, and
then finds out the outcome of requests in doubt."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any, Protocol

from ...contract import MAX_IN_FLIGHT, PrimaryKey
from ...encoding.columns import client_keys, quote_name
from ...errors import Retryable, SimulatorError
from ..kit.libpq import Connection, Connector, ServerError, no_answer, write_constant
from ..kit.libpq_pipeline import make_pipeline
from ..kit.module import connection_lost
from ..kit.multiplexer import Multiplexer
from ..options import InsertMode, Job
from ..sending import Completion, Encoder, Request, Writer
from ..waiting import limit_wait
from .dialects import Dialect, ServerConnection
from .encoding import ServerOptions
from .server import is_lost, repeat_refused, translate

_BACKEND_END_S = 10.0
"""How long the old backend may take to end before the next attempt."""


class Sender(Protocol):
    """Sends requests over a connection: a `Pipeline`, or a driver."""

    descriptor: int
    under_way: deque[Request]
    is_full: bool

    def wait_up_to(self, timeout_s: float) -> bool: ...

    def submit(self, request: Request) -> None: ...

    def flush(self) -> None: ...

    def receive(self) -> list[Completion]: ...


class PostgresWriter(Multiplexer, Writer):
    """Sends requests of `PostgresEncoder`, one transaction each.

    Requests in flight each have their own connection, or share fewer (option `connections`) with a pipeline:
    requests are sent before earlier ones are answered. Measured with 16 single inserts in flight: on a server
    with default settings, which waits for the disk at each commit, 16 connections were 1.2 to 3 times as fast
    as one (9 times on a slow disk), since a single backend commits one request after another, while several
    commit together. With synchronous_commit=off on two cores, one was up to twice as fast, since fewer
    processes took turns.
    """

    encoder: Any
    """A `PostgresEncoder`, unless a subclass sends something else."""

    def __init__(
        self, encoder: Encoder, options: ServerOptions, job: Job, dialect: Dialect
    ) -> None:
        Multiplexer.__init__(self, options.request_timeout_s)
        Writer.__init__(self, encoder)
        self.options = options
        self.job = job
        self.dialect = dialect
        self.max_in_flight = options.in_flight(job.load)
        self._links = [
            Link(self)
            for _ in range(min(options.connections or self.max_in_flight, self.max_in_flight))
        ]
        self._lost: dict[int, Link] = {}
        """Id of a request in doubt -> the lost connection."""
        self._used: dict[int, Link] = {}
        """Descriptor -> connection with requests."""
        self._idle: deque[Link] = deque()
        """Idle connections."""

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        """A new connection with libpq's parameters; OSError if the connection is refused."""
        return Connection(parameters, self._timeout_s, stamped=self.job.stamps_arrivals)

    def begin(self, connection: Any) -> Sender:
        """A sender for a connection that is ready for requests. Raises OSError or `ServerError`."""
        for statement in self.encoder.list_prepared():
            connection.prepare(*statement)
        is_query = self.encoder.mode in (InsertMode.COPY, InsertMode.VALUES_LISTS)
        return make_pipeline(connection, is_query)

    def open(self) -> None:
        for link in self._links:
            link.open()
        self._idle.extend(self._links)

    def close(self) -> None:
        self.finish()
        for descriptor in list(self._used):
            self._leave(descriptor)
        for link in self._links:
            link.close()
        self._idle.clear()

    def recover(self, request: Request) -> bool:
        link = self._lost.get(id(request))
        if link is None:
            # Any other failure leaves nothing behind: the server has rolled it back.
            return False
        stored = link.was_stored(request)
        del self._lost[id(request)]
        if link.held:
            while link.held:
                self._submit_by(link, link.held.popleft())
        elif link not in self._idle and not link.is_busy:
            self._idle.append(link)
        return stored

    # --- requests

    @property
    def is_busy(self) -> bool:
        return any(link.is_busy for link in self._links)

    def submit(self, request: Request) -> None:
        # The one with the fewest requests; a lost one only if all are lost.
        idle = self._idle
        link = idle.popleft() if idle else min(self._links, key=Link.count_requests)
        if link.sender is None:
            # It is reopened for the requests that were lost with it.
            link.held.append(request)
        else:
            self._submit_by(link, request)

    def _submit_by(self, link: Link, request: Request) -> None:
        sender = link.sender
        assert sender is not None
        limit_s, deadline_s = self._timeout_s, request.deadline_s
        if deadline_s != inf:
            limit_s = limit_wait(limit_s, deadline_s)
        if self.max_in_flight == 1:
            self.blocks = sender.wait_up_to(limit_s)
        request.tried_s, request.limit_s = time.perf_counter(), limit_s
        sender.submit(request)
        descriptor = sender.descriptor
        self._used[descriptor] = link
        self.watch(descriptor, sender.is_full)

    def serve(self, descriptor: int, events: int) -> None:
        link = self._used[descriptor]
        sender = link.sender
        assert sender is not None
        was_full = sender.is_full
        if events & select.POLLOUT:
            sender.flush()
        if events != select.POLLOUT:
            try:
                ended = sender.receive()
            except OSError as error:
                self._end(link, sender, connection_lost(error), [])
                return
            doubtful: list[Request] = []
            reason: Retryable | SimulatorError | None = None
            for completion in ended:
                failure = completion.error
                if failure is None:
                    self.found.append(completion)
                    continue
                assert isinstance(failure, OSError | ServerError)
                meaning = link.explain(failure)
                if is_lost(meaning):
                    doubtful.append(completion.request)
                    reason = meaning
                else:
                    self.found.append(completion._replace(error=meaning))
            if doubtful:
                self._end(link, sender, reason, doubtful)
                return
            if ended and not sender.under_way:
                self._idle.append(link)
        # Some data is sent only when the server has asked for it.
        if sender.is_full is not was_full:
            self.watch(descriptor, sender.is_full)

    def end_late(self, now_s: float) -> None:
        for link in list(self._used.values()):
            sender = link.sender
            assert sender is not None
            for request in sender.under_way:
                if request.tried_s + request.limit_s <= now_s:
                    self._end(link, sender, connection_lost(no_answer(request.limit_s)), [])
                    break

    def _end(
        self, link: Link, sender: Sender, reason: Exception | None, doubtful: list[Request]
    ) -> None:
        """Give a connection up: these requests, and all in flight on it, may or may not have been stored."""
        self._leave(sender.descriptor)
        lost = [*doubtful, *sender.under_way]
        if not lost:
            # The next request on it will find it lost, and be looked up like any other.
            return
        link.lose(lost)
        now_s = time.perf_counter()
        for request in lost:
            self._lost[id(request)] = link
            self.found.append(Completion(request, 0, now_s, reason))

    def _leave(self, descriptor: int) -> None:
        del self._used[descriptor]
        self.forget(descriptor)


# --- a connection -----------------------------------------------------------------------------------


class Link:
    """A connection to the server, which is reopened on the next use after a loss.

    The outcome of requests without an answer is then found out, for all of them, before anything else is
    sent.
    """

    def __init__(self, writer: PostgresWriter) -> None:
        self._writer = writer
        self._job = writer.job
        self._dialect = writer.dialect
        self._connector = Connector(writer.options.dsn, writer.job.run_id, writer.dialect.SESSION)
        self._connection: ServerConnection | None = None
        self.sender: Sender | None = None
        """The sender; None while the connection is lost."""
        self.held: deque[Request] = deque()
        """Requests that wait for the connection to be reopened."""
        self._backend: Any = None
        """The identity of this connection's backend."""
        self._lost_backend: Any = None
        """The backend that may still be at work on requests in doubt."""
        self._lost_at = 0.0
        """When the connection was given up, by the monotonic clock."""
        self._in_doubt: dict[int, Request] = {}
        """Id -> request that may have been committed without our knowing."""
        self._stored: dict[int, bool] = {}
        """Id of a request that was in doubt -> whether it is stored."""

    def open(self) -> None:
        """Connect. Raises Retryable or SimulatorError."""
        repeat_refused(self._open, self._writer.options.max_retries)

    def _open(self) -> None:
        self.close()
        try:
            self._connect()
        except (OSError, ServerError) as error:
            raise self.explain(error) from error

    def _connect(self) -> None:
        """Connect, and find out the outcome of the requests in doubt. Raises OSError, `ServerError`,
        Retryable or SimulatorError."""
        connection = self._connection = self._connector.connect(self._writer.connect)
        self._backend = self._dialect.backend(connection)
        self._await_end_of_lost_backend(connection)
        for key, request in list(self._in_doubt.items()):
            self._stored[key] = self._is_stored(connection, request)
            del self._in_doubt[key]
        self.sender = self._writer.begin(connection)

    def close(self) -> None:
        """Disconnect; no error if the connection was lost already."""
        if self._connection is not None:
            self._connection.close(cut=self.is_busy)
        self._connection = self.sender = None

    @property
    def is_busy(self) -> bool:
        """Whether requests are in flight."""
        return self.sender is not None and bool(self.sender.under_way)

    def count_requests(self) -> int:
        """How many requests wait for the connection; a lost one counts as having more than any other."""
        if self.sender is None:
            return len(self.held) + MAX_IN_FLIGHT
        return len(self.sender.under_way)

    def lose(self, requests: list[Request]) -> None:
        """Give the connection up; these requests on it are now in doubt."""
        self.close()
        self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self._connector.shorten()
        self._in_doubt.update((id(request), request) for request in requests)

    def was_stored(self, request: Request) -> bool:
        """Whether a request of `lose` is in the database; call it once. Reconnects if necessary. Raises
        Retryable if that failed.
        """
        if self.sender is None:
            try:
                self._connect()
            except (OSError, ServerError, SimulatorError, Retryable) as error:
                self.close()
                raise connection_lost(error) from error
        return self._stored.pop(id(request))

    def explain(self, error: ServerError | OSError) -> Retryable | SimulatorError:
        """What an error on the connection means."""
        return translate(error, self._dialect, self._job)

    # --- after it was lost

    def _await_end_of_lost_backend(self, connection: ServerConnection) -> None:
        """Make sure that the lost connection's transactions can no longer be committed."""
        if self._lost_backend is None:
            return
        deadline = time.monotonic() + limit_wait(_BACKEND_END_S)
        while not self._dialect.is_gone(
            connection,
            self._lost_backend,
            time.monotonic() - self._lost_at,
            self._connector.connect_to,
        ):
            if time.monotonic() > deadline:
                raise connection_lost("the old connection's backend still runs")
            # The server has no event for the end of a backend.
            time.sleep(0.02)
        self._lost_backend = None

    def _is_stored(self, connection: ServerConnection, request: Request) -> bool:
        """Whether the request's last event, and so the whole transaction, is in the database. False without a
        look-up where repeating it does no harm."""
        if self._dialect.IS_REPEATABLE:
            return False
        schema = self._job.schema
        block, row = request.block, request.last
        tables = self._job.table_names
        table = tables[(block.first + row) % len(tables)]
        if self._job.load.primary_key is PrimaryKey.CLIENT:
            key = client_keys(block.part(row, row + 1))[0].decode()
            conditions = [f"id = {write_constant(key)}"]
        else:
            conditions = []
            for name, value in block.key_of(row).items():
                is_device = name == schema.device
                column = self._dialect.SQL.device(schema) if is_device else quote_name(name)
                conditions.append(f"{column} = {write_constant(value)}")
        statement = f"SELECT 1 FROM {quote_name(table)} WHERE {' AND '.join(conditions)} LIMIT 1"
        return bool(connection.ask(statement))
