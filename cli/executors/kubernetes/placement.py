"""Which nodes take the benchmark's pods, by the chart's values: labels, taints, pods to keep away from.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capacity import Node


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
        return "is not what affinity.nodeAffinity requires"
    if values["keepAwayFrom"] and values["keepAwayPolicy"] == "required":
        namespaces = values["keepAwayFromNamespaces"] or [namespace]
        for pod in node.pods:
            if pod.namespace in namespaces and values["keepAwayFrom"].items() <= pod.labels.items():
                return "has a pod that keepAwayFrom names"
    return None


_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    for one in tolerations:
        same_effect = one.get("effect") in (None, "", taint["effect"])
        same_key = one.get("key") in (None, "", taint["key"])
        exists = one.get("operator") == "Exists"
        if (
            same_effect
            and same_key
            and (exists or (one.get("value") or "") == taint.get("value", ""))
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
        and all(_matches(one, node.labels) for one in term.get("matchExpressions") or [])
        and all(_matches(one, fields) for one in term.get("matchFields") or [])
        for term in required.get("nodeSelectorTerms") or []
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#operators"""
    found = labels.get(expression["key"])
    given = [str(value) for value in expression.get("values") or []]
    operators: dict[str, Callable[[], bool]] = {
        "In": lambda: found in given,
        "NotIn": lambda: found not in given,
        "Exists": lambda: found is not None,
        "DoesNotExist": lambda: found is None,
        "Gt": lambda: found is not None and int(found) > int(given[0]),
        "Lt": lambda: found is not None and int(found) < int(given[0]),
    }
    operator = operators.get(expression["operator"])
    return operator is None or operator()
