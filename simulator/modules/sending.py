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
from dataclasses import dataclass, field
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..encoding.columns import bounds
from ..errors import SimulatorError
from ..machine import find_memory_bytes
from ..workloads.drawing import BoundQueries, BoundQuery
from ..workloads.schema import EventBlock, join_blocks
from .options import Job
from .waiting import at_work

LAST_ANSWERS_S = 5.0
"""How long a writer waits for what is under way when no more is to be sent."""


@dataclass(eq=False)
class Request:
    """One request, ready to be sent: a batch of events, or one query."""

    data: Any
    """What its channel sends."""
    events: int = 1
    """What it counts for: its events, or one query."""
    block: Any = None
    last: int = 0
    """The events' block, and the row of the request's last event in it, so that it can be looked up whether
    the database already has them."""
    query: str = ""
    execution: int = 0
    """The query that it asks, and which of its executions it is, from 0 on."""

    # What the loop knows of it, by `time.perf_counter`. Most requests never need most of these.
    due_s: float = field(default=0.0, init=False)
    free_s: float = field(default=0.0, init=False)
    """When there was a place in flight for it."""
    sent_s: float = field(default=0.0, init=False)
    tried_s: float = field(default=0.0, init=False)
    limit_s: float = field(default=0.0, init=False)
    """When it was sent last, and for how long its channel then waits for an answer."""
    deadline_s: float = field(default=math.inf, init=False)
    """When it is given up."""
    attempts: int = field(default=0, init=False)
    """How often it was tried and failed."""


def wrap_requests(requests: Iterable[Any], block: EventBlock, size: int) -> list[Request]:
    """A payload of each of a block's requests of `size` events."""
    return [
        Request(data, stop - start, block, stop - 1)
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
    def encode(self, block: EventBlock) -> Sequence[Request]:
        """The block as requests of `size` events each; the last may be smaller."""


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


class Completion(NamedTuple):
    """How a request ended."""

    request: Request
    done: int
    """Events that the database acknowledged, or rows of the answer."""
    arrived_s: float
    """When the last byte of the answer arrived, by `time.perf_counter`; by the kernel's stamp, where it gives
    one."""
    error: BaseException | None = None
    """Retryable if it may be tried again, SimulatorError if not; anything else is a defect, to be raised."""
    answer: Received | None = None
    """What a query was answered."""
    sent_s: float | None = None
    """When it left, if that was not as soon as it was submitted."""


class Channel(ABC):
    """Carries one worker's requests, by one or several connections of its own. Used by one thread."""

    max_in_flight: int = 1
    """Requests that may be under way at once."""

    @abstractmethod
    def open(self) -> None:
        """Connect. Not measured. Raises Retryable or SimulatorError."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; must not fail on a broken connection. What is under way is waited for,
        `LAST_ANSWERS_S` at most: a server that says nothing must not hold up the end of a run."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Send a request; `poll` tells how it ended, also if it can't be sent. With `max_in_flight` 1, it may
        have ended when this returns."""

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[Completion]:
        """Wait until at least one request has ended, `timeout_s` at most (inf: no limit), and tell how those
        that have ended did: none if none has."""

    def recover(self, request: Request) -> bool:
        """After a Retryable, before a request is sent (again): roll back, or connect again what was lost.
        True if the request proves to be stored already.

        With several requests in flight, all others wait for this: what takes long and needs nothing but the
        request itself belongs at the beginning of sending. Raises Retryable or SimulatorError if it failed in
        turn.
        """
        return False

    def call(self, request: Request) -> Completion:
        """Send a request while no other is under way, and wait; its error is raised."""
        request.sent_s = time.perf_counter()
        self.submit(request)
        while True:
            for completion in self.poll(math.inf):
                if completion.error is not None:
                    raise completion.error
                return completion


class BlockingChannel(Channel):
    """By a driver whose calls block: several in flight by threads that share its connection."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._submitted: SimpleQueue[Request | None] = SimpleQueue()
        self._ended: SimpleQueue[Completion] = SimpleQueue()
        self._found: list[Completion] = []

    @abstractmethod
    def send(self, request: Request, /) -> int | Received:
        """Send a request and wait for the whole answer: the events that were acknowledged, or what was
        received. Raises Retryable if it may be tried again, SimulatorError if not."""

    def submit(self, request: Request) -> None:
        if self.max_in_flight == 1:
            self._found.append(self._send_one(request))
            return
        self._under_way += 1
        if len(self._threads) < self._under_way:
            thread = threading.Thread(target=self._send_all, name="send", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._submitted.put(request)

    def _send_all(self) -> None:
        while (request := self._submitted.get()) is not None:
            completion = self._send_one(request)
            # Nothing that was sent is kept while the next is waited for.
            del request
            self._ended.put(completion)
            del completion

    def _send_one(self, request: Request) -> Completion:
        sent_s = time.perf_counter()
        try:
            with at_work(request.deadline_s) as work:
                result = self.send(request)
        except BaseException as error:  # noqa: BLE001 - whoever takes the completion raises it
            return Completion(request, 0, time.perf_counter(), error, None, sent_s)
        sent_s, arrived_s = work.sent_s or sent_s, work.arrived_s or time.perf_counter()
        if isinstance(result, int):
            return Completion(request, result, arrived_s, None, None, sent_s)
        return Completion(request, result.rows, arrived_s, None, result, sent_s)

    def poll(self, timeout_s: float) -> Sequence[Completion]:
        if self.max_in_flight == 1:
            found, self._found = self._found, []
            if not found:
                time.sleep(timeout_s)
            return found
        try:
            ended = self._ended.get(timeout=None if timeout_s == math.inf else timeout_s)
        except Empty:
            return []
        self._under_way -= 1
        return [ended]

    def end_threads(self) -> None:
        """What `close` begins with: what no thread has begun is dropped, what is under way is waited for."""
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


class Writer(Channel):
    """Sends events. What counts is how many of them the database acknowledged."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


class Queried(Protocol):
    """What an asker needs of its module."""

    job: Job

    def open(self) -> None: ...

    def close(self) -> None: ...

    def compile(self, bound: BoundQuery) -> Any: ...

    def make_statement(self, bound: BoundQuery) -> Any: ...

    def answer(self, statement: Any) -> Rows: ...


class Asker(Channel):
    """Asks one reader's queries.

    A query that fails has Retryable as its error if the connection is lost or the server is away, and
    `recover` is called before the next; SimulatorError if the database refuses it. It is never asked again.
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
        return (self.encode_statement(make(bound)) for bound in bounds)

    @abstractmethod
    def encode_statement(self, statement: Any) -> Any:
        """The request for what `Module.make_statement` gives, or `Module.workload_queries`. Needs no
        connection."""

    @abstractmethod
    def decode(self, received: Received) -> Rows:
        """The rows of an answer. Needs no connection. SimulatorError if it is not in the form of one."""

    def ask(self, data: Any) -> Received:
        """Send what `encode` gave and wait, while nothing else is under way; raises what failed."""
        answer = self.call(Request(data)).answer
        assert answer is not None
        return answer

    def fetch(self, statement: Any) -> Rows:
        """Ask and decode: for whoever isn't measured."""
        return self.decode(self.ask(self.encode_statement(statement)))


CALLING = f"{__name__}:CallingAsker"
"""`Client.asker` of a module that asks by its own connection."""


class CallingAsker(Asker, BlockingChannel):
    """Asks by `Module.answer`, over the module's own connection, which is open."""

    def open(self) -> None:
        """The module has a connection."""

    def close(self) -> None:
        """The module keeps it."""

    def recover(self, request: Request) -> bool:
        self.module.close()
        self.module.open()
        return False

    def encode_statement(self, statement: Any) -> Any:
        return statement

    def send(self, request: Request) -> Received:
        rows = self.module.answer(request.data)
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
