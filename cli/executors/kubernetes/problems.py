"""What is wrong with a pod, a Job or a namespace, from what Kubernetes says of it. Pure."""

from __future__ import annotations

from typing import Any

from ...installation import program
from ..watching import Problem

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

UNSCHEDULABLE_PATIENCE_S = 10.0
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
    "Insufficient ": "set less below `kubernetes: {resources}:` in config.yaml, or use fewer workers",
    "node affinity/selector": "check `kubernetes: nodeSelector:` and `affinity:` in config.yaml",
    "untolerated taint": "check `kubernetes: tolerations:` in config.yaml",
    "anti-affinity": "check `kubernetes: keepAwayFrom:` and `affinity:` in config.yaml",
    "topology spread": "check `kubernetes: topologySpread:` in config.yaml",
    "Too many pods": "use fewer workers, or more nodes",
}


def pod_problem(pod: Any) -> Problem | None:
    """What is wrong with a pod (a V1Pod), or None."""
    name, status = pod.metadata.name, pod.status
    for condition in status.conditions or []:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return Problem(f"pod {name} was evicted: {condition.reason}: {condition.message}")
    if pod.metadata.deletion_timestamp:
        return Problem(f"pod {name} was deleted in mid-run")
    for container in status.container_statuses or []:
        waiting = container.state.waiting if container.state else None
        if waiting and waiting.reason in _WAITING_PATIENCE_S:
            text = f"pod {name}: {waiting.reason}: {waiting.message or container.image}"
            if "Image" in waiting.reason:
                text += "; check image.name, image.tag and imagePullSecrets"
            return Problem(text, _WAITING_PATIENCE_S[waiting.reason])
        ended = container.state.terminated if container.state else None
        if ended and ended.reason == "OOMKilled":
            value = _name_resources(container.name)
            return Problem(f"pod {name} was killed: out of memory; raise {value}.memory")
        if ended and ended.exit_code:
            by_signal = ended.exit_code > 128 or ended.signal
            text = f"pod {name} ended with status {ended.exit_code} ({ended.reason})"
            return Problem(text, 0.0 if by_signal else _EXIT_PATIENCE_S)
    if status.phase == "Failed":
        what = ": ".join(filter(None, (status.reason, status.message))) or "no reason given"
        return Problem(f"pod {name} failed: {what}", 1.0)
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            text = f"pod {name} can't be scheduled: {condition.message}"
            remedy = _find_remedy(condition.message or "", pod.spec.containers[0].name)
            return Problem(text + remedy, UNSCHEDULABLE_PATIENCE_S)
    return None


def _find_remedy(message: str, component: str) -> str:
    """What to do about what the scheduler says, on a line of its own."""
    found = [remedy for said, remedy in _REMEDIES.items() if said in message]
    text = "; ".join(found).format(resources=_name_resources(component))
    return f"\n{text}" if text else ""


def _name_resources(component: str) -> str:
    """The chart's value that holds the resources of a component."""
    return "resources" if component == "worker" else "collectorResources"


def job_problem(job: Any) -> Problem | None:
    """What is wrong with a Job (a V1Job), or None."""
    for condition in job.status.conditions or []:
        if condition.type in ("Failed", "FailureTarget") and condition.status == "True":
            text = f"job {job.metadata.name} failed: {condition.reason}: {condition.message}"
            return Problem(text, _JOB_PATIENCE_S, _SECOND_HAND)
    return None


def event_problem(event: Any) -> Problem | None:
    """What an event (a CoreV1Event) says that no object's status does: pods that are refused, or
    that a node can't make ready for their containers."""
    message = event.message or ""
    if event.reason in _NODE_EVENTS:
        if _NOT_YET in message:
            return None
        text = f"pod {event.involved_object.name}: {event.reason}: {message}"
        if 'secret "' in message and "not found" in message:
            text += f"; a shipped target's Secret comes from: {program()} db install TARGET"
        return Problem(text, _NODE_EVENT_PATIENCE_S, _SECOND_HAND)
    if event.reason != "FailedCreate":
        return None
    if "exceeded quota" in message:
        remedy = "; ask for more quota, or use fewer workers or smaller resources"
    elif "violates PodSecurity" in message:
        remedy = "; leave runAsUser and podAnnotations as they are in the chart"
    else:
        remedy = ""
    where = f"{event.involved_object.kind.lower()} {event.involved_object.name}"
    text = f"{where}: pods are refused: {message}{remedy}"
    return Problem(text, _REFUSED_PATIENCE_S, _SECOND_HAND)
