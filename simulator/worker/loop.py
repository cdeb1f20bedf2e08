"""How requests are sent: one at a time or several in flight, each when it is due.

The feed decides *what* is sent, the `Schedule` *when*, a `Channel` *how*; the `Recorder` measures it. Writers
and readers differ in what follows a failed request: a writer tries again until it is stored (`InsertLoop`),
for a reader the failure is a result (`reading.QueryLoop`).
"""

from __future__ import annotations

import heapq
import logging
import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from ..errors import GaveUp, Retryable, SimulatorError
from ..modules.sending import Channel, Completion, Request
from ..modules.waiting import at_work
from .measure import Recorder
from .schedule import ClosedLoop, Schedule

_log = logging.getLogger(__name__)

_MAX_BACKOFF_S = 2.0
_MOST_DOUBLINGS = 30

_BLOCKED_S = 0.001
"""Submitting takes much less, unless the database doesn't read and so holds the sender up."""

_OVERDUE_S = 0.1
"""How long a request that is due may wait while answers to others are taken."""

_SETTLED, _SETTLED_AT_ONCE, _SETTLED_S, _OVERDUE_SETTLING_S = 256, 4096, 0.02, 0.5
"""How often work that isn't needed for each request is done: after about this many requests of an open loop,
or of a closed one (for fewer, numpy would cost more than the requests themselves), at intervals between these
two; later if there is no time to spare."""
_SETTLING_S = 0.00015
"""How long that work takes in an open loop, which has no time for more."""


class Loop(ABC):
    """Sends requests over a channel until the feed or the schedule ends.

    A request that can be sent goes out before the last answers are recorded and before the next request is
    made: as little as possible happens between an answer and the next request.
    """

    def __init__(
        self,
        channel: Channel,
        recorder: Recorder,
        schedule: Schedule | None = None,
        abort: Callable[[], object] = lambda: None,
    ) -> None:
        """`abort` raises if the run is over."""
        self._channel = channel
        self._recorder = recorder
        self._schedule = schedule or ClosedLoop()
        self._abort = abort
        self._is_open = self._schedule.is_open
        self._places: deque[float] = deque()
        """Since when each free place in flight has been free."""
        self._in_use = 0
        """Places of requests that were sent or wait for another try."""
        self._done: Sequence[Completion] = ()
        """Answers that aren't recorded yet."""
        self._not_before = 0.0
        """The earliest time for the next request, even if it is due before."""
        self._resume_at = inf
        """When `resume` next has something to do."""
        self._held_up_until = 0.0
        """Until when the database kept the client from sending."""
        self._settle_at, self._settled_at = 0.0, inf
        self._begun = self._settled = 0
        """Requests sent, and how many had been sent when `settle` last ran."""

    @abstractmethod
    def note(self, completion: Completion) -> None:
        """Record a request that was answered."""

    @abstractmethod
    def fail(self, completion: Completion) -> None:
        """Handle a request that failed: it is tried again, or its place becomes free (`release`)."""

    def begin(self, request: Request) -> bool:
        """Prepare a request that is about to be sent. False if it can't be sent."""
        return True

    def resume(self, answered: bool) -> None:  # noqa: B027 - readers put nothing off
        """Do what was put off until `_resume_at`, if that time has come. `answered`: there were answers."""

    def make_ahead(self, until: float) -> bool:
        """Make some later requests, if there is time until `until`. Returns whether it did."""
        return False

    def settle(self) -> None:
        """Do slow work, a few times a second."""
        self._recorder.settle()

    def run(self, feed: Iterable[Request]) -> None:
        """Send all requests and wait for all answers. Raises what `abort`, `note` and `fail` raise."""
        channel, schedule, clock = self._channel, self._schedule, time.perf_counter
        places, is_open, is_serial = self._places, self._is_open, channel.max_in_flight == 1
        self._not_before = schedule.begins
        places.extend([max(clock(), schedule.begins)] * channel.max_in_flight)
        try:
            for request in feed:
                if is_open:
                    if not self._await_turn(request):
                        break
                else:
                    while not places:
                        self._wait(inf)
                    now = clock()
                    if now >= self._settle_at:
                        # With one request at a time: while nothing is in flight.
                        self._settle()
                        now = clock()
                    if now < self._not_before:
                        now = self._await(self._not_before)
                    if now >= schedule.ends:
                        break
                if not self.begin(request):
                    continue
                request.free_s = max(places.popleft(), self._held_up_until)
                self._in_use += 1
                self._begun += 1
                request.sent_s = clock()
                channel.submit(request)
                if not is_serial and clock() - request.sent_s >= _BLOCKED_S:
                    request.held_s = self._held_up_until = clock()
            while self._in_use:
                self._wait(inf)
        finally:
            self._note_done()

    def _await_turn(self, request: Request) -> bool:
        """Wait until a request of an open loop is due and a place is free; take answers meanwhile. False if
        the schedule is over."""
        schedule, clock = self._schedule, time.perf_counter
        now = clock()
        due = request.due_s = schedule.next_due(now)
        while now < schedule.ends and due < schedule.ends:
            at = max(schedule.find_opening(due, now), self._not_before)
            if now >= self._settle_at and (
                at - now > _SETTLING_S or now >= self._settle_at + _OVERDUE_SETTLING_S
            ):
                self._settle()
                now = clock()
            if not self._places:
                self._wait(schedule.ends - now)
            elif at <= now:
                return True
            else:
                self._await(at)
            now = clock()
        if due < schedule.ends:
            self._recorder.leave_unsent(due, request.events)
        return False

    def _await(self, at: float) -> float:
        """Wait until `at` or the end of the schedule; take answers meanwhile. Returns the time."""
        schedule = self._schedule
        while (now := time.perf_counter()) < at and now < schedule.ends:
            self._note_done()
            if self.make_ahead(at):
                continue
            if self._in_use:
                self._wait(max(0.0, min(at, schedule.ends) - time.perf_counter()))
            else:
                schedule.await_due(at)
        return now

    def _wait(self, at_most_s: float) -> None:
        """Record answers and take further ones; wait at most this long for the first."""
        self._note_done()
        resume_at = self._resume_at
        if resume_at != inf:
            at_most_s = min(at_most_s, max(0.0, resume_at - time.perf_counter()))
        completions = self._channel.poll(at_most_s)
        failed = []
        for completion in completions:
            request, _, arrived_s, error, _, sent_s = completion
            if sent_s is not None and sent_s >= request.held_s and not request.attempts:
                request.sent_s = sent_s
            if error is None:
                # Like `release`; inlined, as this is the hot path.
                self._in_use -= 1
                self._places.append(arrived_s)
            else:
                failed.append(completion)
        self._done = completions
        if failed:
            self._done = [completion for completion in completions if completion.error is None]
            for completion in failed:
                self.fail(completion)
        if resume_at != inf:
            self.resume(bool(completions))

    def release(self, at_s: float) -> None:
        """Note that a request's place has been free since `at_s`."""
        self._in_use -= 1
        self._places.append(at_s)

    def _note_done(self) -> None:
        done, self._done = self._done, ()
        for completion in done:
            self.note(completion)

    def _settle(self) -> None:
        self._note_done()
        self.settle()
        now, count = time.perf_counter(), self._begun - self._settled
        wanted = _SETTLED if self._is_open else _SETTLED_AT_ONCE
        apart_s = (now - self._settled_at) * wanted / max(count, 1)
        self._settle_at = now + min(max(apart_s, _SETTLED_S), _OVERDUE_SETTLING_S)
        self._settled_at, self._settled = now, self._begun


class InsertLoop(Loop):
    """Tries each request until it is stored, `retries` times or for `patience_s`. Latency runs to the
    acknowledgement, retries included: in an open loop from when the request was due, in a closed one from its
    first submission."""

    def __init__(
        self,
        channel: Channel,
        recorder: Recorder,
        retries: int,
        abort: Callable[[], object],
        schedule: Schedule | None = None,
        patience_s: float | None = None,
    ) -> None:
        """`abort` is called before each retry. `patience_s`: how long a request may take, retries included;
        replaces `retries`."""
        super().__init__(channel, recorder, schedule, abort)
        self._retries = retries
        self._patience_s = patience_s
        self._waiting: list[tuple[float, int, Request]] = []
        """A heap of requests to try again, by time."""

    def begin(self, request: Request) -> bool:
        if self._patience_s is not None:
            request.deadline_s = time.perf_counter() + self._patience_s
        return True

    def note(self, completion: Completion) -> None:
        request, stored, arrived_s, *_ = completion
        events = request.events
        if stored != events:
            raise SimulatorError(
                f"the database acknowledged {stored} of a request's {events} events"
            )
        if self._is_open:
            self._recorder.record_due(
                request.due_s, request.free_s, request.sent_s, arrived_s, events
            )
        else:
            self._recorder.record(request.sent_s, arrived_s, events)

    def fail(self, completion: Completion) -> None:
        error = completion.error
        if not isinstance(error, Retryable):
            assert error is not None
            raise error
        self._put_off(completion.request, error)

    def _put_off(self, request: Request, error: Retryable) -> None:
        """Schedule another try of a request; GaveUp if none is left, or no time for one."""
        self._recorder.errors[error.kind] += 1
        now = time.perf_counter()
        patience_s, attempts = self._patience_s, request.attempts
        if (attempts >= self._retries) if patience_s is None else (now >= request.deadline_s):
            how_long = f"{self._retries} retries" if patience_s is None else f"{patience_s:g} s"
            raise GaveUp(f"gave up after {how_long} ({error.kind}): {error}") from error
        at = min(now + choose_backoff_s(error, attempts), request.deadline_s)
        request.attempts += 1
        heapq.heappush(self._waiting, (at, id(request), request))
        self._resume_at = self._waiting[0][0]

    def resume(self, answered: bool) -> None:
        # Take all answers first: a lost connection fails everything in flight on it. But answers may also
        # arrive without end.
        now = time.perf_counter()
        if self._waiting[0][0] > now - (_OVERDUE_S if answered else 0.0):
            return
        request = heapq.heappop(self._waiting)[2]
        self._abort()
        self._recorder.retries += 1
        try:
            with at_work(request.deadline_s):
                is_stored = self._channel.recover(request)
        except Retryable as error:
            self._put_off_due(request, error)
            return
        finally:
            # Reconnecting may have taken long; that is not the client's fault.
            self._held_up_until = time.perf_counter()
            self._resume_at = self._waiting[0][0] if self._waiting else inf
        if is_stored:
            self.release(self._held_up_until)
            self.note(Completion(request, request.events, self._held_up_until))
        else:
            self._channel.submit(request)

    def _put_off_due(self, request: Request, error: Retryable) -> None:
        """Put off a request that could not be sent again, and all others that have become due. They wait for
        the same thing; one after the other they would wait for minutes."""
        now = time.perf_counter()
        due = [request]
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        self._recorder.retries += len(due) - 1
        for late in due:
            self._put_off(late, error)


def choose_backoff_s(error: Retryable, attempt: int) -> float:
    """Log the retry. Returns how long to wait first: exponential with full jitter.

    https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """
    _log.warning("retry %d after %s: %s", attempt + 1, error.kind, error)
    longest: float = min(_MAX_BACKOFF_S, error.backoff_s * 2 ** min(attempt, _MOST_DOUBLINGS))
    return max(error.at_least_s, longest * random.uniform(0.5, 1.0))
