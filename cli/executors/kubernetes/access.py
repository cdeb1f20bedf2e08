"""The way to a run's collector: through the API server's service proxy, or where that is forbidden by
the collector's log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from kubernetes import client
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

from ...cluster import Place, explain_errors, is_allowed
from ...kubeclient import UNREACHABLE, TimedApiClient
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


def may_use_proxy(api: client.ApiClient, namespace: str) -> bool:
    """Whether the user may reach the collector through the API server."""
    with explain_errors("can't begin"):
        return is_allowed(api, namespace, "", "services", "proxy", "get")


class CollectorAccess:
    """Asks the collector of a release, and puts what it says into a queue."""

    def __init__(
        self,
        place: Place,
        release: str,
        token: str,
        events: SimpleQueue[Event],
        find_pod: Callable[[], str | None],
    ) -> None:
        """`find_pod`: the name of the collector's pod, once it is known."""
        self._place = place
        self._release = release
        self._token = token
        self._events = events
        self._find_pod = find_pod
        self._stopped = threading.Event()
        self._run_id = ""
        self.is_lost = False
        """Whether the API server has been out of reach for too long."""
        self._clients: list[TimedApiClient] = []
        self._api = self._make_client()

    def ask_for_report(self, run_id: str) -> None:
        """Ask for a run's report until there is one; from the log if the proxy is not allowed."""
        self._run_id = run_id
        api = self._make_client()
        while not self._stopped.is_set():
            try:
                status, body = self._ask(api, "report", _REPORT_TIMEOUT_S, run_id)
            except UNREACHABLE:
                status, body = 0, b""
            if status == 200:
                self._events.put(Reported(Report.model_validate_json(body)))
                return
            if status == 410:
                self._events.put(Failed(body.decode()))
                return
            if status == 403:
                self._read_log(api)
                return
            if status != 202:
                self._stopped.wait(_RETRY_S)

    def ask_for_status(self) -> None:
        """Ask for progress until stopped. Where that is forbidden, the answer shows at least that the
        API server is there."""
        api = self._make_client()
        lost_since: float | None = None
        pause_s = POLL_S
        while not self._stopped.wait(pause_s):
            status, problem = 0, "it doesn't take the credentials any more"
            try:
                status, body = self._ask(api, "status", _STATUS_TIMEOUT_S, self._run_id)
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
            self._ask(self._api, "over", _STATUS_TIMEOUT_S, self._run_id)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        for one in self._clients:
            one.break_off()

    def _make_client(self) -> client.CoreV1Api:
        """A client of its own: a request that is held back holds its connection."""
        made = self._place.make_client()
        self._clients.append(made)
        return client.CoreV1Api(made)

    def _ask(
        self, api: client.CoreV1Api, path: str, timeout_s: tuple[float, float], run_id: str
    ) -> tuple[int, bytes]:
        """GET from the collector through the API server's service proxy: (status, body).

        Single-segment paths: the client would send a slash as %2F. Without preloading: it would
        turn JSON into Python's notation (kubernetes-client/python #2158).
        """
        try:
            answer: Any = api.connect_get_namespaced_service_proxy_with_path(
                f"{self._release}:{_PORT_NAME}",
                self._place.namespace,
                path,
                _preload_content=False,
                _request_timeout=timeout_s,
                _headers={TOKEN_HEADER: self._token, RUN_HEADER: run_id},
            )
        except ApiException as error:
            return int(error.status or 0), str(error.body or "").encode()
        return int(answer.status), bytes(answer.data)

    def _read_log(self, api: client.CoreV1Api) -> None:
        """Take progress and report from the collector's log."""
        while not self._stopped.is_set():
            name = self._find_pod()
            if name is None:
                self._stopped.wait(_RETRY_S)
                continue
            with suppress(ApiException, *UNREACHABLE):
                log: Any = api.read_namespaced_pod_log(
                    name, self._place.namespace, follow=True, _preload_content=False,
                    _request_timeout=_LOG_TIMEOUT_S,
                )  # fmt: skip
                for line in _split_lines(log):
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


def _split_lines(stream: Any) -> Iterator[str]:
    rest = b""
    for chunk in stream.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
