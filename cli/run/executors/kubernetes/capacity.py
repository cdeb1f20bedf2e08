"""Whether collector and workers have room on a cluster's nodes, by what the scheduler goes by: requests,
not use.

What can't be judged from here (affinity to other pods, what other pods keep away from, spreading as a
must) is taken for granted: only what certainly can't be scheduled is refused, and the rest is noticed
when the pods are there.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kubernetes.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity

from ....system.errors import ConfigError
from ...kubeclient import NODE, POD, UNREACHABLE, KubeClient

_log = logging.getLogger(__name__)

Amounts = Mapping[str, Decimal]
"""Resource -> how much, in cores, bytes, pieces."""

# The size of a step for a suggestion, and how many a worker needs at least to start.
_STEPS = {"cpu": (Decimal("0.01"), 1), "memory": (Decimal(2**20 * 16), 5)}
# Nodes that are made for one pod each: what is there now says nothing of what can be there.
_MADE_FOR_THEIR_PODS = {"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"}
# Labels of nodes in a pool to which an autoscaler may add some.
_POOLS = {
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
}  # fmt: skip


@dataclass(frozen=True)
class Pod:
    """A pod that is on a node, or on its way there."""

    namespace: str
    labels: Mapping[str, str]
    requests: Amounts


@dataclass(frozen=True)
class Node:
    """A node and what is on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    cordoned: bool
    allocatable: Amounts
    pods: Sequence[Pod]

    def count_free(self) -> dict[str, Decimal]:
        """What no pod has requested."""
        free = dict(self.allocatable)
        for pod in self.pods:
            for resource, amount in pod.requests.items():
                if resource in free:
                    free[resource] -= amount
        return free


@dataclass(frozen=True)
class Refusal:
    """Why worker counts don't fit."""

    text: str
    may_pass: bool
    """Whether they would fit if the other pods were gone."""
    may_grow: bool
    """Whether an autoscaler may add a node that takes them."""


def find_refusal(
    worker_counts: Iterable[int], values: Mapping[str, Any], nodes: Sequence[Node], namespace: str
) -> Refusal | None:
    """Why runs with so many workers can't be scheduled; None: they can, as far as can be judged.

    `values`: the chart's, complete; `namespace`: where the pods will run.
    """
    if not nodes or any(_is_made_for_its_pod(node) for node in nodes):
        return None
    obstacles = {node.name: find_obstacle(node, values, namespace) for node in nodes}
    usable = [node for node in nodes if obstacles[node.name] is None]
    if not usable:
        return Refusal(
            _describe_obstacles([text or "" for text in obstacles.values()]), False, True
        )
    may_grow = any(_POOLS & node.labels.keys() for node in usable)
    needs = _Needs.read(values)
    # Pods with a priority may take the place of others.
    alone = bool(values.get("priorityClassName"))
    free = [dict(node.allocatable) if alone else node.count_free() for node in usable]
    room = count_workers(free, needs.collector, needs.worker)
    too_many = sorted({count for count in worker_counts if count > room})
    if not too_many:
        return None
    empty = [node.allocatable for node in usable]
    may_pass = count_workers(empty, needs.collector, needs.worker) >= too_many[-1]
    where = "the nodes" if len(usable) == len(nodes) else f"{len(usable)} of {len(nodes)} nodes"
    if room < 0:
        text = (
            f"no run fits on this cluster: {where} have no room for the collector"
            f" ({describe_amounts(needs.collector)})"
        )
        remedy = "lower `kubernetes: collectorResources:` in config.yaml, or free a node"
        return Refusal(f"{text}\n{remedy}", may_pass, may_grow)
    short = [
        name
        for name in needs.worker
        if count_workers(_only(name, free), *needs.only(name)) < too_many[-1]
    ]
    text = (
        f"{_name_counts(too_many)} on this cluster: beside the collector {where} have room for {room}"
        f" with {describe_amounts(needs.worker)} each"
    )
    if short:
        text += f" ({'; '.join(_describe_shortage(name, usable, free) for name in short)})"
    return Refusal(f"{text}\n{_suggest(too_many[-1], free, needs, short)}", may_pass, may_grow)


@dataclass(frozen=True)
class _Needs:
    """What one pod of each kind requests."""

    collector: Amounts
    worker: Amounts

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> _Needs:
        """What the chart's values request, and one place among the node's pods."""
        pairs = (("collectorResources", "collectorRequests"), ("resources", "requests"))
        place = {"pods": Decimal(1)}
        requests = [{**values[default], **(values[override] or {})} for default, override in pairs]
        return cls(*(read_amounts(request) | place for request in requests))

    def only(self, name: str) -> tuple[Amounts, Amounts]:
        """The amounts of one resource alone, for collector and worker."""
        collector, worker = self.collector.get(name, Decimal(0)), self.worker[name]
        return {name: collector}, {name: worker}


def count_workers(free: Sequence[Amounts], collector: Amounts, worker: Amounts) -> int:
    """How many workers fit in addition to the collector; -1 if it doesn't fit either.

    Workers are alike, so only the collector's place matters: it goes where it costs least.
    """
    places = [_count_pods(node, worker) for node in free]
    best = -1
    for node, here in zip(free, places, strict=True):
        if _count_pods(node, collector) >= 1:
            rest = {name: node[name] - collector.get(name, 0) for name in node}
            best = max(best, sum(places) - here + _count_pods(rest, worker))
    return best


def _count_pods(free: Amounts, needed: Amounts) -> int:
    """How many pods with these requests have room on a node."""
    counts = [
        int(free.get(name, Decimal(0)) // amount) for name, amount in needed.items() if amount > 0
    ]
    return max(0, min(counts, default=0))


def _only(name: str, nodes: Sequence[Amounts]) -> list[Amounts]:
    return [{name: node.get(name, Decimal(0))} for node in nodes]


# --- words ----------------------------------------------------------------------------------------


def _name_counts(counts: Sequence[int]) -> str:
    if counts == [1]:
        return "1 worker doesn't fit"
    *most, last = map(str, counts)
    return (
        f"{', '.join(most)} and {last} workers don't fit" if most else f"{last} workers don't fit"
    )


def describe_amounts(amounts: Amounts) -> str:
    """`cpu 500m and memory 512Mi`."""
    return " and ".join(
        f"{name} {_describe_amount(name, amount)}"
        for name, amount in amounts.items()
        if name != "pods"
    )


def _describe_amount(name: str, amount: Decimal) -> str:
    if name == "cpu":
        return f"{amount.normalize():f}" if amount == int(amount) else f"{amount * 1000:.0f}m"
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount >= size and (unit == "Mi" or amount % size == 0):
            return f"{amount / size:.0f}{unit}"
    return f"{amount.normalize():f}"


def _describe_shortage(name: str, nodes: Sequence[Node], free: Sequence[Amounts]) -> str:
    whole = sum((node.allocatable.get(name, Decimal(0)) for node in nodes), Decimal(0))
    unused = sum((amounts.get(name, Decimal(0)) for amounts in free), Decimal(0))
    label = "places for pods" if name == "pods" else name
    return f"{label}: {_describe_amount(name, unused)} of {_describe_amount(name, whole)} free"


def _describe_obstacles(obstacles: Sequence[str]) -> str:
    counted = [f"{number}: {text}" for text, number in Counter(obstacles).most_common(3)]
    return (
        f"no node of this cluster accepts the benchmark's pods ({'; '.join(counted)})\n"
        "check nodeSelector, tolerations, affinity and keepAwayFrom below `kubernetes:` in config.yaml"
    )


def _suggest(workers: int, free: Sequence[Amounts], needs: _Needs, short: Sequence[str]) -> str:
    """What to set so that so many workers fit; in general terms if no amounts would do."""
    lower = dict(needs.worker)
    for name in short:
        amount = _find_amount(name, workers, free, needs)
        if amount is None:
            return "use fewer workers, or larger or more nodes"
        lower[name] = amount
    if not short or count_workers(free, needs.collector, lower) < workers:
        where = "`kubernetes: resources:`"
        return f"lower {where} in config.yaml, or use fewer workers"
    settings = " and ".join(f"{name}: {_describe_amount(name, lower[name])}" for name in short)
    return (
        f"set `kubernetes: resources:` in config.yaml to {settings} or less, or use fewer workers"
    )


def _find_amount(name: str, workers: int, free: Sequence[Amounts], needs: _Needs) -> Decimal | None:
    """The most that each worker can have of one resource; None if that is too little."""
    if name not in _STEPS:
        return None
    step, least = _STEPS[name]
    collector, worker = needs.only(name)

    def fits(steps: int) -> bool:
        return count_workers(_only(name, free), collector, {name: step * steps}) >= workers

    amounts = range(least, int(worker[name] // step) + 1)
    fitting = bisect_left(amounts, True, key=lambda steps: not fits(steps))
    return step * amounts[fitting - 1] if fitting else None


# --- which nodes take the pods: by labels, taints, and pods to keep away from --------------------------


def find_obstacle(node: Node, values: Mapping[str, Any], namespace: str) -> str | None:
    """What keeps the pods off a node, in a few words; None: nothing that can be seen."""
    if node.cordoned and not _is_tolerated(_CORDONED, values["tolerations"]):
        return "it is cordoned"
    for name, value in values["nodeSelector"].items():
        if node.labels.get(name) != str(value):
            return f"lacks the label {name}={value}"
    for taint in node.taints:
        if taint["effect"] != "PreferNoSchedule" and not _is_tolerated(
            taint, values["tolerations"]
        ):
            text = f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
            return f"has the taint {text}:{taint['effect']}"
    if not _satisfies_affinity(node, values["affinity"]):
        return "doesn't match affinity.nodeAffinity"
    if values["keepAwayFrom"] and values["keepAwayPolicy"] == "required":
        namespaces = values["keepAwayFromNamespaces"] or [namespace]
        for pod in node.pods:
            if pod.namespace in namespaces and values["keepAwayFrom"].items() <= pod.labels.items():
                return "has a pod that keepAwayFrom names"
    return None


_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    for toleration in tolerations:
        same_effect = toleration.get("effect") in (None, "", taint["effect"])
        same_key = toleration.get("key") in (None, "", taint["key"])
        exists = toleration.get("operator") == "Exists"
        if (
            same_effect
            and same_key
            and (exists or (toleration.get("value") or "") == taint.get("value", ""))
        ):
            return True
    return False


def _satisfies_affinity(node: Node, affinity: Mapping[str, Any]) -> bool:
    """Whether one of the terms that nodeAffinity requires is met, if there are any."""
    required = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not required:
        return True
    fields = {"metadata.name": node.name}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(
            _matches(expression, node.labels) for expression in term.get("matchExpressions") or []
        )
        and all(_matches(expression, fields) for expression in term.get("matchFields") or [])
        for term in required.get("nodeSelectorTerms") or []
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#operators"""
    label = labels.get(expression["key"])
    values = [str(value) for value in expression.get("values") or []]
    operators: dict[str, Callable[[], bool]] = {
        "In": lambda: label in values,
        "NotIn": lambda: label not in values,
        "Exists": lambda: label is not None,
        "DoesNotExist": lambda: label is None,
        "Gt": lambda: label is not None and int(label) > int(values[0]),
        "Lt": lambda: label is not None and int(label) < int(values[0]),
    }
    operator = operators.get(expression["operator"])
    return operator is None or operator()


# --- what the API server says ---------------------------------------------------------------------


def read_nodes(client: KubeClient) -> list[Node] | None:
    """All nodes with the pods on them; None if the user may not list those of the whole cluster."""
    at_work = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        return read_cluster(client.find(NODE), client.find(POD, fields=at_work))
    except (ApiException, *UNREACHABLE) as error:
        _log.debug("can't check whether the runs fit on the cluster: %s", error)
        return None


_REQUESTS = ("resources", "collectorResources", "requests", "collectorRequests")
"""The chart's values that hold quantities."""
_LARGEST = Decimal(2**63)
"""Kubernetes' own limit: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


def check_quantities(values: Mapping[str, Any]) -> None:
    """ConfigError if one of the chart's values is no quantity."""
    given = {
        f"{key}: {name}": amount
        for key in _REQUESTS
        for name, amount in _as_mapping(key, values[key]).items()
    }
    if values["databaseLink"]:
        given["databaseLink"] = values["databaseLink"]
    for place, amount in given.items():
        try:
            parsed = Decimal("NaN") if isinstance(amount, bool) else parse_quantity(amount)
        except (ValueError, TypeError):
            parsed = Decimal("NaN")
        if not 0 < (parsed if parsed.is_finite() else 0) < _LARGEST:
            raise ConfigError(
                f"kubernetes: {place}: {amount!r} is no quantity: write a number above 0, as in 2, 500m,"
                " 300M or 512Mi"
            )


def _as_mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"kubernetes: {key}: write quantities below it, as in {{cpu: 500m}}")
    return value or {}


def read_amounts(quantities: Mapping[str, Any] | None) -> dict[str, Decimal]:
    """Quantities as Kubernetes writes them."""
    return {name: parse_quantity(amount) for name, amount in (quantities or {}).items()}


def read_cluster(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> list[Node]:
    """Nodes with the pods that are on them, from the items of two lists of the API server."""
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        meta, spec = pod["metadata"], pod["spec"]
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        # One that is being deleted is gone by the time ours come.
        if spec.get("nodeName") and not ended and not meta.get("deletionTimestamp"):
            by_node.setdefault(spec["nodeName"], []).append(
                Pod(meta.get("namespace", ""), meta.get("labels") or {}, count_requests(spec))
            )
    return [
        Node(
            name=node["metadata"]["name"],
            labels=node["metadata"].get("labels") or {},
            taints=node["spec"].get("taints") or [],
            cordoned=bool(node["spec"].get("unschedulable")),
            allocatable=read_amounts(node["status"].get("allocatable")),
            pods=by_node.get(node["metadata"]["name"], []),
        )
        for node in nodes
    ]


def count_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod requests, as the scheduler counts it: what its containers need together, or what is
    needed before they begin if that is more.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    running: Counter[str] = Counter({"pods": 1})
    peak: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        requests = _container_requests(container)
        peak |= running + requests
        if container.get("restartPolicy") == "Always":
            running += requests
    for container in spec.get("containers") or []:
        running += _container_requests(container)
    total: dict[str, Any] = dict(running | peak)
    total |= read_amounts((spec.get("resources") or {}).get("requests"))
    for name, amount in read_amounts(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + amount
    return {name: Decimal(amount) for name, amount in total.items()}


def _container_requests(container: Mapping[str, Any]) -> Counter[str]:
    # A Counter adds and takes maxima by key, of any numbers.
    requests: Any = read_amounts((container.get("resources") or {}).get("requests"))
    return Counter(requests)


def _is_made_for_its_pod(node: Node) -> bool:
    return any(node.labels.get(name) == value for name, value in _MADE_FOR_THEIR_PODS.items())
