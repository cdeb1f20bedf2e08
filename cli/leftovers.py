"""What runs have left in a namespace: found by their label, removed with their release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .cluster import RELEASE_PREFIX, RUN_LABEL, STARTED_BY, Helm, Place, explain_errors
from .results.store import now


@dataclass
class LeftRun:
    """One run in the cluster."""

    run_id: str
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """Kind -> names of its objects."""
    has_release: bool = False
    started_by: str = "unknown"
    created: datetime | None = None
    pods_at_work: int = 0

    @property
    def at_work(self) -> bool:
        """Whether pods of it still run or wait to."""
        return self.pods_at_work > 0

    @property
    def state(self) -> str:
        return f"{self.pods_at_work} pods at work" if self.at_work else "ended"

    @property
    def age(self) -> str:
        if self.created is None:
            return "unknown"
        minutes = int((now() - self.created).total_seconds() // 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"

    @property
    def objects(self) -> str:
        release = ["release"] if self.has_release else []
        return ", ".join(
            release + [f"{len(names)} {kind}" for kind, names in sorted(self.kinds.items())]
        )


def find_runs(place: Place) -> list[LeftRun]:
    """All runs of which anything is there, oldest first; RunFailed if the cluster can't be asked."""
    runs: dict[str, LeftRun] = {}
    with explain_errors(f"can't list what is in namespace {place.namespace}"):
        releases, labelled = _list_releases(place), _list_labelled(place)
    for release in releases:
        run_id = release.removeprefix(RELEASE_PREFIX)
        runs.setdefault(run_id, LeftRun(run_id)).has_release = True
    for kind, item in labelled:
        run_id = item.metadata.labels[RUN_LABEL]
        run = runs.setdefault(run_id, LeftRun(run_id))
        run.kinds.setdefault(kind, []).append(item.metadata.name)
        created = item.metadata.creation_timestamp
        run.created = min(filter(None, (run.created, created)), default=None)
        annotations = item.metadata.annotations or {}
        run.started_by = annotations.get(STARTED_BY, run.started_by)
        if kind == "pod" and item.status.phase in ("Pending", "Running"):
            run.pods_at_work += 1
    return sorted(runs.values(), key=lambda run: run.created or now())


def _list_releases(place: Place) -> list[str]:
    """This tool's releases, whatever became of them, from the Secrets in which helm keeps them:
    `helm list` takes other options in version 4 than in 3."""
    core = client.CoreV1Api(place.make_client())
    listed: Any = core.list_namespaced_secret(place.namespace, label_selector="owner=helm")
    names = {(secret.metadata.labels or {}).get("name", "") for secret in listed.items}
    return sorted(name for name in names if name.startswith(RELEASE_PREFIX))


def _list_labelled(place: Place) -> list[tuple[str, Any]]:
    """Each object of a run, with its kind."""
    found: list[tuple[str, Any]] = []
    for kind, (list_some, _) in _handle_kinds(place).items():
        listed: Any = list_some(place.namespace, label_selector=RUN_LABEL)
        found += [(kind, item) for item in listed.items]
    return found


def remove_run(place: Place, helm: Helm, run: LeftRun) -> None:
    """Uninstall the release, then delete what is left with the run's label."""
    if run.has_release:
        helm.uninstall(RELEASE_PREFIX + run.run_id)
    for kind, (_, delete) in _handle_kinds(place).items():
        for name in run.kinds.get(kind, ()):
            with explain_errors(f"can't delete {kind} {name}"):
                try:
                    delete(name, place.namespace, propagation_policy="Background")
                except ApiException as error:
                    if error.status != 404:
                        raise


def _handle_kinds(place: Place) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """How to list and to delete objects of each kind that a run has."""
    api = place.make_client()
    core, batch = client.CoreV1Api(api), client.BatchV1Api(api)
    network, policy = client.NetworkingV1Api(api), client.PolicyV1Api(api)
    return {
        "job": (batch.list_namespaced_job, batch.delete_namespaced_job),
        "pod": (core.list_namespaced_pod, core.delete_namespaced_pod),
        "service": (core.list_namespaced_service, core.delete_namespaced_service),
        "secret": (core.list_namespaced_secret, core.delete_namespaced_secret),
        "networkpolicy": (
            network.list_namespaced_network_policy,
            network.delete_namespaced_network_policy,
        ),
        "poddisruptionbudget": (
            policy.list_namespaced_pod_disruption_budget,
            policy.delete_namespaced_pod_disruption_budget,
        ),
    }
