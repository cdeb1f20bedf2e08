"""What becomes of a release's pods and Jobs: followed by watches, judged by what Kubernetes says of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException

from ....system.installation import program
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
from ..base import Event, Failed, PartChanged, Problem, Problems

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
        self._seen: Counter[str | None] = Counter()
        """How many of them each component has."""

    def follow(self, kind: Kind) -> None:
        """Put each change of the run's pods or Jobs, or of the namespace's events, into the queue; the work
        of a thread."""
        labels = "" if kind is EVENT else self._selector
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
                    remedy = "see Permissions in docs/how-to/private-clusters.md"
                    self._events.put(Failed(f"{kind.plural} can't be watched: {remedy}"))
                    return
                self._stopped.wait(_RETRY_S)
            except UNREACHABLE:
                self._stopped.wait(_RETRY_S)

    def stop(self) -> None:
        """End the work of all threads."""
        self._stopped.set()
        self._client.break_off()

    def notice(self, change: Change) -> None:
        """Take note of a change, and of what is wrong with the object now."""
        item = change.item
        if change.kind is POD:
            name = item["metadata"]["name"]
            if name not in self.pods:
                self._seen[read_component(item)] += 1
            self.pods[name] = item
            deleted = change.how == "DELETED"
            problem = (
                Problem(f"pod {name} was deleted", 1.0)
                if deleted
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
        expected = self._workers if component == WORKER else 1
        if self._seen[component] >= expected:
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


# --- what is wrong with a pod, a Job or a namespace. Pure. ---------------------------------------------

# The kubelet tries again by itself; what its second try doesn't cure stays as it is.
_WAITING_PATIENCE_S = {
    "ErrImagePull": 8.0,
    "ImagePullBackOff": 0.0,
    "ErrImageNeverPull": 1.0,
    "InvalidImageName": 0.0,
    "ImageInspectError": 8.0,
    "CreateContainerConfigError": 5.0,
    "CreateContainerError": 5.0,
    "RunContainerError": 2.0,
    "CrashLoopBackOff": 0.0,
}

# The process has told the collector why it ends: that answer is on its way, and says more.
_EXIT_PATIENCE_S = 4.0
_JOB_PATIENCE_S = 5.0
# The Job controller tries again: pods that have just ended may still count against a quota.
_REFUSED_PATIENCE_S = 4.0
# A Secret that isn't there, no network for the pod; the kubelet tries again.
_NODE_EVENTS = ("FailedMount", "FailedCreatePodSandBox")
_NODE_EVENT_PATIENCE_S = 8.0
# Many pods at once, or a busy node: the kubelet has not yet asked for the Secret. A Secret that isn't
# there has a message of its own. https://github.com/kubernetes/kubernetes/issues/99475
_NOT_YET = "cache: timed out waiting for the condition"
# A pod's own problem says more than what is said of its Job, or by an event.
_SECOND_HAND = 1

# What the scheduler says of nodes -> what in config.yaml decides it.
_REMEDIES = {
    "Insufficient ": "lower `kubernetes: {resources}:` in config.yaml, or use fewer workers",
    "node affinity/selector": "check `kubernetes: nodeSelector:` and `affinity:` in config.yaml",
    "untolerated taint": "check `kubernetes: tolerations:` in config.yaml",
    "anti-affinity": "check `kubernetes: keepAwayFrom:` and `affinity:` in config.yaml",
    "topology spread": "check `kubernetes: topologySpread:` in config.yaml",
    "Too many pods": "use fewer workers, or more nodes",
}


def pod_problem(pod: Item, scheduling_patience_s: float) -> Problem | None:
    """What is wrong with a pod, or None. `scheduling_patience_s`: how long to wait for a node for it."""
    name, status = pod["metadata"]["name"], pod["status"]
    for condition in _find_conditions(status, "DisruptionTarget"):
        why = f"{condition.get('reason')}: {condition.get('message')}"
        return Problem(f"pod {name} was evicted: {why}")
    if pod["metadata"].get("deletionTimestamp"):
        return Problem(f"pod {name} was deleted during the run")
    own = read_component(pod)
    for container in [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]:
        problem = _container_problem(name, container, container["name"] == own)
        if problem:
            return problem
    if status.get("phase") == "Failed":
        parts = (status.get("reason"), status.get("message"))
        reason = ": ".join(filter(None, parts)) or "no reason given"
        return Problem(f"pod {name} failed: {reason}", 1.0)
    for condition in _find_conditions(status, "PodScheduled", "False"):
        if condition.get("reason") == "Unschedulable":
            message = condition.get("message") or ""
            remedy = _find_remedy(message, own or "")
            text = f"pod {name} can't be scheduled: {message}{remedy}"
            return Problem(text, scheduling_patience_s)
    return None


def _find_conditions(status: Item, kind: str, holds: str = "True") -> Iterator[Item]:
    """The conditions of a kind whose status is `holds`: True, False or Unknown."""
    for condition in status.get("conditions") or []:
        if condition["type"] == kind and condition["status"] == holds:
            yield condition


def _container_problem(pod: str, container: Item, own: bool) -> Problem | None:
    """What is wrong with a container, by its status. `own`: it is the chart's. Of an injected one it only
    matters whether it keeps the pod from starting: what ends it, its pod or somebody else, doesn't."""
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = waiting.get("reason")
    if reason in _WAITING_PATIENCE_S:
        where = f"pod {pod}" if own else f"pod {pod}, injected container {container['name']}"
        text = f"{where}: {reason}: {waiting.get('message') or container.get('image')}"
        if "Image" in reason and own:
            text += "; check image.name, image.tag and imagePullSecrets"
        return Problem(text, _WAITING_PATIENCE_S[reason])
    if not own:
        return None
    if ended.get("reason") == "OOMKilled":
        value = _name_resources(container["name"])
        return Problem(f"pod {pod} was killed: out of memory; raise {value}.memory")
    status = ended.get("exitCode")
    if status:
        by_signal = status > 128 or ended.get("signal")
        text = f"pod {pod} ended with status {status} ({ended.get('reason')})"
        return Problem(text, 0.0 if by_signal else _EXIT_PATIENCE_S)
    return None


def _find_remedy(message: str, component: str) -> str:
    """What to do about what the scheduler says, on a line of its own."""
    remedies = [remedy for phrase, remedy in _REMEDIES.items() if phrase in message]
    text = "; ".join(remedies).format(resources=_name_resources(component))
    return f"\n{text}" if text else ""


def _name_resources(component: str) -> str:
    """The chart's value that holds the resources of a component."""
    return "resources" if component == WORKER else "collectorResources"


def job_problem(job: Item) -> Problem | None:
    """What is wrong with a Job, or None."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Failed", "FailureTarget") and condition["status"] == "True":
            why = f"{condition.get('reason')}: {condition.get('message')}"
            text = f"job {job['metadata']['name']} failed: {why}"
            return Problem(text, _JOB_PATIENCE_S, _SECOND_HAND)
    return None


def event_problem(event: Item) -> Problem | None:
    """What only an event says, and no object's status: pods are refused, or a node can't make them ready for
    their containers."""
    message, reason, concerned = (
        event.get("message") or "",
        event.get("reason"),
        event["involvedObject"],
    )
    if reason in _NODE_EVENTS:
        if _NOT_YET in message:
            return None
        text = f"pod {concerned['name']}: {reason}: {message}"
        if 'secret "' in message and "not found" in message:
            text += f"; a shipped target's Secret is made by: {program()} db install TARGET"
        return Problem(text, _NODE_EVENT_PATIENCE_S, _SECOND_HAND)
    if reason != "FailedCreate":
        return None
    if "exceeded quota" in message:
        remedy = "; ask for more quota, or use fewer workers or smaller resources"
    elif "violates PodSecurity" in message:
        remedy = "; leave runAsUser and podAnnotations as they are in the chart"
    elif "security context constraint" in message:
        # OpenShift's, which gives user and groups by itself.
        remedy = "; set `kubernetes: {runAsUser: null}` in config.yaml"
    else:
        remedy = ""
    where = f"{concerned['kind'].lower()} {concerned['name']}"
    text = f"{where}: pods are refused: {message}{remedy}"
    return Problem(text, _REFUSED_PATIENCE_S, _SECOND_HAND)
