"""How requests are made and sent: what a module's encoder, writer and asker must be able to do.

A module compiles a query to a statement in its database's language. An `Asker` makes a request of it before
it is due, sends that, and takes the answer in without decoding it: what an answer costs its reader is not the
database's. Only what is checked is decoded, after all that is measured.

When to send, retrying and measuring are the loop's affair (`simulator.worker.loop`).
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..encoding.columns import bounds
from ..errors import SimulatorError
from ..machine import find_memory_bytes
from ..workloads.drawing import BoundQueries, BoundQuery
from ..workloads.schema import EventBlock, join_blocks
from .options import Job
from .waiting import Poll, find_arrival, find_sending, read_deadline, set_deadline

LAST_ANSWERS_S = 5.0
"""How long a writer waits for what is under way when no more is to be sent."""


@dataclass(slots=True)
class Payload:
    """One request, ready to be sent. `block` and `last` (row of its last event in the block) are
    kept so that a writer can look up whether the database already has it."""

    data: Any
    events: int
    block: EventBlock
    last: int


def make_payloads(requests: Iterable[Any], block: EventBlock, size: int) -> list[Payload]:
    """A payload of each of a block's requests of `size` events."""
    return [
        Payload(data, stop - start, block, stop - 1)
        for data, (start, stop) in zip(requests, bounds(len(block), size), strict=True)
    ]


def find_unsent(encoder: Encoder, block: EventBlock, sent: int) -> EventBlock | None:
    """The events of a block that are left once `sent` of them are sent, in the encoder's order; None if there
    are none."""
    unsent = []
    for payload in encoder.encode(block):
        sent -= payload.events
        if sent < 0:
            end = payload.last + 1
            unsent.append(payload.block.part(end - payload.events, end))
    return join_blocks(unsent) if unsent else None


class Encoder(ABC):
    """Builds payloads: pure CPU work, no connection, no per-event objects where it can be helped."""

    overlaps: bool = True
    """Whether the next payloads may be built in a thread while the last are being sent. It must never
    hold the interpreter's lock for long (numpy's loops give it up, `format_rows` works in small
    steps), or a request's answer would have to wait for it, and so would its latency."""

    unit_events: int = 0
    """`encode` should be given a multiple of so many events (0: of `size`): for an encoder that
    sorts them into requests."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.size = job.load.batch or 1
        """Events of a request."""

    @abstractmethod
    def encode(self, block: EventBlock) -> Sequence[Payload]:
        """The block as requests of `size` events each; the last may be smaller."""


RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class Outcome(NamedTuple, Generic[ResultT]):
    """How a submitted request ended."""

    request: Any
    """What `submit` was given."""
    answered_s: float
    """When the answer came, by `time.perf_counter`."""
    result: ResultT | BaseException
    """What `send` returns, or what it raises."""
    sent_s: float | None = None
    """When it left, if that was not in `submit`."""


class Requester(ABC, Generic[RequestT, ResultT]):
    """Sends one worker's requests, by connections of its own. Used by one thread, except for `submit` with
    `max_in_flight` > 1."""

    max_in_flight: int = 1
    """Requests that may be under way at once."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._submitted: SimpleQueue[tuple[RequestT, object, float] | None] = SimpleQueue()
        self._ended: SimpleQueue[Outcome[ResultT]] = SimpleQueue()

    @abstractmethod
    def open(self) -> None:
        """Connect. Not measured."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; must not fail on a broken connection."""

    @abstractmethod
    def send(self, request: RequestT, /) -> ResultT:
        """Send and wait for the whole answer.

        Raises Retryable if it may be tried again, SimulatorError if not.
        """

    def submit(self, request: RequestT, token: object, /) -> None:
        """`send` without waiting; `outcomes` tells how it ended, of a `token` that is the caller's.

        For a driver without requests in flight, by threads that share this connection.
        """
        self._under_way += 1
        if len(self._threads) < self._under_way:
            thread = threading.Thread(target=self._send_all, name="send", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._submitted.put((request, token, read_deadline()))

    def _send_all(self) -> None:
        while (submitted := self._submitted.get()) is not None:
            outcome = self._send_one(*submitted)
            # Nothing that was sent is kept while the next is waited for.
            del submitted
            self._ended.put(outcome)
            del outcome

    def _send_one(self, request: RequestT, token: object, deadline_s: float) -> Outcome[ResultT]:
        set_deadline(deadline_s)
        sent_s = time.perf_counter()
        try:
            result = self.send(request)
        except BaseException as error:  # noqa: BLE001 - whoever takes the outcome raises it
            return Outcome(token, time.perf_counter(), error, sent_s)
        sent_s = find_sending(sent_s)
        return Outcome(token, find_arrival(sent_s), result, sent_s)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[ResultT]]:
        """Wait until at least one request has ended, `timeout_s` at most (None: no limit), and tell how
        those that have ended did: an empty list if none has. No other method is called meanwhile.
        """
        try:
            ended = [self._ended.get(timeout=timeout_s)]
        except Empty:
            return []
        self._under_way -= 1
        return ended

    def stop_submitting(self) -> None:
        """End the threads of `submit`; what none has begun is dropped. What is under way is waited for,
        `LAST_ANSWERS_S` at most: a server that says nothing must not hold up the end of a run."""
        with suppress(Empty):
            while True:
                self._submitted.get_nowait()
        for _ in self._threads:
            self._submitted.put(None)
        until_s = time.perf_counter() + LAST_ANSWERS_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.perf_counter()))
        self._threads.clear()
        self._under_way = 0
        self._ended = SimpleQueue()


class Writer(Requester[Payload, int]):
    """Sends payloads. The result of one is the number of events that the database acknowledged."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def recover(self, payload: Payload) -> bool:
        """After a Retryable: roll back or reconnect. True if `payload` proves to be stored already.

        With several requests in flight, all others wait for this: what takes long and needs nothing
        but the request itself belongs at the beginning of `send`. Raises Retryable if it failed in turn.
        """
        return False


Rows = Sequence[tuple[Any, ...]]
"""A decoded answer; its columns are what the query's description says."""


class Received(NamedTuple):
    """An answer that is complete and free of errors."""

    rows: int
    """By the protocol's own count, or a scan."""
    bytes: int
    """As they came: what stands around the rows is counted, HTTP's headers and TLS are not."""
    data: Any
    """What `Asker.decode` needs. It must not refer to a buffer that is used again."""


class Queried(Protocol):
    """What an asker needs of its module."""

    job: Job

    def open(self) -> None: ...

    def close(self) -> None: ...

    def compile(self, bound: BoundQuery) -> Any: ...

    def make_statement(self, bound: BoundQuery) -> Any: ...

    def answer(self, statement: Any) -> Rows: ...


class Asker(Requester[Any, Received]):
    """Asks one reader's questions, by connections of its own. A request is what `encode` makes.

    A question that fails raises Retryable if the connection is lost or the server is away (`recover` is
    called before the next), SimulatorError if the database refuses it. It is never asked again.
    """

    def __init__(self, module: Queried, in_flight: int = 1) -> None:
        super().__init__()
        self.module = module
        self.max_in_flight = in_flight

    def encode(self, bounds: BoundQueries) -> Iterable[Any]:
        """A request for each execution, in order. Work that is left for when they are iterated over is done
        one by one, just before a question is due. Needs no connection; a module that can do better than
        compile each anew does so."""
        make = self.module.make_statement
        return [self.encode_statement(make(bound)) for bound in bounds]

    @abstractmethod
    def encode_statement(self, statement: Any) -> Any:
        """The request for what `Module.make_statement` gives, or `Module.workload_queries`. Needs no
        connection."""

    @abstractmethod
    def decode(self, received: Received) -> Rows:
        """The rows of an answer. Needs no connection. SimulatorError if it is not in the form of one."""

    def recover(self) -> None:
        """After a Retryable: connect again what was lost. Raises Retryable or SimulatorError if it can't."""

    def fetch(self, statement: Any) -> Rows:
        """Ask and decode: for whoever isn't measured."""
        return self.decode(self.send(self.encode_statement(statement)))


class SplitAsker(Asker):
    """An asker that sends and waits apart: meanwhile its reader notes the last answer, and encodes the next
    question."""

    def send(self, request: Any) -> Received:
        self.begin(request)
        return self.finish()

    @abstractmethod
    def begin(self, request: Any) -> None:
        """The first half of `send`: the request goes out. Raises as `send`."""

    @abstractmethod
    def finish(self) -> Received:
        """The other half: wait for the answer to what was begun. Raises as `send`."""


class PolledAsker(SplitAsker):
    """Has several questions under way in one thread, by a connection for each: threads would take turns with
    the interpreter's lock, which costs more than most questions. `submit` registers a connection with
    `_poll`, and what ends a question adds its outcome to `_found`."""

    def __init__(self, module: Queried, in_flight: int, timeout_s: float) -> None:
        """`timeout_s`: how long an answer may take."""
        super().__init__(module, in_flight)
        self._timeout_s = timeout_s
        self._poll = Poll()
        self._found: list[Outcome[Received]] = []
        self._late_at_s = 0.0
        """When to look for late answers next."""

    @abstractmethod
    def list_asked(self) -> Iterable[tuple[int, float]]:
        """The descriptors of connections by which an answer is to come, and when its question was sent."""

    @abstractmethod
    def take(self, descriptor: int) -> None:
        """Read what has come by a connection."""

    @abstractmethod
    def end_late(self, descriptor: int) -> None:
        """Wait no longer for what is to come by a connection."""

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[Received]]:
        until_s = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        while not self._found:
            now_s = time.perf_counter()
            if now_s >= until_s:
                break
            if now_s >= self._late_at_s:
                self._end_all_late(now_s)
                continue
            for descriptor, _ in self._poll.wait(min(until_s, self._late_at_s) - now_s):
                self.take(descriptor)
        outcomes, self._found = self._found, []
        return outcomes

    def _end_all_late(self, now_s: float) -> None:
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        for descriptor, sent_s in list(self.list_asked()):
            if sent_s + self._timeout_s <= now_s:
                self.end_late(descriptor)

    def stop_submitting(self) -> None:
        """What is under way is cut off by `close`."""


class CallingAsker(Asker):
    """Asks by `Module.answer`, over the module's own connection, which is open."""

    def open(self) -> None:
        """The module has a connection."""

    def close(self) -> None:
        """The module keeps it."""

    def recover(self) -> None:
        self.module.close()
        self.module.open()

    def encode_statement(self, statement: Any) -> Any:
        return statement

    def send(self, request: Any) -> Received:
        rows = self.module.answer(request)
        return Received(len(rows), 0, rows)

    def decode(self, received: Received) -> Rows:
        rows: Rows = received.data
        return rows


# --- answers that are too long ----------------------------------------------------------------------

_SHARE = 4
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 2 << 30


@lru_cache(maxsize=1)
def most_answer_bytes() -> int:
    """How long an answer may be: a quarter of the memory that this container, or machine, has, so that one
    ends its own question and not the worker."""
    return max(_LEAST_BYTES, min(find_memory_bytes() // _SHARE, _MOST_BYTES))


def explain_length(size: int) -> SimulatorError:
    """The error of an answer that is longer than `most_answer_bytes`."""
    return SimulatorError(
        f"the answer has {size >> 20:,} MB or more, too much for this worker's memory (at most"
        f" {most_answer_bytes() >> 20:,} MB): ask for a shorter window or fewer devices, or give"
        " workers more memory"
    )


StepT = TypeVar("StepT")
PartT = TypeVar("PartT")
AnswerT = TypeVar("AnswerT")


def carry_out(steps: Generator[StepT, PartT, AnswerT], answer: Callable[[StepT], PartT]) -> AnswerT:
    """What a plan of several questions comes to; `answer`: asks each, for which the plan is sent its part."""
    try:
        step = next(steps)
        while True:
            step = steps.send(answer(step))
    except StopIteration as end:
        result: AnswerT = end.value
        return result


TableT = TypeVar("TableT")


class Share(NamedTuple):
    """What one table gets of a request."""

    table: int
    rows: range
    """The events' rows in the block that was dealt out."""


def deal_rows(block: EventBlock, start: int, stop: int, tables: int) -> list[Share]:
    """The rows [start, stop) of a block dealt to so many tables: only those that get some."""
    return [
        Share((block.first + row) % tables, range(row, stop, tables))
        for row in range(start, min(start + tables, stop))
    ]


def deal_block(block: EventBlock, tables: int) -> list[tuple[Share, EventBlock]]:
    """A whole block dealt to so many tables, and the events of each share, as views."""
    if tables == 1:
        return [(Share(0, range(len(block))), block)] if len(block) else []
    return [
        (share, block.part(share.rows.start, len(block), tables))
        for share in deal_rows(block, 0, len(block), tables)
    ]


def deal_in_turn(block: EventBlock, tables: Sequence[TableT]) -> list[TableT]:
    """The table of each event, out of these, whatever stands for a table."""
    first = block.first % len(tables)
    turn = [*tables[first:], *tables[:first]]
    return (turn * -(-len(block) // len(tables)))[: len(block)]


def number_tables(block: EventBlock, tables: int) -> NDArray[np.int64]:
    """The table of each event as a number."""
    if tables == 1:
        return np.zeros(len(block), dtype=np.int64)
    return (block.first + np.arange(len(block))) % tables
