"""Discards payloads, in a time that is known."""

from __future__ import annotations

import time

from ..base import Encoder, Job, Payload, Writer
from .options import BlackholeOptions


class BlackholeWriter(Writer):
    """Takes `delay_ms` for each request."""

    def __init__(self, encoder: Encoder, options: BlackholeOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._delay_s = options.delay_ms / 1000

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def send(self, payload: Payload) -> int:
        if self._delay_s:
            time.sleep(self._delay_s)
        return payload.events
