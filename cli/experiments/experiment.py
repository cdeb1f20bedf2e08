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
from ..live.serving import find_live, publish_end
from ..output import say
from ..render.progress import Display, make_display
from ..results.model import Result
from ..signals import Interrupted, Interrupts
from .context import RunContext
from .session import Session

_MOST_SHARE = 0.02
"""Of a command's time, for writing what was made so far."""


class Experiment(ABC):
    """The runs that a command makes, and what they have given so far."""

    prefill = 0
    """Events that are inserted before each run."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many runs there are to show."""

    @abstractmethod
    def make(self, context: RunContext, display: Display) -> None:
        """Make all runs. RunFailed if one gave no figures; it is kept all the same."""

    @abstractmethod
    def result(self, context: RunContext, complete: bool) -> Result:
        """All runs so far; `complete`: none is missing."""

    @abstractmethod
    def show(self, result: Result) -> None:
        """Print the tables."""


@dataclass(frozen=True)
class CheckedExperiment:
    """A command whose options were found to be right, and that has begun nothing."""

    session: Session
    lengths: Sequence[Load]
    """For each run that it would make the load that says how long it goes on."""
    prefill: int = 0
    """Events that are inserted before each."""


_checked: ContextVar[list[CheckedExperiment] | None] = ContextVar("prepared", default=None)


@contextmanager
def check_only() -> Iterator[list[CheckedExperiment]]:
    """Inside, commands check all that they check before their runs, make none, and end with status 0. What
    they would make is added to the list."""
    found: list[CheckedExperiment] = []
    before = _checked.set(found)
    try:
        yield found
    finally:
        _checked.reset(before)


def ends_checked(session: Session, lengths: Sequence[Load], prefill: int = 0) -> bool:
    """Whether a command is to end here, with all checked; see `check_only`."""
    if (found := _checked.get()) is None:
        return False
    found.append(CheckedExperiment(session, lengths, prefill))
    return True


class _Checkpoint:
    """Writes what was made so far after each run, so that a command which is killed loses the run that was
    under way and no other. Of runs that are so short that writing would take much of their time some wait for
    the next."""

    def __init__(self, experiment: Experiment, context: RunContext, interrupts: Interrupts) -> None:
        self._experiment, self._context = experiment, context
        self._interrupts = interrupts
        self._next_s = 0.0

    def keep(self) -> None:
        """Write an unfinished result. If that fails, the end of the command will tell."""
        began = time.monotonic()
        if began < self._next_s or not self._experiment.count:
            return
        with self._interrupts.shield():
            self._context.keep(self._experiment.result(self._context, complete=False))
        ended = time.monotonic()
        self._next_s = ended + (ended - began) / _MOST_SHARE


def run_experiment(
    experiment: Experiment,
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
    if ends_checked(session, lengths, experiment.prefill):
        return 0
    stopped: RunFailed | Interrupted | None = None
    with (
        session.start(command, interrupts) as context,
        make_display(lengths, find_live()) as display,
    ):
        display.after_each(_Checkpoint(experiment, context, interrupts).keep)
        try:
            experiment.make(context, display)
        except (RunFailed, Interrupted) as error:
            stopped = error
            publish_end(error)
        with interrupts.shield():
            result = experiment.result(context, complete=stopped is None)
            result.ended_by = None if stopped is None else _name_end(stopped)
            unwritten = context.write(result) if experiment.count else None
    if experiment.count:
        experiment.show(result)
        if unwritten is None:
            say(f"\nResult: {context.folder.path}")
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
