"""The way to a run's collector: through the API server's service proxy, or where that is forbidden or
doesn't lead to it by the collector's log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException

from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    Report,
    RunSettings,
    Status,
)
from simulator.errors import one_line

from ...cluster import explain_errors, is_allowed, read_refusal
from ...kubeclient import COLLECTOR, POD, UNREACHABLE, Item, KubeClient, Timeout, is_running
from ..asking import ANSWERED, CollectorAsker, Silence
from ..base import POLL_S, Event, Failed, PartChanged, ReportArrived, ease

PROXY_PATIENCE_S = 15.0
"""How long the collector may run without an answer through the service proxy before its log is read."""

LOG_PATIENCE_S = 30.0
"""How long a log may be unreadable of a collector that was never heard."""

_LOG_POLL_S = 3.0
_CONNECT_S = 5.0
# The collector writes its status several times a minute: a log that says nothing is read anew.
_LOG_TIMEOUT_S: Timeout = (_CONNECT_S, 60.0)
_RETRY_S = 0.25
_PORT_NAME = "http"

_FORBIDDEN = 403


def may_use_proxy(client: KubeClient, namespace: str) -> bool:
    """Whether the user may reach the collector through the API server."""
    with explain_errors("can't begin"):
        return is_allowed(client, namespace, "", "services", "proxy", "get")


class CollectorAccess(CollectorAsker):
    """Asks the collector of a release."""

    whom = "the API server"
    remedy = ": its image has another version; rebuild it, or set kubernetes.image to one of this version"

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        settings: RunSettings,
        events: SimpleQueue[Event],
        find_pod: Callable[[], Item | None],
        by_log: bool,
    ) -> None:
        """`settings`: of any of its runs; `find_pod`: the collector's pod, once it is known; `by_log`: read
        its log from the beginning on."""
        pause_s = _LOG_POLL_S if by_log else POLL_S * ease(settings.workers)
        super().__init__(events, settings.linger_s, pause_s)
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._token = settings.token
        self._find_pod = find_pod
        self.by_log = by_log
        """Whether the collector is heard by its log. Then nobody can tell it that its report is here."""
        self._silent_since: float | None = None
        """Since when nothing has come through the proxy, though the API server answers."""

    def acknowledge_report(self) -> None:
        """Tell the collector that its report is here, so that it makes room for the next run."""
        if not self.by_log:
            self._ask("over", self.status_timeout_s)

    def stop(self) -> None:
        super().stop()
        self._client.break_off()

    def _ask(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """By the API server's service proxy."""
        try:
            status, body = self._client.ask_service(
                self._namespace, f"{self._release}:{_PORT_NAME}", path,
                {TOKEN_HEADER: self._token, RUN_HEADER: self._run_id}, (_CONNECT_S, timeout_s),
            )  # fmt: skip
        except UNREACHABLE as error:
            self.problem = f"no answer through the API server's service proxy: {error}"
            return 0, b""
        if status in ANSWERED:
            self.problem = None
        else:
            reason = one_line(read_refusal(body.decode(errors="replace")), 200)
            self.problem = f"the API server's service proxy answers {status}: {reason}"
        if status == _FORBIDDEN:
            self._use_log()
        return status, body

    def _hear_otherwise(self) -> bool:
        if self.by_log:
            self._read_log()
        return self.by_log

    def _find_problem(self, asked_at: float) -> str | None:
        """Where the log is read, only whether the API server is there."""
        if not self.by_log and self._hear_status():
            self._silent_since = None
            return None
        problem = self._ask_api_server()
        pod = self._find_pod()
        if problem is not None:
            self._silent_since = None
        elif not self.by_log and pod is not None and is_running(pod):
            self._silent_since = self._silent_since or asked_at
            if time.monotonic() - self._silent_since > PROXY_PATIENCE_S:
                self._use_log()
        return problem

    def _ask_api_server(self) -> str | None:
        """Ask the API server for something that involves no proxy. Returns what keeps it from answering, or
        None."""
        pod = self._find_pod()
        try:
            if pod is None:
                self._client.read_version()
            else:
                name = pod["metadata"]["name"]
                self._client.get(
                    POD, self._namespace, name, timeout_s=(_CONNECT_S, self.status_timeout_s)
                )
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
        self._pause_s = _LOG_POLL_S
        self._events.put(PartChanged(f"{self.problem}; the collector's log is read instead"))
        # The thread that waits for the report asks once more, by the log.
        self._client.break_off()

    def _read_log(self) -> None:
        """Take progress and report from the collector's log."""
        silence = Silence("the collector", self._events)
        while not self._stopped.is_set():
            pod = self._find_pod()
            if pod is None:
                self._stopped.wait(_RETRY_S)
                continue
            asked_at = time.monotonic()
            problem = "it ends"
            name = pod["metadata"]["name"]
            lines = self._client.follow_log(self._namespace, name, COLLECTOR, _LOG_TIMEOUT_S)
            try:
                with closing(lines):
                    for event in read_log(lines, self._run_id):
                        silence.end()
                        if isinstance(event, Status):
                            self._note(event)
                            continue
                        self._events.put(event)
                        return
            except ApiException as error:
                problem = f"{error.status} {one_line(read_refusal(error.body), 200)}"
            except (ValueError, *UNREACHABLE) as error:
                # A line that was cut off with the connection can't be read.
                problem = one_line(error, 200)
            if is_running(pod) and not self._silence.lasts:
                why = self.problem or "the service proxy is not allowed"
                text = f"{why}; its log can't be read either: {problem}"
                patience_s = LOG_PATIENCE_S if self._last is None else self.patience_s
                if silence.has_lasted(asked_at, text, patience_s):
                    return
            self._stopped.wait(POLL_S)


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
