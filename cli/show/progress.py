"""Live progress on standard error: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from simulator.contract import QUIET_S, Phase, Status

from ..output import note

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_INTERVAL_S = 10.0


_WORDS = {
    Phase.START: "starting",
    Phase.PREPARE: "preparing the database",
    Phase.PREFILL: "prefilling",
    Phase.BARRIER: "waiting for workers",
    Phase.RUN: "running",
    Phase.VERIFY: "counting",
    Phase.CLEAN_UP: "cleaning up",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
}


class Display(ABC):
    """Shows the runs of a command. Use as a context manager."""

    @abstractmethod
    def begin(self, label: str) -> None:
        """A run begins, e.g. `4 workers, run 2 of 3`."""

    @abstractmethod
    def update(self, status: Status) -> None:
        """Where the run is."""

    @abstractmethod
    def end(self, outcome: str) -> None:
        """The run's outcome, in a few words; stays visible."""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def make_display(unit: str) -> Display:
    """A display for a terminal or a pipe. `unit` is what is counted: events or queries."""
    return TerminalDisplay(unit) if sys.stderr.isatty() else PlainDisplay(unit)


def phase_text(status: Status) -> str:
    """The phase in words, with what it waits for."""
    text = _WORDS[status.phase]
    if status.phase is Phase.BARRIER and status.waiting_for:
        text += " " + ", ".join(map(str, status.waiting_for))
    return text


def quiet_text(status: Status) -> str | None:
    """Since when nothing has come back from the database, if that is long; None otherwise."""
    if status.quiet_s < QUIET_S:
        return None
    since = datetime.now().astimezone() - timedelta(seconds=status.quiet_s)
    return f"nothing has come back for {status.quiet_s:.0f} s, since {since:%H:%M:%S}"


def seconds_left(status: Status) -> float | None:
    """How long the rest takes at the rate of the last seconds; None while that is unknown."""
    if not status.rate_per_s or not status.total:
        return None
    return max(0.0, (status.total - status.done) / status.rate_per_s)


class PlainDisplay(Display):
    """A line for each new phase, and every ten seconds within one."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._label = ""
        self._phase: Phase | None = None
        self._last_s = 0.0
        self._quiet = False

    def begin(self, label: str) -> None:
        self._label, self._phase = label, None
        self._last_s = time.monotonic()

    def update(self, status: Status) -> None:
        now = time.monotonic()
        known = status.phase is self._phase and now - self._last_s < PLAIN_INTERVAL_S
        quiet = status.quiet_s >= QUIET_S
        if known and quiet is self._quiet:
            return
        self._quiet = quiet
        self._phase, self._last_s = status.phase, now
        text = f"{self._label}: {phase_text(status)}"
        if status.total and status.phase in (Phase.RUN, Phase.PREFILL):
            text += f", {status.done:,} of {status.total:,} {self._unit}"
        if status.rate_per_s is not None:
            text += f", {status.rate_per_s:,.0f} {self._unit}/s"
        left = seconds_left(status)
        if left is not None:
            text += f", {left:.0f} s left"
        said = quiet_text(status)
        if said is not None:
            text += f", {said}"
        note(text)

    def end(self, outcome: str) -> None:
        note(f"{self._label}: {outcome}")


class TerminalDisplay(Display):
    """One bar that follows the current run; a line stays for each run that ended."""

    def __init__(self, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._unit = unit
        self._label = ""
        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, figures="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, label: str) -> None:
        self._label = label
        text = f"{label}: {_WORDS[Phase.START]}"
        self._progress.reset(self._task, total=None, description=text, figures="")

    def update(self, status: Status) -> None:
        figures = []
        counting = status.phase in (Phase.RUN, Phase.PREFILL)
        if status.total and counting:
            figures.append(f"{status.done:,} of {status.total:,} {self._unit}")
        if status.rate_per_s is not None:
            figures.append(f"{status.rate_per_s:,.0f} {self._unit}/s")
        left = seconds_left(status)
        if left is not None:
            figures.append(f"{left:.0f} s left")
        if status.retries:
            figures.append(f"{status.retries} retries")
        quiet = quiet_text(status)
        if quiet is not None:
            figures = [quiet]
        self._progress.update(
            self._task,
            description=f"{self._label}: {phase_text(status)}",
            completed=status.done if counting else 0,
            total=status.total if counting and status.total else None,
            figures=" · ".join(figures),
        )

    def end(self, outcome: str) -> None:
        self._progress.console.print(f"{self._label}: {outcome}", markup=False, highlight=False)
