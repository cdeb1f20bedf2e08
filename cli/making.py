"""The runs of a command, whatever they are: made one after the other, kept when one fails, shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from simulator.contract import Load

from .disturbances import check_times
from .errors import EXIT_FAILED, RunFailed
from .live.serving import tell_end
from .output import say
from .results.model import Result
from .session import Running, Session
from .show.progress import Display, make_display
from .signals import Interrupted, Interrupts


class Making(ABC):
    """The runs that a command makes, and what they have given so far."""

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


def ends_prepared(session: Session, lengths: Sequence[Load]) -> bool:
    """Whether a command is to end here, with all checked; see `only_prepare`."""
    if (found := _prepared.get()) is None:
        return False
    found.append(Prepared(session, lengths))
    return True


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
    if ends_prepared(session, lengths):
        return 0
    stopped: RunFailed | Interrupted | None = None
    with session.start(command, interrupts) as running, make_display(lengths) as display:
        try:
            making.make(running, display)
        except (RunFailed, Interrupted) as error:
            stopped = error
            tell_end(error)
        with interrupts.shield():
            result = making.result(running, complete=stopped is None)
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
