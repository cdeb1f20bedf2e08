"""What is kept of a release: logs, events, and where and on what it ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ...kubeclient import UNREACHABLE

_LOG_READERS = 8


def keep_logs(core: client.CoreV1Api, namespace: str, pods: Iterable[str], logs: Path) -> None:
    """The log of each pod that has one, in a file."""

    def keep(name: str) -> None:
        with suppress(ApiException, *UNREACHABLE):
            log: Any = core.read_namespaced_pod_log(name, namespace, _preload_content=False)
            (logs / f"{name}.log").write_bytes(log.data)

    with ThreadPoolExecutor(_LOG_READERS) as readers:
        list(readers.map(keep, pods))


def keep_events(core: client.CoreV1Api, namespace: str, release: str, logs: Path) -> None:
    """The events of a release's objects, in a file."""
    with suppress(ApiException, *UNREACHABLE):
        events: Any = core.list_namespaced_event(namespace)
        lines = [
            f"{e.last_timestamp or e.event_time} {e.type} {e.involved_object.kind}/"
            f"{e.involved_object.name} {e.reason}: {e.message}\n"
            for e in events.items
            if (e.involved_object.name or "").startswith(release)
        ]
        (logs / "events.log").write_text("".join(lines))


def describe_environment(core: client.CoreV1Api, pods: Mapping[str, Any]) -> dict[str, Any]:
    """Version, placement, nodes and image digests, for the result. What the user may not read is
    None."""
    version = None
    with suppress(ApiException, *UNREACHABLE):
        version = client.VersionApi(core.api_client).get_code().git_version
    nodes = {pod.spec.node_name for pod in pods.values() if pod.spec.node_name}
    images = {
        status.image_id
        for pod in pods.values()
        for status in pod.status.container_statuses or []
        if status.image_id
    }
    return {
        "version": version,
        "placement": {name: pod.spec.node_name for name, pod in sorted(pods.items())},
        "nodes": {name: _describe_node(core, name) for name in sorted(nodes)},
        "images": sorted(images),
    }


def _describe_node(core: client.CoreV1Api, name: str) -> dict[str, Any] | None:
    try:
        node: Any = core.read_node(name)
    except (ApiException, *UNREACHABLE):
        return None
    labels = node.metadata.labels or {}
    return {
        "instance_type": labels.get("node.kubernetes.io/instance-type"),
        "zone": labels.get("topology.kubernetes.io/zone"),
        "kernel": node.status.node_info.kernel_version,
        "container_runtime": node.status.node_info.container_runtime_version,
        "cpu": node.status.capacity.get("cpu"),
        "memory": node.status.capacity.get("memory"),
    }
