"""What kubelets and the metrics API say of pods, read from their texts. Pure.

* `/metrics/resource` of a kubelet: CPU and memory of each container, with time stamps to the millisecond,
  where `/stats/summary` has whole seconds (https://kubernetes.io/docs/reference/instrumentation/node-metrics/).
* `/metrics/cadvisor`: disk and network, and how many CPUs the node has.
* `/stats/summary`: the network, where `/metrics/cadvisor` lacks it.
* The metrics API: CPU and memory as means over some time before
  (https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from simulator.units import parse_duration_s

PodName = tuple[str, str]
"""Namespace and name."""


class Kind(StrEnum):
    """What is counted."""

    CPU = "cpu"
    """Seconds."""
    READ = "read"
    WRITTEN = "written"
    RECEIVED = "received"
    SENT = "sent"
    """These four in bytes, of disks and of the network."""


@dataclass(frozen=True)
class Count:
    """What one counter of a pod showed."""

    kind: Kind
    pod: PodName
    owner: str
    """What in the pod has it: a container, an interface. Only one counter has it together with `began_at`."""
    at: float
    """By the node's clock, as seconds since 1970."""
    value: float
    began_at: float | None = None
    """When it was 0; None if that isn't told."""


@dataclass(frozen=True)
class Memory:
    """Bytes that a container can't do without: its working set."""

    pod: PodName
    owner: str
    at: float
    size: float


@dataclass(frozen=True)
class Mean:
    """CPUs that a container used between two instants, and its memory at the second."""

    pod: PodName
    owner: str
    began: float
    ended: float
    cpus: float
    memory: float


_LINE = re.compile(r"(\w+)(?:\{(.*)\})?\s+(\S+)(?:\s+(\d+))?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# What isn't a disk itself, but lies on one, whose bytes would be counted twice.
_STACKED = re.compile(r"(/dev/)?(dm-|md|loop)")


@dataclass(frozen=True)
class _Sample:
    name: str
    labels: Mapping[str, str]
    value: float
    at: float | None

    @property
    def pod(self) -> PodName:
        return self.labels.get("namespace", ""), self.labels.get("pod", "")


def _read_samples(text: str, names: Iterable[str]) -> Iterator[_Sample]:
    """The samples of these names, from Prometheus' text format
    (https://prometheus.io/docs/instrumenting/exposition_formats/). The parser of prometheus_client takes five
    times as long: for the text of 200 pods 72 ms instead of 16."""
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
    """CPU and memory of all containers, as `/metrics/resource` has them."""
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    start = "container_start_time_seconds"
    samples = list(_read_samples(text, (cpu, memory, start)))
    starts = {
        (sample.pod, _owner(sample)): sample.value for sample in samples if sample.name == start
    }
    counts = [
        Count(
            Kind.CPU,
            sample.pod,
            _owner(sample),
            sample.at,
            sample.value,
            starts.get((sample.pod, _owner(sample))),
        )
        for sample in samples
        if sample.name == cpu and sample.at is not None
    ]
    sizes = [
        Memory(sample.pod, _owner(sample), sample.at, sample.value)
        for sample in samples
        if sample.name == memory and sample.at is not None
    ]
    return counts, sizes


def _owner(sample: _Sample) -> str:
    return sample.labels.get("container", "")


_BYTES = {
    "container_fs_reads_bytes_total": Kind.READ,
    "container_fs_writes_bytes_total": Kind.WRITTEN,
    "container_network_receive_bytes_total": Kind.RECEIVED,
    "container_network_transmit_bytes_total": Kind.SENT,
}
_CORES = "machine_cpu_cores"


def read_cadvisor_metrics(text: str) -> tuple[list[Count], float | None]:
    """Disk and network of all pods, as `/metrics/cadvisor` has them, and the node's CPUs."""
    cores: float | None = None
    counts = []
    disks: dict[tuple[Kind, PodName, str], dict[str, _Sample]] = defaultdict(dict)
    for sample in _read_samples(text, (*_BYTES, _CORES)):
        if sample.name == _CORES:
            cores = sample.value
        elif not sample.labels.get("pod") or sample.at is None:
            continue
        elif (kind := _BYTES[sample.name]) in (Kind.RECEIVED, Kind.SENT):
            # By the cgroup, too, which is another one when the pod is made anew.
            owner = f"{sample.labels.get('id', '')} {sample.labels.get('interface', '')}"
            counts.append(Count(kind, sample.pod, owner, sample.at, sample.value))
        elif _owner(sample) not in ("", "POD"):
            # The pod's own cgroup counts what its containers do once more.
            owner = f"{_owner(sample)} {sample.labels.get('id', '')}"
            disks[kind, sample.pod, owner][sample.labels.get("device", "")] = sample
    for (kind, pod, owner), by_device in disks.items():
        whole = [sample for device, sample in by_device.items() if not _STACKED.match(device)]
        counted = whole or list(by_device.values())
        at = max(sample.at or 0.0 for sample in counted)
        counts.append(Count(kind, pod, owner, at, sum(sample.value for sample in counted)))
    return counts, cores


def read_summary_network(summary: Mapping[str, Any]) -> list[Count]:
    """Network of all pods, as `/stats/summary` has it."""
    counts = []
    for pod in summary.get("pods") or []:
        network = pod.get("network") or {}
        interfaces = network.get("interfaces") or [network]
        reference = pod["podRef"]
        name = reference["namespace"], reference["name"]
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


def read_time(text: str) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it."""
    return datetime.fromisoformat(text).timestamp()
