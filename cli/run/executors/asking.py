"""How a run's collector is asked for its report and its progress, wherever it is: again and again, until
there is a report, or can't be one any more."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from queue import SimpleQueue
from typing import ClassVar, TypeVar

from pydantic import ValidationError

from simulator.contract import TOO_EARLY, Report, Status
from simulator.errors import one_line
from simulator.units import format_span

from ...show.status import seconds_left
from .base import POLL_S, Event, Failed, PartChanged, ReportArrived

TOLD_AFTER_S = 30.0
"""How long somebody may be out of reach before the user is told what is waited for."""

# What the collector refuses for that long, though it says how far it is, it will never answer.
_REFUSAL_PATIENCE_S = 30.0
_RETRY_S = 0.25

ANSWERED = (200, 202, 410, TOO_EARLY)
"""What the collector answers with. Anything else comes from somebody in between, or is a defect."""

_Message = TypeVar("_Message", Report, Status)


def find_patience_s(linger_s: float, last: Status | None) -> float:
    """How long there is something to get of a run that was heard `last`: to its end, as far as that can be
    told, and for as long as the collector then keeps its report."""
    if last is None:
        return linger_s
    ahead_s = last.duration_s or 0.0 if last.elapsed_s is None else 0.0
    return linger_s + ahead_s + (seconds_left(last) or 0.0)


class Silence:
    """The time for which somebody doesn't answer: the user is told of it, and it ends with the patience."""

    def __init__(self, whom: str, events: SimpleQueue[Event]) -> None:
        self._whom = whom
        self._events = events
        self._since: float | None = None
        self.is_told = False
        """Whether it has lasted for so long that the user knows."""

    @property
    def lasts(self) -> bool:
        """Whether the last question was not answered."""
        return self._since is not None

    def end(self) -> None:
        """Somebody has answered."""
        if self.is_told and self._since is not None:
            lasted = format_span(time.monotonic() - self._since)
            self._events.put(PartChanged(f"{self._whom} answers again, after {lasted}"))
        self._since, self.is_told = None, False

    def has_lasted(self, asked_at: float, problem: str, patience_s: float) -> bool:
        """Note a question of `asked_at` that was not answered; whether patience is over, which ends the run.
        Time in which nobody asked doesn't count, as when this process itself was stopped."""
        self._since = asked_at if self._since is None else self._since
        silent_s = asked_at - self._since
        text = f"{self._whom} has been out of reach for {format_span(silent_s)}"
        if silent_s > patience_s:
            self.is_told = True
            self._events.put(Failed(f"{text}: {problem}"))
            return True
        if silent_s > TOLD_AFTER_S and not self.is_told:
            self.is_told = True
            left = format_span(patience_s - silent_s)
            text += f" ({problem}): its report is waited for, for another {left} at most"
            self._events.put(PartChanged(text))
        return False


class CollectorAsker(ABC):
    """Asks a collector, and puts what it says into a queue."""

    whom: ClassVar[str]
    """Who must answer for the collector to be heard, as the user is told."""
    remedy: ClassVar[str] = ""
    """What to do about a collector that speaks another format."""
    report_timeout_s: float = 60.0
    """Longer than the collector holds back its answer."""
    status_timeout_s: float = 5.0

    def __init__(
        self, events: SimpleQueue[Event], linger_s: float, pause_s: float | None = None
    ) -> None:
        """`linger_s`: how long the collector keeps its report; `pause_s`: between two questions for
        progress."""
        self._events = events
        self._linger_s = linger_s
        self._pause_s = POLL_S if pause_s is None else pause_s
        self._stopped = threading.Event()
        self._run_id = ""
        self._last: Status | None = None
        self._heard_at = 0.0
        """When it last said how far it is, by `time.monotonic()`."""
        self._silence = Silence(self.whom, events)
        self.problem: str | None = None
        """Why the last question has not reached the collector."""

    @property
    def is_lost(self) -> bool:
        """Whether it has been out of reach for long."""
        return self._silence.is_told

    @property
    def patience_s(self) -> float:
        """How long it may be out of reach before nothing can be had of the run any more."""
        return find_patience_s(self._linger_s, self._last)

    def ask_for_report(self, run_id: str) -> None:
        """Ask for a run's report until there is one, or can be none; the work of a thread."""
        self._run_id = run_id
        refused_since: float | None = None
        while not self._stopped.is_set() and not self._hear_otherwise():
            asked_at = time.monotonic()
            status, body = self._ask("report", self.report_timeout_s)
            if status == 200 and (report := self._read(Report, body)):
                self._silence.end()
                self._events.put(ReportArrived(report))
                return
            if status == 410:
                self._events.put(Failed(body.decode(errors="replace")))
                return
            if status in (0, *ANSWERED):
                refused_since = None
            else:
                refused_since = refused_since or asked_at
                if self._heard_at > refused_since + _REFUSAL_PATIENCE_S:
                    self._events.put(Failed(f"no report can be had: {self.problem}"))
                    return
            if status != 202:
                self._stopped.wait(_RETRY_S)

    def ask_for_status(self) -> None:
        """Ask for progress until stopped; the work of a thread."""
        while not self._stopped.wait(self._pause_s):
            asked_at = time.monotonic()
            problem = self._find_problem(asked_at)
            if problem is None:
                self._silence.end()
            elif self._silence.has_lasted(asked_at, problem, self.patience_s):
                return

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()

    @abstractmethod
    def _ask(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """GET from the collector: status and body; 0 if nothing was answered. Sets `problem`."""

    def _hear_otherwise(self) -> bool:
        """Hear the report in another way than by asking, if it can't be asked for."""
        return False

    def _find_problem(self, asked_at: float) -> str | None:
        """Ask once how far the run is; what keeps that from being answered, or None."""
        return None if self._hear_status() else self.problem or "no answer"

    def _hear_status(self) -> bool:
        """Ask how far the run is; whether the collector has answered."""
        status, body = self._ask("status", self.status_timeout_s)
        if status != 200:
            return status in ANSWERED
        progress = self._read(Status, body)
        if progress is not None:
            self._note(progress)
        return progress is not None

    def _note(self, status: Status) -> None:
        self._last, self._heard_at = status, time.monotonic()
        self._events.put(status)

    def _read(self, kind: type[_Message], body: bytes) -> _Message | None:
        """What the collector has answered; None if somebody else has."""
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            if body.startswith(b'{"'):
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                why = f"({place}: {first['msg']}){self.remedy}"
                self._events.put(Failed(f"the collector's answer has another format {why}"))
            said = one_line(body.decode(errors="replace"), 100)
            self.problem = (
                f"{self.whom} answers 200 with something that isn't from the collector: {said}"
            )
            return None
