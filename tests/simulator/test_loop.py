"""When requests are sent: in order, in flight, and again."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque

import pytest

from simulator.errors import Retryable, SimulatorError
from simulator.modules.sending import Completion, Request
from simulator.testing.events import most_at_once
from simulator.worker import garbage_collection_paused
from simulator.worker.loop import InsertLoop, choose_backoff_s
from simulator.worker.measure import Recorder
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder
from .writing import LIMIT_S, FakeWriter, failing, feed, insert

pytestmark = pytest.mark.usefixtures("no_threads_left")


def latencies(recorder: Recorder) -> tuple[int, float, float]:
    """(requests, shortest, longest) in ms."""
    histogram = recorder.result().histogram
    shortest_us, longest_us = histogram.range_us()
    return histogram.count, shortest_us / 1000, longest_us / 1000


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
    checks: list[int] = []
    recorder = insert(writer, Temperature(), 6, 2, abort=lambda: checks.append(len(writer.sent)))
    assert writer.sent == [[0, 1], [2, 3], [2, 3], [2, 3], [4, 5]]
    assert writer.recovered == [[2, 3], [2, 3]]
    assert recorder.events == 6
    assert (recorder.retries, recorder.errors) == (2, {"busy": 2})
    # `abort` was asked before each retry.
    assert checks == [2, 3]
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
    writer = FakeWriter(failing(8), max_in_flight)
    insert(writer, Temperature(), 4, 2, max_retries=0, patience_s=LIMIT_S)
    assert writer.sent.count([2, 3]) == 9
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


def test_the_wait_doubles_up_to_two_seconds_with_jitter() -> None:
    waits = [choose_backoff_s(Retryable("busy", "later", 0.1), attempt) for attempt in range(8)]
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert all(0.5 * most <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) > 1, "no jitter"


def test_no_wait_is_shorter_than_the_server_asked_for() -> None:
    assert choose_backoff_s(Retryable("busy", "later", at_least_s=7.0), 3) == 7.0
    began = time.perf_counter()
    insert(FakeWriter(failing(2, at_least_s=0.05)), Temperature(), 4, 2)
    assert time.perf_counter() - began >= 0.1


def test_a_requests_latency_includes_its_retries() -> None:
    # Enough other requests that a busy machine doesn't hold up all of them.
    recorder = insert(FakeWriter(failing(1, backoff_s=0.08)), Temperature(), 40, 2)
    requests, shortest, longest = latencies(recorder)
    assert requests == 20
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
        elif numbers == [19]:
            time.sleep(0.06)
            slow_may_end.set()
        return 1

    # Enough other requests that a busy machine doesn't hold up all of them.
    recorder = insert(FakeWriter(answer, 2), Temperature(), 20, 0)
    requests, shortest, longest = latencies(recorder)
    assert requests == 20
    assert shortest < 30
    assert longest >= 60


def test_a_known_latency_is_measured() -> None:
    """20 ms each, four at a time: each has its own, whatever the others take."""
    started: list[float] = []
    finished: list[float] = []

    def answer(numbers: list[int]) -> int:
        started.append(time.perf_counter())
        time.sleep(0.02)
        finished.append(time.perf_counter())
        return len(numbers)

    began = time.perf_counter()
    recorder = insert(FakeWriter(answer, 4), Temperature(), 24, 0)
    took = time.perf_counter() - began
    requests, shortest, _ = latencies(recorder)
    assert requests == 24
    assert shortest >= 19.9
    assert took >= 6 * 0.0199
    # Measured around what the database has observed, whatever a busy machine makes of it.
    sent, answered = map(sorted, zip(*recorder.spans, strict=True))
    assert all(earlier <= later for earlier, later in zip(sent, sorted(started), strict=True))
    assert all(later >= earlier for later, earlier in zip(answered, sorted(finished), strict=True))
    assert 1 < most_at_once(recorder) <= 4


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
        """Loses all that is under way at once, and waits for the server in vain."""

        def __init__(self) -> None:
            super().__init__(len, 8)
            self._held: list[Request] = []

        def submit(self, request: Request) -> None:
            self._held.append(request)

        def poll(self, timeout_s: float) -> list[Completion]:
            lost, self._held = self._held, []
            error = Retryable("lost", "connection lost", 0.0001)
            return [Completion(request, 0, time.perf_counter(), error) for request in lost]

        def recover(self, payload: Request) -> bool:
            self.recovered.append(payload.data)
            time.sleep(0.02)
            raise Retryable("gone", "no server", 0.0001)

    writer = Gone()
    recorder = Recorder()
    recorder.begin(0.0)
    with pytest.raises(SimulatorError, match=r"gave up after 5 retries \(gone\)"):
        InsertLoop(writer, recorder, 5, lambda: None).run(feed(8, 0)[0])
    # For all of them together.
    assert len(writer.recovered) == 5
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

    def submit(self, request: Request) -> None:
        self.begun.add(request.data[0])
        self.most = max(self.most, len(self.begun - self._stored))
        super().submit(request)

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

    before = set(threading.enumerate())
    writer = FakeWriter(answer, 4)
    with pytest.raises(SimulatorError, match="disk full"):
        insert(writer, Temperature(), 1000, 0)
    assert set(threading.enumerate()) <= before
    assert len(writer.sent) <= 8


class OwnWayWriter(FakeWriter):
    """A driver with requests in flight: it needs no threads, and answers in the reverse order."""

    def __init__(self) -> None:
        super().__init__(len, max_in_flight=4)
        self._held: list[Request] = []

    def submit(self, request: Request) -> None:
        self._held.append(request)

    def poll(self, timeout_s: float) -> list[Completion]:
        assert len(self._held) == 4, "asked before as much is under way as may be"
        held, self._held = self._held[::-1], []
        return [Completion(request, self.send(request), time.perf_counter()) for request in held]


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
        def encode(self, block: EventBlock) -> list[Request]:
            payloads = super().encode(block)
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
