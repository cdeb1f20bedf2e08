"""The runs of a command, whatever they are: made one after the other, kept when one fails, shown."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from simulator.contract import Load

from ..errors import EXIT_FAILED, RunFailed
from ..faults.injector import check_times
from ..live.serving import tell_end
from ..output import say
from ..render.progress import Display, make_display
from ..results.model import Result
from ..signals import Interrupted, Interrupts
from .context import Running
from .session import Session

_MOST_SHARE = 0.02
"""Of a command's time, for writing what was made so far."""


class Making(ABC):
    """The runs that a command makes, and what they have given so far."""

    prefill = 0
    """Events that are inserted before each run."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many runs there are to show."""

    @abstractmethod
    def make(self, running: Running, display: Display) -> None:
        """Make all runs. RunFailed if one gave no figures; it is kept all the same."""

    @abstractmethod
    def result(self, running: Running, complete: bool) -> Result:
        """All runs so far; `complete`: none is missing."""

    @abstractmethod
    def show(self, result: Result) -> None:
        """Print the tables."""


@dataclass(frozen=True)
class Prepared:
    """A command whose options were found to be right, and that has begun nothing."""

    session: Session
    lengths: Sequence[Load]
    """For each run that it would make the load that says how long it goes on."""
    prefill: int = 0
    """Events that are inserted before each."""


_prepared: ContextVar[list[Prepared] | None] = ContextVar("prepared", default=None)


@contextmanager
def only_prepare() -> Iterator[list[Prepared]]:
    """Inside, commands check all that they check before their runs, make none, and end with status 0. What
    they would make is added to the list."""
    found: list[Prepared] = []
    before = _prepared.set(found)
    try:
        yield found
    finally:
        _prepared.reset(before)


def ends_prepared(session: Session, lengths: Sequence[Load], prefill: int = 0) -> bool:
    """Whether a command is to end here, with all checked; see `only_prepare`."""
    if (found := _prepared.get()) is None:
        return False
    found.append(Prepared(session, lengths, prefill))
    return True


class _Keeper:
    """Writes what was made so far after each run, so that a command which is killed loses the run that was
    under way and no other. Of runs that are so short that writing would take much of their time some wait for
    the next."""

    def __init__(self, making: Making, running: Running, interrupts: Interrupts) -> None:
        self._making, self._running = making, running
        self._interrupts = interrupts
        self._next_s = 0.0

    def keep(self) -> None:
        """Write an unfinished result. If that fails, the end of the command will tell."""
        began = time.monotonic()
        if began < self._next_s or not self._making.count:
            return
        with self._interrupts.shield():
            self._running.keep(self._making.result(self._running, complete=False))
        ended = time.monotonic()
        self._next_s = ended + (ended - began) / _MOST_SHARE


def make_all(
    making: Making,
    command: str,
    session: Session,
    lengths: Sequence[Load],
    interrupts: Interrupts,
) -> int:
    """Make the runs, write the result and show it; the exit status. What was done when something goes
    wrong is kept. `lengths`: for each run the load that says how long it goes on."""
    if session.request.disturb:
        # A target's own are for runs of any length; what was asked for now is meant to be done.
        for load in lengths:
            check_times(session.disturbances, load.duration_s)
    if ends_prepared(session, lengths, making.prefill):
        return 0
    stopped: RunFailed | Interrupted | None = None
    with session.start(command, interrupts) as running, make_display(lengths) as display:
        display.after_each(_Keeper(making, running, interrupts).keep)
        try:
            making.make(running, display)
        except (RunFailed, Interrupted) as error:
            stopped = error
            tell_end(error)
        with interrupts.shield():
            result = making.result(running, complete=stopped is None)
            result.ended_by = None if stopped is None else _name_end(stopped)
            unwritten = running.write(result) if making.count else None
    if making.count:
        making.show(result)
        if unwritten is None:
            say(f"\nResult: {running.folder.path}")
    if isinstance(stopped, Interrupted):
        raise stopped
    if unwritten:
        raise unwritten
    if stopped:
        raise stopped
    return 0 if result.valid else EXIT_FAILED


def _name_end(stopped: RunFailed | Interrupted) -> str:
    """What ended a command, as its result says it."""
    return str(stopped) if isinstance(stopped, Interrupted) else "a run that failed"
