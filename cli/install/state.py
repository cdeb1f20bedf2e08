"""What is in the cluster of a recipe's database: its pods, its volumes, and how it was installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cluster import explain_errors
from .recipes import DATABASE_LABEL, VENDOR, Choice, Recipe

if TYPE_CHECKING:
    from ..kubeclient import KubeClient

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


def read_state(client: KubeClient, namespace: str, recipe: Recipe) -> Installed:
    """What is there of a recipe; RunFailed if the cluster can't be asked."""
    # Late: a campaign that installs nothing does without the Kubernetes client.
    from ..kubeclient import POD, SECRET, VOLUME_CLAIM

    found = Installed()
    selector = f"{DATABASE_LABEL}={recipe.name}"
    with explain_errors(f"can't see what is in namespace {namespace}"):
        for secret in client.find(SECRET, namespace, labels=selector):
            if secret["metadata"]["name"] == recipe.secret:
                found.choice = _read_choice(secret["metadata"].get("annotations") or {})
        variant = found.choice.variant if found.choice else VENDOR
        for pod in client.find(POD, namespace, labels=selector):
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            found.pods += 1
            found.ready += any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in pod["status"].get("conditions") or []
            )
        volumes = client.find(VOLUME_CLAIM, namespace, labels=recipe.volumes_of(variant))
        found.volumes = sorted(item["metadata"]["name"] for item in volumes)
    return found


def _read_choice(annotations: Mapping[str, str]) -> Choice | None:
    try:
        variant, nodes, size = (annotations[_NOTED + key] for key in ("variant", "nodes", "size"))
        return Choice(variant, int(nodes), size)
    except (KeyError, ValueError):
        return None
