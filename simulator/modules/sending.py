"""How requests are built and sent: the interface of a module's encoder, writer and asker.

A module compiles a query to a statement in its database's language. An `Asker` makes a request from it before
it is due, sends it, and receives the answer without decoding it, since the reader's work isn't the
database's. Only checked answers are decoded, after the measurement.

The loop (`simulator.worker.loop`) decides when to send, retries and measures.
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
"""How long a writer waits for requests in flight at the end."""


@dataclass(eq=False)
class Request:
    """One request, ready to be sent: a batch of events, or one query."""

    data: Any
    """What its channel sends."""
    events: int = 1
    """What it counts as: its events, or one query."""
    block: Any = None
    last: int = 0
    """The events' block, and the row of the request's last event in it, for looking up whether the database
    already has the events."""
    query: str = ""
    execution: int = 0
    """The query, and the number of its execution, from 0."""

    # The loop's notes on it, by `time.perf_counter`. Most requests never need most of these.
    due_s: float = field(default=0.0, init=False)
    free_s: float = field(default=0.0, init=False)
    """When it could have been in flight."""
    sent_s: float = field(default=0.0, init=False)
    held_s: float = field(default=0.0, init=False)
    """Until when the database held up its submission, which is not the client's delay; 0: it didn't."""
    tried_s: float = field(default=0.0, init=False)
    limit_s: float = field(default=0.0, init=False)
    """When it was sent last, and how long its channel then waits for an answer."""
    deadline_s: float = field(default=math.inf, init=False)
    """When to give it up."""
    attempts: int = field(default=0, init=False)
    """How often it was tried and failed."""


def wrap_requests(requests: Iterable[Any], block: EventBlock, size: int) -> list[Request]:
    """A request for each of a block's payloads, which have `size` events."""
    return [
        Request(data, stop - start, block, stop - 1)
        for data, (start, stop) in zip(requests, bounds(len(block), size), strict=True)
    ]


def find_unsent(encoder: Encoder, block: EventBlock, sent: int) -> EventBlock | None:
    """The events of a block that remain after the first `sent`, in the encoder's order; None if there are
    none."""
    unsent = []
    for payload in encoder.encode(block):
        sent -= payload.events
        if sent < 0:
            end = payload.last + 1
            unsent.append(payload.block.part(end - payload.events, end))
    return join_blocks(unsent) if unsent else None


class Encoder(ABC):
    """Builds payloads: pure CPU work, without a connection, and if possible without objects per event."""

    overlaps: bool = True
    """Whether the next payloads may be built in a thread while the last are being sent. It must never hold
    the interpreter's lock for long (numpy's loops release it, `format_rows` works in small steps), since a
    request's answer would have to wait, and its latency would include that."""

    unit_events: int = 0
    """`encode` should get a multiple of this many events (0: of `size`): for an encoder that sorts them into
    requests."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.size = job.load.batch or 1
        """Events per request."""

    @abstractmethod
    def encode(self, block: EventBlock) -> Sequence[Request]:
        """The block as requests of `size` events each; the last may be smaller."""


Rows = Sequence[tuple[Any, ...]]
"""A decoded answer, with the columns of the query's description."""


class Received(NamedTuple):
    """An answer that is complete and free of errors."""

    rows: int
    """From the protocol's own count, or a scan."""
    bytes: int
    """As received: framing of rows is counted, HTTP headers and TLS are not."""
    data: Any
    """The input of `Asker.decode`. It must not refer to a buffer that is used again."""


class Completion(NamedTuple):
    """How a request ended."""

    request: Request
    done: int
    """Events that the database acknowledged, or rows of the answer."""
    arrived_s: float
    """When the last byte of the answer arrived, by `time.perf_counter`; from the kernel's timestamp, where
    there is one."""
    error: BaseException | None = None
    """Retryable if it may be tried again, SimulatorError if not; anything else is a defect, to be raised."""
    answer: Received | None = None
    """The answer to a query."""
    sent_s: float | None = None
    """When it was sent, if that was later than its submission."""


class Channel(ABC):
    """Sends one worker's requests, over one or several connections of its own. Used by one thread."""

    max_in_flight: int = 1
    """The most requests in flight."""

    @abstractmethod
    def open(self) -> None:
        """Connect. Not measured. Raises Retryable or SimulatorError."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; must not fail on a broken connection. Requests in flight are awaited for at most
        `LAST_ANSWERS_S`: a silent server must not delay the end of a run."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Send a request; `poll` reports how it ended, also if it can't be sent. With `max_in_flight` 1, it
        may have ended when this returns."""

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[Completion]:
        """Wait until at least one request has ended, for at most `timeout_s` (inf: no limit), and return all
        that have ended: an empty list if none has."""

    def recover(self, request: Request) -> bool:
        """After a Retryable, before a request is sent (again): roll back, or connect again what was lost.
        True if the request turns out to be stored already.

        With several requests in flight, all others wait for this: slow work that only concerns the request
        itself belongs at the beginning of sending. Raises Retryable or SimulatorError if it fails.
        """
        return False

    def call(self, request: Request) -> Completion:
        """Send a request while no other is in flight, and wait; raises its error."""
        request.sent_s = time.perf_counter()
        self.submit(request)
        while True:
            for completion in self.poll(math.inf):
                if completion.error is not None:
                    raise completion.error
                return completion


class BlockingChannel(Channel):
    """For a driver whose calls block: several requests in flight use threads that share its connection."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._submitted: SimpleQueue[Request | None] = SimpleQueue()
        self._ended: SimpleQueue[Completion] = SimpleQueue()
        self._found: list[Completion] = []

    @abstractmethod
    def send(self, request: Request, /) -> int | Received:
        """Send a request and wait for the complete answer: returns the number of acknowledged events, or what
        was received. Raises Retryable if it may be tried again, SimulatorError if not."""

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
            # Nothing sent is kept while waiting for the next request.
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
        """The first step of `close`: requests that no thread has begun are dropped, those in flight are
        awaited."""
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
    """Sends events. The acknowledged ones count."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


class Queried(Protocol):
    """An asker's view of its module."""

    job: Job

    def open(self) -> None: ...

    def close(self) -> None: ...

    def compile(self, bound: BoundQuery) -> Any: ...

    def make_statement(self, bound: BoundQuery) -> Any: ...

    def answer(self, statement: Any) -> Rows: ...


class Asker(Channel):
    """Sends one reader's queries.

    A query that fails has Retryable as its error if the connection is lost or the server is away, and
    `recover` is called before the next; SimulatorError if the database refuses it. It is never sent again.
    """

    def __init__(self, module: Queried, in_flight: int = 1) -> None:
        super().__init__()
        self.module = module
        self.max_in_flight = in_flight

    def encode(self, bounds: BoundQueries) -> Iterable[Any]:
        """A request for each execution, in order. Work left to the iteration is done one by one, just before
        a query is due. Needs no connection; a module overrides it if it can do better than compile each
        one."""
        make = self.module.make_statement
        return (self.encode_statement(make(bound)) for bound in bounds)

    @abstractmethod
    def encode_statement(self, statement: Any) -> Any:
        """The request for a statement from `Module.make_statement` or `Module.workload_queries`. Needs no
        connection."""

    @abstractmethod
    def decode(self, received: Received) -> Rows:
        """The rows of an answer. Needs no connection. SimulatorError if it isn't in the expected form."""

    def ask(self, data: Any) -> Received:
        """Send a request from `encode` and wait, while nothing else is in flight; raises the error."""
        answer = self.call(Request(data)).answer
        assert answer is not None
        return answer

    def fetch(self, statement: Any) -> Rows:
        """Query and decode: outside of measurements."""
        return self.decode(self.ask(self.encode_statement(statement)))


CALLING = f"{__name__}:CallingAsker"
"""`Client.asker` of a module that queries over its own connection."""


class CallingAsker(Asker, BlockingChannel):
    """Queries with `Module.answer`, over the module's own connection, which is open."""

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
    """The maximum length of an answer: a quarter of the memory of this container, or machine, so that a
    longer one ends its own query and not the worker."""
    return max(_LEAST_BYTES, min(find_memory_bytes() // _SHARE, _MOST_BYTES))


def explain_length(size: int) -> SimulatorError:
    """The error for an answer longer than `most_answer_bytes`."""
    return SimulatorError(
        f"the answer has {size >> 20:,} MB or more, too much for this worker's memory (at most"
        f" {most_answer_bytes() >> 20:,} MB): ask for a shorter window or fewer devices, or give"
        " workers more memory"
    )


StepT = TypeVar("StepT")
PartT = TypeVar("PartT")
AnswerT = TypeVar("AnswerT")


def carry_out(steps: Generator[StepT, PartT, AnswerT], answer: Callable[[StepT], PartT]) -> AnswerT:
    """The result of a plan with several steps; `answer`: runs each step, and its result is sent to the
    plan."""
    try:
        step = next(steps)
        while True:
            step = steps.send(answer(step))
    except StopIteration as end:
        result: AnswerT = end.value
        return result


TableT = TypeVar("TableT")


class Share(NamedTuple):
    """One table's share of a request."""

    table: int
    rows: range
    """The events' rows in the block that was dealt."""


def deal_rows(block: EventBlock, start: int, stop: int, tables: int) -> list[Share]:
    """The rows [start, stop) of a block dealt to this many tables: only those that get some."""
    return [
        Share((block.first + row) % tables, range(row, stop, tables))
        for row in range(start, min(start + tables, stop))
    ]


def deal_block(block: EventBlock, tables: int) -> list[tuple[Share, EventBlock]]:
    """A whole block dealt to this many tables, and the events of each share, as views."""
    if tables == 1:
        return [(Share(0, range(len(block))), block)] if len(block) else []
    return [
        (share, block.part(share.rows.start, len(block), tables))
        for share in deal_rows(block, 0, len(block), tables)
    ]


def deal_in_turn(block: EventBlock, tables: Sequence[TableT]) -> list[TableT]:
    """The table of each event, taken from these, whatever represents a table."""
    first = block.first % len(tables)
    turn = [*tables[first:], *tables[:first]]
    return (turn * -(-len(block) // len(tables)))[: len(block)]


def number_tables(block: EventBlock, tables: int) -> NDArray[np.int64]:
    """The number of each event's table."""
    if tables == 1:
        return np.zeros(len(block), dtype=np.int64)
    return (block.first + np.arange(len(block))) % tables
