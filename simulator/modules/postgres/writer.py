"""Sends payloads, one transaction each, one at a time or several in flight, by connections that are made anew
when they are lost; finds out then what became of the requests in doubt."""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...contract import MAX_IN_FLIGHT, PrimaryKey
from ...encoding.columns import client_keys, quote_name
from ...errors import Retryable, SimulatorError
from ..kit.libpq import Connection, Connector, ServerError, no_answer, write_constant
from ..kit.libpq_pipeline import Answer, Pipeline, make_pipeline
from ..kit.module import connection_lost
from ..options import InsertMode, Job
from ..sending import LAST_ANSWERS_S, Encoder, Outcome, Payload, Writer
from ..waiting import Poll, find_arrival, limit_wait
from .dialects import Dialect, ServerConnection
from .encoding import ServerOptions
from .server import is_lost, repeat_refused, translate

_BACKEND_END_S = 10.0
"""How long the old backend may take to end before the next try."""

_Sent = tuple[Payload, object, float, float]
"""A request under way: its payload, the caller's name for it, when it was sent, and for how long its answer
is awaited."""


class OneByOne(Protocol):
    """What takes requests one at a time, as a driver does."""

    @property
    def under_way(self) -> tuple[()]: ...

    def ask(self, request: Any, timeout_s: float) -> Answer: ...


class PostgresWriter(Writer):
    """Sends payloads of `PostgresEncoder`, one transaction each.

    Several in flight go by as many connections, or by fewer (option `connections`), each of which then has
    a pipeline: what follows is sent before what precedes is answered. Measured with 16 single inserts in
    flight: on a server with default settings, which waits for the disk at each commit, 16 connections
    were 1.2 to 3 times as fast as one (9 times on a slow disk), since a backend commits one request
    after the other and several commit together. With synchronous_commit=off on two cores, one was up to
    twice as fast, since fewer processes took turns.
    """

    encoder: Any
    """A `PostgresEncoder`, unless a subclass sends something else."""

    def __init__(
        self, encoder: Encoder, options: ServerOptions, job: Job, dialect: Dialect
    ) -> None:
        super().__init__(encoder)
        self.options = options
        self.job = job
        self.dialect = dialect
        self.max_in_flight = options.in_flight(job.load)
        self._timeout_s = options.request_timeout_s
        self._links = [
            Link(self)
            for _ in range(min(options.connections or self.max_in_flight, self.max_in_flight))
        ]
        self._lost: dict[int, Link] = {}
        """Id of a payload in doubt -> the connection that was lost."""
        self._watched: dict[int, Link] = {}
        """Descriptor -> connection that `_poll` watches: all by which requests are under way."""
        self._poll = Poll()
        self._idle: deque[Link] = deque()
        """Connections by which nothing is under way."""
        self._found: list[Outcome[int]] = []
        self._late_at_s = 0.0
        """When to look for late answers next."""

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        """A new connection by libpq's parameters; OSError if the connection is refused."""
        return Connection(parameters, self._timeout_s, stamped=self.job.stamps_arrivals)

    def begin(self, connection: Any) -> Pipeline | OneByOne:
        """What takes requests by a connection, once all else is asked. Raises OSError or `ServerError`."""
        for statement in self.encoder.list_prepared():
            connection.prepare(*statement)
        is_query = self.encoder.mode in (InsertMode.COPY, InsertMode.VALUES_LISTS)
        return make_pipeline(connection, is_query)

    def open(self) -> None:
        for link in self._links:
            link.open()
        self._idle.extend(self._links)

    def close(self) -> None:
        for link in self._links:
            link.close()

    # --- one at a time

    def send(self, payload: Payload) -> int:
        link = self._links[0]
        assert link.channel is not None
        try:
            answer = link.channel.ask(payload.data, limit_wait(self._timeout_s))
        except OSError as error:
            self._lose(link, [payload])
            raise connection_lost(error) from error
        result = _judge(link, answer)
        if isinstance(result, int):
            return result
        if is_lost(result):
            self._lose(link, [payload])
        raise result from answer.error

    def recover(self, payload: Payload) -> bool:
        link = self._lost.get(id(payload))
        if link is None:
            # Whatever else has failed has left nothing behind: the server has rolled it back.
            return False
        stored = link.was_stored(payload)
        del self._lost[id(payload)]
        if link.held:
            for request in link.take_held():
                self._submit_by(link, *request)
        elif link not in self._idle and not link.is_busy:
            self._idle.append(link)
        return stored

    def _lose(self, link: Link, payloads: list[Payload]) -> None:
        """Give a connection up by which these payloads may or may not have been stored."""
        link.lose(payloads)
        self._lost.update((id(payload), link) for payload in payloads)

    # --- several in flight

    def submit(self, payload: Payload, request: object) -> None:
        if self._idle:
            link = self._idle.popleft()
        else:
            # The one with the fewest requests; one that is lost only if all are.
            link = min(
                self._links,
                key=lambda link: (
                    len(link.held) + MAX_IN_FLIGHT
                    if link.channel is None
                    else len(link.channel.under_way)
                ),
            )
        if link.channel is None:
            # The requests that were lost with the connection will have it made again.
            link.held.append((payload, request))
        else:
            self._submit_by(link, payload, request)

    def _submit_by(self, link: Link, payload: Payload, request: object) -> None:
        pipeline = link.channel
        assert isinstance(pipeline, Pipeline)
        sent = (payload, request, time.perf_counter(), limit_wait(self._timeout_s))
        pipeline.submit(payload.data, sent)
        if pipeline.descriptor not in self._watched or pipeline.is_full:
            self._watched[pipeline.descriptor] = link
            events = select.POLLIN | (select.POLLOUT if pipeline.is_full else 0)
            self._poll.register(pipeline.descriptor, events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[int]]:
        until_s = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        while not self._found:
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                break
            self._serve(left_s)
        outcomes, self._found = self._found, []
        return outcomes

    def stop_submitting(self) -> None:
        until_s = time.perf_counter() + min(LAST_ANSWERS_S, self._timeout_s)
        while any(link.is_busy for link in self._links):
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                break
            self._serve(left_s)

    def _serve(self, timeout_s: float) -> None:
        """Send and receive what can be; wait until something can, but not longer than that."""
        now_s = time.perf_counter()
        if now_s >= self._late_at_s:
            self._give_up_late(now_s)
            if self._found:
                return
        for descriptor, event in self._poll.wait(min(timeout_s, self._late_at_s - now_s)):
            link = self._watched[descriptor]
            pipeline = link.channel
            assert isinstance(pipeline, Pipeline)
            if event & select.POLLOUT:
                pipeline.flush()
                if not pipeline.is_full:
                    self._poll.register(descriptor, select.POLLIN)
            if event & ~select.POLLOUT:
                self._take(link, pipeline)

    def _take(self, link: Link, pipeline: Pipeline) -> None:
        """Take the answers that have come by a connection."""
        try:
            answers = pipeline.receive()
        except OSError as error:
            self._end(link, pipeline, connection_lost(error), [])
            return
        if pipeline.is_full:
            # Some data is sent only when the server has asked for it.
            self._poll.register(pipeline.descriptor, select.POLLIN | select.POLLOUT)
        doubtful: list[_Sent] = []
        for sent, answer in answers:
            result = _judge(link, answer)
            if is_lost(result):
                doubtful.append(sent)
                reason = result
            else:
                self._found.append(Outcome(sent[1], find_arrival(sent[2]), result))
        if doubtful:
            self._end(link, pipeline, reason, doubtful)
        elif answers and not pipeline.under_way:
            self._idle.append(link)

    def _give_up_late(self, now_s: float) -> None:
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        for link in list(self._watched.values()):
            pipeline = link.channel
            assert isinstance(pipeline, Pipeline)
            late = (
                limit_s for _, _, sent_s, limit_s in pipeline.under_way if sent_s + limit_s <= now_s
            )
            if limit_s := next(late, 0.0):
                self._end(link, pipeline, connection_lost(no_answer(limit_s)), [])

    def _end(
        self,
        link: Link,
        pipeline: Pipeline,
        reason: int | BaseException,
        doubtful: list[_Sent],
    ) -> None:
        """Give a connection up: these requests, and all that are under way on it, have failed."""
        del self._watched[pipeline.descriptor]
        self._poll.unregister(pipeline.descriptor)
        lost: list[_Sent] = [*doubtful, *pipeline.under_way]
        if not lost:
            # The next request by it will find that it is lost, and be looked for like any other.
            return
        self._lose(link, [payload for payload, *_ in lost])
        now_s = time.perf_counter()
        self._found.extend(Outcome(request, now_s, reason) for _, request, *_ in lost)


def _judge(link: Link, answer: Answer) -> int | Retryable | SimulatorError:
    """What an answer means: the events stored, or an error."""
    return answer.rows if answer.error is None else link.explain(answer.error)


# --- a connection -----------------------------------------------------------------------------------


class Link:
    """A connection to the server, which is made again when it is asked for after it was lost.

    What became of requests whose answer never came is found out then, for all of them, before anything
    else is sent.
    """

    def __init__(self, writer: PostgresWriter) -> None:
        self._writer = writer
        self._job = writer.job
        self._dialect = writer.dialect
        self._connector = Connector(writer.options.dsn, writer.job.run_id, writer.dialect.SESSION)
        self._connection: ServerConnection | None = None
        self.channel: Pipeline | OneByOne | None = None
        """What takes requests; None while the connection is lost."""
        self.held: deque[tuple[Payload, object]] = deque()
        """Requests (payload, and the caller's name for it) that wait until the connection is there again."""
        self._backend: Any = None
        """What tells this connection's backend from all others."""
        self._lost_backend: Any = None
        """The backend that may still be at work on requests in doubt."""
        self._lost_at = 0.0
        """When the connection was given up, by the monotonic clock."""
        self._in_doubt: dict[int, Payload] = {}
        """Id -> payload that may have been committed without our knowing."""
        self._stored: dict[int, bool] = {}
        """Id of a payload that was in doubt -> whether it is stored."""

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
        """Connect, and find out what became of the requests in doubt. Raises OSError, `ServerError`,
        Retryable or SimulatorError."""
        connection = self._connection = self._connector.connect(self._writer.connect)
        self._backend = self._dialect.backend(connection)
        self._await_end_of_lost_backend(connection)
        for key, payload in list(self._in_doubt.items()):
            self._stored[key] = self._is_stored(connection, payload)
            del self._in_doubt[key]
        self.channel = self._writer.begin(connection)

    def close(self) -> None:
        """Disconnect; no error if that was lost already."""
        if self._connection is not None:
            self._connection.close(cut=self.is_busy)
        self._connection = self.channel = None

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way."""
        return self.channel is not None and bool(self.channel.under_way)

    def take_held(self) -> list[tuple[Payload, object]]:
        """Take the requests that have waited for the connection."""
        requests = list(self.held)
        self.held.clear()
        return requests

    def lose(self, payloads: list[Payload]) -> None:
        """Give the connection up; what became of these requests on it is in doubt."""
        self.close()
        self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self._connector.shorten()
        self._in_doubt.update((id(payload), payload) for payload in payloads)

    def was_stored(self, payload: Payload) -> bool:
        """Whether a request of `lose` is in the database, asked once. Connects again if need be.

        Raises Retryable if that failed.
        """
        if self.channel is None:
            try:
                self._connect()
            except (OSError, ServerError, SimulatorError, Retryable) as error:
                self.close()
                raise connection_lost(error) from error
        return self._stored.pop(id(payload))

    def explain(self, error: ServerError | OSError) -> Retryable | SimulatorError:
        """What an error that came by the connection means."""
        return translate(error, self._dialect, self._job)

    # --- after it was lost

    def _await_end_of_lost_backend(self, connection: ServerConnection) -> None:
        """Make sure that the lost connection's transactions can't be committed any more."""
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
            # The server has no event for the end of a backend to wait for.
            time.sleep(0.02)
        self._lost_backend = None

    def _is_stored(self, connection: ServerConnection, payload: Payload) -> bool:
        """Whether the payload's last event, and so the whole transaction, is in the database. False
        without a look where sending it again does no harm."""
        if self._dialect.IS_REPEATABLE:
            return False
        schema = self._job.schema
        block, row = payload.block, payload.last
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
