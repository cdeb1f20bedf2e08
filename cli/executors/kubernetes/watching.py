"""What becomes of a release's pods and Jobs: followed by watches, judged by `problems`."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException

from ...kubeclient import (
    COLLECTOR,
    EVENT,
    JOB,
    POD,
    UNREACHABLE,
    WORKER,
    Item,
    Kind,
    KubeClient,
    read_component,
)
from ..watching import Event, Failed, PartChanged, Problem, Problems
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

    kind: Kind
    """POD, JOB or EVENT."""
    how: str
    """ADDED, MODIFIED or DELETED."""
    item: Item


class ReleaseWatch:
    """Follows a release's objects in threads; keeps its pods, and what is wrong with them."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        selector: str,
        workers: int,
        scheduling_patience_s: float,
        events: SimpleQueue[Event],
        problems: Problems,
    ) -> None:
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._selector = selector
        self._workers = workers
        self._scheduling_patience_s = scheduling_patience_s
        self._events = events
        self._problems = problems
        self._stopped = threading.Event()
        self.pods: dict[str, Item] = {}
        """All pods that have been seen, by name."""

    def follow_pods(self) -> None:
        """Put each change of a pod into the queue, until stopped."""
        self._follow(POD, self._selector)

    def follow_jobs(self) -> None:
        """Put each change of the run's Jobs into the queue."""
        self._follow(JOB, self._selector)

    def follow_events(self) -> None:
        """Put each of the namespace's events into the queue."""
        self._follow(EVENT)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        self._client.break_off()

    def _follow(self, kind: Kind, labels: str = "") -> None:
        while not self._stopped.is_set():
            changes = self._client.watch(
                kind, self._namespace, labels=labels, window_s=_WATCH_S, timeout_s=_WATCH_TIMEOUT_S
            )
            try:
                with closing(changes):
                    for how, item in changes:
                        self._events.put(PartChanged(Change(kind, how, item)))
                        if self._stopped.is_set():
                            return
            except ApiException as error:
                if error.status == 403:
                    text = f"{kind.plural} can't be watched: see the Role in docs/kubernetes.md"
                    self._events.put(Failed(text))
                    return
                self._stopped.wait(_RETRY_S)
            except UNREACHABLE:
                self._stopped.wait(_RETRY_S)

    def notice(self, change: Change) -> None:
        """Take note of a change, and of what is wrong with the object now."""
        item = change.item
        if change.kind is POD:
            name = item["metadata"]["name"]
            self.pods[name] = item
            gone = change.how == "DELETED"
            problem = (
                Problem(f"pod {name} was deleted", 1.0)
                if gone
                else pod_problem(item, self._scheduling_patience_s)
            )
            self._problems.note(f"pod {name}", problem)
            self._drop_cured(item)
        elif change.kind is JOB:
            self._problems.note(f"job {item['metadata']['name']}", job_problem(item))
        elif (concerned := item["involvedObject"]).get("name", "").startswith(self._release):
            problem = event_problem(item)
            if problem:
                self._problems.note(f"event {concerned['kind']} {concerned['name']}", problem)

    def _drop_cured(self, pod: Item) -> None:
        """Drop what events said when the pod has begun, or when its Job has all its pods."""
        if pod["status"].get("phase") != "Pending":
            self._problems.note(f"event Pod {pod['metadata']['name']}", None)
        component = read_component(pod)
        wanted = self._workers if component == WORKER else 1
        if sum(read_component(one) == component for one in self.pods.values()) >= wanted:
            self._problems.note(f"event Job {self._release}-{component}", None)

    def find_collector(self) -> Item | None:
        """The collector's pod, once it is known."""
        pods = list(self.pods.values())
        return next((pod for pod in pods if read_component(pod) == COLLECTOR), None)

    def describe_pending(self) -> str:
        """Which pods have not started, in a few words."""
        if not self.pods:
            return "Kubernetes has not made any pod yet"
        waiting = sorted(
            name for name, pod in self.pods.items() if pod["status"].get("phase") == "Pending"
        )
        if not waiting:
            return "the pods have started, but the collector has not answered"
        return f"pods not started: {', '.join(waiting[:_PENDING_SHOWN])}"
