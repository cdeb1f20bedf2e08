"""How requests are sent: one at a time or several in flight, with retries.

*What* is sent is the `Feed`'s affair, *when* the `Schedule`'s, *how it is measured* the `Recorder`'s.
"""

from __future__ import annotations

import heapq
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..errors import GaveUp, Retryable, SimulatorError
from ..modules.sending import Outcome, Payload, Writer
from ..modules.waiting import find_arrival, find_sending, set_deadline
from .measure import Recorder
from .schedule import ClosedLoop, Schedule

_log = logging.getLogger(__name__)

_MAX_BACKOFF_S = 2.0
_MOST_DOUBLINGS = 30

_BLOCKED_S = 0.001
"""A database that doesn't read holds up whoever writes to it: submitting itself takes much less."""

_OVERDUE_S = 0.1
"""How long a request whose time has come may wait for answers to others to be taken."""


def insert_all(
    feed: Iterable[Payload],
    writer: Writer,
    recorder: Recorder,
    max_retries: int,
    abort: Callable[[], object],
    schedule: Schedule | None = None,
    patience_s: float | None = None,
) -> None:
    """Send all payloads, each when the schedule says (without one: at once), until it is over. A request's
    latency runs to its acknowledgement, retries included: from when it was due in an open loop, from
    its first submission in a closed one. `abort` is called before each retry and raises if the run
    is over. With `patience_s` a request may take so long, retries included, instead of `max_retries`
    retries.

    Raises SimulatorError if a request failed for good or events were refused.
    """
    patience = _RetryDeadline(max_retries, patience_s)
    sender = _InFlight if writer.max_in_flight > 1 else _OneByOne
    try:
        sender(writer, recorder, patience, abort, schedule or ClosedLoop()).run(feed)
    finally:
        set_deadline(math.inf)


@dataclass(frozen=True, slots=True)
class _RetryDeadline:
    """How long one request is tried again: `retries` times, or with a limit for that long."""

    retries: int
    limit_s: float | None

    def start(self, sent_s: float) -> float:
        """When a request that is first sent at `sent_s` is given up; inf: after `retries`. What this thread
        does from now on ends by then."""
        deadline_s = math.inf if self.limit_s is None else sent_s + self.limit_s
        set_deadline(deadline_s)
        return deadline_s

    def is_over(self, attempts: int, deadline_s: float) -> bool:
        """Whether a request with this deadline is given up after it was tried again so many times."""
        if self.limit_s is None:
            return attempts >= self.retries
        return time.perf_counter() >= deadline_s

    def give_up(self, error: Retryable) -> GaveUp:
        """The error that ends the run."""
        how_long = f"{self.retries} retries" if self.limit_s is None else f"{self.limit_s:g} s"
        return GaveUp(f"gave up after {how_long} ({error.kind}): {error}")


def choose_backoff_s(error: Retryable, attempt: int) -> float:
    """Log that there will be a retry, and after how many; returns the time to wait, exponential with full
    jitter.

    https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """
    _log.warning("retry %d after %s: %s", attempt + 1, error.kind, error)
    longest: float = min(_MAX_BACKOFF_S, error.backoff_s * 2 ** min(attempt, _MOST_DOUBLINGS))
    return max(error.at_least_s, longest * random.uniform(0.5, 1.0))


def _check(payload: Payload, stored: int) -> None:
    if stored != payload.events:
        raise SimulatorError(
            f"the database acknowledged {stored} of a request's {payload.events} events"
        )


@dataclass
class _Sender(ABC):
    """What sending needs, however many requests are under way."""

    _writer: Writer
    _recorder: Recorder
    _patience: _RetryDeadline
    _abort: Callable[[], object]
    _schedule: Schedule

    @abstractmethod
    def run(self, feed: Iterable[Payload]) -> None:
        """Send all; see `insert_all`."""

    def _put_off(self, error: Retryable, attempts: int, deadline_s: float) -> float:
        """Count an error after so many retries; returns the time to wait until the next retry, not beyond the
        deadline. GaveUp if there is none."""
        self._recorder.errors[error.kind] += 1
        if self._patience.is_over(attempts, deadline_s):
            raise self._patience.give_up(error) from error
        left_s = max(0.0, deadline_s - time.perf_counter())
        return min(choose_backoff_s(error, attempts), left_s)


class _OneByOne(_Sender):
    """Sends one request after the other."""

    def run(self, feed: Iterable[Payload]) -> None:
        writer, recorder, patience = self._writer, self._recorder, self._patience
        schedule, clock = self._schedule, time.perf_counter
        is_open = schedule.is_open
        free = clock()
        for payload in feed:
            sent = clock()
            due = at = schedule.next_due(sent)
            if is_open:
                at = schedule.find_opening(due, sent)
            if sent < at and due < schedule.ends:
                schedule.await_due(at)
                sent = clock()
            ends = schedule.ends  # it may have been ended meanwhile
            if sent >= ends or due >= ends:
                if is_open and due < ends:
                    recorder.leave_unsent(due, payload.events)
                return
            deadline_s = patience.start(sent)
            try:
                stored = writer.send(payload)
            except Retryable as error:
                stored = self._retry(payload, error, deadline_s)
                answered = clock()
            else:
                answered = clock()
                if is_open:
                    sent = find_sending(sent)
                    answered = find_arrival(sent)
            _check(payload, stored)
            if is_open:
                recorder.record_due(due, free, sent, answered, stored)
                free = clock()
            else:
                recorder.record(sent, answered, stored)

    def _retry(self, payload: Payload, error: Retryable, deadline_s: float) -> int:
        """Try again until it works; the number of events stored."""
        attempts = 0
        while True:
            time.sleep(self._put_off(error, attempts, deadline_s))
            self._abort()
            self._recorder.retries += 1
            try:
                if self._writer.recover(payload):
                    return payload.events
                return self._writer.send(payload)
            except Retryable as next_error:
                error = next_error
            attempts += 1


@dataclass(slots=True)
class _Request:
    payload: Payload
    sent: float
    due: float
    free: float
    """When there was a place in flight for it."""
    deadline_s: float
    """When it is given up."""
    attempts: int = 0


@dataclass
class _InFlight(_Sender):
    """Keeps up to `writer.max_in_flight` requests under way."""

    _waiting: list[tuple[float, int, _Request]] = field(default_factory=list)
    _under_way: int = 0
    _free: float = 0.0
    """Since when there has been a place, and the database didn't hold up the writer."""

    def run(self, feed: Iterable[Payload]) -> None:
        try:
            for payload in feed:
                due = self._await_turn(payload.events)
                if due is None:
                    break
                now = time.perf_counter()
                deadline_s = self._patience.start(now)
                self._submit(_Request(payload, now, due, self._free, deadline_s))
            while self._under_way + len(self._waiting):
                self._next_event()
        finally:
            self._writer.stop_submitting()

    def _await_turn(self, events: int) -> float | None:
        """Wait until the next request is due and a place is free, and take answers meanwhile; when it
        was due, or None if the schedule is over."""
        schedule, clock = self._schedule, time.perf_counter
        now = clock()
        due = schedule.next_due(now)
        while now < schedule.ends and due < schedule.ends:
            at = schedule.find_opening(due, now)
            if self._is_full():
                self._next_event(schedule.ends - now)
            elif at <= now:
                return due
            elif self._under_way + len(self._waiting):
                self._next_event(min(at, schedule.ends) - now)
            else:
                schedule.await_due(at)
            now = clock()
        if schedule.is_open and due < schedule.ends:
            self._recorder.leave_unsent(due, events)
        return None

    def _is_full(self) -> bool:
        return self._under_way + len(self._waiting) >= self._writer.max_in_flight

    def _submit(self, request: _Request) -> None:
        self._under_way += 1
        began = time.perf_counter()
        self._writer.submit(request.payload, request)
        ended = time.perf_counter()
        if ended - began >= _BLOCKED_S:
            request.free = self._free = ended

    def _next_event(self, at_most_s: float = math.inf) -> None:
        """Take answers, or send again what has waited long enough; wait for so long at most."""
        retry_s = self._waiting[0][0] - time.perf_counter() if self._waiting else math.inf
        timeout_s = max(0.0, min(retry_s, at_most_s))
        outcomes = self._writer.outcomes(None if timeout_s == math.inf else timeout_s)
        if outcomes and self._is_full():
            self._free = outcomes[0].answered_s
        for outcome in outcomes:
            self._under_way -= 1
            self._take(outcome)
        if self._waiting:
            # First all answers: with a connection, all that was under way by it is lost. But one answer may
            # follow the other without end.
            latest = time.perf_counter() - (_OVERDUE_S if outcomes else 0.0)
            if self._waiting[0][0] <= latest:
                self._resubmit(heapq.heappop(self._waiting)[2])

    def _take(self, outcome: Outcome[int]) -> None:
        request: _Request = outcome.request
        result = outcome.result
        if outcome.sent_s is not None and not request.attempts:
            request.sent = outcome.sent_s
        if isinstance(result, int):
            _check(request.payload, result)
            self._record(request, outcome.answered_s)
        elif isinstance(result, Retryable):
            self._postpone(request, result)
        else:
            raise result

    def _record(self, request: _Request, answered: float) -> None:
        events = request.payload.events
        if self._schedule.is_open:
            self._recorder.record_due(request.due, request.free, request.sent, answered, events)
        else:
            self._recorder.record(request.sent, answered, events)

    def _postpone(self, request: _Request, error: Retryable) -> None:
        delay = self._put_off(error, request.attempts, request.deadline_s)
        due = time.perf_counter() + delay
        request.attempts += 1
        heapq.heappush(self._waiting, (due, id(request), request))

    def _resubmit(self, request: _Request) -> None:
        self._abort()
        self._recorder.retries += 1
        set_deadline(request.deadline_s)
        try:
            is_stored = self._writer.recover(request.payload)
        except Retryable as error:
            self._postpone_due(request, error)
            return
        finally:
            # Connecting again may have taken long, for which the client can't help.
            self._free = time.perf_counter()
        if is_stored:
            self._record(request, self._free)
        else:
            self._submit(request)

    def _postpone_due(self, request: _Request, error: Retryable) -> None:
        """Put off a request that could not be sent again, and all that have become due meanwhile:
        they wait for the same thing, and one after the other they would wait for minutes."""
        now = time.perf_counter()
        due = [request]
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        self._recorder.retries += len(due) - 1
        for late in due:
            self._postpone(late, error)
