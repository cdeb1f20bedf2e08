"""Collector and workers as pods: the chart in deployment/, installed for each run and removed after it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import urllib3
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    Phase,
    Report,
    RunSettings,
    Status,
)

from ..cluster import RELEASE_PREFIX, RUN_LABEL, Helm, Place, allowed, asked, started_by
from ..config import merged
from ..errors import RunFailed
from ..installation import program
from ..signals import Interrupts
from .base import Executor, Series, Watch
from .problems import Problem, event_problem, job_problem, pod_problem

_POLL_S = 0.5
_FORBIDDEN_POLL_S = 3.0
# Pulling the image over a slow line takes minutes; a pod that never can is noticed by its state.
_READY_TIMEOUT_S = 900.0
# After a worker's end with an error: how long to wait for the collector to say what it was told.
_REASON_PATIENCE_S = 5.0
# How long the API server may be away before a run is given up.
_LOST_PATIENCE_S = 30.0
_GONE_PATIENCE_S = 15.0
_STATUS_TIMEOUT_S = 5.0
_THREADS_PATIENCE_S = 2.0
_LOG_READERS = 8
_PORT_NAME = "http"

Event = tuple[str, Any]
_Unreachable = (urllib3.exceptions.HTTPError, OSError)


class KubernetesExecutor(Executor):
    """Installs a release per run, of a name of its own, and watches its Jobs and pods."""

    def __init__(self, interrupts: Interrupts, place: Place, values: Mapping[str, Any]) -> None:
        """`values`: of the chart, as the config file gives them."""
        self._interrupts = interrupts
        self._place = place
        self._values = dict(values)
        self._helm = Helm(place)

    def __enter__(self) -> KubernetesExecutor:
        self._helm.version()
        self._api = self._place.api_client()
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    @contextmanager
    def series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        settings = [
            one.model_copy(update={"ready_timeout_s": _READY_TIMEOUT_S}) for one in settings
        ]
        if self._proxy_allowed():
            with self.release(settings, logs) as made:
                yield made
        else:
            yield _OneByOne(self, settings, logs)

    @contextmanager
    def release(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        """One release for these runs, removed in the end."""
        made = _Release(self._interrupts, self._place, self._helm, self._values, settings, logs)
        try:
            made.start()
            yield made
        except RunFailed as error:
            try:
                made.clean_up(failed=True)
            except RunFailed as left:
                raise RunFailed(f"{error.message}\n{left.message}") from error
            raise
        except BaseException:
            made.clean_up(failed=True)
            raise
        else:
            made.clean_up(failed=False)

    def _proxy_allowed(self) -> bool:
        """Whether the user may reach the collector through the API server."""
        with asked("can't begin"):
            return allowed(self._api, self._place.namespace, "", "services", "proxy", "get")


class _OneByOne(Series):
    """A release for each run: without a way to the collector, nobody could tell it that its report
    has been read and that the next run may begin."""

    def __init__(
        self, executor: KubernetesExecutor, settings: Sequence[RunSettings], logs: Path
    ) -> None:
        self._executor = executor
        self._numbers = {one.run_id: number for number, one in enumerate(settings, 1)}
        self._logs = logs

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        logs = self._logs / f"run-{self._numbers[settings.run_id]:02d}"
        logs.mkdir()
        with self._executor.release([settings], logs) as release:
            report = release.run(settings, timeout_s, watch)
            ended = time.monotonic()
        report.phases_s[Phase.CLEAN_UP] += time.monotonic() - ended
        return report


class _Release(Series):
    """Its pods make all runs of a worker count, each in new processes."""

    def __init__(
        self,
        interrupts: Interrupts,
        place: Place,
        helm: Helm,
        values: Mapping[str, Any],
        settings: Sequence[RunSettings],
        logs: Path,
    ) -> None:
        self._interrupts = interrupts
        self._place = place
        self._helm = helm
        self._values = values
        self._settings = settings
        self._logs = logs
        # The release is known by its first run.
        self._release = RELEASE_PREFIX + settings[0].run_id
        self._selector = f"{RUN_LABEL}={settings[0].run_id}"
        self._run_id = settings[0].run_id
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._stopped = threading.Event()
        self._api = place.api_client()
        self._watches: list[watch.Watch] = []
        self._threads: list[threading.Thread] = []
        self._installed = False
        self._refused = False
        """Whether the user may not install."""
        self._pods: dict[str, Any] = {}
        self._problems: dict[str, tuple[float, Problem]] = {}
        """What is wrong with an object, and since when."""

    # --- start -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Install the release and begin to watch."""
        core, batch = client.CoreV1Api(self._new_client()), client.BatchV1Api(self._new_client())
        events = client.CoreV1Api(self._new_client())
        namespace = self._place.namespace
        self._follow("pod", core.list_namespaced_pod, namespace, label_selector=self._selector)
        self._follow("job", batch.list_namespaced_job, namespace, label_selector=self._selector)
        self._follow("event", events.list_namespaced_event, namespace)
        values = {
            **self._with_pod_network(self._values),
            "run": {
                "id": self._run_id,
                "workers": self._settings[0].workers,
                "startedBy": started_by(),
                "settings": "[" + ",".join(s.model_dump_json() for s in self._settings) + "]",
            },
        }
        with self._interrupts.shielded():
            self._installed = True
            try:
                self._helm.install(self._release, values)
            except RunFailed as error:
                self._refused = _forbidden(error)
                remedy = "; see Permissions in the README" if self._refused else ""
                raise RunFailed(self._redacted(error.message) + remedy) from None
        self._begin(self._poll_status)

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        began = time.monotonic()
        self._run_id = settings.run_id
        self._begin(self._await_report, settings.run_id)
        report, seen_s, age_s = self._watched(began + timeout_s if timeout_s else None, watch)
        if seen_s is not None:
            before = max(0.0, seen_s - began - age_s)
            report.phases_s[Phase.START] = report.phases_s.get(Phase.START, 0.0) + before
        report.environment["kubernetes"] = self._environment()
        ended = time.monotonic()
        self._release_collector()
        report.phases_s[Phase.CLEAN_UP] = time.monotonic() - ended
        return report

    def _release_collector(self) -> None:
        """Tell the collector that its report is here, so that it makes room for the next run."""
        with suppress(*_Unreachable):
            self._ask(client.CoreV1Api(self._api), "over", _STATUS_TIMEOUT_S)

    def _with_pod_network(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, with the pod network's ranges for the NetworkPolicy if they can be had."""
        if "podCidrs" in values.get("networkPolicy", {}):
            return dict(values)
        try:
            nodes: Any = client.CoreV1Api(self._api).list_node(_request_timeout=10)
        except ApiException:
            return dict(values)
        found = sorted({cidr for node in nodes.items for cidr in node.spec.pod_cidrs or []})
        return merged(values, {"networkPolicy": {"podCidrs": found}})

    def _redacted(self, text: str) -> str:
        return text.replace(self._settings[0].token, "***")

    def _new_client(self) -> client.ApiClient:
        """A client of its own: a watch holds its connection, and a pool has few."""
        return self._place.api_client()

    def _begin(self, work: Callable[..., None], *arguments: str) -> None:
        """Do `work` in a thread until the release is removed."""
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self, kind: str, lister: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Put each change of the listed objects into the queue, from a thread."""
        watcher = watch.Watch()
        self._watches.append(watcher)

        def follow() -> None:
            while not self._stopped.is_set():
                try:
                    for change in watcher.stream(lister, *args, timeout_seconds=300, **kwargs):
                        # None is a line that was cut off with the connection.
                        if change is not None:
                            self._events.put((kind, (change["type"], change["object"])))
                        if self._stopped.is_set():
                            return
                except ApiException as error:
                    if error.status == 403:
                        text = f"{kind}s can't be watched: see the Role in the README"
                        self._events.put(("failed", text))
                        return
                    self._stopped.wait(1)
                except _Unreachable:
                    self._stopped.wait(1)

        self._begin(follow)

    # --- what the collector says -----------------------------------------------------------------

    def _ask(
        self, api: client.CoreV1Api, path: str, timeout_s: float, run_id: str | None = None
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
                _headers={
                    TOKEN_HEADER: self._settings[0].token,
                    RUN_HEADER: run_id or self._run_id,
                },
            )
        except ApiException as error:
            return int(error.status or 0), str(error.body or "").encode()
        return int(answer.status), bytes(answer.data)

    def _await_report(self, run_id: str) -> None:
        """Ask for a run's report until there is one; from the log if the proxy is not allowed."""
        api = client.CoreV1Api(self._new_client())
        while not self._stopped.is_set():
            try:
                status, body = self._ask(api, "report", 60, run_id)
            except _Unreachable:
                status, body = 0, b""
            if status == 200:
                self._events.put(("report", Report.model_validate_json(body)))
                return
            if status == 410:
                self._events.put(("failed", body.decode()))
                return
            if status == 403:
                self._read_log(api)
                return
            if status != 202:
                self._stopped.wait(0.25)

    def _poll_status(self) -> None:
        """Ask for progress; where that is forbidden the answer shows at least that the API server is
        there."""
        api = client.CoreV1Api(self._new_client())
        lost_since: float | None = None
        pause_s = _POLL_S
        while not self._stopped.wait(pause_s):
            status, problem = 0, "it doesn't take the credentials any more"
            try:
                status, body = self._ask(api, "status", _STATUS_TIMEOUT_S)
            except _Unreachable as error:
                problem = str(error)
            if status in (0, 401):
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _LOST_PATIENCE_S:
                    text = f"the API server has been out of reach for {_LOST_PATIENCE_S:.0f} s"
                    self._events.put(("failed", f"{text}: {problem}"))
                    return
                continue
            lost_since = None
            pause_s = _FORBIDDEN_POLL_S if status == 403 else _POLL_S
            if status == 200:
                with suppress(ValidationError):
                    self._events.put(("status", Status.model_validate_json(body)))

    def _read_log(self, api: client.CoreV1Api) -> None:
        """Progress and report from the collector's log, where the service proxy is forbidden."""
        while not self._stopped.is_set():
            name = next(
                (n for n, pod in self._pods.items() if _component(pod) == "collector"), None
            )
            if name is None:
                self._stopped.wait(0.25)
                continue
            with suppress(ApiException, *_Unreachable):
                log: Any = api.read_namespaced_pod_log(
                    name, self._place.namespace, follow=True, _preload_content=False
                )
                for line in _lines(log):
                    if line.startswith(STATUS_PREFIX):
                        text = line.removeprefix(STATUS_PREFIX)
                        self._events.put(("status", Status.model_validate_json(text)))
                    elif line.startswith(REPORT_PREFIX):
                        text = line.removeprefix(REPORT_PREFIX)
                        self._events.put(("report", Report.model_validate_json(text)))
                        return
                    elif line.startswith(FAILURE_PREFIX):
                        reason = json.loads(line.removeprefix(FAILURE_PREFIX))
                        self._events.put(("failed", reason))
                        return
            self._stopped.wait(0.5)

    # --- watching --------------------------------------------------------------------------------

    def _watched(self, deadline: float | None, show: Watch) -> tuple[Report, float | None, float]:
        """Wait for the report; RunFailed if there will be none.

        With it: when the collector was first heard, and how old it was then.
        """
        began = time.monotonic()
        seen: float | None = None
        age_s = 0.0
        last: Status | None = None
        while True:
            now = time.monotonic()
            due = [since + problem.patience_s for since, problem in self._problems.values()]
            timeout = min([_POLL_S, *(d - now for d in due)])
            if deadline is not None:
                timeout = min(timeout, deadline - now)
            try:
                kind, message = self._events.get(timeout=max(0.0, timeout))
            except Empty:
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise RunFailed(self._timeout_text(last)) from None
                self._raise_problem(now)
                if last is None:
                    show(Status(phase=Phase.START, age_s=now - began))
                continue
            if kind == "report":
                return message, seen, age_s
            if kind == "failed":
                raise RunFailed(message)
            if kind == "status" and message.run_id != self._run_id:
                continue  # of the run before, read a moment too late
            if kind == "status":
                if seen is None:
                    seen, age_s = time.monotonic(), message.age_s
                last = message
                show(message)
            else:
                self._note(kind, *message)
            self._raise_problem(time.monotonic())

    def _note(self, kind: str, change: str, item: Any) -> None:
        """Take note of a change of a pod, Job or event, and of what is wrong with it."""
        if kind == "pod":
            name = item.metadata.name
            self._pods[name] = item
            gone = change == "DELETED"
            problem = Problem(f"pod {name} was deleted", 1.0) if gone else pod_problem(item)
            self._set_problem(f"pod {name}", problem)
            self._drop_cured(item)
        elif kind == "job":
            self._set_problem(f"job {item.metadata.name}", job_problem(item))
        elif item.involved_object.name and item.involved_object.name.startswith(self._release):
            problem = event_problem(item)
            if problem:
                self._set_problem(_event_key(item.involved_object), problem)

    def _drop_cured(self, pod: Any) -> None:
        """What events said is over when the pod has begun, or when its Job has all its pods."""
        if pod.status.phase != "Pending":
            self._problems.pop(f"event Pod {pod.metadata.name}", None)
        component = _component(pod)
        wanted = self._settings[0].workers if component == "worker" else 1
        if sum(_component(one) == component for one in self._pods.values()) >= wanted:
            self._problems.pop(f"event Job {self._release}-{component}", None)

    def _set_problem(self, key: str, problem: Problem | None) -> None:
        if problem is None:
            self._problems.pop(key, None)
        elif key not in self._problems or self._problems[key][1].text != problem.text:
            since = self._problems[key][0] if key in self._problems else time.monotonic()
            self._problems[key] = (since, problem)

    def _raise_problem(self, now: float) -> None:
        """The problem that has lasted too long, a pod's before a Job's: it says more."""
        ripe = [
            (not key.startswith("pod"), since + problem.patience_s, problem.text)
            for key, (since, problem) in self._problems.items()
            if since + problem.patience_s <= now
        ]
        if ripe:
            raise RunFailed(min(ripe)[2])

    def _timeout_text(self, status: Status | None) -> str:
        text = "the run was not done when --timeout was reached"
        if status is None:
            waiting = sorted(n for n, p in self._pods.items() if p.status.phase == "Pending")
            return f"{text}: pods not started: {', '.join(waiting[:5]) or 'all'}"
        return f"{text}: phase {status.phase}, {status.done} of {status.total} done"

    def _environment(self) -> dict[str, Any]:
        """Placement, node types, image digest and version, for the result. What the user may not
        read is None."""
        core = client.CoreV1Api(self._api)
        version = None
        with suppress(ApiException, *_Unreachable):
            version = client.VersionApi(self._api).get_code().git_version
        nodes: dict[str, Any] = {}
        for name in sorted({p.spec.node_name for p in self._pods.values() if p.spec.node_name}):
            nodes[name] = None
            with suppress(ApiException, *_Unreachable):
                node: Any = core.read_node(name)
                labels = node.metadata.labels or {}
                nodes[name] = {
                    "instance_type": labels.get("node.kubernetes.io/instance-type"),
                    "zone": labels.get("topology.kubernetes.io/zone"),
                    "kernel": node.status.node_info.kernel_version,
                    "container_runtime": node.status.node_info.container_runtime_version,
                    "cpu": node.status.capacity.get("cpu"),
                    "memory": node.status.capacity.get("memory"),
                }
        images = {
            status.image_id
            for pod in self._pods.values()
            for status in pod.status.container_statuses or []
            if status.image_id
        }
        return {
            "version": version,
            "helm": self._helm.version(),
            "namespace": self._place.namespace,
            "pods": "new for each run"
            if len(self._settings) == 1
            else "kept for the runs of one worker count, with new processes for each run",
            "placement": {name: pod.spec.node_name for name, pod in sorted(self._pods.items())},
            "nodes": nodes,
            "images": sorted(images),
        }

    # --- the end ---------------------------------------------------------------------------------

    def clean_up(self, failed: bool) -> None:
        """Keep the logs, remove the release, and see that its pods are gone."""
        with self._interrupts.shielded():
            try:
                if self._installed:
                    self._keep_logs(failed)
                    self._remove()
            finally:
                self._stopped.set()
                for watcher in self._watches:
                    watcher.stop()
                # A thread that still works when the interpreter ends can abort it.
                until = time.monotonic() + _THREADS_PATIENCE_S
                for thread in self._threads:
                    thread.join(max(0.0, until - time.monotonic()))

    def _keep_logs(self, failed: bool) -> None:
        core = client.CoreV1Api(self._api)
        namespace = self._place.namespace
        with suppress(ApiException, *_Unreachable):
            listed: Any = core.list_namespaced_pod(
                namespace, label_selector=self._selector, _request_timeout=10
            )
            self._pods |= {pod.metadata.name: pod for pod in listed.items}

        def keep(name: str) -> None:
            with suppress(ApiException, *_Unreachable):
                log: Any = core.read_namespaced_pod_log(
                    name, namespace, _preload_content=False, _request_timeout=10
                )
                (self._logs / f"{name}.log").write_bytes(log.data)

        with ThreadPoolExecutor(_LOG_READERS) as readers:
            list(readers.map(keep, self._pods))
        if failed:
            with suppress(ApiException, *_Unreachable):
                events: Any = core.list_namespaced_event(namespace, _request_timeout=10)
                lines = [
                    f"{e.last_timestamp or e.event_time} {e.type} {e.involved_object.kind}/"
                    f"{e.involved_object.name} {e.reason}: {e.message}\n"
                    for e in events.items
                    if (e.involved_object.name or "").startswith(self._release)
                ]
                (self._logs / "events.log").write_text("".join(lines))

    def _remove(self) -> None:
        """Uninstall; again while the API server is away. RunFailed says what is left."""
        deadline = time.monotonic() + _LOST_PATIENCE_S
        while True:
            try:
                self._helm.uninstall(self._release)
                break
            except RunFailed as error:
                forbidden = _forbidden(error)
                if forbidden and self._refused:
                    return  # nothing was installed either
                late = time.monotonic() > deadline
                if forbidden or late or self._interrupts.hurry.is_set():
                    options = " ".join(self._place.options())
                    raise RunFailed(
                        f"release {self._release} is left in the cluster ({error.message});"
                        f" remove it later: {program()} clean {options}"
                    ) from None
                self._stopped.wait(1)
        self._await_gone()

    def _await_gone(self) -> None:
        """Wait until the pods have ended: the next run must not share the nodes with them."""
        left = {name for name, pod in self._pods.items() if not _ended(pod)}
        until = time.monotonic() + _GONE_PATIENCE_S
        while left and time.monotonic() < until and not self._interrupts.hurry.is_set():
            try:
                kind, message = self._events.get(timeout=0.2)
            except Empty:
                continue
            if kind == "pod" and (message[0] == "DELETED" or _ended(message[1])):
                left.discard(message[1].metadata.name)


def _forbidden(error: RunFailed) -> bool:
    """Whether helm failed for want of permission. A quota is called forbidden, too."""
    return "is forbidden: User" in error.message


def _event_key(concerned: Any) -> str:
    return f"event {concerned.kind} {concerned.name}"


def _component(pod: Any) -> str | None:
    labels: Mapping[str, str] = pod.metadata.labels or {}
    return labels.get("app.kubernetes.io/component")


def _ended(pod: Any) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _lines(stream: Any) -> Iterator[str]:
    rest = b""
    for chunk in stream.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
