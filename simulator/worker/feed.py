"""What is sent: a worker's payloads in order, with what making them cost."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..modules.base import Encoder, Payload
from ..workloads.base import EventBlock

# Least number of events that are generated and encoded at once. On a machine with a busy server, whose data
# fill the caches, each chunk costs some 200 µs before it gets anywhere, which was half of the time for
# generating when chunks had 8,192 events. A worker's memory stays flat.
_CHUNK_EVENTS = 16_384

# The same for single requests of a closed loop. They aren't encoded in a thread, so answers to those in
# flight have to wait while a chunk is encoded: 1 ms (Cassandra) to 2 ms (Elasticsearch).
_CHUNK_SINGLES = 512

# In an open loop, what no thread makes is made in the time until the next request is due: at least so many
# singles at once (40 to 60 µs, most of it for the step itself), more if there is more time.
_LEAST_STEP, _LONGEST_STEP = 16, 256

# How many are made ahead so: with no answer under way, or else, since each step keeps answers waiting.
_AHEAD, _LEAST_AHEAD = 512, 64

_NO_END = 2**62
"""An event's number that no run comes to."""

# How long a thread that has a request to send or an answer to take waits for the one that encodes, or reports
# progress (Python's default is 5 ms, as long as many a request;
# https://docs.python.org/3/library/sys.html#sys.setswitchinterval). A request costs 20 µs or more without its
# wait: in a shorter time, the encoding thread would break into it.
_SWITCH_INTERVAL_S = 0.00005


class Feed:
    """A worker's payloads in order, made chunk by chunk: batches one chunk ahead in a thread if the
    encoder allows, others when they are needed, as single requests are too short to be disturbed. If
    requests are due by the clock (`punctual`), these are made in small steps while there is time for it
    (`work_ahead`).

    Keeps the CPU time of generating and encoding all that was fed, the first chunk included, though it
    is made before the window opens (of the thread alone: waiting for a busy machine's processor is
    not the encoder's cost).
    """

    def __init__(
        self,
        generate: Callable[[int, int], EventBlock],
        encoder: Encoder,
        first: int,
        count: int | None,
        batch: int,
        punctual: bool = False,
    ) -> None:
        """`generate(first, count)` makes a block; events `first` to `first + count` are fed (None:
        without end)."""
        self._generate = generate
        self._encoder = encoder
        self._next = first
        self._stop = _NO_END if count is None else first + count
        self._batch = batch
        self._in_thread = bool(batch) and encoder.overlaps
        self._unit = encoder.unit_events or batch or 1
        self._first_chunk = self._whole(_CHUNK_EVENTS if batch else _CHUNK_SINGLES)
        is_stepwise = punctual and not self._in_thread
        self._chunk = self._whole(_LEAST_STEP) if is_stepwise else self._first_chunk
        self._last_events, self._last_s = 1, 0.0
        """The length of the last chunk, and what it took."""
        self._ready: deque[Payload] = deque()
        self.generate_s = 0.0
        self.encode_s = 0.0
        self._encoded_events = 0

    def prime(self) -> None:
        """Make the first chunk, outside the measured window."""
        if not self._ready:
            self._make_chunk(self._first_chunk)
            if self._chunk < self._first_chunk:
                # Shows how long a step takes.
                self._make_chunk(self._chunk)

    def _whole(self, events: int) -> int:
        """So many events, rounded up to whole units."""
        return -(-events // self._unit) * self._unit

    def work_ahead(self, until: float, idle: bool) -> None:
        """Make what is needed next, as far as that is likely to be over by then (`time.perf_counter`);
        `idle`: no answer is awaited. Of no effect if a thread makes it."""
        if self._in_thread:
            return
        most = _AHEAD if idle else _LEAST_AHEAD
        while len(self._ready) < most:
            left_s = until - time.perf_counter()
            if self._estimate_s(self._chunk) > left_s:
                return
            count = self._chunk
            while idle and count < _LONGEST_STEP and self._estimate_s(2 * count) < left_s / 2:
                count *= 2
            if not self._make_chunk(count):
                return

    def _estimate_s(self, events: int) -> float:
        """What a chunk of that length may take, rather more than less."""
        return self._last_s * max(1.0, events / self._last_events)

    def __iter__(self) -> Iterator[Payload]:
        with _switch_soon():
            yield from self._feed_by_thread() if self._in_thread else self._feed_when_needed()

    def _feed_when_needed(self) -> Iterator[Payload]:
        while self._ready or self._make_chunk(self._chunk):
            while self._ready:
                yield self._ready.popleft()

    def _feed_by_thread(self) -> Iterator[Payload]:
        with ThreadPoolExecutor(1, "encode") as thread:
            if not self._ready:
                self._make_chunk(self._chunk)
            while self._ready:
                # A list of its own: the thread fills `_ready` while these are being sent.
                current, self._ready = self._ready, deque()
                more = thread.submit(self._make_chunk, self._chunk)
                while current:
                    yield current.popleft()
                more.result()

    def _make_chunk(self, at_most: int) -> bool:
        """Make the next chunk; False if there is none."""
        count = min(at_most, self._stop - self._next)
        if not count:
            return False
        begin = time.thread_time()
        block = self._generate(self._next, count)
        generated = time.thread_time()
        self._ready.extend(self._encoder.encode(block, self._batch))
        encoded = time.thread_time()
        self.generate_s += generated - begin
        self.encode_s += encoded - generated
        self._last_events, self._last_s = count, encoded - begin
        self._next += count
        self._encoded_events += count
        return True

    def forget_costs(self) -> None:
        """Count what making payloads costs from here on: the warm-up is over."""
        self.generate_s = self.encode_s = 0.0
        self._encoded_events = 0

    def ceiling_per_s(self) -> float:
        """Events per CPU second of generating and encoding; 0 if nothing was encoded."""
        spent = self.generate_s + self.encode_s
        return self._encoded_events / spent if spent else 0.0


@contextmanager
def _switch_soon() -> Iterator[None]:
    """Let a thread wait only `_SWITCH_INTERVAL_S` for one that computes."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)
