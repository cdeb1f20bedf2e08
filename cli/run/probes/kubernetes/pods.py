"""Which pods are the database's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity

from ....plan.disturbances import split_namespace
from ...cluster import read_refusal
from ...kubeclient import POD, SERVICE, Item, KubeClient
from .metrics import PodName, read_time

_INGRESS, _EGRESS = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
"""https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/#support-traffic-shaping"""

NOT_NAMED = (
    "the database's pods are unknown: give their labels with `kubernetes: database:` in the target"
)


@dataclass(frozen=True)
class DatabasePod:
    """A pod that runs."""

    name: PodName
    node: str
    cpu_limit: float | None = None
    """Cores, of all its containers; None if one may use all of its node."""
    began_at: float | None = None
    container_begins: Mapping[str, float] = field(default_factory=dict)
    """Container -> when it was last started."""
    ingress_bits_per_s: float | None = None
    egress_bits_per_s: float | None = None
    """What its network is limited to, or its node's link."""

    def find_begin(self, owner: str) -> float | None:
        """When the counters of a container, or of the pod's network, began at 0."""
        return self.container_begins.get(owner.partition(" ")[0], self.began_at)


def split_selector(text: str, namespace: str) -> tuple[str, str]:
    """Labels and namespace of `app=postgresql in databases`; `namespace`: if the text names none."""
    labels, other = split_namespace(text.strip())
    return labels, other or namespace


@dataclass(frozen=True)
class Selection:
    """Labels of pods in a namespace."""

    labels: str
    namespace: str


def read_selections(namespace: str, values: Mapping[str, Any]) -> list[Selection]:
    """The database's pods by the chart's `values`: by `database`, or else those that the run is kept away
    from."""
    if values.get("database"):
        return [Selection(*split_selector(str(values["database"]), namespace))]
    if not values.get("keepAwayFrom"):
        return []
    spaces: Sequence[str] = values.get("keepAwayFromNamespaces") or [namespace]
    return [Selection(_write_labels(values["keepAwayFrom"]), space) for space in spaces]


def select_services(
    client: KubeClient, namespace: str, options: Iterable[object]
) -> list[Selection]:
    """The pods behind the Services of the namespace that an option names."""
    values = list(options)
    return [
        Selection(_write_labels(service["spec"]["selector"]), namespace)
        for service in client.find(SERVICE, namespace)
        if service["spec"].get("selector") and is_named(service["metadata"]["name"], values)
    ]


def is_named(service: str, options: Iterable[object]) -> bool:
    """Whether an option has a Service's name for a host."""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(service)}(?![\w-])")
    return any(pattern.search(str(text)) for text in options)


def _write_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


class DatabasePods:
    """The database's pods, as far as they can be known."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        values: Mapping[str, Any],
        options: Iterable[object],
    ) -> None:
        """`values`: the chart's; `options`: the module's, which may name a Service of the namespace."""
        self._client = client
        self._namespace = namespace
        self._values = values
        self._options = list(options)
        self._selections: list[Selection] | None = None
        self.problem: str | None = None
        """Why there are none, or not all."""

    @property
    def selections(self) -> list[Selection]:
        """The labels by which they are looked for. ApiException if Services may not be listed."""
        if self._selections is None:
            selections = read_selections(self._namespace, self._values)
            if not self._values.get("database"):
                selections += select_services(self._client, self._namespace, self._options)
            self._selections = list(dict.fromkeys(selections))
        return self._selections

    def find(self) -> list[DatabasePod]:
        """The pods that run now. Raises one of UNREACHABLE if nothing can be heard."""
        self.problem = None
        by_name: dict[PodName, DatabasePod] = {}
        try:
            selections = self.selections
        except ApiException as error:
            selections = read_selections(self._namespace, self._values)
            self.problem = f"Services can't be listed: {read_refusal(error.body)}"
        if not selections:
            self.problem = self.problem or NOT_NAMED
        for selection in selections:
            try:
                listed = self._client.find(
                    POD, selection.namespace, labels=selection.labels, fields="status.phase=Running"
                )
            except ApiException as error:
                self.problem = f"the database's pods can't be listed: {read_refusal(error.body)}"
                continue
            pods = [read_pod(pod, self._values) for pod in listed]
            if not pods:
                self.problem = (
                    f"no pod with the labels {selection.labels} runs in namespace"
                    f" {selection.namespace}"
                )
            by_name |= {pod.name: pod for pod in pods if pod.node}
        return list(by_name.values())


def read_pod(pod: Item, values: Mapping[str, Any]) -> DatabasePod:
    """A pod as the API server gives it. `values`: the chart's, which may tell the speed of links."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    notes = metadata.get("annotations") or {}
    link = values.get("databaseLink")
    return DatabasePod(
        name=(metadata["namespace"], metadata["name"]),
        node=spec.get("nodeName") or "",
        cpu_limit=_read_cpu_limit(spec),
        began_at=_read_begin(status.get("startTime")),
        container_begins={
            container["name"]: begin
            for container in status.get("containerStatuses") or []
            if (
                begin := _read_begin(
                    ((container.get("state") or {}).get("running") or {}).get("startedAt")
                )
            )
        },
        ingress_bits_per_s=_read_quantity(notes.get(_INGRESS) or link),
        egress_bits_per_s=_read_quantity(notes.get(_EGRESS) or link),
    )


def _read_begin(text: str | None) -> float | None:
    return None if text is None else read_time(text)


def _read_cpu_limit(spec: Mapping[str, Any]) -> float | None:
    """The limit of the pod itself, or of all its containers and side-cars; None if one has none."""
    whole = _read_quantity(((spec.get("resources") or {}).get("limits") or {}).get("cpu"))
    if whole is not None:
        return whole
    side_cars = [
        container
        for container in spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    ]
    limits = [
        _read_quantity(((container.get("resources") or {}).get("limits") or {}).get("cpu"))
        for container in [*spec["containers"], *side_cars]
    ]
    amounts = [limit for limit in limits if limit is not None]
    return sum(amounts) if len(amounts) == len(limits) else None


def _read_quantity(text: object) -> float | None:
    """The quantity as a number; None if there is none, or if it can't be read."""
    try:
        return float(parse_quantity(text)) if text else None
    except ValueError:
        return None
