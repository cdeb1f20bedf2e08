"""Makes requests before they are due: a writer's `Feed` of events, a reader's `Stock` for each query.

A thread that computes keeps the interpreter's lock from a sender that has just woken. That is harmless while
numpy does most of the work, as it does for events and query parameters: a thread makes these, many at once.
Encoding queries is work in Python, some µs each. The sender does it itself while nothing is due, since only
the sender knows when that is.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import inf
from typing import Any, TypeVar

import numpy as np

from ..modules.sending import Encoder, Request, find_unsent
from ..workloads.drawing import BoundQueries
from ..workloads.schema import EventBlock
from .schedule import lower_priority

T = TypeVar("T")

# The fewest events that are generated and encoded at once. On a machine with a busy server, whose data fill
# the caches, each chunk has a fixed cost of some 300 µs of CPU. Where that matters, chunks grow up to the
# second number, as long as one takes less than this time: IoTDB's tablets of small rows took 50 ns an event
# with the first number and 35 ns with the second. A worker's memory stays flat.
_CHUNK_EVENTS, _MOST_CHUNK_EVENTS = 16_384, 65_536
_SHORT_CHUNK_S = 0.002

_CHUNK_SINGLES, _CHUNK_AHEAD = 512, 2048
"""The same for single requests. Answers to those in flight wait while a chunk is encoded, 1 ms (Cassandra) to
2 ms (Elasticsearch). Each chunk made in a thread disturbs some requests, however short it is, so chunks
should be rare."""

# Options of glibc's `mallopt`, and their values: the largest allowed, and what some chunks need.
# https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 1 << 26, 1 << 25

_NO_END = 2**62
"""Larger than any event's number."""

# How long a thread with a request to send or an answer to take waits for one that encodes or reports
# progress. Python's default is 5 ms, as long as many requests take
# (https://docs.python.org/3/library/sys.html#sys.setswitchinterval). A request costs 20 µs or more; with a
# shorter interval the encoding thread would interrupt it.
_SWITCH_INTERVAL_S = 0.00005

# --- made by the sender, while it has time ----------------------------------------------------------

_STEP_S, CLOSED_STEP_S = 0.00005, 0.0002
"""How long a sender makes requests before it looks at the clock again, in an open and in a closed loop.
Caches are cold after milliseconds of waiting: the first request costs 50 µs, the next ones 3 µs."""

_PART = 64
"""How many requests one call of an encoder covers; each is encoded when it is taken."""

_STOCK = 64
"""How many requests the sender of an open loop keeps ready for when there is no time to make more."""


class Stock:
    """Requests for the executions of a query. `blocks`: its drawn parameters, without end."""

    def __init__(
        self,
        blocks: Iterator[BoundQueries],
        encode: Callable[[BoundQueries], Iterable[Any]],
        low: int = _STOCK,
        most: int = _STOCK,
        step_s: float = _STEP_S,
    ) -> None:
        """Requests are made ahead when fewer than `low` are ready. A step makes as many as fit in `step_s`,
        at most `most`."""
        self._ready: deque[Any] = deque()
        self._low, self._most, self._step_s = low, most, step_s
        self._at_once = 1
        self._draw_s = 0.0
        self._late = self._encode_all(blocks, encode)
        self.encode_s = 0.0
        """CPU time spent on encoding."""

    def take(self) -> Any:
        """The next request; made now if there was no time to make it ahead."""
        if not self._ready:
            self._make()
        return self._ready.popleft()

    def make_ahead(self, until: float = inf) -> bool:
        """Make some requests if too few are ready and there is time until `until`. Returns whether it did."""
        if len(self._ready) >= self._low or time.perf_counter() + self._step_s >= until:
            return False
        self._make()
        return True

    def _make(self) -> None:
        began_s, drew_s, count = time.thread_time(), self._draw_s, self._at_once
        self._ready.extend(islice(self._late, count))
        spent_s = time.thread_time() - began_s - (self._draw_s - drew_s)
        self.encode_s += spent_s
        fitting = int(count * self._step_s / max(spent_s, 1e-9))
        self._at_once = max(1, min(fitting, 2 * count, self._most))

    def _encode_all(
        self,
        blocks: Iterator[BoundQueries],
        encode: Callable[[BoundQueries], Iterable[Any]],
    ) -> Iterator[Any]:
        while True:
            began_s = time.thread_time()
            block = next(blocks)
            self._draw_s += time.thread_time() - began_s
            # Work that an encoder does for many requests at once would cost several times as much for each
            # alone.
            for first in range(0, len(block), _PART):
                yield from encode(block.part(first, min(first + _PART, len(block))))


# --- made in a thread, one ahead --------------------------------------------------------------------


def make_in_thread(thread: Executor, make: Callable[[], T]) -> Iterator[T]:
    """The results of `make`, without end. All but the first are made in a thread while the previous one is
    used."""
    made = make()
    while True:
        more = thread.submit(make)
        yield made
        made = more.result()


@contextmanager
def encoding_thread(punctual: bool) -> Iterator[Executor]:
    """A thread for which others wait only briefly. `punctual`: the sender may interrupt it."""
    start = lower_priority if punctual else None
    with short_switch_interval(), ThreadPoolExecutor(1, "encode", start) as thread:
        yield thread


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let threads wait for one that computes only for `_SWITCH_INTERVAL_S`."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


# --- a writer's requests ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunk:
    """Events generated and encoded together."""

    first: int
    count: int
    lacking: Counter[str]
    """Nullable column -> how many of all events up to this chunk's end have no value in it."""


class Feed:
    """A writer's requests in order, made chunk by chunk: one chunk ahead in a thread, if the encoder allows
    it. A closed loop makes single requests when they are needed, since they are too short to hold anything
    up. If they are due by the clock (`punctual`), a chunk would hold them up: making one takes as long as the
    time between some of them.

    Counts the CPU time of generating and encoding all requests, including the first chunk, which is made
    before the window opens. It is the thread's own CPU time: waiting for a busy machine's processor is not
    the encoder's cost.
    """

    def __init__(
        self,
        generate: Callable[[int, int], EventBlock],
        encoder: Encoder,
        first: int,
        count: int | None,
        punctual: bool = False,
    ) -> None:
        """`generate(first, count)` makes a block. Events `first` to `first + count` are fed (None: no
        end)."""
        _keep_freed_memory()
        self._generate = generate
        self._encoder = encoder
        self._first = self._next = first
        self._stop = _NO_END if count is None else first + count
        self._punctual = punctual
        batch = encoder.job.load.batch
        self._in_thread = encoder.overlaps and (punctual or batch > 0)
        unit = encoder.unit_events or encoder.size
        singles = _CHUNK_AHEAD if self._in_thread else _CHUNK_SINGLES
        self._chunk = -(-(_CHUNK_EVENTS if batch else singles) // unit) * unit
        # numpy's work on so many values at once would delay requests that are due by the clock.
        self._most_chunk = _MOST_CHUNK_EVENTS if batch and not punctual else self._chunk
        self._primed: deque[Request] | None = None
        self._chunks: deque[Chunk] = deque(maxlen=2)
        """The chunk that is being sent, and its neighbour."""
        self.generate_s = 0.0
        self.encode_s = 0.0
        self._encoded_events = 0

    def prime(self) -> None:
        """Make the first chunk, outside the measured window."""
        if self._primed is None:
            self._primed = self._make_chunk()

    def __iter__(self) -> Iterator[Request]:
        self.prime()
        chunk, self._primed = self._primed, None
        with encoding_thread(self._punctual) as thread:
            while chunk:
                more = thread.submit(self._make_chunk) if self._in_thread else None
                while chunk:
                    yield chunk.popleft()
                chunk = more.result() if more else self._make_chunk()

    def _make_chunk(self) -> deque[Request]:
        """The next chunk's requests; empty if there are none."""
        count = min(self._chunk, self._stop - self._next)
        if not count:
            return deque()
        begin = time.thread_time()
        block = self._generate(self._next, count)
        generated = time.thread_time()
        payloads = deque(self._encoder.encode(block))
        encoded = time.thread_time()
        self.encode_s += encoded - generated
        self.generate_s += generated - begin
        if (
            self._in_thread
            and encoded - begin < _SHORT_CHUNK_S
            and 2 * self._chunk <= self._most_chunk
        ):
            self._chunk *= 2
        lacking = Counter(
            {name: np.count_nonzero(places) for name, places in block.missing.items()}
        )
        if self._chunks:
            lacking += self._chunks[-1].lacking
        self._chunks.append(Chunk(self._next, count, lacking))
        self._next += count
        self._encoded_events += count
        return payloads

    def find_chunk(self, sent: int) -> Chunk | None:
        """The chunk that is being sent once `sent` events have been sent in all."""
        chunk = None
        for candidate in self._chunks:
            if chunk is None or candidate.first < self._first + sent:
                chunk = candidate
        return chunk

    def count_lacking(self, sent: int) -> Counter[str]:
        """Nullable column -> how many of the events sent so far have no value in it."""
        chunk = self.find_chunk(sent)
        if chunk is None:
            return Counter()
        sent_of_chunk = self._first + sent - chunk.first
        if not chunk.lacking or sent_of_chunk == chunk.count:
            return chunk.lacking
        block = self._generate(chunk.first, chunk.count)
        unsent = find_unsent(self._encoder, block, sent_of_chunk)
        missing = {} if unsent is None else unsent.missing
        return chunk.lacking - Counter(
            {name: np.count_nonzero(places) for name, places in missing.items()}
        )

    def forget_costs(self) -> None:
        """Count costs from here on: the warm-up is over."""
        self.generate_s = self.encode_s = 0.0
        self._encoded_events = 0

    def ceiling_per_s(self) -> float:
        """Events per CPU second of generating and encoding; 0 if nothing was encoded."""
        spent = self.generate_s + self.encode_s
        return self._encoded_events / spent if spent else 0.0


@cache
def _keep_freed_memory() -> None:
    """Reuse freed memory instead of returning it to the kernel, as happens with every block above 128 KB.
    Getting it back page by page took half of the CPU time of encoding and sending large requests. Without
    glibc this does nothing."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
