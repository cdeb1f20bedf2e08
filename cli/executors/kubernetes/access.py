"""The way to a run's collector: through the API server's service proxy, or where that is forbidden or
doesn't lead to it by the collector's log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import TypeVar

from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    Report,
    Status,
)
from simulator.errors import one_line

from ...cluster import explain_errors, is_allowed, read_refusal
from ...kubeclient import COLLECTOR, POD, UNREACHABLE, Item, KubeClient, Timeout, is_running
from ..base import POLL_S, Event, Failed, PartChanged, ReportArrived

LOST_PATIENCE_S = 30.0
"""How long the API server may be away before a run is given up."""

PROXY_PATIENCE_S = 15.0
"""How long the collector may run without an answer through the service proxy before its log is read."""

_LOG_POLL_S = 3.0
# To connect, and to wait for an answer.
_STATUS_TIMEOUT_S = (5.0, 5.0)
# Longer than the collector holds back its answer.
_REPORT_TIMEOUT_S = (5.0, 60.0)
# The collector writes its status several times a minute: a log that says nothing is read anew.
_LOG_TIMEOUT_S = (5.0, 60.0)
_RETRY_S = 0.25
_PORT_NAME = "http"

_Message = TypeVar("_Message", Report, Status)

_FORBIDDEN = 403
_ANSWERED = (200, 202, 410, TOO_EARLY)
"""What the collector answers with. Anything else comes from the API server, or from somebody in between."""


def may_use_proxy(client: KubeClient, namespace: str) -> bool:
    """Whether the user may reach the collector through the API server."""
    with explain_errors("can't begin"):
        return is_allowed(client, namespace, "", "services", "proxy", "get")


class CollectorAccess:
    """Asks the collector of a release, and puts what it says into a queue."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        token: str,
        events: SimpleQueue[Event],
        find_pod: Callable[[], Item | None],
        by_log: bool,
        patience: float = 1.0,
    ) -> None:
        """`find_pod`: the collector's pod, once it is known; `by_log`: read its log from the beginning on;
        `patience`: how many times as long to wait between two questions for progress."""
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._token = token
        self._events = events
        self._find_pod = find_pod
        self._stopped = threading.Event()
        self._run_id = ""
        self._patience = patience
        self.by_log = by_log
        """Whether the collector is heard by its log. Then nobody can tell it that its report is here."""
        self.proxy_problem: str | None = None
        """Why the last request through the service proxy has not reached the collector."""
        self._lost_since: float | None = None
        self.is_lost = False
        """Whether the API server has been out of reach for too long."""

    def ask_for_report(self, run_id: str) -> None:
        """Ask for a run's report until there is one."""
        self._run_id = run_id
        while not self._stopped.is_set():
            if self.by_log:
                self._read_log()
                return
            status, body = self._ask("report", _REPORT_TIMEOUT_S)
            if status == 200 and (report := self._read(Report, body)):
                self._events.put(ReportArrived(report))
                return
            if status == 410:
                self._events.put(Failed(body.decode()))
                return
            if status == _FORBIDDEN:
                self._use_log()
            elif status != 202:
                self._stopped.wait(_RETRY_S)

    def ask_for_status(self) -> None:
        """Ask for progress until stopped; where the log is read, only whether the API server is there."""
        silent_since: float | None = None
        while not self._stopped.wait(_LOG_POLL_S if self.by_log else POLL_S * self._patience):
            asked_at = time.monotonic()
            if not self.by_log and self._ask_for_status_once():
                silent_since = self._lost_since = None
                continue
            problem = self._ask_api_server()
            if problem is None:
                self._lost_since = None
                pod = self._find_pod()
                if not self.by_log and pod is not None and is_running(pod):
                    silent_since = silent_since or asked_at
                    if time.monotonic() - silent_since > PROXY_PATIENCE_S:
                        self._use_log()
                continue
            silent_since = None
            self._lost_since = self._lost_since or asked_at
            if time.monotonic() - self._lost_since > LOST_PATIENCE_S:
                self.is_lost = True
                text = f"the API server has been out of reach for {LOST_PATIENCE_S:.0f} s"
                self._events.put(Failed(f"{text}: {problem}"))
                return

    def acknowledge_report(self) -> None:
        """Tell the collector that its report is here, so that it makes room for the next run."""
        if not self.by_log:
            self._ask("over", _STATUS_TIMEOUT_S)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        self._client.break_off()

    def _ask(self, path: str, timeout_s: Timeout) -> tuple[int, bytes]:
        """GET from the collector through the API server's service proxy: status and body; 0 if nothing was
        answered."""
        try:
            status, body = self._client.ask_service(
                self._namespace, f"{self._release}:{_PORT_NAME}", path,
                {TOKEN_HEADER: self._token, RUN_HEADER: self._run_id}, timeout_s,
            )  # fmt: skip
        except UNREACHABLE as error:
            self.proxy_problem = f"no answer through the API server's service proxy: {error}"
            return 0, b""
        if status in _ANSWERED:
            self.proxy_problem = None
        else:
            reason = one_line(read_refusal(body.decode(errors="replace")), 200)
            self.proxy_problem = f"the API server's service proxy answers {status}: {reason}"
        return status, body

    def _ask_for_status_once(self) -> bool:
        """Whether the collector has answered, or will be heard by its log from now on."""
        status, body = self._ask("status", _STATUS_TIMEOUT_S)
        if status == 200:
            progress = self._read(Status, body)
            if progress is not None:
                self._events.put(progress)
            return progress is not None
        if status == _FORBIDDEN:
            self._use_log()
        return status in (*_ANSWERED, _FORBIDDEN)

    def _read(self, kind: type[_Message], body: bytes) -> _Message | None:
        """What the collector has answered; None if somebody else has."""
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            if body.startswith(b'{"'):
                self._events.put(Failed(_explain_other_version(error)))
            self.proxy_problem = (
                "the API server's service proxy answers 200 with something that isn't from the collector:"
                f" {one_line(body.decode(errors='replace'), 100)}"
            )
            return None

    def _ask_api_server(self) -> str | None:
        """Ask the API server for something that involves no proxy. Returns what keeps it from answering, or
        None."""
        pod = self._find_pod()
        try:
            if pod is None:
                self._client.read_version()
            else:
                name = pod["metadata"]["name"]
                self._client.get(POD, self._namespace, name, timeout_s=_STATUS_TIMEOUT_S)
        except ApiException as error:
            refused = error.status == 401
            return "it no longer accepts the credentials" if refused else None
        except UNREACHABLE as error:
            return str(error)
        return None

    def _use_log(self) -> None:
        """Hear the collector by its log from now on."""
        if self.by_log:
            return
        self.by_log = True
        self._events.put(PartChanged(f"{self.proxy_problem}; the collector's log is read instead"))
        # The thread that waits for the report asks once more, by the log.
        self._client.break_off()

    def _read_log(self) -> None:
        """Take progress and report from the collector's log."""
        unread_since: float | None = None
        while not self._stopped.is_set():
            pod = self._find_pod()
            if pod is None:
                self._stopped.wait(_RETRY_S)
                continue
            problem = "it ends"
            name = pod["metadata"]["name"]
            lines = self._client.follow_log(self._namespace, name, COLLECTOR, _LOG_TIMEOUT_S)
            try:
                with closing(lines):
                    for event in read_log(lines, self._run_id):
                        unread_since = None
                        self._events.put(event)
                        if isinstance(event, ReportArrived | Failed):
                            return
            except ApiException as error:
                problem = f"{error.status} {one_line(read_refusal(error.body), 200)}"
            except (ValueError, *UNREACHABLE) as error:
                # A line that was cut off with the connection can't be read.
                problem = one_line(error, 200)
            if is_running(pod) and self._lost_since is None:
                unread_since = unread_since or time.monotonic()
                if time.monotonic() - unread_since > LOST_PATIENCE_S:
                    why = self.proxy_problem or "the service proxy is not allowed"
                    text = f"no contact with the collector: {why}; its log can't be read either: {problem}"
                    self._events.put(Failed(text))
                    return
            self._stopped.wait(POLL_S)


def _explain_other_version(error: ValidationError) -> str:
    """What to do about an answer of the collector that has another form."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return (
        f"the collector's answer has another format ({place}: {first['msg']}): its image"
        " has another version; rebuild it, or set kubernetes.image to one of this version"
    )


def read_log(lines: Iterable[str], run_id: str) -> Iterator[Event]:
    """What the lines of the collector's log say about a run. Lines of earlier runs may stand there, too: each
    run begins with a status. After a run that failed there is no other."""
    current = run_id
    for line in lines:
        if line.startswith(STATUS_PREFIX):
            status = Status.model_validate_json(line.removeprefix(STATUS_PREFIX))
            current = status.run_id
            yield status
        elif line.startswith(REPORT_PREFIX) and current == run_id:
            yield ReportArrived(Report.model_validate_json(line.removeprefix(REPORT_PREFIX)))
        elif line.startswith(FAILURE_PREFIX):
            yield Failed(json.loads(line.removeprefix(FAILURE_PREFIX)))
