"""The workers of a run as the collector knows them: which have appeared, are ready, are silent.

No I/O: the clock is an argument or `time.monotonic`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..contract import Progress, Ready, RunSettings, Stall, WorkerResult
from ..machine import read_clock_s

HOLD_S = 20.0
"""How long a request is held at most: short enough for every proxy on the way."""

MAX_NAMED = 20
"""The most workers that a message names."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Barrier:
    """The workers' messages, and the common start."""

    def __init__(self, settings: RunSettings, born: float) -> None:
        self._settings = settings
        self._appear_by = born + settings.ready_timeout_s
        self._heard: dict[int, float] = {}
        self.ready: dict[int, Ready] = {}
        self.progress: dict[int, Progress] = {}
        self.results: dict[int, WorkerResult] = {}
        self.stalls: list[Stall] = []
        """When the collector itself was stopped."""
        self.awaited: set[int] = set()
        """Workers whose results are there, but not yet their answers."""
        self.start_at: float | None = None
        """The common start, by `time.monotonic`."""
        self.start_clock_s = 0.0
        """The same, by `read_clock_s`."""
        self._start_utc: datetime | None = None
        """The same, by the wall clock."""
        self.clock_offsets_s: dict[int, float] = {}
        """For each worker, an upper bound of how late it started."""

    def hear(self, worker: int) -> None:
        """Note that a worker is alive, as any message shows. Refused if there is no such worker."""
        if not 0 <= worker < self._settings.workers:
            raise Refused(404, f"there is no worker {worker}")
        self._heard[worker] = time.monotonic()

    def arrive(self, message: Ready) -> bool:
        """Note that a worker is ready. True if all are now."""
        if message.worker in self.ready:
            return False
        self.ready[message.worker] = message
        return len(self.ready) == self._settings.workers

    def start(self) -> None:
        """Set the common start."""
        # Long enough that every worker has its answer before the start: an answer takes about 0.3 ms
        # (benchmarks/many_workers.py), and says how much time is left.
        delay_s = 0.03 + 0.001 * self._settings.workers
        self.start_at = time.monotonic() + delay_s
        self.start_clock_s = read_clock_s() + delay_s
        self._start_utc = datetime.now(UTC) + timedelta(seconds=delay_s)

    def elapsed_s(self) -> float:
        """Seconds since the common start; 0 before it."""
        return 0.0 if self.start_at is None else max(0.0, time.monotonic() - self.start_at)

    def format_utc(self, since_start_s: float) -> str:
        """The instant `since_start_s` after the common start, in UTC by this machine's clock (ISO 8601)."""
        assert self._start_utc is not None
        at = self._start_utc + timedelta(seconds=since_start_s)
        return at.isoformat(timespec="milliseconds")

    @property
    def prefilled(self) -> int:
        """Events stored by the prefills of the workers that are ready."""
        return sum(message.prefilled for message in self.ready.values())

    def advance(self, message: Progress) -> bool:
        """Note how far a worker is. Returns whether it has done anything since its last message."""
        before = self.progress.get(message.worker)
        self.progress[message.worker] = message
        if message.stage == "run":
            self._note_offset(message.worker, message.elapsed_s)
        if before is None or before.stage != message.stage:
            return message.done > 0
        return message.done > before.done

    def finish(self, message: WorkerResult) -> bool:
        """Take a worker's result. True if all are there now; False if some are missing, or this one is a
        repetition.

        Refused if the worker has handed in a different one, or if the run has not begun.
        """
        previous = self.results.get(message.worker)
        if previous is not None:
            if previous.model_copy(update={"elapsed_s": message.elapsed_s}) == message:
                return False  # the worker repeats itself: the first answer did not reach it
            raise Refused(409, f"worker {message.worker} has already sent a different result")
        if self.start_at is None:
            raise Refused(409, "the run has not begun")
        self.results[message.worker] = message
        self._note_offset(message.worker, message.elapsed_s)
        if message.late_at_most_s is not None:
            offset = self.clock_offsets_s[message.worker]
            self.clock_offsets_s[message.worker] = min(offset, message.late_at_most_s)
        return len(self.results) == self._settings.workers

    def _note_offset(self, worker: int, elapsed_s: float) -> None:
        """A message can't arrive before it was sent, so the smallest difference seen between this clock and
        the worker's is an upper bound of how late the worker started."""
        if self.start_at is not None:
            offset = max(0.0, time.monotonic() - self.start_at - elapsed_s)
            least = self.clock_offsets_s.get(worker, offset)
            self.clock_offsets_s[worker] = min(least, offset)

    def excuse(self, gap_s: float) -> None:
        """Don't count a time in which this process itself was stopped: messages that workers sent meanwhile
        haven't been read yet."""
        now = time.monotonic()
        self._appear_by += gap_s
        self._heard = {worker: min(now, at + gap_s) for worker, at in self._heard.items()}

    @property
    def missing(self) -> list[int]:
        """The workers that are not ready."""
        return sorted(set(range(self._settings.workers)) - set(self.ready))

    def next_deadline(self) -> float | None:
        """When the next worker must be heard from (again); None if no result is missing."""
        return min(self._deadlines().values(), default=None)

    def _deadlines(self) -> dict[int, float]:
        """When each worker that isn't done must be heard from (again)."""
        silence = self._settings.silence_timeout_s
        return {
            worker: self._heard[worker] + silence if worker in self._heard else self._appear_by
            for worker in range(self._settings.workers)
            if worker not in self.results or worker in self.awaited
        }

    def list_late(self) -> list[int]:
        """The workers that have missed their deadline."""
        now = time.monotonic()
        return [worker for worker, deadline in self._deadlines().items() if deadline <= now]

    def find_late(self) -> str | None:
        """The late workers as a reason to give the run up; None if there are none."""
        late = self.list_late()
        absent = [worker for worker in late if worker not in self._heard]
        if absent:
            patience = self._settings.ready_timeout_s
            return f"{name_workers(absent)} not ready after {patience:g} s"
        if late:
            return f"no word from {name_workers(late)} for {self._settings.silence_timeout_s:g} s"
        return None


def name_workers(workers: Sequence[int]) -> str:
    """`worker 3`, `workers 1, 4 and 7 more`."""
    names = ", ".join(map(str, sorted(workers)[:MAX_NAMED]))
    more = f" and {len(workers) - MAX_NAMED} more" if len(workers) > MAX_NAMED else ""
    return f"worker{'s' if len(workers) > 1 else ''} {names}{more}"
