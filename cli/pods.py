"""A run's pods as the API server describes them. Beside the chart's container each may have others, which a
service mesh or a log collector has injected. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .kubeclient import Item

COLLECTOR = "collector"
WORKER = "worker"


def read_component(pod: Item) -> str | None:
    """`collector` or `worker`: the name of the chart's container, too."""
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component")


def find_own_container(pod: Item) -> Item | None:
    """The status of the chart's container; None if it has none yet."""
    name = read_component(pod)
    statuses = pod["status"].get("containerStatuses") or []
    return next((one for one in statuses if one["name"] == name), None)


def is_running(pod: Item) -> bool:
    """Whether the process of the chart's container runs."""
    own = find_own_container(pod)
    return own is not None and "running" in (own.get("state") or {})


def has_ended(pod: Item) -> bool:
    """Whether the process of the chart's container has ended, or all have. Injected containers may go on."""
    own = find_own_container(pod)
    ended = own is not None and "terminated" in (own.get("state") or {})
    return ended or pod["status"].get("phase") in ("Succeeded", "Failed")
