"""What is done to a database's pods in mid-run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kubernetes import client

from ...cluster import RUN_LABEL, explain_errors
from ...disturbances import Action, Disturbance, Doer, parse_workload, split_namespace
from ...errors import ConfigError, RunFailed

_OWN_LABELS = (
    ("app.kubernetes.io/name", ("iot-database-benchmark",)),
    ("app.kubernetes.io/managed-by", ("Helm",)),
    ("app.kubernetes.io/component", ("worker", "collector")),
)
"""Labels of a run's pods (deployment/templates/_helpers.tpl), with the values that each may have."""

_TERM = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s*(?:(?P<sign>!=|==?)\s*(?P<value>[\w.-]*)"
    r"|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?|!\s*(?P<absent>[\w./-]+))\s*(?:,|$)"
)
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"""


def matches_own_pods(selector: str) -> bool:
    """Whether a selector of labels that the API server understands has a run's own pods, too."""
    own = dict(_OWN_LABELS)
    for term in _TERM.finditer(selector):
        if term["absent"]:
            if term["absent"] in own or term["absent"] == RUN_LABEL:
                return False
            continue
        known = own.get(term["key"])
        values = {one.strip() for one in (term["values"] or term["value"] or "").split(",")}
        if term["sign"] == "!=" or term["set"] == "notin":
            if known and set(known) <= values:
                return False
        elif term["sign"] or term["set"]:
            if not known or not values & set(known):
                return False
        elif known is None and term["key"] != RUN_LABEL:
            return False
    return True


class PodDisturber:
    """Deletes pods, restarts and scales workloads: of the run's namespace, or of another that is named as in
    `app=postgresql in databases`."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._apps: Any = client.AppsV1Api(api)
        self._namespace = namespace

    def doers(self) -> Mapping[Action, Doer]:
        """What it can do."""
        return {
            Action.DELETE_PODS: self.delete_pods,
            Action.RESTART: self.restart,
            Action.SCALE: self.scale,
        }

    def check(self, disturbances: Sequence[Disturbance]) -> None:
        """ConfigError if one can't be done: the API server is asked for it, without that it does it
        (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run)."""
        dry_run = {"dry_run": "All"}
        for one in disturbances:
            try:
                if one.action is Action.DELETE_PODS:
                    self.delete_pods(one.argument, **dry_run)
                elif one.action is Action.RESTART:
                    self.restart(one.argument, **dry_run)
                elif one.action is Action.SCALE:
                    self.scale(one.argument, **dry_run)
            except RunFailed as error:
                raise ConfigError(f"--disturb '{one}': {error.message}") from error

    def delete_pods(self, argument: str, **options: str) -> None:
        """Delete the pods with these labels, as a node that is drained would."""
        labels, namespace = self._split(argument)
        with explain_errors(f"can't delete pods {labels} of namespace {namespace}"):
            found: Any = self._core.list_namespaced_pod(namespace, label_selector=labels)
            if any(RUN_LABEL in (pod.metadata.labels or {}) for pod in found.items) or (
                namespace == self._namespace and matches_own_pods(labels)
            ):
                raise RunFailed(
                    f"pods of this tool have the labels {labels}, too: name the database's own"
                )
            for pod in found.items:
                self._core.delete_namespaced_pod(pod.metadata.name, namespace, **options)
        if not found.items:
            raise RunFailed(f"namespace {namespace} has no pod with the labels {labels}")

    def restart(self, argument: str, **options: str) -> None:
        """Replace a workload's pods one after the other, as `kubectl rollout restart` does."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        annotations = {"kubectl.kubernetes.io/restartedAt": now}
        change = {"template": {"metadata": {"annotations": annotations}}}
        self._patch(Action.RESTART, argument, change, options)

    def scale(self, argument: str, **options: str) -> None:
        """Give a workload another number of pods."""
        self._patch(Action.SCALE, argument, {}, options)

    def _patch(
        self, action: Action, argument: str, change: dict[str, Any], options: Mapping[str, str]
    ) -> None:
        target, namespace = self._split(argument)
        try:
            workload = parse_workload(action, target)
        except ConfigError as error:
            raise RunFailed(error.message) from error
        if workload.replicas is not None:
            change = {"replicas": workload.replicas}
        patches = {
            "statefulset": self._apps.patch_namespaced_stateful_set,
            "deployment": self._apps.patch_namespaced_deployment,
            "daemonset": self._apps.patch_namespaced_daemon_set,
        }
        with explain_errors(f"can't change {workload} of namespace {namespace}"):
            patches[workload.kind](workload.name, namespace, {"spec": change}, **options)

    def _split(self, argument: str) -> tuple[str, str]:
        what, namespace = split_namespace(argument)
        return what, namespace or self._namespace
