"""Discards payloads, in a time that is known."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from math import inf

from ..base import Job
from ..sending import Encoder, Outcome, Payload, Writer
from .options import BlackholeOptions


class BlackholeWriter(Writer):
    """Takes `delay_ms` for each request, however many are under way."""

    def __init__(self, encoder: Encoder, options: BlackholeOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._delay_s = options.delay_ms / 1000
        self._held: deque[tuple[float, object, int]] = deque()
        """When each request ends, in order, the request, and its events."""

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def send(self, payload: Payload) -> int:
        if self._delay_s:
            time.sleep(self._delay_s)
        return payload.events

    def submit(self, payload: Payload, request: object) -> None:
        self._held.append((time.perf_counter() + self._delay_s, request, payload.events))

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome]:
        held, now = self._held, time.perf_counter()
        until = min(held[0][0] if held else inf, inf if timeout_s is None else now + timeout_s)
        if until > now:
            time.sleep(until - now)
            now = time.perf_counter()
        ended = []
        while held and held[0][0] <= now:
            _, request, events = held.popleft()
            ended.append(Outcome(request, now, events))
        return ended

    def stop_submitting(self) -> None:
        self._held.clear()
