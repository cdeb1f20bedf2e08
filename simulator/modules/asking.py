"""How questions are asked: as `sending`, for queries.

A module compiles a query to a statement in its database's language. An `Asker` makes a request of it before
it is due, sends that, and takes the answer in without decoding it: what an answer costs its reader is
not the database's. Only what is checked is decoded, after all that is measured.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import SimulatorError
from ..machine import find_memory_bytes
from ..workloads.drawing import BoundQueries
from .sending import Outcome, Poll, Requester

if TYPE_CHECKING:
    from .base import AnyModule

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


class Asker(Requester[Any, Received]):
    """Asks one reader's questions, by connections of its own. A request is what `encode` makes.

    A question that fails raises Retryable if the connection is lost or the server is away (`recover` is
    called before the next), SimulatorError if the database refuses it. It is never asked again.
    """

    def __init__(self, module: AnyModule, in_flight: int = 1) -> None:
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

    def __init__(self, module: AnyModule, in_flight: int, timeout_s: float) -> None:
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
