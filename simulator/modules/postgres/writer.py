"""Sends payloads, one transaction each, one at a time or several in flight."""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ...contract import MAX_IN_FLIGHT
from ...errors import Retryable, SimulatorError
from .._base.errors import connection_lost
from .._base.libpq import Connection, no_answer
from .._base.libpq_pipeline import Answer, Channel, Pipeline, make_pipeline
from ..base import Job
from ..sending import (
    LAST_ANSWERS_S,
    Encoder,
    Outcome,
    Payload,
    Poll,
    Writer,
    find_arrival,
    limit_wait,
)
from .dialects import Dialect
from .encoding import InsertMode
from .link import Link
from .options import ServerOptions
from .server import is_lost

_Sent = tuple[Payload, object, float, float]
"""A request under way: its payload, the caller's name for it, when it was sent, and for how long its answer
is awaited."""


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
        self._stamped = job.stamps_arrivals
        self.max_in_flight = options.in_flight(job.load)
        self._timeout_s = options.request_timeout_s
        self._links = [
            Link(options, job, dialect, self.connect, self.begin)
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
        """A new connection by libpq's parameters; OSError if nobody lets us in."""
        return Connection(parameters, self._timeout_s, stamped=self._stamped)

    def begin(self, connection: Any) -> Channel:
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
        link = self._idle.popleft() if self._idle else min(self._links, key=_load_of)
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


def _load_of(link: Link) -> int:
    """How busy a connection is; a lost one is busier than any other."""
    return len(link.held) + MAX_IN_FLIGHT if link.channel is None else len(link.channel.under_way)


def _judge(link: Link, answer: Answer) -> int | Retryable | SimulatorError:
    """What an answer means: the events stored, or an error."""
    return answer.rows if answer.error is None else link.explain(answer.error)
