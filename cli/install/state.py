"""What is in the cluster of a recipe's database: its pods, its volumes, and how it was installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cluster import Place, explain_errors
from .recipes import DATABASE_LABEL, VENDOR, Choice, Recipe

_NOTED = "iot-database-benchmark/"


@dataclass
class Installed:
    """What is in the namespace of one recipe."""

    choice: Choice | None = None
    """What was installed last; None if nothing was, or its Secret is gone."""
    pods: int = 0
    ready: int = 0
    volumes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.pods:
            return "ready" if self.ready == self.pods else "not ready"
        return "removed, data kept" if self.volumes else "not installed"


def read_state(place: Place, recipe: Recipe) -> Installed:
    """What is there of a recipe; RunFailed if the cluster can't be asked."""
    from kubernetes import client

    found = Installed()
    selector = f"{DATABASE_LABEL}={recipe.name}"
    with (
        explain_errors(f"can't see what is in namespace {place.namespace}"),
        place.make_client() as api,
    ):
        core = client.CoreV1Api(api)
        secrets: Any = core.list_namespaced_secret(place.namespace, label_selector=selector)
        for secret in secrets.items:
            if secret.metadata.name == recipe.secret:
                found.choice = _read_choice(secret.metadata.annotations or {})
        variant = found.choice.variant if found.choice else VENDOR
        pods: Any = core.list_namespaced_pod(place.namespace, label_selector=selector)
        for pod in pods.items:
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            found.pods += 1
            conditions = pod.status.conditions or []
            found.ready += any(one.type == "Ready" and one.status == "True" for one in conditions)
        volumes: Any = core.list_namespaced_persistent_volume_claim(
            place.namespace, label_selector=recipe.volumes_of(variant)
        )
        found.volumes = sorted(item.metadata.name for item in volumes.items)
    return found


def _read_choice(annotations: Mapping[str, str]) -> Choice | None:
    try:
        variant, nodes, size = (annotations[_NOTED + key] for key in ("variant", "nodes", "size"))
        return Choice(variant, int(nodes), size)
    except (KeyError, ValueError):
        return None
