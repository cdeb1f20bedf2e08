"""The local executor's end of simulator/launcher.py: requests, answers, signs of life, the end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ..errors import RunFailed
from ..installation import environment_for_processes
from ..processes import kill_group
from ..signals import Interrupts
from .watching import Event, Failed, PartChanged

# It is asked for a sign of life when it has said nothing for a while; it answers at once, unless it
# is stopped. The first time it has Python and numpy to read, perhaps from a slow disk.
_PING_AFTER_S = 1.0
_SILENCE_S = 8.0
_FIRST_SILENCE_S = 60.0
# A longer step of the clock means that this process did not run itself: Ctrl-Z, a machine asleep.
_LONGEST_STEP_S = 1.0
_END_PATIENCE_S = 3.0

ENDED = "the local executor's launcher has ended unexpectedly"


class Launcher:
    """A process that has imported everything, and forks collectors and workers when asked to."""

    def __init__(self, interrupts: Interrupts) -> None:
        """Start it."""
        self._interrupts = interrupts
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._gone = threading.Event()
        self._lines = 0
        """How many lines have come from it."""
        self._lines_seen = 0
        self._silent_s = 0.0
        self._checked_at = time.monotonic()
        self._pinged = False
        # BLAS would start a thread per core on import; nothing here multiplies matrices, and
        # threads and forks don't mix.
        environment = environment_for_processes(os.environ)
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            # -P: nothing in the user's folder may stand in for a module.
            [sys.executable, "-P", "-m", "simulator.main", "launcher"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            # A session of its own: the terminal's Ctrl-C is for the command line alone.
            env=environment, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._input = self._process.stdin.fileno()
        # A write to a launcher that is stopped must not block.
        os.set_blocking(self._input, False)
        threading.Thread(target=self._read, daemon=True).start()

    def follow(self, events: SimpleQueue[Event]) -> None:
        """Put what it says into this queue from now on. Each run has its own, so that nothing late
        reaches the next."""
        self._events = events

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # a line that was cut off with its life
            for line in self._process.stdout:
                message = json.loads(line)
                self._lines += 1
                if "pong" not in message:
                    self._events.put(PartChanged(message))
        self._gone.set()
        self._events.put(Failed(ENDED))

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._gone.is_set()

    def check(self) -> None:
        """RunFailed if it has shown no sign of life for too long. To be called twice a second."""
        now = time.monotonic()
        self._silent_s += min(now - self._checked_at, _LONGEST_STEP_S)
        self._checked_at = now
        if self._lines != self._lines_seen:
            self._lines_seen, self._silent_s, self._pinged = self._lines, 0.0, False
        if self._silent_s > (_SILENCE_S if self._lines else _FIRST_SILENCE_S):
            raise RunFailed(
                f"the local executor's launcher has not answered for {self._silent_s:.0f} s"
                " (is it stopped, or the machine overloaded?); run the command again"
            )
        if self._silent_s > _PING_AFTER_S and not self._pinged:
            self._pinged = True
            # A full pipe takes no ping, and then what fills it is still to be answered.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._input, b'{"ping": true}\n')

    def request(self, message: dict[str, Any]) -> None:
        """Ask it for something. RunFailed if it is gone, takes nothing, or the user is in a hurry."""
        if self.is_gone:
            raise RunFailed(ENDED)
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                self.check_hurry()
                self.check()
                select.select([], [self._input], [], _LONGEST_STEP_S / 2)
            except BrokenPipeError:
                raise RunFailed(ENDED) from None

    def check_hurry(self) -> None:
        """RunFailed if the user doesn't want to wait for it."""
        if self._interrupts.hurry.is_set():
            raise RunFailed("interrupted while waiting for the local executor's launcher")

    def kill(self) -> None:
        """End it and all that it has started at once, stopped or not."""
        kill_group(self._process.pid)

    def end(self) -> None:
        """End it and all that it has started: in good order if there is time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        until = time.monotonic() + _END_PATIENCE_S
        # One that has never answered has nothing to end but itself.
        while self._lines and not self._gone.wait(0.1):
            if time.monotonic() > until or self._interrupts.hurry.is_set():
                break
        # A child that is stopped has not seen that its launcher is gone.
        self.kill()
        self._process.wait()
