"""The way to a run's collector: its log is read, and the API server's service proxy tells it that its next
run may begin.

Only the log can be read everywhere: the API server gets it from the kubelet. The service proxy may be
forbidden, its port may be closed by a firewall or a mesh, or something in between may answer with a page of
its own. The log also keeps what was written while nobody could read it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from simulator.contract import (
    AFTER_HEADER,
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    CarriedState,
    Report,
    RunSettings,
    Status,
)
from simulator.errors import one_line

from ....system.output import note
from ...cluster import read_refusal
from ...kubeclient import COLLECTOR, UNREACHABLE, Item, KubeClient, Timeout, is_running
from .. import POLL_S, Event, Failed, ReportArrived
from ..asking import Silence, explain_format, find_patience_s

LOG_PATIENCE_S = 30.0
"""How long the log may be refused before the collector was ever heard."""
GO_ON_PATIENCE_S = 15.0
"""How long the service proxy may fail to tell the collector that the next run may begin. Then the run gets
new pods."""

# The collector writes its status every second. If the log stays silent, it is opened again.
_LOG_TIMEOUT_S: Timeout = (5.0, 15.0)
_ASK_TIMEOUT_S: Timeout = (5.0, 5.0)
_REMEDY = (
    ": its image has another version; rebuild it, or set kubernetes.image to one of this version"
)


class CollectorAccess:
    """Reads what the collector of a release says, and tells it to go on."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        settings: RunSettings,
        events: SimpleQueue[Event],
        find_pod: Callable[[], Item | None],
    ) -> None:
        """`settings`: of its first run; `find_pod`: returns the collector's pod, once it is known."""
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._token = settings.token
        self._linger_s = settings.linger_s
        self._events = events
        self._find_pod = find_pod
        self._stopped = threading.Event()
        self._silence = Silence(events)
        self._last: Status | None = None
        self._heard_at = 0.0
        """When it last said something, by `time.monotonic()`."""
        self._run_id = settings.run_id
        """The run that the log is about."""
        self._told: set[str] = set()
        """The runs that have a report or a failure: a log that is read again repeats them."""
        self.problem: str | None = None
        """Why the collector can't be heard."""

    @property
    def is_lost(self) -> bool:
        """Whether it has been out of reach for a long time."""
        return self._silence.is_told

    def stop(self) -> None:
        """End the work of the thread."""
        self._stopped.set()
        self._client.break_off()

    # --- what it says ----------------------------------------------------------------------------

    def follow(self) -> None:
        """Read its log until stopped. Runs in a thread."""
        while not self._stopped.is_set():
            asked_at = time.monotonic()
            pod = self._find_pod()
            is_refused = self._last is None
            try:
                self.problem = self._read_log(pod)
            except ApiException as error:
                self.problem = f"{error.status} {one_line(read_refusal(error.body), 200)}"
                if error.status == 401:
                    is_refused = False  # the user may log in again
                elif pod is not None and not is_running(pod):
                    self.problem = None  # before its container runs, there is no log
            except UNREACHABLE as error:
                self.problem = f"no answer from the API server: {_find_reason(error)}"
                is_refused = False
            patience_s = find_patience_s(self._linger_s, self._last)
            patience_s = LOG_PATIENCE_S if is_refused else patience_s
            if self._stopped.is_set():
                return
            if self.problem is None:
                self._silence.end()
            elif self._silence.has_lasted(max(asked_at, self._heard_at), self.problem, patience_s):
                return
            self._stopped.wait(POLL_S)

    def _read_log(self, pod: Item | None) -> str | None:
        """Process the log until it ends. Returns what is wrong with it, if anything."""
        if pod is None:
            self._client.read_version()  # only to see whether the API server is there
            return None
        is_heard = not is_running(pod)
        lines = self._client.follow_log(
            self._namespace, pod["metadata"]["name"], COLLECTOR, _LOG_TIMEOUT_S
        )
        with closing(lines):
            for line in lines:
                try:
                    is_known = self._take(line)
                except ValidationError as error:
                    if error.errors()[0]["type"] != "json_invalid":
                        self._events.put(Failed(explain_format(error) + _REMEDY))
                    continue  # the line was cut off with the connection
                if is_known:
                    is_heard, self._heard_at = True, time.monotonic()
                    self._silence.end()
        return None if is_heard else "its log says nothing"

    def _take(self, line: str) -> bool:
        """Process a line of the log. Returns whether it was meant for us."""
        kind, _, text = line.partition(" ")
        kind += " "
        if kind == STATUS_PREFIX:
            status = Status.model_validate_json(text)
            self._run_id = status.run_id
            last = self._last
            if status.run_id not in self._told and (
                last is None or last.run_id != status.run_id or last.age_s < status.age_s
            ):
                self._last = status
                self._events.put(status)
        elif kind in (REPORT_PREFIX, FAILURE_PREFIX):
            if self._run_id not in self._told:
                event = (
                    ReportArrived(Report.model_validate_json(text))
                    if kind == REPORT_PREFIX
                    else Failed(json.loads(text))
                )
                self._told.add(self._run_id)
                self._events.put(event)
        else:
            return False
        return True

    # --- what it is told -------------------------------------------------------------------------

    def go_on(self, over: str, after: CarriedState | None) -> bool:
        """Tell the collector that the report of run `over` has arrived, and what the next run continues from.
        Returns whether it heard."""
        state = json.dumps(None if after is None else after.model_dump(mode="json"))
        headers = {TOKEN_HEADER: self._token, RUN_HEADER: over, AFTER_HEADER: state}
        service = f"{self._release}:http"
        began = time.monotonic()
        while True:
            patience_s = GO_ON_PATIENCE_S
            try:
                status, body = self._client.ask_service(
                    self._namespace, service, "over", headers, _ASK_TIMEOUT_S
                )
            except UNREACHABLE as error:
                problem = f"gives no answer: {_find_reason(error)}"
                patience_s = self._linger_s  # as long as the collector has something to go on with
            else:
                if status in (200, TOO_EARLY):  # an earlier answer was lost
                    return True
                if status == 403:
                    return False
                said = one_line(read_refusal(body.decode(errors="replace")), 200)
                problem = f"answers {status}: {said}"
            if time.monotonic() - began > patience_s:
                note(f"the API server's service proxy {problem}; the next run gets new pods")
                return False
            self._stopped.wait(POLL_S)


def _find_reason(error: Exception) -> str:
    """Why there is no answer, without the address that urllib3 puts in front."""
    return one_line(getattr(error, "reason", None) or error, 200)
