"""What pods that aren't of a run took of its nodes' CPU, by the kubelets' statistics, if the user may
read them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException

from simulator.contract import Machine, Phase, Report, Status

from ...kubeclient import NODE, UNREACHABLE, Item, KubeClient
from ..background import NAMED, NAMED_SHARE
from .metrics import PodName

_log = logging.getLogger(__name__)

_INTERVAL_S = 5.0
"""A kubelet takes new figures every 10 to 15 seconds."""
_READERS = 8

Placement = Mapping[PodName, str]
"""Pods and the nodes that they are on."""


@dataclass
class Series:
    """CPU of a node or a pod: cores, each over the 10 to 15 seconds before its time stamp."""

    stamps: list[str] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    def add(self, cpu: Mapping[str, Any] | None) -> None:
        """A figure as the kubelet gives it; nothing if it has none, or none that is new."""
        if cpu is None or cpu.get("usageNanoCores") is None or cpu["time"] in self.stamps[-1:]:
            return
        self.stamps.append(cpu["time"])
        self.cores.append(cpu["usageNanoCores"] / 1e9)

    @property
    def mean(self) -> float | None:
        """Over the run, without the first figure, which is from before it, and the second, which is
        partly so; None if there are no more: of runs below about 30 s."""
        within = self.cores[2:]
        return sum(within) / len(within) if within else None


@dataclass
class NodeUse:
    """CPU of a node and of the pods on it, since a run began."""

    whole: Series = field(default_factory=Series)
    pods: dict[PodName, Series] = field(default_factory=dict)

    def add(self, summary: Mapping[str, Any]) -> None:
        """What the kubelet says now: https://kubernetes.io/docs/reference/instrumentation/node-metrics/"""
        self.whole.add(summary.get("node", {}).get("cpu"))
        for pod in summary.get("pods", []):
            name = pod["podRef"]["namespace"], pod["podRef"]["name"]
            self.pods.setdefault(name, Series()).add(pod.get("cpu"))

    def share_of_others(
        self, own: Collection[PodName], cpus: int
    ) -> tuple[float, dict[str, float]] | None:
        """The share of the node's CPU that was used by none of its pods `own`, and the pods that used
        most of it. None if too little is known of the node, or of one of them."""
        means = {name: series.mean for name, series in self.pods.items()}
        ours = [cores for name in own if (cores := means.get(name)) is not None]
        whole = self.whole.mean
        if whole is None or len(ours) < len(own):
            return None
        shares = {
            "/".join(name): cores / cpus
            for name, cores in means.items()
            if name not in own and cores is not None and cores >= NAMED_SHARE * cpus
        }
        most = sorted(shares.items(), key=lambda pair: -pair[1])[:NAMED]
        return min(1.0, max(0.0, whole - sum(ours)) / cpus), dict(most)


class NodeWatch:
    """Reads the statistics of a run's nodes while it goes on."""

    def __init__(
        self,
        client: KubeClient,
        find_own: Callable[[], Placement],
        find_database: Callable[[], Placement],
    ) -> None:
        """`find_own`: the run's pods; `find_database`: the database's."""
        self._find_own = find_own
        self._find_database = find_database
        self._client = client.make_another()
        self._nodes: dict[str, NodeUse] = {}
        self._began = threading.Event()
        self._stopped = threading.Event()
        self._forbidden = False

    def notice(self, status: Status) -> None:
        """Begin when the run does."""
        if status.phase is Phase.RUN:
            self._began.set()

    def stop(self) -> None:
        """End, whatever is under way."""
        self._stopped.set()
        self._began.set()
        self._client.break_off()

    def follow(self) -> None:
        """Read until stopped; the work of a thread."""
        self._began.wait()
        while not self._stopped.is_set() and not self._forbidden:
            with ThreadPoolExecutor(_READERS) as readers:
                list(readers.map(self._read, sorted(set(self._find_own().values()))))
            self._stopped.wait(_INTERVAL_S)

    def _read(self, node: str) -> None:
        path = NODE.locate(None, node, "proxy", "stats", "summary")
        try:
            found = self._client.read_json(path, only_cpu_and_memory="true")
            self._nodes.setdefault(node, NodeUse()).add(found)
        except (ApiException, ValueError, KeyError, *UNREACHABLE) as error:
            self._forbidden |= isinstance(error, ApiException) and error.status == 403
            _log.debug("the statistics of node %s can't be read: %s", node, error)

    def complete(self, report: Report) -> None:
        """Put what others took into a report; to be called after the end."""
        if not any(use.whole.mean is not None for use in self._nodes.values()):
            return
        own = {**self._find_own(), **self._find_database()}
        report.run.machines = [self._add_others(machine, own) for machine in report.run.machines]

    def _add_others(self, machine: Machine, own: Placement) -> Machine:
        use = self._nodes.get(machine.node)
        if use is None or not machine.cpus:
            return machine
        here = [name for name, node in own.items() if node == machine.node]
        found = use.share_of_others(here, machine.cpus)
        if found is None:
            return machine
        share, others = found
        return machine.model_copy(update={"others_share": share, "others": others})


def place_pods(namespace: str, pods: Iterable[Item]) -> dict[PodName, str]:
    """Those of the pods that have a node, with it."""
    return {
        (namespace, pod["metadata"]["name"]): pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }
