"""How far a run is: phases with their times, and the rate of the last seconds."""

from __future__ import annotations

import logging
import time
from collections import deque

from ..contract import QUIET_S, Phase, Role, RunSettings, Status
from .barrier import MAX_NAMED, Barrier

_RATE_WINDOW_S = 3.0


_log = logging.getLogger(__name__)


class Course:
    """The phases of a run, and what has been done in the current one."""

    def __init__(self, settings: RunSettings, born: float) -> None:
        self._settings = settings
        self._born = born
        self.phase = Phase.START
        self._phase_began = born
        self.phases_s: dict[str, float] = {}
        """How long each phase that has ended lasted."""
        self.queries = 0
        """How many queries each reader asks in turn."""
        self._advanced_at = born
        self._quiet_noted = False
        self._history: deque[tuple[float, int]] = deque()

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        now = time.monotonic()
        spent = now - self._phase_began
        self.phases_s[self.phase] = self.phases_s.get(self.phase, 0.0) + spent
        self.phase, self._phase_began, self._advanced_at = phase, now, now
        self._quiet_noted = False
        self._history.clear()
        _log.info("phase %s", phase)

    def advance(self) -> None:
        """Something came back from the database."""
        self._advanced_at = time.monotonic()
        self._quiet_noted = False

    def status(self, barrier: Barrier, failure: str | None) -> Status:
        """Where the run is, for the executor's display."""
        stage = {Phase.PREFILL: "prefill", Phase.RUN: "run"}.get(self.phase)
        messages = [m for m in barrier.progress.values() if m.stage == stage]
        done = sum(message.done for message in messages)
        if stage == "run":
            running = sum(m.done for m in messages if m.worker not in barrier.results)
            done = running + sum(result.done for result in barrier.results.values())
        return Status(
            run_id=self._settings.run_id,
            phase=self.phase,
            age_s=time.monotonic() - self._born,
            done=done,
            total=self._total(),
            rate_per_s=self._rate(done) if stage else None,
            retries=sum(message.retries for message in messages),
            workers_ready=len(barrier.ready),
            waiting_for=barrier.missing[:MAX_NAMED],
            quiet_s=self._quiet_s() if stage else 0.0,
            failure=failure,
        )

    def _quiet_s(self) -> float:
        quiet_s = time.monotonic() - self._advanced_at
        if quiet_s >= QUIET_S and not self._quiet_noted:
            self._quiet_noted = True
            _log.warning("nothing has come back from the database for %.0f s", quiet_s)
        return quiet_s

    def _total(self) -> int:
        if self.phase is Phase.PREFILL:
            return self._settings.data.prefill
        total = 0
        for group in self._settings.groups:
            load = group.load
            if load.duration_s is not None:
                continue  # It is the clock that says how far the run is.
            if load.role is Role.WRITE:
                total += load.workers * load.events
            elif load.role is Role.READ:
                total += load.workers * load.runs * self.queries
        return total

    def _rate(self, done: int) -> float | None:
        """Events or queries per second over the last seconds."""
        now = time.monotonic()
        self._history.append((now, done))
        while now - self._history[0][0] > _RATE_WINDOW_S and len(self._history) > 2:
            self._history.popleft()
        began, before = self._history[0]
        return (done - before) / (now - began) if now - began > 0.5 else None
