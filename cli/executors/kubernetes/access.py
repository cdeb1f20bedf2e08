"""The way to a run's collector: through the API server's service proxy, or where that is forbidden by
the collector's log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    Report,
    Status,
)

from ...cluster import explain_errors, is_allowed
from ...kubeclient import UNREACHABLE, KubeClient, Timeout
from ..watching import POLL_S, Event, Failed, Reported

LOST_PATIENCE_S = 30.0
"""How long the API server may be away before a run is given up."""

_FORBIDDEN_POLL_S = 3.0
# To connect, and to wait for an answer.
_STATUS_TIMEOUT_S = (5.0, 5.0)
# Longer than the collector holds back its answer.
_REPORT_TIMEOUT_S = (5.0, 60.0)
# The collector writes its status several times a minute: a log that says nothing is read anew.
_LOG_TIMEOUT_S = (5.0, 60.0)
_RETRY_S = 0.25
_PORT_NAME = "http"


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
        find_pod: Callable[[], str | None],
    ) -> None:
        """`find_pod`: the name of the collector's pod, once it is known."""
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._token = token
        self._events = events
        self._find_pod = find_pod
        self._stopped = threading.Event()
        self._run_id = ""
        self.is_lost = False
        """Whether the API server has been out of reach for too long."""

    def ask_for_report(self, run_id: str) -> None:
        """Ask for a run's report until there is one; from the log if the proxy is not allowed."""
        self._run_id = run_id
        while not self._stopped.is_set():
            try:
                status, body = self._ask("report", _REPORT_TIMEOUT_S, run_id)
            except UNREACHABLE:
                status, body = 0, b""
            if status == 200:
                self._events.put(Reported(Report.model_validate_json(body)))
                return
            if status == 410:
                self._events.put(Failed(body.decode()))
                return
            if status == 403:
                self._read_log()
                return
            if status != 202:
                self._stopped.wait(_RETRY_S)

    def ask_for_status(self) -> None:
        """Ask for progress until stopped. Where that is forbidden, the answer shows at least that the
        API server is there."""
        lost_since: float | None = None
        pause_s = POLL_S
        while not self._stopped.wait(pause_s):
            status, problem = 0, "it doesn't take the credentials any more"
            try:
                status, body = self._ask("status", _STATUS_TIMEOUT_S, self._run_id)
            except UNREACHABLE as error:
                problem = str(error)
            if status in (0, 401):
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_PATIENCE_S:
                    self.is_lost = True
                    text = f"the API server has been out of reach for {LOST_PATIENCE_S:.0f} s"
                    self._events.put(Failed(f"{text}: {problem}"))
                    return
                continue
            lost_since = None
            pause_s = _FORBIDDEN_POLL_S if status == 403 else POLL_S
            if status == 200:
                with suppress(ValidationError):
                    self._events.put(Status.model_validate_json(body))

    def tell_received(self) -> None:
        """Tell the collector that its report is here, so that it makes room for the next run."""
        with suppress(*UNREACHABLE):
            self._ask("over", _STATUS_TIMEOUT_S, self._run_id)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        self._client.break_off()

    def _ask(self, path: str, timeout_s: Timeout, run_id: str) -> tuple[int, bytes]:
        """GET from the collector through the API server's service proxy: status and body."""
        return self._client.ask_service(
            self._namespace, f"{self._release}:{_PORT_NAME}", path,
            {TOKEN_HEADER: self._token, RUN_HEADER: run_id}, timeout_s,
        )  # fmt: skip

    def _read_log(self) -> None:
        """Take progress and report from the collector's log."""
        while not self._stopped.is_set():
            name = self._find_pod()
            if name is None:
                self._stopped.wait(_RETRY_S)
                continue
            with (
                suppress(ApiException, *UNREACHABLE),
                closing(self._client.follow_log(self._namespace, name, _LOG_TIMEOUT_S)) as lines,
            ):
                for line in lines:
                    event = read_line(line)
                    if event is not None:
                        self._events.put(event)
                    if isinstance(event, Reported | Failed):
                        return
            self._stopped.wait(POLL_S)


def read_line(line: str) -> Event | None:
    """What a line of the collector's log says; None: nothing for us."""
    if line.startswith(STATUS_PREFIX):
        return Status.model_validate_json(line.removeprefix(STATUS_PREFIX))
    if line.startswith(REPORT_PREFIX):
        return Reported(Report.model_validate_json(line.removeprefix(REPORT_PREFIX)))
    if line.startswith(FAILURE_PREFIX):
        return Failed(json.loads(line.removeprefix(FAILURE_PREFIX)))
    return None
