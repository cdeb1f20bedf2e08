"""A worker that inserts events."""

from __future__ import annotations

import ctypes
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Literal

import numpy as np

from ..contract import Progress, Role, Stage, Timestamps, WorkerResult
from ..errors import GaveUp, Retryable, SimulatorError
from ..modules.base import AnyModule, connect
from ..modules.sending import Encoder, Request, Writer, find_unsent
from ..workloads.base import Workload
from ..workloads.schema import EventBlock, Tags
from .base import (
    EARLY_S,
    RunOver,
    Worker,
    garbage_collection_paused,
    read_progress,
    reporting,
)
from .loop import InsertLoop, choose_backoff_s
from .measure import Recorder
from .schedule import Schedule, lower_priority, make_schedule, sharpen_sleep

# Least number of events that are generated and encoded at once. On a machine with a busy server, whose data
# fill the caches, each chunk costs some 300 µs of CPU before it gets anywhere. Where that is much beside the
# rest, chunks grow as long as one takes less than this, up to that many events: IoTDB's tablets of small rows
# took 50 ns an event with the least number, and 35 with the most. A worker's memory stays flat.
_CHUNK_EVENTS, _MOST_CHUNK_EVENTS = 16_384, 65_536
_SHORT_CHUNK_S = 0.002

# The same for single requests. Where they aren't encoded in a thread, answers to those in flight have to wait
# while a chunk is encoded: 1 ms (Cassandra) to 2 ms (Elasticsearch).
_CHUNK_SINGLES = 512

# Options of glibc's `mallopt`, and their values: the most that it takes, and what some chunks need.
# https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 1 << 26, 1 << 25

_NO_END = 2**62
"""A number that no run's events reach."""

# How long a thread that has a request to send or an answer to take waits for the one that encodes, or reports
# progress (Python's default is 5 ms, as long as many a request;
# https://docs.python.org/3/library/sys.html#sys.setswitchinterval). A request costs 20 µs or more without its
# wait: in a shorter time, the encoding thread would break into it.
_SWITCH_INTERVAL_S = 0.00005


@dataclass(frozen=True)
class Chunk:
    """Events that were generated and encoded at once."""

    first: int
    count: int
    lacking: Counter[str]
    """Nullable column -> how many of all events up to this chunk's last have no value in it."""


class Feed:
    """A worker's payloads in order, made chunk by chunk: one chunk ahead in a thread if the encoder
    allows. Single requests of a closed loop are made when they are needed, since they are too short to be
    disturbed. If they are due by the clock (`punctual`), it's the chunk that would disturb them: it takes as
    long as some of them are apart.

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
        punctual: bool = False,
    ) -> None:
        """`generate(first, count)` makes a block; events `first` to `first + count` are fed (None:
        without end)."""
        _keep_freed_memory()
        self._generate = generate
        self._encoder = encoder
        self._first = self._next = first
        self._stop = _NO_END if count is None else first + count
        batch = encoder.job.load.batch
        self._start_thread = lower_priority if punctual else None
        self._in_thread = encoder.overlaps and (punctual or batch > 0)
        unit = encoder.unit_events or encoder.size
        self._chunk = -(-(_CHUNK_EVENTS if batch else _CHUNK_SINGLES) // unit) * unit
        # What numpy does with so many values at once would make requests late that are due by the clock.
        self._most_chunk = _MOST_CHUNK_EVENTS if batch and not punctual else self._chunk
        self._ready: deque[Request] = deque()
        self._chunks: deque[Chunk] = deque(maxlen=2)
        """The one that is being sent, and the one beside it."""
        self.generate_s = 0.0
        self.encode_s = 0.0
        self._encoded_events = 0

    def prime(self) -> None:
        """Make the first chunk, outside the measured window."""
        if not self._ready:
            self._make_chunk()

    def __iter__(self) -> Iterator[Request]:
        return self._feed_by_thread() if self._in_thread else self._feed_when_needed()

    def _feed_when_needed(self) -> Iterator[Request]:
        with short_switch_interval():
            while self._ready or self._make_chunk():
                while self._ready:
                    yield self._ready.popleft()

    def _feed_by_thread(self) -> Iterator[Request]:
        with short_switch_interval(), ThreadPoolExecutor(1, "encode", self._start_thread) as thread:
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
        self._ready.extend(self._encoder.encode(block))
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
        return True

    def find_chunk(self, sent: int) -> Chunk | None:
        """The chunk that is being sent when so many events have been sent in all."""
        chunk = None
        for candidate in self._chunks:
            if chunk is None or candidate.first < self._first + sent:
                chunk = candidate
        return chunk

    def count_lacking(self, sent: int) -> Counter[str]:
        """Nullable column -> how many of the events that have been sent have no value in it."""
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
        """Count what making payloads costs from here on: the warm-up is over."""
        self.generate_s = self.encode_s = 0.0
        self._encoded_events = 0

    def ceiling_per_s(self) -> float:
        """Events per CPU second of generating and encoding; 0 if nothing was encoded."""
        spent = self.generate_s + self.encode_s
        return self._encoded_events / spent if spent else 0.0


@cache
def _keep_freed_memory() -> None:
    """Let memory that is freed serve what is made next, and not go back to the kernel at once, as happens
    with all that is larger than 128 KB: to get it again, page by page, took half of the CPU time of
    encoding and sending large requests. Without glibc nothing happens."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let a thread wait only `_SWITCH_INTERVAL_S` for one that computes."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


# The rows of a worker's devices in the tags' table, stored before anything is measured.


def store_devices(
    module: AnyModule, workload: Workload, worker: int, abort: Callable[[], object] = lambda: None
) -> None:
    """Store the rows of a worker's devices. They are the same in each run, so it's tried again as a whole.

    `abort` is called before each retry. SimulatorError after the target's `max_retries`.
    """
    most = module.options.max_retries
    for attempt in count():
        try:
            with connect(module):
                module.store_devices(workload.device_rows(worker))
        except Retryable as error:
            if attempt >= most:
                raise SimulatorError(
                    f"gave up after {most} retries ({error.kind}): {error}"
                ) from error
            time.sleep(choose_backoff_s(error, attempt))
            abort()
        else:
            return


class WritingWorker(Worker):
    """Inserts events: a prefill before the common start, the load's own after it."""

    def run(self) -> WorkerResult:
        load = self._load
        go = self._client.ready(Stage.PREPARED)
        first, prefill = go.first_event, go.prefill
        # With `restart` this run's first event gets the first timestamp again.
        time_origin = first if self._data.timestamps is Timestamps.RESTART else 0

        def generate(start: int, count: int) -> EventBlock:
            return self._workload.block(self._number, start, count, time_origin)

        if self._workload.schema.tags is Tags.TABLE:
            self._store_devices()
        lacking = self._prefill(generate, first, prefill) if prefill else Counter()
        if load.role is Role.FILL:
            elapsed_s = time.perf_counter() - self._await_start(prefill)
            return self._result(elapsed_s, lacking=lacking)
        schedule = make_schedule(load, self._number - self._group.first, self._chance)
        events = load.events if load.duration_s is None else None
        with connect(self._module.writer()) as writer:
            feed = Feed(generate, writer.encoder, first + prefill, events, schedule.is_open)
            feed.prime()
            recorder = Recorder(schedule, feed.forget_costs, self._by_second)
            with garbage_collection_paused():
                if schedule.is_open:
                    sharpen_sleep()
                recorder.begin(self._await_start(prefill, EARLY_S))
                progress = self._progress("run", recorder)
                with reporting(self._client, progress, recorder.end_early):
                    failure = self._insert_all(feed, writer, recorder, schedule)
                    if failure is None:
                        recorder.end()
                    else:
                        recorder.give_up(load.events_per_request, events)
        figures = recorder.result(
            generate_s=feed.generate_s,
            encode_s=feed.encode_s,
            ceiling_per_s=feed.ceiling_per_s(),
            in_flight=writer.max_in_flight,
        )
        chunk = feed.find_chunk(recorder.events)
        lacking += feed.count_lacking(recorder.events)
        return self._result(
            recorder.elapsed_s(),
            figures,
            failure=failure,
            chunk=chunk and (chunk.first, chunk.count),
            lacking=lacking,
        )

    def _insert_all(
        self, feed: Feed, writer: Writer, recorder: Recorder, schedule: Schedule
    ) -> str | None:
        """Insert all events. If patience ended, here or in another worker, and there is something to hand in,
        returns why."""
        try:
            self._insert(feed, writer, recorder, schedule)
        except (GaveUp, RunOver) as error:
            if not recorder.events:
                raise
            return str(error)
        return None

    def _store_devices(self) -> None:
        recorder = Recorder()
        recorder.begin(time.perf_counter())
        with reporting(self._client, self._progress("prefill", recorder), stage="prefill"):
            store_devices(self._module, self._workload, self._number, self._check_on)

    def _prefill(
        self, generate: Callable[[int, int], EventBlock], first: int, count: int
    ) -> Counter[str]:
        """Returns what `Feed.count_lacking` says of it."""
        with connect(self._module.for_prefill().writer()) as writer:
            feed = Feed(generate, writer.encoder, first, count)
            recorder = Recorder()
            recorder.begin(time.perf_counter())
            with reporting(self._client, self._progress("prefill", recorder), stage="prefill"):
                self._insert(feed, writer, recorder)
        return feed.count_lacking(count)

    def _insert(
        self, feed: Feed, writer: Writer, recorder: Recorder, schedule: Schedule | None = None
    ) -> None:
        most = self._module.options.max_retries
        patience_s = self._load.patience_s
        InsertLoop(writer, recorder, most, self._check_on, schedule, patience_s).run(feed)

    def _progress(
        self, stage: Literal["prefill", "run"], recorder: Recorder
    ) -> Callable[[], Progress]:
        load = self._load
        most = load.events if load.duration_s is None else None
        return lambda: read_progress(self._number, stage, recorder, load.events_per_request, most)
