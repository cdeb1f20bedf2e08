"""What is kept of a release: logs, events, and where and on what it ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from ...kubeclient import (
    COLLECTOR,
    EVENT,
    NODE,
    UNREACHABLE,
    Item,
    KubeClient,
    find_own_container,
    read_component,
)

_LOG_READERS = 8


def keep_logs(client: KubeClient, namespace: str, pods: Iterable[Item], logs: Path) -> None:
    """The log of each pod that has one, in a file."""

    def keep(pod: Item) -> None:
        name, container = pod["metadata"]["name"], read_component(pod) or COLLECTOR
        with suppress(ApiException, *UNREACHABLE):
            (logs / f"{name}.log").write_bytes(client.read_log(namespace, name, container))

    with ThreadPoolExecutor(_LOG_READERS) as readers:
        list(readers.map(keep, pods))


def keep_events(client: KubeClient, namespace: str, release: str, logs: Path) -> None:
    """The events of a release's objects, in a file."""
    with suppress(ApiException, *UNREACHABLE):
        events = client.find(EVENT, namespace)
        lines = [
            _write_event(event)
            for event in events
            if event["involvedObject"].get("name", "").startswith(release)
        ]
        (logs / "events.log").write_text("".join(lines))


def _write_event(event: Item) -> str:
    concerned = event["involvedObject"]
    return (
        f"{event.get('lastTimestamp') or event.get('eventTime')} {event.get('type')}"
        f" {concerned.get('kind')}/{concerned.get('name')} {event.get('reason')}:"
        f" {event.get('message')}\n"
    )


def describe_environment(client: KubeClient, pods: Mapping[str, Item]) -> dict[str, Any]:
    """Version, placement, nodes and image digests, for the result. What the user may not read is
    None."""
    version = None
    with suppress(ApiException, *UNREACHABLE):
        version = client.read_version()
    placement = {name: pod["spec"].get("nodeName") for name, pod in sorted(pods.items())}
    own = filter(None, map(find_own_container, pods.values()))
    images = {status["imageID"] for status in own if status.get("imageID")}
    return {
        "version": version,
        "placement": placement,
        "nodes": {
            name: _describe_node(client, name)
            for name in sorted(set(filter(None, placement.values())))
        },
        "images": sorted(images),
    }


def _describe_node(client: KubeClient, name: str) -> dict[str, Any] | None:
    try:
        node = client.get(NODE, None, name)
    except (ApiException, *UNREACHABLE):
        return None
    labels = node["metadata"].get("labels") or {}
    info, capacity = node["status"]["nodeInfo"], node["status"].get("capacity") or {}
    return {
        "instance_type": labels.get("node.kubernetes.io/instance-type"),
        "zone": labels.get("topology.kubernetes.io/zone"),
        "kernel": info["kernelVersion"],
        "container_runtime": info["containerRuntimeVersion"],
        "cpu": capacity.get("cpu"),
        "memory": capacity.get("memory"),
    }
