"""Requests that are due by the clock: when they are sent, and what counts as whose delay."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.contract import Arrivals, Load, Offered, WorkerFigures
from simulator.errors import Retryable
from simulator.histograms import Histogram
from simulator.modules.sending import Completion, Request, Writer
from simulator.testing.events import insert
from simulator.worker.feed import Feed
from simulator.worker.loop import InsertLoop
from simulator.worker.measure import Recorder
from simulator.worker.schedule import ClosedLoop, Schedule, make_schedule
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder
from .writing import FakeWriter, failing

pytestmark = pytest.mark.usefixtures("no_threads_left")


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
class Sent:
    """What came of an open loop."""

    origin: float
    recorder: Recorder
    measured: WorkerFigures

    @property
    def offer(self) -> Offered:
        """How it kept to its schedule."""
        assert self.measured.offered is not None
        return self.measured.offered

    def response_ms(self, percent: float) -> float:
        """From when a request was due."""
        return _at(self.measured.histogram, percent)

    def service_ms(self, percent: float) -> float:
        """From when a request was sent."""
        return _at(self.measured.service_histogram, percent)


def _at(histogram: Histogram | None, percent: float) -> float:
    assert histogram is not None
    return histogram.values_us([percent])[0] / 1000


def offer(writer: Writer, schedule: Schedule, max_retries: int = 8) -> Sent:
    """Send single events without end by the schedule."""
    recorder = Recorder(schedule)
    source = Feed(
        lambda first, count: Temperature().block(0, first, count), writer.encoder, 0, None
    )
    source.prime()
    origin = time.perf_counter()
    recorder.begin(origin)
    with closing(writer):
        InsertLoop(writer, recorder, max_retries, lambda: None, schedule).run(source)
    recorder.end()
    return Sent(origin, recorder, recorder.result(in_flight=writer.max_in_flight))


class InOrder(FakeWriter):
    """Knows the order in which requests left; a busy machine's threads take them in any."""

    def __init__(self, answer: Callable[[list[int]], int], in_flight: int) -> None:
        super().__init__(answer, in_flight)
        self.order: list[int] = []

    def submit(self, request: Request) -> None:
        self.order.append(request.data[0])
        super().submit(request)


class Notebook(InOrder):
    """Notes when each request was sent and answered, and takes its time: `delay_s(number of the event)`."""

    def __init__(self, in_flight: int, delay_s: Callable[[int], float] = lambda number: 0) -> None:
        super().__init__(self._take, in_flight)
        self.times: dict[int, float] = {}
        self.answered: list[float] = []
        self._delay_s = delay_s

    def _take(self, numbers: list[int]) -> int:
        self.times.setdefault(numbers[0], time.perf_counter())
        time.sleep(self._delay_s(numbers[0]))
        self.answered.append(time.perf_counter())
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
    assert writer.order == list(range(12))
    assert done.recorder.events == 12
    # The last was due at 0.11 s and had to wait for at least 0.09 s.
    assert done.response_ms(0) >= 85
    assert done.response_ms(100) >= 200
    assert done.service_ms(50) < done.response_ms(0)
    assert done.offer.due_timeline == [(0, 12)]


@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_a_database_holds_up_is_not_the_clients_own_delay(in_flight: int) -> None:
    writer = Notebook(in_flight, lambda number: 0.3)
    done = offer(writer, Due(*TENTHS[: in_flight + 2]))
    assert done.response_ms(100) >= 500
    # How late a busy machine was, as the database has seen it: behind the answers that made room.
    made_room = sorted(writer.answered)[::in_flight]
    late_s = [
        sent - max([done.origin + TENTHS[number], *made_room[: number // in_flight]])
        for number, sent in writer.times.items()
    ]
    assert _at(done.offer.own_delay, 100) <= max(late_s) * 1000 * 1.01 + 1


@pytest.mark.parametrize("in_flight", [1, 4])
def test_the_end_comes_while_all_places_are_taken(in_flight: int) -> None:
    """Those under way are waited for, and the others are counted with what they have waited."""
    writer = Notebook(in_flight, lambda number: 0.6)
    done = offer(writer, Due(*TENTHS, duration_s=0.5))
    assert len(writer.times) == in_flight
    assert (done.recorder.events, done.recorder.measured) == (in_flight, 0)
    assert (done.offer.due, done.offer.unsent) == (12, 12 - in_flight)
    assert done.measured.end_s == pytest.approx(0.5)
    assert done.response_ms(100) >= 500


@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_is_due_after_the_end_is_not_due(in_flight: int) -> None:
    """Nor is it waited for."""
    done = offer(Notebook(in_flight), Due(0.0, 0.01, 600.0, duration_s=300.0))
    assert (done.recorder.events, done.offer.due, done.offer.unsent) == (2, 2, 0)
    assert time.perf_counter() - done.origin < 60


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_closed_loop_sends_until_the_end_and_waits_for_what_is_under_way(in_flight: int) -> None:
    writer = Notebook(in_flight, lambda number: 0.2)
    done = offer(writer, ClosedLoop(0.0, 0.5))
    ends = done.origin + 0.5
    assert in_flight < done.recorder.events <= 3 * in_flight
    late = done.recorder.events - done.recorder.measured
    # An answer is taken a little later than it was given.
    assert sum(answered > ends for answered in writer.answered) <= late <= in_flight
    assert done.measured.offered is None


@pytest.mark.parametrize("in_flight", [1, 4])
def test_retries_count_into_the_response_time(in_flight: int) -> None:
    done = offer(FakeWriter(failing(1, backoff_s=0.1), in_flight), Due(*TENTHS))
    assert (done.recorder.events, done.recorder.retries) == (12, 1)
    assert done.response_ms(100) >= 50
    assert done.service_ms(100) >= 50


def test_while_one_waits_for_its_retry_the_others_go_on() -> None:
    """Request 2 is sent again after 0.8 s: by then all others are answered."""
    writer = InOrder(failing(1, at_least_s=0.8), 4)
    done = offer(writer, Due(*TENTHS[:8]))
    assert writer.order == [0, 1, 2, 3, 4, 5, 6, 7, 2]
    # Behind it they would have waited for 0.7 s.
    assert done.response_ms(50) < 500


class Restless(FakeWriter):
    """Always has an answer, as a database does that is faster than the loop."""

    def __init__(self) -> None:
        super().__init__(failing(1, backoff_s=0.01), 4)
        self.resent_after = 0
        self._held: deque[Request] = deque()

    def submit(self, request: Request) -> None:
        if request.data == [2] and [2] in self.sent:
            self.resent_after = len(self.sent)
        self._held.append(request)

    def poll(self, timeout_s: float) -> list[Completion]:
        request, stored, failure = self._held.popleft(), 0, None
        try:
            stored = self.send(request)
        except Retryable as error:
            failure = error
        time.sleep(0.001)
        return [Completion(request, stored, time.perf_counter(), failure)]


def test_a_retry_is_not_kept_waiting_by_answers_that_follow_each_other() -> None:
    writer = Restless()
    recorder = insert(writer, Temperature(), 600)
    assert recorder.events == 600
    assert 0 < writer.resent_after < 400


class Blocking(FakeWriter):
    """Its connection takes 0.6 s to write to, or to be made again."""

    def __init__(self, answer: Callable[[list[int]], int], blocked: int) -> None:
        super().__init__(answer, 4)
        self._blocked = blocked

    def submit(self, request: Request) -> None:
        if request.data == [self._blocked]:
            time.sleep(0.6)
        super().submit(request)

    def recover(self, payload: Request) -> bool:
        time.sleep(0.6)
        return True


@pytest.mark.parametrize(("failures", "blocked"), [(0, 3), (1, -1)], ids=["writing", "connecting"])
def test_a_connection_that_blocks_is_not_the_clients_own_delay(failures: int, blocked: int) -> None:
    # This many requests, because a busy machine tries again late.
    done = offer(Blocking(failing(failures), blocked), Due(*[0.01 * n for n in range(60)]))
    assert done.recorder.events == 60
    assert done.response_ms(75) > 250
    assert _at(done.offer.own_delay, 75) < 100


@pytest.mark.parametrize("held_s", [0.0, 0.002], ids=["sent at once", "held up"])
def test_a_client_that_is_late_for_its_own_reasons_says_so(held_s: float) -> None:
    """The payloads of the second chunk are ready 0.3 s after all of the first have been sent. That sending
    them takes long, too, excuses nothing."""
    all_sent = threading.Event()

    class Slow(NumberEncoder):
        def encode(self, block: EventBlock) -> list[Request]:
            if block.first:
                all_sent.wait()
                time.sleep(0.3)
            return super().encode(block)

    class Telling(Notebook):
        def submit(self, request: Request) -> None:
            super().submit(request)
            if request.data[0] > 511:
                time.sleep(held_s)

        def _take(self, numbers: list[int]) -> int:
            if numbers == [511]:
                all_sent.set()
            return super()._take(numbers)

    writer = Telling(4)
    writer.encoder = Slow()
    # A chunk has 512 events. Of the next one the first finds a place free; further ones may wait for one.
    done = offer(writer, Due(*[0.0] * 522))
    assert done.offer.due == 522
    assert _at(done.offer.own_delay, 100) > 200


def test_what_is_due_at_the_very_end_is_not_due_wherever_the_clock_begins() -> None:
    """For some of these `ends - begins` is more than 0.8."""
    load = Load(rate_per_s=100.0, duration_s=0.8, arrivals=Arrivals.EVEN)
    for begins in np.random.default_rng(1).uniform(0, 100_000, 300).tolist():
        schedule = make_schedule(load, 0, 0)
        schedule.begin(begins)
        assert sum(map(len, schedule.remaining())) == 80
        assert sum(map(len, schedule.list_due(math.inf))) == 80
