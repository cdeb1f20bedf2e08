"""How requests are made and sent: what a module's encoder and writer must be able to do.

When to send, retrying and measuring are the loop's affair (`simulator.worker.loop`).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from ..workloads.events import EventBlock
from .arrival import find_arrival, find_sending
from .waiting import read_deadline, set_deadline

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


class Encoder(ABC):
    """Builds payloads: pure CPU work, no connection, no per-event objects where it can be helped."""

    overlaps: bool = True
    """Whether the next payloads may be built in a thread while the last are being sent. It must never
    hold the interpreter's lock for long (numpy's loops give it up, `format_rows` works in small
    steps), or a request's answer would have to wait for it, and so would its latency."""

    unit_events: int = 0
    """`encode` should be given a multiple of so many events (0: of `batch`): for an encoder that
    sorts them into requests."""

    @abstractmethod
    def encode(self, block: EventBlock, batch: int) -> Sequence[Payload]:
        """The block as requests of `batch` events each (the last may be smaller); 0: one each."""


class Outcome(NamedTuple):
    """How a submitted request ended."""

    request: Any
    """What `submit` was given."""
    answered_s: float
    """When the answer came, by `time.perf_counter`."""
    result: int | BaseException
    """Events that the database acknowledged, or what `send` raises."""
    sent_s: float | None = None
    """When it left, if that was not in `submit`."""


class Writer(ABC):
    """One worker's connection. Used by one thread, except for `submit` with `max_in_flight` > 1."""

    max_in_flight: int = 1
    """Requests that may be under way at once: what `Options.in_flight` says."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._submitted: SimpleQueue[tuple[Payload, object, float] | None] = SimpleQueue()
        self._ended: SimpleQueue[Outcome] = SimpleQueue()

    @abstractmethod
    def open(self) -> None:
        """Connect. Not measured."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; must not fail on a broken connection."""

    @abstractmethod
    def send(self, payload: Payload) -> int:
        """Send and wait: the number of events that the database acknowledged.

        Raises Retryable if the request may be tried again, SimulatorError if the run is over.
        """

    def recover(self, payload: Payload) -> bool:
        """After a Retryable: roll back or reconnect. True if `payload` proves to be stored already.

        With several requests in flight, all others wait for this: what takes long and needs nothing
        but the request itself belongs at the beginning of `send`. Raises Retryable if it failed in turn.
        """
        return False

    def submit(self, payload: Payload, request: object) -> None:
        """`send` without waiting; `outcomes` tells how it ended, of a `request` that is the caller's.

        For a driver without requests in flight, by threads that share this writer.
        """
        self._under_way += 1
        if len(self._threads) < self._under_way:
            thread = threading.Thread(target=self._send_all, name="send", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._submitted.put((payload, request, read_deadline()))

    def _send_all(self) -> None:
        while (submitted := self._submitted.get()) is not None:
            outcome = self._send_one(*submitted)
            del submitted
            self._ended.put(outcome)
            del outcome

    def _send_one(self, payload: Payload, request: object, deadline_s: float) -> Outcome:
        set_deadline(deadline_s)
        sent_s = time.perf_counter()
        try:
            result = self.send(payload)
        except BaseException as error:  # noqa: BLE001 - whoever takes the outcome raises it
            return Outcome(request, time.perf_counter(), error, sent_s)
        sent_s = find_sending(sent_s)
        return Outcome(request, find_arrival(sent_s), result, sent_s)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome]:
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
