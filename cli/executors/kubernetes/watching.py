"""What becomes of a release's pods and Jobs: followed by watches, judged by `problems`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from ...cluster import Place
from ...kubeclient import UNREACHABLE
from ..watching import Event, Failed, Noticed, Problem, Problems
from .problems import event_problem, job_problem, pod_problem

# The API server ends a watch after this long, and another is begun. If nothing is heard of one for
# longer, it is lost. https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
_WATCH_S = 300
_WATCH_TIMEOUT_S = (5.0, _WATCH_S + 30.0)
_RETRY_S = 1.0
_PENDING_SHOWN = 5


@dataclass(frozen=True)
class Change:
    """A change of a watched object."""

    kind: str
    """pod, job or event."""
    how: str
    """ADDED, MODIFIED or DELETED."""
    item: Any
    """The object, as the client gives it."""


class ReleaseWatch:
    """Follows a release's objects in threads; keeps its pods, and what is wrong with them."""

    def __init__(
        self,
        place: Place,
        release: str,
        selector: str,
        workers: int,
        events: SimpleQueue[Event],
        problems: Problems,
    ) -> None:
        self._place = place
        self._release = release
        self._selector = selector
        self._workers = workers
        self._events = events
        self._problems = problems
        self._stopped = threading.Event()
        self._watches: list[watch.Watch] = []
        # A client each, whose connection a watch holds.
        self._clients = [place.make_client() for _ in range(3)]
        self._pods = client.CoreV1Api(self._clients[0])
        self._jobs = client.BatchV1Api(self._clients[1])
        self._events_of_all = client.CoreV1Api(self._clients[2])
        self.pods: dict[str, Any] = {}
        """All pods that have been seen, by name; a V1Pod each."""

    def follow_pods(self) -> None:
        """Put each change of a pod into the queue, until stopped."""
        self._follow("pod", self._pods.list_namespaced_pod, label_selector=self._selector)

    def follow_jobs(self) -> None:
        """Put each change of the run's Jobs into the queue."""
        self._follow("job", self._jobs.list_namespaced_job, label_selector=self._selector)

    def follow_events(self) -> None:
        """Put each of the namespace's events into the queue."""
        self._follow("event", self._events_of_all.list_namespaced_event)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        for watcher in self._watches:
            watcher.stop()
        for one in self._clients:
            one.break_off()

    def _follow(self, kind: str, lister: Callable[..., Any], **selection: str) -> None:
        watcher = watch.Watch()
        self._watches.append(watcher)
        while not self._stopped.is_set():
            try:
                for change in watcher.stream(
                    lister, self._place.namespace,
                    timeout_seconds=_WATCH_S, _request_timeout=_WATCH_TIMEOUT_S, **selection,
                ):  # fmt: skip
                    # None is a line that was cut off with the connection.
                    if change is not None:
                        noticed = Change(kind, change["type"], change["object"])
                        self._events.put(Noticed(noticed))
                    if self._stopped.is_set():
                        return
            except ApiException as error:
                if error.status == 403:
                    text = f"{kind}s can't be watched: see the Role in docs/kubernetes.md"
                    self._events.put(Failed(text))
                    return
                self._stopped.wait(_RETRY_S)
            except UNREACHABLE:
                self._stopped.wait(_RETRY_S)

    def notice(self, change: Change) -> None:
        """Take note of a change, and of what is wrong with the object now."""
        item = change.item
        if change.kind == "pod":
            name = item.metadata.name
            self.pods[name] = item
            gone = change.how == "DELETED"
            problem = Problem(f"pod {name} was deleted", 1.0) if gone else pod_problem(item)
            self._problems.note(f"pod {name}", problem)
            self._drop_cured(item)
        elif change.kind == "job":
            self._problems.note(f"job {item.metadata.name}", job_problem(item))
        elif (item.involved_object.name or "").startswith(self._release):
            problem = event_problem(item)
            if problem:
                concerned = item.involved_object
                self._problems.note(f"event {concerned.kind} {concerned.name}", problem)

    def _drop_cured(self, pod: Any) -> None:
        """Drop what events said when the pod has begun, or when its Job has all its pods."""
        if pod.status.phase != "Pending":
            self._problems.note(f"event Pod {pod.metadata.name}", None)
        component = read_component(pod)
        wanted = self._workers if component == "worker" else 1
        if sum(read_component(one) == component for one in self.pods.values()) >= wanted:
            self._problems.note(f"event Job {self._release}-{component}", None)

    def find_collector(self) -> str | None:
        """The name of the collector's pod, once it is known."""
        pods = list(self.pods.items())
        return next((name for name, pod in pods if read_component(pod) == "collector"), None)

    def describe_pending(self) -> str:
        """Which pods have not started, in a few words."""
        waiting = sorted(name for name, pod in self.pods.items() if pod.status.phase == "Pending")
        return f"pods not started: {', '.join(waiting[:_PENDING_SHOWN]) or 'all'}"


def read_component(pod: Any) -> str | None:
    """`collector` or `worker`."""
    labels: Mapping[str, str] = pod.metadata.labels or {}
    return labels.get("app.kubernetes.io/component")


def has_ended(pod: Any) -> bool:
    """Whether all of a pod's processes have ended."""
    return pod.status.phase in ("Succeeded", "Failed")
