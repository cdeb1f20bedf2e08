"""What is done to a database's pods in mid-run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubernetes import client

from ...cluster import explain_errors
from ...disturbances import Action, Doer
from ...errors import RunFailed

_ELSEWHERE = re.compile(r"(.*\S)\s+in\s+([a-z0-9-]+)", re.DOTALL)
"""The end can't be a selector's own `in`, which has its values in brackets: `app in (a, b)`."""


class PodDisturber:
    """Deletes pods, restarts and scales workloads: of the run's namespace, or of another that is named as in
    `app=postgresql in databases`."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._core = client.CoreV1Api(api)
        self._apps = client.AppsV1Api(api)
        self._namespace = namespace

    def doers(self) -> Mapping[Action, Doer]:
        """What it can do."""
        return {
            Action.DELETE_PODS: self.delete_pods,
            Action.RESTART: self.restart,
            Action.SCALE: self.scale,
        }

    def delete_pods(self, argument: str) -> None:
        """Delete the pods with these labels, as a node that is drained would."""
        labels, namespace = self._split(argument)
        with explain_errors(f"can't delete pods {labels} of namespace {namespace}"):
            found: Any = self._core.list_namespaced_pod(namespace, label_selector=labels)
            for pod in found.items:
                self._core.delete_namespaced_pod(pod.metadata.name, namespace)
        if not found.items:
            raise RunFailed(f"namespace {namespace} has no pod with the labels {labels}")

    def restart(self, argument: str) -> None:
        """Replace a workload's pods one after the other, as `kubectl rollout restart` does."""
        target, namespace = self._split(argument)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        annotations = {"kubectl.kubernetes.io/restartedAt": now}
        self._patch(
            target, namespace, {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        )

    def scale(self, argument: str) -> None:
        """Give a workload another number of pods."""
        target, namespace = self._split(argument)
        name, _, replicas = target.partition(" ")
        if not replicas.strip().isdecimal():
            raise RunFailed(f"{target!r}: write a number of replicas, as in statefulset/db 0")
        self._patch(name, namespace, {"spec": {"replicas": int(replicas)}})

    def _patch(self, target: str, namespace: str, body: dict[str, Any]) -> None:
        kind, _, name = target.partition("/")
        patches = {
            "statefulset": self._apps.patch_namespaced_stateful_set,
            "deployment": self._apps.patch_namespaced_deployment,
            "daemonset": self._apps.patch_namespaced_daemon_set,
        }
        patch = patches.get(kind.lower())
        if patch is None or not name:
            raise RunFailed(
                f"{target!r}: write {', '.join(patches)} and a name, as in deployment/db"
            )
        with explain_errors(f"can't change {target} of namespace {namespace}"):
            patch(name, namespace, body)

    def _split(self, argument: str) -> tuple[str, str]:
        found = _ELSEWHERE.fullmatch(argument)
        return (found[1], found[2]) if found else (argument, self._namespace)
