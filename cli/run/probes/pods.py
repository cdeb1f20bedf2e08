"""Which pods are the database's, and what kubelets and the metrics API say of them.

* A kubelet's `/metrics/resource`: CPU and memory of each container, with time stamps in milliseconds where
  `/stats/summary` has whole seconds (https://kubernetes.io/docs/reference/instrumentation/node-metrics/).
* `/metrics/cadvisor`: disk and network, and how many CPUs the node has.
* `/stats/summary`: the network, where `/metrics/cadvisor` lacks it.
* The metrics API: CPU and memory as means over a recent period
  (https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from kubernetes.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity

from simulator.units import parse_duration_s

from ...plan.disturbances import split_namespace
from ..cluster import read_refusal
from ..kubeclient import POD, SERVICE, Item, KubeClient

PodName = tuple[str, str]
"""Namespace and name."""

NOT_NAMED = (
    "the database's pods are unknown: give their labels with `kubernetes: database:` in the target"
)


@dataclass(frozen=True)
class DatabasePod:
    """A running pod."""

    name: PodName
    node: str
    cpu_limit: float | None = None
    """Cores of all its containers; None if one may use the whole node."""
    began_at: float | None = None
    container_begins: Mapping[str, float] = field(default_factory=dict)
    """Container -> when it last started."""
    ingress_bits_per_s: float | None = None
    egress_bits_per_s: float | None = None
    """The limit of its network, or its node's link."""

    def find_begin(self, owner: str) -> float | None:
        """When the counters of a container, or of the pod's network, were 0."""
        return self.container_begins.get(owner.partition(" ")[0], self.began_at)


class Selection(NamedTuple):
    """A label selector in a namespace."""

    labels: str
    namespace: str


def read_selections(namespace: str, values: Mapping[str, Any]) -> list[Selection]:
    """The database's pods according to the chart's `values`: by `database` (`app=postgresql in databases`),
    or else those that the run is kept away from."""
    if values.get("database"):
        labels, other = split_namespace(str(values["database"]).strip())
        return [Selection(labels, other or namespace)]
    if not values.get("keepAwayFrom"):
        return []
    spaces = values.get("keepAwayFromNamespaces") or [namespace]
    return [Selection(_write_labels(values["keepAwayFrom"]), space) for space in spaces]


def is_named(service: str, options: Iterable[object]) -> bool:
    """Whether an option has a Service's name as its host."""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(service)}(?![\w-])")
    return any(pattern.search(str(text)) for text in options)


def _write_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


class DatabasePods:
    """The database's pods, as far as they are known."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        values: Mapping[str, Any],
        options: Iterable[object],
    ) -> None:
        """`values`: the chart's; `options`: the module's, which may name a Service in the namespace."""
        self._client = client
        self._namespace = namespace
        self._values = values
        self._options = list(options)
        self._selections: list[Selection] | None = None
        self.problem: str | None = None
        """Why there are none, or not all."""

    @property
    def selections(self) -> list[Selection]:
        """The labels to search by. ApiException if the user may not list Services."""
        if self._selections is None:
            selections = read_selections(self._namespace, self._values)
            if not self._values.get("database"):
                for service in self._client.find(SERVICE, self._namespace):
                    labels = service["spec"].get("selector")
                    if labels and is_named(service["metadata"]["name"], self._options):
                        selections.append(Selection(_write_labels(labels), self._namespace))
            self._selections = list(dict.fromkeys(selections))
        return self._selections

    def find(self) -> list[DatabasePod]:
        """The pods that run now. Raises one of UNREACHABLE if the API server doesn't answer."""
        self.problem = None
        by_name: dict[PodName, DatabasePod] = {}
        try:
            selections = self.selections
        except ApiException as error:
            selections = read_selections(self._namespace, self._values)
            self.problem = f"Services can't be listed: {read_refusal(error.body)}"
        if not selections:
            self.problem = self.problem or NOT_NAMED
        for labels, namespace in selections:
            try:
                listed = self._client.find(
                    POD, namespace, labels=labels, fields="status.phase=Running"
                )
            except ApiException as error:
                self.problem = f"the database's pods can't be listed: {read_refusal(error.body)}"
                continue
            if not listed:
                self.problem = f"no pod with the labels {labels} runs in namespace {namespace}"
            pods = [read_pod(pod, self._values) for pod in listed]
            by_name |= {pod.name: pod for pod in pods if pod.node}
        return list(by_name.values())


def read_pod(pod: Item, values: Mapping[str, Any]) -> DatabasePod:
    """A pod as the API server describes it. `values`: the chart's, which may give the speed of links."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    begins = {
        container["name"]: read_time(running["startedAt"])
        for container in status.get("containerStatuses") or []
        if (running := (container.get("state") or {}).get("running")) and "startedAt" in running
    }
    # The limit of the pod itself, or of all its containers and sidecars.
    limit = _read_cpu_limit(spec)
    if limit is None:
        side_cars = [
            container
            for container in spec.get("initContainers") or []
            if container.get("restartPolicy") == "Always"
        ]
        limits = [_read_cpu_limit(container) for container in [*spec["containers"], *side_cars]]
        amounts = [amount for amount in limits if amount is not None]
        limit = sum(amounts) if len(amounts) == len(limits) else None
    # https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/#support-traffic-shaping
    notes, link = metadata.get("annotations") or {}, values.get("databaseLink")
    return DatabasePod(
        name=(metadata["namespace"], metadata["name"]),
        node=spec.get("nodeName") or "",
        cpu_limit=limit,
        began_at=read_time(status["startTime"]) if "startTime" in status else None,
        container_begins=begins,
        ingress_bits_per_s=_read_quantity(notes.get("kubernetes.io/ingress-bandwidth") or link),
        egress_bits_per_s=_read_quantity(notes.get("kubernetes.io/egress-bandwidth") or link),
    )


def _read_cpu_limit(item: Item) -> float | None:
    return _read_quantity(((item.get("resources") or {}).get("limits") or {}).get("cpu"))


def _read_quantity(text: object) -> float | None:
    """The quantity as a number; None if there is none, or if it isn't valid."""
    try:
        return float(parse_quantity(text)) if text else None
    except ValueError:
        return None


def read_time(text: str) -> float:
    """A time as Kubernetes writes it, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


# --- what their counters show. Pure. --------------------------------------------------------------


class Kind(StrEnum):
    """What is counted."""

    CPU = "cpu"
    """Seconds."""
    READ = "read"
    WRITTEN = "written"
    RECEIVED = "received"
    SENT = "sent"
    """The last four are in bytes, of disks and of the network."""


class Count(NamedTuple):
    """The value of one counter of a pod."""

    kind: Kind
    pod: PodName
    owner: str
    """The part of the pod that has it: a container or an interface. Unique only together with `began_at`."""
    at: float
    """By the node's clock, in seconds since 1970."""
    value: float
    began_at: float | None = None
    """When it was 0; None if that isn't known."""


class Memory(NamedTuple):
    """Bytes that a container can't do without: its working set."""

    pod: PodName
    owner: str
    at: float
    size: float


class Mean(NamedTuple):
    """CPUs that a container used between two instants, and its memory at the second one."""

    pod: PodName
    owner: str
    began: float
    ended: float
    cpus: float
    memory: float


_LINE = re.compile(r"(\w+)(?:\{(.*)\})?\s+(\S+)(?:\s+(\d+))?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Devices that lie on a disk, whose bytes would be counted twice.
_STACKED = re.compile(r"(/dev/)?(dm-|md|loop)")
_BYTES = {
    "container_fs_reads_bytes_total": Kind.READ,
    "container_fs_writes_bytes_total": Kind.WRITTEN,
    "container_network_receive_bytes_total": Kind.RECEIVED,
    "container_network_transmit_bytes_total": Kind.SENT,
}


@dataclass(frozen=True)
class _Sample:
    name: str
    labels: Mapping[str, str]
    value: float
    at: float | None

    @property
    def pod(self) -> PodName:
        return self.labels.get("namespace", ""), self.labels.get("pod", "")

    @property
    def container(self) -> str:
        return self.labels.get("container", "")


def _read_samples(text: str, names: Iterable[str]) -> Iterator[_Sample]:
    """The samples of these names from Prometheus' text format
    (https://prometheus.io/docs/instrumenting/exposition_formats/). The parser of prometheus_client takes five
    times as long: 72 ms instead of 16 for the text of 200 pods."""
    chosen = frozenset(names)
    for line in text.splitlines():
        if line.partition("{")[0].partition(" ")[0] not in chosen:
            continue
        match = _LINE.fullmatch(line)
        if match is not None:
            name, labels, value, stamp = match.groups()
            at = None if stamp is None else int(stamp) / 1000
            yield _Sample(name, dict(_LABEL.findall(labels or "")), float(value), at)


def read_resource_metrics(text: str) -> tuple[list[Count], list[Memory]]:
    """CPU and memory of all containers, from `/metrics/resource`."""
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    start = "container_start_time_seconds"
    samples = list(_read_samples(text, (cpu, memory, start)))
    starts = {(item.pod, item.container): item.value for item in samples if item.name == start}
    counts, sizes = [], []
    for item in samples:
        own = item.pod, item.container
        if item.name == cpu and item.at is not None:
            counts.append(Count(Kind.CPU, *own, item.at, item.value, starts.get(own)))
        elif item.name == memory and item.at is not None:
            sizes.append(Memory(*own, item.at, item.value))
    return counts, sizes


def read_cadvisor_metrics(text: str) -> tuple[list[Count], float | None]:
    """Disk and network of all pods, from `/metrics/cadvisor`, and the node's CPUs."""
    cores: float | None = None
    counts = []
    disks: dict[tuple[Kind, PodName, str], dict[str, _Sample]] = defaultdict(dict)
    for sample in _read_samples(text, (*_BYTES, "machine_cpu_cores")):
        labels = sample.labels
        if sample.name not in _BYTES:
            cores = sample.value
        elif not labels.get("pod") or sample.at is None:
            continue
        elif (kind := _BYTES[sample.name]) in (Kind.RECEIVED, Kind.SENT):
            # The cgroup is part of the name: it changes when the pod is recreated.
            owner = f"{labels.get('id', '')} {labels.get('interface', '')}"
            counts.append(Count(kind, sample.pod, owner, sample.at, sample.value))
        elif sample.container not in ("", "POD"):
            # The pod's own cgroup counts the same as its containers again.
            owner = f"{sample.container} {labels.get('id', '')}"
            disks[kind, sample.pod, owner][labels.get("device", "")] = sample
    for (kind, pod, owner), by_device in disks.items():
        whole = [sample for device, sample in by_device.items() if not _STACKED.match(device)]
        counted = whole or list(by_device.values())
        at = max(sample.at or 0.0 for sample in counted)
        counts.append(Count(kind, pod, owner, at, sum(sample.value for sample in counted)))
    return counts, cores


def read_summary_network(summary: Mapping[str, Any]) -> list[Count]:
    """Network of all pods, from `/stats/summary`."""
    counts = []
    for pod in summary.get("pods") or []:
        network = pod.get("network") or {}
        reference = pod["podRef"]
        name = reference["namespace"], reference["name"]
        interfaces = network.get("interfaces") or [network]
        for interface in interfaces if network.get("time") else []:
            owner = f"{reference.get('uid', '')} {interface.get('name', '')}"
            at = read_time(network["time"])
            for kind, key in ((Kind.RECEIVED, "rxBytes"), (Kind.SENT, "txBytes")):
                if interface.get(key) is not None:
                    counts.append(Count(kind, name, owner, at, float(interface[key])))
    return counts


def read_pod_metrics(pods: Iterable[Mapping[str, Any]]) -> list[Mean]:
    """What the metrics API says of pods: the items of its `PodMetricsList`."""
    means = []
    for pod in pods:
        name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        ended = read_time(pod["timestamp"])
        began = ended - (parse_duration_s(pod.get("window") or "") or 0.0)
        for container in pod.get("containers") or []:
            usage = container.get("usage") or {}
            if began < ended and "cpu" in usage:
                cpus = float(parse_quantity(usage["cpu"]))
                memory = float(parse_quantity(usage.get("memory", 0)))
                means.append(Mean(name, container["name"], began, ended, cpus, memory))
    return means
