"""Exactly once where a request may be stored in part.

These databases have no transactions: each event of a request is stored or refused on its own, and a request
without an answer may have been stored in full, in part, or not at all. A `TablePart` keeps what is known
about a request during its retries:

* sent, and answered: nothing is in doubt. Events refused for a temporary reason stay in `rows` to be sent
  again (`keep_refused`).
* sent, and not answered, or answered with an error that may have occurred midway: `doubt()`. Before a retry,
  the writer must make sure that the server is no longer at work on it, and then look up its events by their
  natural keys (`SettlingWriter.settle` and `find_missing`). That takes seconds, so it is the first part of
  the writer's `send`, for which other requests in flight don't wait, and not of its `recover`.
* sent again: an event that exists already is no error, since the earlier attempt may have stored it
  (`sent_before`).

`SettlingWriter` does all of that for requests that a module sends and looks up.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

from ...contract import PrimaryKey
from ...encoding.columns import bounds
from ...errors import Retryable, SimulatorError
from ..base import AnyModule
from ..sending import BlockingChannel, Encoder, Request, Writer
from .module import (
    ConnectedModule,
    ConnectionT,
)


class ConnectedWriter(Writer, BlockingChannel, Generic[ConnectionT]):
    """A writer with a connection like its module's, shared by the threads of requests in flight."""

    def __init__(self, module: ConnectedModule[Any, ConnectionT]) -> None:
        super().__init__(self.make_encoder(module))
        self.job = module.job
        self.max_in_flight = module.options.in_flight(module.job.load)
        self._connect = module.connect
        self._connection: ConnectionT | None = None

    def make_encoder(self, module: AnyModule) -> Encoder:
        """The encoder for its requests: the module's."""
        return module.encoder(module.options, module.job)

    def open(self) -> None:
        self._connection = self._connect()

    def close(self) -> None:
        self.end_threads()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> ConnectionT:
        """The connection of an open writer."""
        assert self._connection is not None
        return self._connection


_AT_ONCE = 1_000
"""Events per look-up."""


@dataclass(slots=True)
class TablePart(ABC):
    """One request of a payload, and what is known about its outcome during retries."""

    rows: Sequence[int]
    """Its events, counted from the payload's first."""
    table: int = field(default=0, kw_only=True)
    """The number of their table among the job's."""
    name: str = field(default="", kw_only=True)
    """The request's name at the server, if it has one."""
    stored: int = field(default=0, kw_only=True)
    """Events once among `rows` that are known to be stored."""
    in_doubt: bool = field(default=False, kw_only=True)
    """Whether the server may still be at work on it, or may have stored a part of it."""
    sent_before: bool = field(default=False, kw_only=True)
    """Whether an earlier attempt may have stored some of `rows`."""

    @abstractmethod
    def cut(self, positions: Sequence[int], payload: Request) -> None:
        """Keep only the events at these positions of `rows` in the body. There is at least one."""

    def doubt(self) -> None:
        """Record that it is unknown how much of it the server has stored."""
        self.in_doubt = self.sent_before = True

    def keep(self, positions: Sequence[int], payload: Request) -> None:
        """Keep only the events at these positions of `rows`, to be sent again: the others are stored."""
        self.stored += len(self.rows) - len(positions)
        if positions and len(positions) < len(self.rows):
            self.cut(positions, payload)
        self.rows = [self.rows[position] for position in positions]


def keep_refused(
    request: TablePart, payload: Request, meanings: Iterable[Retryable | SimulatorError | None]
) -> Retryable | None:
    """Keep the events of a request that were refused for a temporary reason, to be sent again.

    `meanings`: for each row, the meaning of its result; None: it is stored. Returns the first temporary
    reason, None if all are stored; raises the first error that ends the run.
    """
    refused: list[int] = []
    reason: Retryable | None = None
    for position, meaning in enumerate(meanings):
        if isinstance(meaning, SimulatorError):
            raise meaning
        if meaning is not None:
            reason = reason or meaning
            refused.append(position)
    request.keep(refused, payload)
    return reason


class Span(NamedTuple):
    """Numbers from `first` to `last`."""

    first: int
    last: int


Wanted = Mapping[str, Span | Sequence[str]]
"""Column of the natural key -> the texts, or the span of numbers, of the events to find."""


def find_missing(
    request: TablePart,
    payload: Request,
    find: Callable[[Wanted], Collection[tuple[Any, ...]]],
) -> list[int]:
    """The positions of a request's rows that the database doesn't have.

    `find`: the natural keys (in the order of `Schema.row_key`) of the stored events that match; it may return
    more than needed.
    """
    block, first = payload.block, payload.last + 1 - payload.events
    missing: list[int] = []
    for start, stop in bounds(len(request.rows), _AT_ONCE):
        keys = [tuple(block.key_of(first + row).values()) for row in request.rows[start:stop]]
        wanted = {
            name: sorted(set(values))
            if isinstance(values[0], str)
            else Span(min(values), max(values))
            for name, values in zip(block.schema.row_key, zip(*keys, strict=True), strict=True)
        }
        stored = set(find(wanted))
        missing += [start + at for at, key in enumerate(keys) if key not in stored]
    return missing


# --- a writer of such requests --------------------------------------------------------------------


class SettlingWriter(ConnectedWriter[ConnectionT]):
    """Sends requests that may be stored in part: a payload's data is a list of `TablePart`."""

    LOOKUPS_APART_S: ClassVar[float | None] = None
    """For a server that doesn't tell what it is at work on: two look-ups, this far apart, must agree on what
    is stored. None: one is enough, after `await_end`."""

    REFUSES_KEYS: ClassVar[bool] = False
    """Whether an existing client's key is refused, so that all events with such keys may be sent again."""

    def __init__(self, module: ConnectedModule[Any, ConnectionT]) -> None:
        super().__init__(module)
        self.may_repeat = self.REFUSES_KEYS and module.job.load.primary_key is PrimaryKey.CLIENT
        self.has_stored = False
        """Whether an event of this writer has been acknowledged."""

    def send(self, payload: Request) -> int:
        requests = payload.data
        for request in requests:
            if request.in_doubt:
                if self.settle(payload):
                    return payload.events
                break
        for request in requests:
            if request.rows:
                self.send_request(request, payload)
                request.rows = ()
        self.has_stored = True
        return payload.events

    @abstractmethod
    def send_request(self, request: Any, payload: Request) -> None:
        """Returns when all events of a request are stored; raises as `send`, after `doubt` if some may be."""

    def settle(self, payload: Request) -> bool:
        """Find out which events of requests in doubt are stored; returns whether all are."""
        if not self.may_repeat:
            self.await_end(payload)
        is_left = False
        for request in payload.data:
            if request.in_doubt:
                every = range(len(request.rows))
                request.keep(
                    every if self.may_repeat else self.find_missing(request, payload), payload
                )
                request.in_doubt = False
            is_left = is_left or bool(request.rows)
        return not is_left

    def await_end(self, payload: Request) -> None:
        """Wait until the server is no longer at work on requests in doubt, if it tells; Retryable if that
        takes too long."""

    def find_missing(self, request: Any, payload: Request) -> Sequence[int]:
        """The positions of the request's rows that the database doesn't have."""
        before: list[int] | None = None
        while True:
            self.show_events(request)
            missing = find_missing(request, payload, lambda wanted: self.find(request, wanted))
            if self.LOOKUPS_APART_S is None or missing == before:
                return missing
            before = missing
            # The server may still be at work on the request, and has no event for its end.
            time.sleep(self.LOOKUPS_APART_S)

    def show_events(self, request: Any) -> None:
        """Make stored events of a request visible, before each look-up."""

    @abstractmethod
    def find(self, request: Any, wanted: Wanted) -> Collection[tuple[Any, ...]]:
        """The natural keys of matching stored events in a request's table: see `find_missing`."""
