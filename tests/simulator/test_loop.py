"""When requests are sent: in order, in flight, and again."""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.contract import WorkerInsert, WorkerOffer
from simulator.errors import Retryable, SimulatorError
from simulator.histograms import latency_ms, merge_histograms
from simulator.modules.sending import Outcome, Payload, Writer
from simulator.testing.inserting import insert, requests_at_once
from simulator.worker import garbage_collection_paused
from simulator.worker.feed import Feed
from simulator.worker.loop import insert_all
from simulator.worker.measure import Recorder
from simulator.worker.schedule import ClosedLoop, Schedule
from simulator.workloads.events import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder, eventually

LIMIT_S = 10


class FakeWriter(Writer):
    """A database of the test's making: `answer(numbers)` says how many events it took, or raises."""

    def __init__(self, answer: Callable[[list[int]], int], max_in_flight: int = 1) -> None:
        super().__init__(NumberEncoder())
        self.max_in_flight = max_in_flight
        self.answer = answer
        self.sent: list[list[int]] = []
        self.recovered: list[list[int]] = []
        self.stored_already = False
        self.recovery: list[Retryable] = []

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def send(self, payload: Payload) -> int:
        self.sent.append(payload.data)
        return self.answer(payload.data)

    def recover(self, payload: Payload) -> bool:
        self.recovered.append(payload.data)
        if self.recovery:
            raise self.recovery.pop(0)
        return self.stored_already


def failing(
    times: int, kind: str = "busy", backoff_s: float = 0.0001, at_least_s: float = 0.0
) -> Callable[[list[int]], int]:
    """An answer that fails so often for the request with event 2, then takes all."""
    left = [times]

    def answer(numbers: list[int]) -> int:
        if 2 in numbers and left[0]:
            left[0] -= 1
            raise Retryable(kind, f"{kind}: try later", backoff_s, at_least_s)
        return len(numbers)

    return answer


def latencies(recorder: Recorder) -> tuple[int, float, float]:
    """(requests, shortest, longest) in ms."""
    histogram = merge_histograms([recorder.result(0, 0, 0).histogram])
    figures = latency_ms(histogram)
    assert figures is not None
    return histogram.get_total_count(), histogram.get_min_value() / 1000, figures.max


# --- feed -----------------------------------------------------------------------------------------


def feed(
    count: int, batch: int, first: int = 0, punctual: bool = False
) -> tuple[Feed, list[tuple[int, int]]]:
    """A feed, and the blocks that it has asked for."""
    asked: list[tuple[int, int]] = []

    def generate(start: int, size: int) -> EventBlock:
        asked.append((start, size))
        return Temperature().block(0, start, size)

    return Feed(generate, NumberEncoder(), first, count, batch, punctual), asked


@pytest.mark.parametrize("batch", [0, 1, 7, 1000, 16_384, 40_000])
@pytest.mark.parametrize("count", [0, 1, 16_384, 40_001])
def test_a_feed_gives_each_event_once_and_in_order(count: int, batch: int) -> None:
    source, asked = feed(count, batch, first=5)
    payloads = list(source)
    assert [number for payload in payloads for number in payload.data] == list(range(5, 5 + count))
    # Chunks end between requests: all but the last are full.
    assert [payload.events for payload in payloads[:-1]] == [batch or 1] * (len(payloads) - 1)
    # A worker's memory does not grow with the number of events.
    assert max((size for _, size in asked), default=0) < 65_536 + max(1, batch)


def test_chunks_grow_as_long_as_one_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each costs before it gets anywhere counts less then; those that cost much stay as they are."""
    monkeypatch.setattr("simulator.worker.feed._SHORT_CHUNK_S", math.inf)
    source, asked = feed(300_000, 1000)
    assert sum(payload.events for payload in source) == 300_000
    assert [size for _, size in asked][:4] == [17_000, 34_000, 34_000, 34_000]
    source, asked = feed(60_000, 1000, punctual=True)
    assert sum(payload.events for payload in source) == 60_000
    assert {size for _, size in asked[:-1]} == {17_000}
    monkeypatch.setattr("simulator.worker.feed._SHORT_CHUNK_S", 0.0)
    source, asked = feed(100_000, 1000)
    assert sum(payload.events for payload in source) == 100_000
    assert {size for _, size in asked[:-1]} == {17_000}


def test_single_events_are_made_when_they_are_needed() -> None:
    source, asked = feed(20_000, 0)
    assert asked == []
    source.prime()
    source.prime()
    assert asked == [(0, 512)]
    payloads = iter(source)
    for _ in range(512):
        next(payloads)
    assert len(asked) == 1
    next(payloads)
    assert len(asked) == 2
    assert sum(payload.events for payload in payloads) == 20_000 - 513


def test_single_events_due_by_the_clock_are_made_one_chunk_ahead() -> None:
    """In a thread: a chunk would take as long as several requests are apart."""
    source, asked = feed(2000, 0, punctual=True)
    source.prime()
    assert asked == [(0, 512)]
    payloads = iter(source)
    sent = [next(payloads)]
    eventually(lambda: len(asked) == 2, "chunk ahead")
    sent += [next(payloads) for _ in range(511)]
    assert len(asked) == 2
    sent += payloads
    assert [number for payload in sent for number in payload.data] == list(range(2000))


def test_batches_are_made_one_chunk_ahead_in_a_thread() -> None:
    """While those of the last chunk are being sent; a thread that has an answer then waits briefly."""
    threads: list[int] = []
    made = threading.Semaphore(0)

    def generate(start: int, size: int) -> EventBlock:
        threads.append(threading.get_ident())
        made.release()
        return Temperature().block(0, start, size)

    usual_s = sys.getswitchinterval()
    source = Feed(generate, NumberEncoder(), 0, 60_000, 1000)
    source.prime()
    assert made.acquire(blocking=False)
    payloads = iter(source)
    sent = [next(payloads)]
    assert made.acquire(timeout=10)
    assert sys.getswitchinterval() < usual_s
    sent += [next(payloads) for _ in range(16)]
    # The one after that only when this one is needed.
    assert not made.acquire(blocking=False)
    sent += payloads
    assert [number for payload in sent for number in payload.data] == list(range(60_000))
    assert threads[0] == threading.get_ident()
    assert threading.get_ident() not in threads[1:]
    assert sys.getswitchinterval() == usual_s


def test_an_encoder_can_keep_to_the_loops_own_thread() -> None:
    class Tied(NumberEncoder):
        overlaps = False

    asked: list[int] = []

    def generate(start: int, size: int) -> EventBlock:
        asked.append(threading.get_ident())
        return Temperature().block(0, start, size)

    assert sum(payload.events for payload in Feed(generate, Tied(), 0, 30_000, 1000)) == 30_000
    assert set(asked) == {threading.get_ident()}


def test_what_was_made_ahead_of_the_window_is_part_of_its_cost() -> None:
    """A run of one chunk has made all of it before its window opens."""
    source, _ = feed(1_000, 1000)
    source.prime()
    primed_s = source.generate_s + source.encode_s
    assert source.generate_s > 0
    assert source.encode_s > 0
    assert sum(payload.events for payload in source) == 1_000
    assert source.generate_s + source.encode_s == primed_s
    assert source.ceiling_per_s() == pytest.approx(1_000 / primed_s)


def test_a_feed_that_made_nothing_has_no_ceiling() -> None:
    assert feed(0, 10)[0].ceiling_per_s() == 0


# --- one request at a time ------------------------------------------------------------------------


def test_all_is_sent_in_order_and_recorded() -> None:
    writer = FakeWriter(len)
    recorder = insert(writer, Temperature(), 10, 4, first=3)
    assert writer.sent == [[3, 4, 5, 6], [7, 8, 9, 10], [11, 12]]
    assert recorder.events == 10
    assert (recorder.retries, recorder.errors) == (0, {})
    assert latencies(recorder)[0] == 3
    assert not writer.recovered


def test_a_retry_comes_after_recovery() -> None:
    writer = FakeWriter(failing(2))
    asked: list[int] = []
    recorder = insert(writer, Temperature(), 6, 2, abort=lambda: asked.append(len(writer.sent)))
    assert writer.sent == [[0, 1], [2, 3], [2, 3], [2, 3], [4, 5]]
    assert writer.recovered == [[2, 3], [2, 3]]
    assert recorder.events == 6
    assert (recorder.retries, recorder.errors) == (2, {"busy": 2})
    # `abort` was asked before each retry.
    assert asked == [2, 3]
    assert latencies(recorder)[0] == 3


def test_what_proves_to_be_stored_is_not_sent_again() -> None:
    writer = FakeWriter(failing(1))
    writer.stored_already = True
    recorder = insert(writer, Temperature(), 6, 2)
    assert writer.sent == [[0, 1], [2, 3], [4, 5]]
    assert recorder.events == 6
    assert recorder.retries == 1


def test_a_recovery_that_fails_is_a_try_that_failed() -> None:
    writer = FakeWriter(failing(1))
    writer.recovery = [Retryable("gone", "no server", 0.0001) for _ in range(2)]
    recorder = insert(writer, Temperature(), 4, 2)
    assert writer.sent == [[0, 1], [2, 3], [2, 3]]
    assert recorder.errors == {"busy": 1, "gone": 2}
    assert recorder.retries == 3


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_giving_up_names_the_number_and_the_reason(max_in_flight: int) -> None:
    writer = FakeWriter(failing(99), max_in_flight)
    with pytest.raises(SimulatorError, match=r"gave up after 3 retries \(busy\): busy: try later"):
        insert(writer, Temperature(), 4, 2, max_retries=3)
    assert writer.sent.count([2, 3]) == 4


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_with_patience_a_request_is_tried_again_for_so_long(max_in_flight: int) -> None:
    writer = FakeWriter(failing(20), max_in_flight)
    insert(writer, Temperature(), 4, 2, max_retries=0, patience_s=LIMIT_S)
    assert writer.sent.count([2, 3]) == 21
    hopeless = FakeWriter(failing(10**9), max_in_flight)
    began = time.monotonic()
    with pytest.raises(SimulatorError, match=r"gave up after 0.1 s \(busy\): busy: try later"):
        insert(hopeless, Temperature(), 4, 2, patience_s=0.1)
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_no_retries_if_none_are_allowed(max_in_flight: int) -> None:
    writer = FakeWriter(failing(1), max_in_flight)
    with pytest.raises(SimulatorError, match="gave up after 0 retries"):
        insert(writer, Temperature(), 4, 2, max_retries=0)
    assert writer.sent.count([2, 3]) == 1
    assert not writer.recovered


class Over(SimulatorError):
    """The run is over."""


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_nothing_is_sent_again_when_the_run_is_over(max_in_flight: int) -> None:
    def abort() -> None:
        raise Over("enough")

    writer = FakeWriter(failing(99), max_in_flight)
    with pytest.raises(Over):
        insert(writer, Temperature(), 4, 2, abort=abort)
    assert writer.sent.count([2, 3]) == 1
    assert not writer.recovered


@pytest.mark.parametrize("max_in_flight", [1, 3])
@pytest.mark.parametrize("stored", [0, 1, 3])
def test_events_that_were_refused_end_the_run(max_in_flight: int, stored: int) -> None:
    writer = FakeWriter(lambda numbers: stored if 2 in numbers else len(numbers), max_in_flight)
    with pytest.raises(SimulatorError, match=f"acknowledged {stored} of a request's 2 events"):
        insert(writer, Temperature(), 4, 2)


@pytest.mark.parametrize("max_in_flight", [1, 3])
def test_other_errors_are_not_retried(max_in_flight: int) -> None:
    def answer(numbers: list[int]) -> int:
        raise SimulatorError("disk full")

    writer = FakeWriter(answer, max_in_flight)
    with pytest.raises(SimulatorError, match="disk full"):
        insert(writer, Temperature(), 2, 2)
    assert len(writer.sent) == 1


def test_the_wait_doubles_up_to_two_seconds_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("simulator.worker.loop.time.sleep", waits.append)
    insert(FakeWriter(failing(8, backoff_s=0.1)), Temperature(), 4, 2)
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert len(waits) == 8
    assert all(0.5 * most <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) > 1, "no jitter"


def test_no_wait_is_shorter_than_the_server_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("simulator.worker.loop.time.sleep", waits.append)
    insert(FakeWriter(failing(3, at_least_s=7.0)), Temperature(), 4, 2)
    assert waits == [7.0, 7.0, 7.0]


def test_a_requests_latency_includes_its_retries() -> None:
    recorder = insert(FakeWriter(failing(1, backoff_s=0.08)), Temperature(), 4, 2)
    requests, shortest, longest = latencies(recorder)
    assert requests == 2
    assert shortest < 20
    assert longest >= 40


# --- requests in flight ---------------------------------------------------------------------------


def test_as_many_requests_are_under_way_as_allowed() -> None:
    """All four must meet in the database, or the barrier breaks; a fifth must never be there."""
    together = threading.Barrier(4)
    under_way, most = [0], [0]
    lock = threading.Lock()

    def answer(numbers: list[int]) -> int:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        together.wait(LIMIT_S)
        with lock:
            under_way[0] -= 1
        return len(numbers)

    recorder = insert(FakeWriter(answer, 4), Temperature(), 24, 2)
    assert recorder.events == 24
    assert most[0] == 4


def test_each_latency_counts_from_its_own_submission() -> None:
    """Not from the first one's, and not until somebody finds the time to look at the answer."""
    slow_may_end = threading.Event()

    def answer(numbers: list[int]) -> int:
        if numbers == [0]:
            assert slow_may_end.wait(LIMIT_S)
        elif numbers == [5]:
            time.sleep(0.06)
            slow_may_end.set()
        return 1

    recorder = insert(FakeWriter(answer, 2), Temperature(), 6, 0)
    requests, shortest, longest = latencies(recorder)
    assert requests == 6
    assert shortest < 30
    assert longest >= 60


def test_a_known_latency_is_measured() -> None:
    """20 ms each, four at a time: the latency stays what it is, the time is a fourth."""

    def answer(numbers: list[int]) -> int:
        time.sleep(0.02)
        return len(numbers)

    began = time.perf_counter()
    recorder = insert(FakeWriter(answer, 4), Temperature(), 24, 0)
    took = time.perf_counter() - began
    requests, shortest, _ = latencies(recorder)
    assert requests == 24
    assert shortest >= 19.9
    assert took >= 6 * 0.0199
    assert 1.5 < requests_at_once(recorder) <= 4.01


def test_retries_in_flight() -> None:
    writer = FakeWriter(failing(2), 3)
    recorder = insert(writer, Temperature(), 20, 2)
    assert sorted(n for numbers in writer.sent for n in numbers) == sorted([*range(20), 2, 3, 2, 3])
    assert writer.recovered == [[2, 3], [2, 3]]
    assert recorder.events == 20
    assert (recorder.retries, recorder.errors) == (2, {"busy": 2})
    assert latencies(recorder)[0] == 10


def test_in_flight_what_proves_to_be_stored_is_not_sent_again() -> None:
    writer = FakeWriter(failing(1), 3)
    writer.stored_already = True
    recorder = insert(writer, Temperature(), 20, 2)
    assert len(writer.sent) == 10
    assert recorder.events == 20
    assert latencies(recorder)[0] == 10


def test_in_flight_a_recovery_that_fails_is_a_try_that_failed() -> None:
    writer = FakeWriter(failing(1), 2)
    writer.recovery = [Retryable("gone", "no server", 0.0001) for _ in range(2)]
    recorder = insert(writer, Temperature(), 8, 2)
    assert recorder.errors == {"busy": 1, "gone": 2}
    assert recorder.retries == 3
    assert recorder.events == 8


def test_in_flight_what_one_waited_for_in_vain_the_others_do_not_wait_for_again() -> None:
    """Otherwise a server that is gone would end the run after minutes."""

    class Gone(FakeWriter):
        def recover(self, payload: Payload) -> bool:
            self.recovered.append(payload.data)
            time.sleep(0.02)
            raise Retryable("gone", "no server", 0.0001)

    def lost(numbers: list[int]) -> int:
        raise Retryable("lost", "connection lost", 0.0001)

    writer = Gone(lost, 8)
    recorder = Recorder()
    recorder.begin(0.0)
    with pytest.raises(SimulatorError, match=r"gave up after 5 retries \(gone\)"):
        insert_all(feed(8, 0)[0], writer, recorder, 5, lambda: None)
    # Five times for all of them together, or once more each time for those that came a little later.
    assert 5 <= len(writer.recovered) <= 10
    assert recorder.errors["lost"] == 8
    assert recorder.errors["gone"] >= 4 * 8
    assert recorder.retries <= sum(recorder.errors.values())


class CountingWriter(FakeWriter):
    """Knows how many requests have been submitted and not yet stored."""

    def __init__(self, max_in_flight: int) -> None:
        super().__init__(self._once_refused, max_in_flight)
        self.begun: set[int] = set()
        self.most = 0
        self._stored: set[int] = set()

    def submit(self, payload: Payload, request: object) -> None:
        self.begun.add(payload.data[0])
        self.most = max(self.most, len(self.begun - self._stored))
        super().submit(payload, request)

    def _once_refused(self, numbers: list[int]) -> int:
        if self.sent.count(numbers) == 1:
            raise Retryable("busy", "later", 0.004)
        self._stored.update(numbers)
        return 1


def test_a_request_that_waits_for_its_retry_keeps_its_place() -> None:
    """Otherwise a database in trouble would get more and more requests to do again."""
    writer = CountingWriter(3)
    recorder = insert(writer, Temperature(), 30, 0)
    assert (recorder.events, recorder.retries) == (30, 30)
    assert writer.most == 3


def test_after_a_failure_nothing_is_left_running() -> None:
    """The others may end, but none begins any more, and no thread stays."""
    failed = threading.Event()

    def answer(numbers: list[int]) -> int:
        if numbers == [0]:
            failed.set()
            raise SimulatorError("disk full")
        assert failed.wait(LIMIT_S)
        return 1

    before = threading.active_count()
    writer = FakeWriter(answer, 4)
    with pytest.raises(SimulatorError, match="disk full"):
        insert(writer, Temperature(), 1000, 0)
    assert threading.active_count() == before
    assert len(writer.sent) <= 8


class OwnWayWriter(FakeWriter):
    """A driver with requests in flight: it needs no threads, and answers in the reverse order."""

    def __init__(self) -> None:
        super().__init__(len, max_in_flight=4)
        self._held: list[tuple[Payload, object]] = []

    def submit(self, payload: Payload, request: object) -> None:
        self._held.append((payload, request))

    def outcomes(self, timeout_s: float | None) -> list[Outcome]:
        assert len(self._held) == 4, "asked before as much is under way as may be"
        held, self._held = self._held[::-1], []
        return [
            Outcome(request, time.perf_counter(), self.send(payload)) for payload, request in held
        ]


class _Data(list[int]):
    """A payload's data that can be watched."""


@pytest.mark.parametrize("failures", [0, 8])
def test_in_flight_no_payload_outlives_its_answer(
    failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Garbage collection pauses in the measured window: a cycle would keep what it holds."""
    # Captured warnings keep errors, which know who raised them.
    caplog.set_level("ERROR")
    alive: list[weakref.ref[_Data]] = []

    class Watched(NumberEncoder):
        def encode(self, block: EventBlock, batch: int) -> list[Payload]:
            payloads = super().encode(block, batch)
            for payload in payloads:
                payload.data = _Data(payload.data)
                alive.append(weakref.ref(payload.data))
            return payloads

    writer = FakeWriter(failing(failures), max_in_flight=4)
    writer.encoder = Watched()
    writer.sent = deque(maxlen=1)  # type: ignore[assignment]
    with garbage_collection_paused():
        insert(writer, Temperature(), 1000, 10)
        writer.sent.clear()
        writer.recovered.clear()
        assert len(alive) == 100
        assert not [reference for reference in alive if reference() is not None]


def test_a_driver_that_is_asynchronous_itself() -> None:
    writer = OwnWayWriter()
    recorder = insert(writer, Temperature(), 12, 0)
    assert [numbers[0] for numbers in writer.sent] == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]
    assert recorder.events == 12


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


# --- schedule -------------------------------------------------------------------------------------


class Due(Schedule):
    """Requests are due at these times, in s since the start; an open loop of so many seconds."""

    is_open = True

    def __init__(self, *due: float, duration_s: float | None = None) -> None:
        super().__init__(0.0, duration_s)
        self._due = list(due)

    def next_due(self, now: float) -> float:
        return self.begins + self._due.pop(0) if self._due else math.inf

    def remaining(self) -> Iterator[NDArray[Any]]:
        due = np.array(self._due) + self.begins
        yield due[due < self.ends]


@dataclass
class Offered:
    """What came of an open loop."""

    origin: float
    recorder: Recorder
    measured: WorkerInsert

    @property
    def offer(self) -> WorkerOffer:
        """How it kept to its schedule."""
        assert self.measured.offer is not None
        return self.measured.offer

    def response_ms(self, percent: float) -> float:
        """From when a request was due."""
        return _at(self.measured.histogram, percent)

    def service_ms(self, percent: float) -> float:
        """From when a request was sent."""
        assert self.measured.service is not None
        return _at(self.measured.service, percent)


def _at(encoded: str, percent: float) -> float:
    return float(merge_histograms([encoded]).get_value_at_percentile(percent)) / 1000


def offer(writer: Writer, schedule: Schedule, max_retries: int = 8) -> Offered:
    """Send single events without end by the schedule."""
    recorder = Recorder(schedule)
    source = Feed(
        lambda first, count: Temperature().block(0, first, count), writer.encoder, 0, None, 0
    )
    source.prime()
    origin = time.perf_counter()
    recorder.begin(origin)
    insert_all(source, writer, recorder, max_retries, lambda: None, schedule)
    recorder.end()
    return Offered(origin, recorder, recorder.result(0, 0, 0, writer.max_in_flight))


class Notebook(FakeWriter):
    """Notes when each request was sent, and takes its time: `delay_s(number of the event)`."""

    def __init__(self, in_flight: int, delay_s: Callable[[int], float] = lambda number: 0) -> None:
        super().__init__(self._take, in_flight)
        self.times: dict[int, float] = {}
        self._delay_s = delay_s

    def _take(self, numbers: list[int]) -> int:
        self.times.setdefault(numbers[0], time.perf_counter())
        time.sleep(self._delay_s(numbers[0]))
        return 1


TENTHS = [0.01 * number for number in range(12)]


@pytest.mark.parametrize("in_flight", [1, 4])
def test_requests_leave_when_they_are_due_and_not_before(in_flight: int) -> None:
    writer = Notebook(in_flight)
    done = offer(writer, Due(*TENTHS))
    assert sorted(writer.times) == list(range(12))
    for number, due in enumerate(TENTHS):
        assert writer.times[number] >= done.origin + due
    assert (done.recorder.events, done.offer.due, done.offer.unsent) == (12, 12, 0)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_none_is_skipped_behind_a_stall_and_all_have_waited_for_it(in_flight: int) -> None:
    """The first four requests take 0.2 s: whatever was due meanwhile leaves after it, in order, and
    has waited. A closed loop would have shown as many slow requests as were under way."""
    writer = Notebook(in_flight, lambda number: 0.2 if number < in_flight else 0)
    done = offer(writer, Due(*TENTHS))
    assert [numbers[0] for numbers in writer.sent][in_flight:] == list(range(in_flight, 12))
    assert done.recorder.events == 12
    # The last was due at 0.11 s and had to wait for at least 0.09 s.
    assert done.response_ms(0) >= 85
    assert done.response_ms(100) >= 200
    assert done.service_ms(50) < 60
    assert done.offer.due_timeline == [(0, 12)]


@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_a_database_holds_up_is_not_the_clients_own_delay(in_flight: int) -> None:
    done = offer(Notebook(in_flight, lambda number: 0.1), Due(*TENTHS[:8]))
    assert done.response_ms(100) >= 130
    assert _at(done.offer.own_delay, 75) < 40


@pytest.mark.parametrize("in_flight", [1, 4])
def test_the_end_comes_while_all_places_are_taken(in_flight: int) -> None:
    """Those under way are waited for, and the others are counted with what they have waited."""
    writer = Notebook(in_flight, lambda number: 0.5)
    done = offer(writer, Due(*TENTHS, duration_s=0.3))
    assert len(writer.times) == in_flight
    assert (done.recorder.events, done.recorder.measured) == (in_flight, 0)
    assert (done.offer.due, done.offer.unsent) == (12, 12 - in_flight)
    assert done.measured.end_s == pytest.approx(0.3)
    assert done.response_ms(100) >= 500


@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_is_due_after_the_end_is_not_due(in_flight: int) -> None:
    """Nor is it waited for."""
    done = offer(Notebook(in_flight), Due(0.0, 0.01, 60.0, duration_s=30.0))
    assert (done.recorder.events, done.offer.due, done.offer.unsent) == (2, 2, 0)
    assert time.perf_counter() - done.origin < 10


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_closed_loop_sends_until_the_end_and_waits_for_what_is_under_way(in_flight: int) -> None:
    writer = Notebook(in_flight, lambda number: 0.06)
    done = offer(writer, ClosedLoop(0.0, 0.3))
    late = done.recorder.events - done.recorder.measured
    assert in_flight <= done.recorder.measured
    assert 0 < late <= in_flight
    assert done.recorder.events <= 5 * in_flight
    assert done.measured.offer is None


@pytest.mark.parametrize("in_flight", [1, 4])
def test_retries_count_into_the_response_time(in_flight: int) -> None:
    done = offer(FakeWriter(failing(1, backoff_s=0.1), in_flight), Due(*TENTHS))
    assert (done.recorder.events, done.recorder.retries) == (12, 1)
    assert done.response_ms(100) >= 50
    assert done.service_ms(100) >= 50


def test_while_one_waits_for_its_retry_the_others_go_on() -> None:
    """Request 2 is sent again after 0.8 s at least: by then all others are answered."""
    writer = FakeWriter(failing(1, backoff_s=1.6), 4)
    done = offer(writer, Due(*TENTHS[:8]))
    assert [numbers[0] for numbers in writer.sent] == [0, 1, 2, 3, 4, 5, 6, 7, 2]
    # Behind it they would have waited for 0.7 s.
    assert done.response_ms(50) < 500


class Restless(FakeWriter):
    """Always has an answer, as a database does that is faster than the loop."""

    def __init__(self) -> None:
        super().__init__(failing(1, backoff_s=0.01), 4)
        self.resent_after = 0
        self._held: deque[tuple[Payload, object]] = deque()

    def submit(self, payload: Payload, request: object) -> None:
        if payload.data == [2] and [2] in self.sent:
            self.resent_after = len(self.sent)
        self._held.append((payload, request))

    def outcomes(self, timeout_s: float | None) -> list[Outcome]:
        payload, request = self._held.popleft()
        try:
            result: int | BaseException = self.send(payload)
        except Retryable as error:
            result = error
        time.sleep(0.001)
        return [Outcome(request, time.perf_counter(), result)]


def test_a_retry_is_not_kept_waiting_by_answers_that_follow_each_other() -> None:
    writer = Restless()
    recorder = insert(writer, Temperature(), 600, 0)
    assert recorder.events == 600
    assert 0 < writer.resent_after < 400


class Blocking(FakeWriter):
    """Its connection takes 0.4 s to write to, or to be made again."""

    def __init__(self, answer: Callable[[list[int]], int], blocked: int) -> None:
        super().__init__(answer, 4)
        self._blocked = blocked

    def submit(self, payload: Payload, request: object) -> None:
        if payload.data == [self._blocked]:
            time.sleep(0.4)
        super().submit(payload, request)

    def recover(self, payload: Payload) -> bool:
        time.sleep(0.4)
        return True


@pytest.mark.parametrize(("failures", "blocked"), [(0, 3), (1, -1)], ids=["writing", "connecting"])
def test_a_connection_that_blocks_is_not_the_clients_own_delay(failures: int, blocked: int) -> None:
    done = offer(Blocking(failing(failures), blocked), Due(*TENTHS))
    assert done.recorder.events == 12
    assert done.response_ms(75) > 250
    assert _at(done.offer.own_delay, 75) < 100


def test_a_client_that_is_late_for_its_own_reasons_says_so() -> None:
    """Making a request's payload takes it longer than there is from one to the next."""

    class Slow(NumberEncoder):
        def encode(self, block: EventBlock, batch: int) -> list[Payload]:
            return [self._slowly(payload) for payload in super().encode(block, batch)]

        def _slowly(self, payload: Payload) -> Payload:
            if payload.data[0] >= 512:
                time.sleep(0.0001)
            return payload

    writer = Notebook(4)
    writer.encoder = Slow()
    # A chunk has 512 events; ten of the next one are late.
    done = offer(writer, Due(*[0.0] * 522))
    assert done.offer.due == 522
    assert _at(done.offer.own_delay, 99.5) > 30
