"""Ctrl-C and its relatives: the first ends the work, a second one hurries the clean-up, none skips it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP: the terminal was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

END_PATIENCE_S = 10.0
"""How long a program that the tool has started has after SIGTERM to undo what it did."""


def end_at_signals() -> None:
    """Let a signal end the process at once, until `Interrupts` takes over. For the time in which Python
    reads the code: nothing is under way, and an exception may come in the middle of any module."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(_exit_code(number))


def _exit_code(number: int) -> int:
    """The shell's convention for a process that a signal has ended."""
    return 128 + number


class Interrupted(BaseException):
    """The user or the system wants the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.left = "nothing is left running"
        """What the user is told of what was under way."""

    @property
    def exit_code(self) -> int:
        """The exit status of the command."""
        return _exit_code(self.number)


class Flag:
    """A `threading.Event` to poll, without its lock, on which a signal handler that interrupts itself
    would wait forever."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class Interrupts:
    """Turns the first signal into `Interrupted`, raised in the main thread outside of shields.

    Use as a context manager around a command. `hurry` is set by every further signal: whoever
    waits for something to end in good order then ends it at once. A signal that was ignored
    before (nohup, a script's background job) stays ignored.
    """

    def __init__(self) -> None:
        self.hurry = Flag()
        self._shields = 0
        self._pending: int | None = None
        self._raised = False
        self._number = 0

    def __enter__(self) -> Interrupts:
        self._before = {
            number: signal.signal(number, self._handle)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore signals from now on: there is nothing left that they could end, and a late one
        must not change the exit status."""
        # Python complains of a signal that has come and is ignored before its handler has run, so none
        # may come in between.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._before.clear()

    def insist(self) -> None:
        """Raise again, for whoever still works after a further signal: the first exception got lost
        where Python ignores them, as in a finalizer or a weak reference's callback."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and self.hurry.is_set() and not self._shields:
            raise Interrupted(self._number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._raised or self._pending is not None:
            self.hurry.set()
        elif self._shields:
            self._number = self._pending = number
        else:
            self._raised = True
            self._number = number
            raise Interrupted(number)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Finish what is inside before a signal is raised: for starting and for cleaning up. It is raised in
        the main thread alone: others need no shield."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if not self._shields and self._pending is not None and not self._raised:
                self._raised = True
                raise Interrupted(self._pending)
