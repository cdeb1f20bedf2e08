"""When requests are sent: the insert loop, with retries and requests in flight.

*What* is sent comes from a `Feed`, *how it is measured* is the `Recorder`'s affair.
"""

from __future__ import annotations

import heapq
import logging
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import Retryable, SimulatorError
from .measure import Recorder
from .modules.base import Encoder, Outcome, Payload, Writer
from .workloads.base import EventBlock

_log = logging.getLogger(__name__)

# Events generated and encoded in one go, at least. Beside a busy server, whose data are in the caches, each
# go costs some 200 µs before it gets anywhere: half of all that generating took with 8,192 of them. A
# worker's memory stays flat.
_CHUNK_EVENTS = 16_384

# Of single requests, which are not encoded in a thread: as long as a chunk takes, the answers to those in
# flight wait. That is 1 ms (Cassandra) to 2 ms (Elasticsearch).
_CHUNK_SINGLES = 512

_MAX_BACKOFF_S = 2.0


# How long a thread that has an answer to take waits for the one that encodes (Python's default is 5 ms,
# as long as many a request; https://docs.python.org/3/library/sys.html#sys.setswitchinterval).
_SWITCH_INTERVAL_S = 0.0002


class Feed:
    """A worker's payloads in order, made chunk by chunk: batches one chunk ahead in a thread if the
    encoder allows, others when they are needed, as single requests are too short to be disturbed.

    Keeps the CPU time of generating and encoding (of this thread: waiting for a busy machine's
    processor is not the encoder's cost).
    """

    def __init__(
        self,
        generate: Callable[[int, int], EventBlock],
        encoder: Encoder,
        first: int,
        count: int,
        batch: int,
    ) -> None:
        """`generate(first, count)` makes a block; events `first` to `first + count` are fed."""
        self._generate = generate
        self._encoder = encoder
        self._next = first
        self._stop = first + count
        self._batch = batch
        unit = encoder.unit_events or batch or 1
        self._chunk = -(-(_CHUNK_EVENTS if batch else _CHUNK_SINGLES) // unit) * unit
        self._ready: deque[Payload] = deque()
        self.generate_s = 0.0
        self.encode_s = 0.0
        self._earlier_s = 0.0
        self._encoded_events = 0

    def prime(self) -> None:
        """Make the first chunk, outside the measured window."""
        if not self._ready:
            self._make_chunk()

    def reset_clock(self) -> None:
        """Forget the CPU time so far; `ceiling_per_s` still counts it."""
        self._earlier_s += self.generate_s + self.encode_s
        self.generate_s = self.encode_s = 0.0

    def __iter__(self) -> Iterator[Payload]:
        if not (self._batch and self._encoder.overlaps):
            while self._ready or self._make_chunk():
                while self._ready:
                    yield self._ready.popleft()
            return
        with _switching_soon(), ThreadPoolExecutor(1, "encode") as thread:
            if not self._ready:
                self._make_chunk()
            while self._ready:
                # A list of its own: the thread fills `_ready` while these are being sent.
                current, self._ready = self._ready, deque()
                more = thread.submit(self._make_chunk)
                while current:
                    yield current.popleft()
                more.result()

    def _make_chunk(self) -> bool:
        """Make the next chunk; False if there is none."""
        count = min(self._chunk, self._stop - self._next)
        if not count:
            return False
        begin = time.thread_time()
        block = self._generate(self._next, count)
        generated = time.thread_time()
        self._ready.extend(self._encoder.encode(block, self._batch))
        self.encode_s += time.thread_time() - generated
        self.generate_s += generated - begin
        self._next += count
        self._encoded_events += count
        return True

    def ceiling_per_s(self) -> float:
        """Events per CPU second of generating and encoding; 0 if nothing was encoded."""
        spent = self._earlier_s + self.generate_s + self.encode_s
        return self._encoded_events / spent if spent else 0.0


def insert_all(
    feed: Feed, writer: Writer, recorder: Recorder, max_retries: int, abort: Callable[[], None]
) -> None:
    """Send all payloads. A request's latency runs from its first submission to its acknowledgement,
    retries included. `abort` is called before each retry and raises if the run is over.

    Raises SimulatorError if a request failed for good or events were refused.
    """
    if writer.max_in_flight > 1:
        _InFlight(writer, recorder, max_retries, abort).run(feed)
        return
    clock = time.perf_counter
    for payload in feed:
        sent = clock()
        try:
            stored = writer.send(payload)
        except Retryable as error:
            stored = _retry(payload, error, writer, recorder, max_retries, abort)
        _check(payload, stored)
        recorder.record(sent, clock(), stored)


def _retry(
    payload: Payload,
    error: Retryable,
    writer: Writer,
    recorder: Recorder,
    max_retries: int,
    abort: Callable[[], None],
) -> int:
    """Try again until it works; the number of events stored."""
    for attempt in range(max_retries):
        delay = _count_error(recorder, error, attempt)
        time.sleep(delay)
        abort()
        recorder.retries += 1
        try:
            if writer.recover(payload):
                return payload.events
            return writer.send(payload)
        except Retryable as next_error:
            error = next_error
    recorder.errors[error.kind] += 1
    raise _given_up(error, max_retries) from error


def _count_error(recorder: Recorder, error: Retryable, attempt: int) -> float:
    """Note an error that will be retried; the time to wait, exponential with full jitter.

    https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """
    recorder.errors[error.kind] += 1
    _log.warning("retry %d after %s: %s", attempt + 1, error.kind, error)
    longest: float = min(_MAX_BACKOFF_S, error.backoff_s * 2**attempt)
    return max(error.at_least_s, longest * random.uniform(0.5, 1.0))


def _given_up(error: Retryable, max_retries: int) -> SimulatorError:
    return SimulatorError(f"gave up after {max_retries} retries ({error.kind}): {error}")


def _check(payload: Payload, stored: int) -> None:
    if stored != payload.events:
        raise SimulatorError(
            f"the database acknowledged {stored} of a request's {payload.events} events"
        )


@dataclass(slots=True)
class _Request:
    payload: Payload
    sent: float
    attempts: int = 0


@contextmanager
def _switching_soon() -> Iterator[None]:
    """Let a thread wait only `_SWITCH_INTERVAL_S` for one that computes."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


class _InFlight:
    """Keeps up to `writer.max_in_flight` requests under way."""

    def __init__(
        self, writer: Writer, recorder: Recorder, max_retries: int, abort: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._recorder = recorder
        self._max_retries = max_retries
        self._abort = abort
        self._waiting: list[tuple[float, int, _Request]] = []
        self._under_way = 0

    def run(self, feed: Feed) -> None:
        try:
            for payload in feed:
                while self._under_way + len(self._waiting) >= self._writer.max_in_flight:
                    self._next_event()
                self._submit(_Request(payload, time.perf_counter()))
            while self._under_way + len(self._waiting):
                self._next_event()
        finally:
            self._writer.stop_submitting()

    def _submit(self, request: _Request) -> None:
        self._under_way += 1
        self._writer.submit(request.payload, request)

    def _next_event(self) -> None:
        """Take answers, or send again what has waited long enough."""
        timeout_s = max(0.0, self._waiting[0][0] - time.perf_counter()) if self._waiting else None
        outcomes = self._writer.outcomes(timeout_s)
        if not outcomes and self._waiting:
            self._resubmit(heapq.heappop(self._waiting)[2])
        for outcome in outcomes:
            self._under_way -= 1
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        request: _Request = outcome.request
        result = outcome.result
        if isinstance(result, int):
            _check(request.payload, result)
            self._recorder.record(request.sent, outcome.answered_s, result)
        elif isinstance(result, Retryable):
            self._postpone(request, result)
        else:
            raise result

    def _postpone(self, request: _Request, error: Retryable) -> None:
        if request.attempts >= self._max_retries:
            self._recorder.errors[error.kind] += 1
            raise _given_up(error, self._max_retries) from error
        due = time.perf_counter() + _count_error(self._recorder, error, request.attempts)
        request.attempts += 1
        heapq.heappush(self._waiting, (due, id(request), request))

    def _resubmit(self, request: _Request) -> None:
        self._abort()
        self._recorder.retries += 1
        try:
            if self._writer.recover(request.payload):
                self._recorder.record(request.sent, time.perf_counter(), request.payload.events)
                return
        except Retryable as error:
            self._postpone_due(request, error)
            return
        self._submit(request)

    def _postpone_due(self, request: _Request, error: Retryable) -> None:
        """Of a request that could not be sent again, and with it of all that were due meanwhile: they
        have waited for the same, and one after the other they would wait for minutes."""
        now = time.perf_counter()
        due = [request]
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        self._recorder.retries += len(due) - 1
        for late in due:
            self._postpone(late, error)
