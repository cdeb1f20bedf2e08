"""What is done to a database's pods during the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ..plan.disturbances import Action, Disturbance, parse_workload, split_namespace
from ..system.errors import ConfigError, RunFailed
from .cluster import RUN_LABEL, explain_errors
from .faults import Doer
from .kubeclient import DAEMON_SET, DEPLOYMENT, POD, STATEFUL_SET, Item, KubeClient

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
    """Whether a selector of labels that the API server understands selects a run's own pods, too."""
    own = dict(_OWN_LABELS)
    for term in _TERM.finditer(selector):
        if term["absent"]:
            if term["absent"] in own or term["absent"] == RUN_LABEL:
                return False
            continue
        own_values = own.get(term["key"])
        values = {value.strip() for value in (term["values"] or term["value"] or "").split(",")}
        if term["sign"] == "!=" or term["set"] == "notin":
            if own_values and set(own_values) <= values:
                return False
        elif term["sign"] or term["set"]:
            if not own_values or not values & set(own_values):
                return False
        elif own_values is None and term["key"] != RUN_LABEL:
            return False
    return True


_WORKLOADS = {kind.name: kind for kind in (STATEFUL_SET, DEPLOYMENT, DAEMON_SET)}


class PodFaultInjector:
    """Deletes pods, restarts and scales workloads: of the run's namespace, or of another that is named as in
    `app=postgresql in databases`."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def doers(self) -> Mapping[Action, Doer]:
        """What it can do."""
        return {
            Action.DELETE_PODS: self.delete_pods,
            Action.RESTART: self.restart,
            Action.SCALE: self.scale,
        }

    def check(self, disturbances: Sequence[Disturbance]) -> None:
        """ConfigError if one can't be done: the API server is asked for it, but doesn't do it
        (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run)."""
        for disturbance in disturbances:
            try:
                if disturbance.action is Action.DELETE_PODS:
                    self.delete_pods(disturbance.argument, dry_run=True)
                elif disturbance.action is Action.RESTART:
                    self.restart(disturbance.argument, dry_run=True)
                elif disturbance.action is Action.SCALE:
                    self.scale(disturbance.argument, dry_run=True)
            except RunFailed as error:
                raise ConfigError(f"--disturb '{disturbance}': {error.message}") from error

    def delete_pods(self, argument: str, dry_run: bool = False) -> None:
        """Delete the pods with these labels, as a node that is drained would."""
        labels, namespace = self._split(argument)
        with explain_errors(f"can't delete pods {labels} of namespace {namespace}"):
            pods = self._client.find(POD, namespace, labels=labels)
            if any(RUN_LABEL in (pod["metadata"].get("labels") or {}) for pod in pods) or (
                namespace == self._namespace and matches_own_pods(labels)
            ):
                raise RunFailed(
                    f"pods of this tool also have the labels {labels}: name the database's own"
                )
            for pod in pods:
                self._client.delete(POD, namespace, pod["metadata"]["name"], dry_run=dry_run)
        if not pods:
            raise RunFailed(f"namespace {namespace} has no pod with the labels {labels}")

    def restart(self, argument: str, dry_run: bool = False) -> None:
        """Replace a workload's pods one after the other, as `kubectl rollout restart` does."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        annotations = {"kubectl.kubernetes.io/restartedAt": now}
        change = {"template": {"metadata": {"annotations": annotations}}}
        self._patch(Action.RESTART, argument, change, dry_run)

    def scale(self, argument: str, dry_run: bool = False) -> None:
        """Give a workload another number of pods."""
        self._patch(Action.SCALE, argument, {}, dry_run)

    def _patch(self, action: Action, argument: str, change: Item, dry_run: bool) -> None:
        target, namespace = self._split(argument)
        try:
            workload = parse_workload(action, target)
        except ConfigError as error:
            raise RunFailed(error.message) from error
        if workload.replicas is not None:
            change = {"replicas": workload.replicas}
        with explain_errors(f"can't change {workload} of namespace {namespace}"):
            self._client.patch(
                _WORKLOADS[workload.kind],
                namespace,
                workload.name,
                {"spec": change},
                dry_run=dry_run,
            )

    def _split(self, argument: str) -> tuple[str, str]:
        subject, namespace = split_namespace(argument)
        return subject, namespace or self._namespace
