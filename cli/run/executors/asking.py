"""Polls a run's collector, wherever it is, until there is a report or there can't be one."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TypeVar

import httpx
from pydantic import ValidationError

from simulator.contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    TOO_EARLY,
    Report,
    RunSettings,
    Status,
)
from simulator.errors import one_line
from simulator.units import format_span

from ...show.status import seconds_left
from . import POLL_S, Event, Failed, PartChanged, ReportArrived

TOLD_AFTER_S = 30.0
"""How long the collector may be unreachable before the user is told."""

# If the collector refuses the report for this long but reports progress, it will never give one.
_REFUSAL_PATIENCE_S = 30.0
_RETRY_S = 0.25
_CONNECT_TIMEOUT_S, _STATUS_TIMEOUT_S = 5.0, 2.0
# Longer than the collector holds back its answer.
_REPORT_TIMEOUT_S = 60.0

_ANSWERED = (200, 202, 410, TOO_EARLY)
"""The collector's valid statuses. Any other is a defect."""

_Message = TypeVar("_Message", Report, Status)


def find_patience_s(linger_s: float, last: Status | None) -> float:
    """How long to wait for a run whose last status was `last`: to its expected end, and then for as long as
    the collector keeps its report."""
    if last is None:
        return linger_s
    ahead_s = last.duration_s or 0.0 if last.elapsed_s is None else 0.0
    return linger_s + ahead_s + (seconds_left(last) or 0.0)


def explain_format(error: ValidationError) -> str:
    """The error message for data from a collector of another version."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"the collector's answer has another format ({place}: {first['msg']})"


class Silence:
    """Tracks a time without contact to the collector: tells the user, and gives up when patience runs out."""

    def __init__(self, events: SimpleQueue[Event]) -> None:
        self._events = events
        self._since: float | None = None
        self.is_told = False
        """Whether the user has been told."""

    def end(self) -> None:
        """The collector answered."""
        if self.is_told and self._since is not None:
            lasted = format_span(time.monotonic() - self._since)
            self._events.put(PartChanged(f"the collector answers again, after {lasted}"))
        self._since, self.is_told = None, False

    def has_lasted(self, asked_at: float, problem: str, patience_s: float) -> bool:
        """Note a request, made at `asked_at`, that was not answered. Returns whether patience has run out;
        then the run ends. Time without requests doesn't count, such as when this process itself was
        stopped."""
        self._since = asked_at if self._since is None else self._since
        silent_s = asked_at - self._since
        text = f"the collector has been unreachable for {format_span(silent_s)}"
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


class CollectorAsker:
    """Polls a collector on this machine and puts its answers into a queue."""

    def __init__(self, url: str, settings: RunSettings, events: SimpleQueue[Event]) -> None:
        self._events = events
        self._linger_s = settings.linger_s
        self._http = httpx.Client(
            base_url=url,
            headers={TOKEN_HEADER: settings.token, RUN_HEADER: settings.run_id},
            trust_env=False,
            verify=False,  # noqa: S501 - plain HTTP on loopback; spares loading certificates
        )
        self._stopped = threading.Event()
        self._last: Status | None = None
        self._heard_at = 0.0
        """When it last reported progress, by `time.monotonic()`."""
        self._silence = Silence(events)
        self._problem = "no answer"
        """Why the last request was not answered."""

    def ask_for_report(self) -> None:
        """Poll for the report until there is one, or can't be one. Runs in a thread."""
        refused_since: float | None = None
        while not self._stopped.is_set():
            asked_at = time.monotonic()
            status, body = self._ask("report", _REPORT_TIMEOUT_S)
            if status == 200 and (report := self._read(Report, body)):
                self._silence.end()
                self._events.put(ReportArrived(report))
                return
            if status == 410:
                self._events.put(Failed(body.decode(errors="replace")))
                return
            if status in (0, *_ANSWERED):
                refused_since = None
            else:
                refused_since = refused_since or asked_at
                if self._heard_at > refused_since + _REFUSAL_PATIENCE_S:
                    self._events.put(Failed(f"no report can be had: {self._problem}"))
                    return
            if status != 202:
                self._stopped.wait(_RETRY_S)

    def ask_for_status(self) -> None:
        """Poll for progress until stopped. Runs in a thread."""
        while not self._stopped.wait(POLL_S):
            asked_at = time.monotonic()
            status, body = self._ask("status", _STATUS_TIMEOUT_S)
            is_heard = status in _ANSWERED
            if status == 200:
                progress = self._read(Status, body)
                is_heard = progress is not None
                if progress is not None:
                    self._last, self._heard_at = progress, time.monotonic()
                    self._events.put(progress)
            patience_s = find_patience_s(self._linger_s, self._last)
            if is_heard:
                self._silence.end()
            elif self._silence.has_lasted(asked_at, self._problem, patience_s):
                return

    def stop(self) -> None:
        """End both threads."""
        self._stopped.set()
        self._http.close()

    def _ask(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """GET from the collector. Returns status and body; status 0 means no answer."""
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S)
        try:
            answer = self._http.get(path, timeout=timeout)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: it was closed meanwhile
            self._problem = one_line(error) or type(error).__name__
            return 0, b""
        if answer.status_code not in _ANSWERED:
            self._problem = f"it answers {answer.status_code}: {one_line(answer.text, 200)}"
        return answer.status_code, answer.content

    def _read(self, kind: type[_Message], body: bytes) -> _Message | None:
        """The collector's answer; None if something else answered."""
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            if body.startswith(b'{"'):
                self._events.put(Failed(explain_format(error)))
            said = one_line(body.decode(errors="replace"), 100)
            self._problem = f"200 with something that isn't from the collector: {said}"
            return None
