"""How questions are asked: as `sending`, for queries.

A module compiles a query to a statement in its database's language. An `Asker` makes a request of it before
it is due, sends that, and takes the answer in without decoding it: what an answer costs its reader is
not the database's. Only what is checked is decoded, after all that is measured.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import SimulatorError
from ..workloads.drawing import BoundQueries
from .sending import Requester

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
# cgroup v2, then v1 as a container sees it: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
_LIMIT_FILES = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@lru_cache(maxsize=1)
def most_answer_bytes() -> int:
    """How long an answer may be: a quarter of the memory that this container, or machine, has, so that one
    ends its own question and not the worker."""
    return max(_LEAST_BYTES, min(_read_memory() // _SHARE, _MOST_BYTES))


def _read_memory() -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMIT_FILES:
        try:
            return min(machine, int(path.read_text()))
        except (OSError, ValueError):
            continue
    return machine


def explain_length(size: int) -> SimulatorError:
    """The error of an answer that is longer than `most_answer_bytes`."""
    return SimulatorError(
        f"the answer has {size >> 20:,} MB or more, too much for this worker's memory (at most"
        f" {most_answer_bytes() >> 20:,} MB): ask for a shorter window or fewer devices, or give"
        " workers more memory"
    )
