"""The state of a release's pods and Jobs: followed by watches, and judged by what Kubernetes says of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

from kubernetes.client.exceptions import ApiException

from simulator.units import format_count

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
from .. import Event, Failed, PartChanged, Problem, Problems

# The API server ends a watch after this long, and the next one begins. A watch that is silent for longer is
# lost. https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
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
    """Follows a release's objects in threads. Keeps its pods, and their problems."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        selector: str,
        workers: int,
        node_patience_s: tuple[float, float],
        events: SimpleQueue[Event],
        problems: Problems,
    ) -> None:
        """`node_patience_s`: how long pods wait for a node that nobody has promised, and for one that an
        autoscaler is adding."""
        self._client = client.make_another()
        self._namespace = namespace
        self._release = release
        self._selector = selector
        self._workers = workers
        self._node_patience_s = node_patience_s
        self._autoscaler: tuple[bool, str] = False, ""
        """Whether the autoscaler adds a node, and its reason if not."""
        self._homeless: dict[str, Item] = {}
        """Pods that fit on no node."""
        self._events = events
        self._problems = problems
        self._stopped = threading.Event()
        self.pods: dict[str, Item] = {}
        """All pods that have been seen, by name."""
        self._seen: Counter[str | None] = Counter()
        """How many pods each component has."""

    def follow(self, kind: Kind) -> None:
        """Put each change of the run's pods or Jobs, or of the namespace's events, into the queue. Runs in a
        thread."""
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
        """Note a change, and what is wrong with the object now."""
        item = change.item
        if change.kind is POD:
            name = item["metadata"]["name"]
            if name not in self.pods:
                self._seen[read_component(item)] += 1
            self.pods[name] = item
            deleted = change.how == "DELETED"
            problem = Problem(f"pod {name} was deleted", 1.0) if deleted else pod_problem(item)
            self._problems.note(f"pod {name}", problem)
            self._homeless.pop(name, None)
            if not deleted and read_scheduler(item) is not None:
                self._homeless[name] = item
            self._judge_room()
            self._drop_cured(item)
        elif change.kind is JOB:
            self._problems.note(f"job {item['metadata']['name']}", job_problem(item))
        elif (concerned := item["involvedObject"]).get("name", "").startswith(self._release):
            if (reason := item.get("reason")) in (*_NODE_COMES, _NO_NODE_COMES):
                promised = self._autoscaler[0] or reason in _NODE_COMES
                self._autoscaler = promised, item.get("message") or ""
                self._judge_room()
            elif problem := event_problem(item):
                self._problems.note(f"event {concerned['kind']} {concerned['name']}", problem)

    def _judge_room(self) -> None:
        """Note whether there are pods that fit on no node."""
        promised, said = self._autoscaler
        patience_s = self._node_patience_s[promised]
        problem = room_problem(self._homeless.values(), self._workers, patience_s, said)
        self._problems.note("room", problem)

    def _drop_cured(self, pod: Item) -> None:
        """Drop the problems from events once the pod has started, or its Job has all its pods."""
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

# The kubelet retries by itself; what its second try doesn't fix stays broken.
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

# The process has told the collector why it ends. That answer is on its way, and says more.
_EXIT_PATIENCE_S = 4.0
_JOB_PATIENCE_S = 5.0
# The Job controller retries: pods that have just ended may still count against a quota.
_REFUSED_PATIENCE_S = 4.0
# The Secret is missing, or the pod has no network. The kubelet retries.
_NODE_EVENTS = ("FailedMount", "FailedCreatePodSandBox")
_NODE_EVENT_PATIENCE_S = 8.0
# With many pods at once, or on a busy node, the kubelet has not asked for the Secret yet. A missing Secret
# has a message of its own. https://github.com/kubernetes/kubernetes/issues/99475
_NOT_YET = "cache: timed out waiting for the condition"
# A pod's own problem is more specific than that of its Job or of an event.
_SECOND_HAND = 1

# Events by which an autoscaler (the cluster autoscaler, Karpenter) says whether it adds a node for a pod:
# https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-events-are-emitted-by-ca
_NODE_COMES = ("TriggeredScaleUp", "Nominated")
_NO_NODE_COMES = "NotTriggerScaleUp"

NODE_PATIENCE = "`kubernetes: scheduling_patience:` in config.yaml"

# What the scheduler says of nodes -> the setting in config.yaml that decides it.
_REMEDIES = {
    "Insufficient ": "lower `kubernetes: {resources}:` in config.yaml, or use fewer workers",
    "node affinity/selector": "check `kubernetes: nodeSelector:` and `affinity:` in config.yaml",
    "untolerated taint": "check `kubernetes: tolerations:` in config.yaml",
    "anti-affinity": "check `kubernetes: keepAwayFrom:` and `affinity:` in config.yaml",
    "topology spread": "check `kubernetes: topologySpread:` in config.yaml",
    "Too many pods": "use fewer workers, or more nodes",
}


def read_scheduler(pod: Item) -> str | None:
    """Why a pod fits on no node, in the scheduler's words; None if it has a node, or was not considered
    yet."""
    for condition in _find_conditions(pod["status"], "PodScheduled", "False"):
        if condition.get("reason") == "Unschedulable":
            return condition.get("message") or ""
    return None


def room_problem(
    homeless: Collection[Item], workers: int, patience_s: float, autoscaler: str = ""
) -> Problem | None:
    """Why pods have no node; None if all have one. `autoscaler`: what the autoscaler says."""
    if not homeless:
        return None
    # The collector's pod comes first: without it, room for the workers is useless.
    pod = min(homeless, key=lambda pod: str(pod["metadata"]["name"]))
    name, component = pod["metadata"]["name"], read_component(pod) or ""
    message = read_scheduler(pod) or ""
    text = f"pod {name} can't be scheduled: {message}"
    text += f" The autoscaler: {autoscaler}." if autoscaler else ""
    if component == WORKER:
        without = sum(read_component(pod) == WORKER for pod in homeless)
        have = "has" if without == 1 else "have"
        text += f" Of {format_count(workers, 'worker')}, {without} {have} no node"
        own = next(c for c in pod["spec"]["containers"] if c["name"] == WORKER)
        if requests := (own.get("resources") or {}).get("requests"):
            text += "; each requests " + " and ".join(f"{k} {v}" for k, v in requests.items())
        text += "."
    remedies = [remedy for phrase, remedy in _REMEDIES.items() if phrase in message]
    remedies.append(f"to wait longer for a node, raise {NODE_PATIENCE}")
    remedy = "; ".join(remedies).format(resources=_name_resources(component))
    return Problem(f"{text}\n{remedy}", patience_s)


def pod_problem(pod: Item) -> Problem | None:
    """What is wrong with a pod, apart from having no room; None if nothing is."""
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
    return None


def _find_conditions(status: Item, kind: str, holds: str = "True") -> Iterator[Item]:
    """The conditions of a kind whose status is `holds`: True, False or Unknown."""
    for condition in status.get("conditions") or []:
        if condition["type"] == kind and condition["status"] == holds:
            yield condition


def _container_problem(pod: str, container: Item, own: bool) -> Problem | None:
    """What is wrong with a container, by its status. `own`: it is the chart's. An injected one only matters
    if it keeps the pod from starting: its end doesn't matter."""
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


def _name_resources(component: str) -> str:
    """The chart's value that holds the resources of a component."""
    return "resources" if component == WORKER else "collectorResources"


def job_problem(job: Item) -> Problem | None:
    """What is wrong with a Job; None if nothing is."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Failed", "FailureTarget") and condition["status"] == "True":
            why = f"{condition.get('reason')}: {condition.get('message')}"
            text = f"job {job['metadata']['name']} failed: {why}"
            return Problem(text, _JOB_PATIENCE_S, _SECOND_HAND)
    return None


def event_problem(event: Item) -> Problem | None:
    """What only an event says, and no object's status: pods are refused, or a node can't prepare them for
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
        # OpenShift's, which sets user and groups by itself.
        remedy = "; set `kubernetes: {runAsUser: null}` in config.yaml"
    else:
        remedy = ""
    where = f"{concerned['kind'].lower()} {concerned['name']}"
    text = f"{where}: pods are refused: {message}{remedy}"
    return Problem(text, _REFUSED_PATIENCE_S, _SECOND_HAND)
