"""Samples of pods during a run. What the database's pods used comes from the kubelets, or else from the
metrics API. What others took of the run's nodes comes from the kubelets' statistics, if the user may read
them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException

from simulator.contract import DatabaseUse, Phase, Report, Resources, Status

from ..kubeclient import NODE, POD_METRICS, UNREACHABLE, Item, KubeClient
from .consumption import Consumption
from .pods import (
    DatabasePods,
    Kind,
    PodName,
    read_cadvisor_metrics,
    read_pod_metrics,
    read_resource_metrics,
    read_summary_network,
)
from .timeline import find_window, name_most

_log = logging.getLogger(__name__)

# Most kubelets have new figures every 10 to 15 s; some sample on each request.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 4.0
_MOST_SHARE = 0.05
"""A kubelet that takes long to answer is asked less often: it shares the database's node."""
_LIST_EVERY_S = 4.0
_BYTES_EVERY_S = 8.0
_NODES_EVERY_S = 5.0
"""A kubelet has new figures every 10 to 15 seconds."""
_NODE_EVERY_S = 1.0
"""The pause per node, if that makes the total longer."""
_READERS = 8
_LAST_LOOK_S = 5.0
_LONG_WINDOW_S = 30.0
"""Figures cover most of a window of this length, wherever it starts."""


class PodSampler:
    """Samples in threads that its owner starts: `follow_database` and `follow_nodes`."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        values: Mapping[str, Any],
        options: Iterable[object],
        find_own: Callable[[], Placement],
        patience: float = 1.0,
    ) -> None:
        """`values`: the chart's; `options`: the module's; `find_own`: returns the run's pods; `patience`:
        factor for the pauses between samples."""
        # A client of its own, so that it can be broken off.
        self._client = client.make_another()
        self._pods = DatabasePods(self._client, namespace, values, options)
        self._seen = Consumption("the kubelets")
        self._by_kubelets = True
        self._refusals: list[str] = []
        """Why the sources give no figures."""
        self._summaries_help = True
        """Whether the summaries have the pods' network, where cAdvisor lacks it."""
        self._listed_at = self._bytes_at = -1e9
        self._ending = threading.Event()
        self._ended = threading.Event()
        self.use: DatabaseUse | None = None
        """What the database's pods used in the last sample."""
        self._find_own = find_own
        self._patience = patience
        self._nodes: dict[str, NodeUse] = {}
        self._nodes_forbidden = False
        self._began = threading.Event()
        self._stopped = threading.Event()

    def notice(self, status: Status) -> None:
        """Begin to sample the nodes when the run does."""
        if status.phase is Phase.RUN:
            self._began.set()

    def finish(self) -> None:
        """Sample the database's pods once more, then stop."""
        self._ending.set()
        self._ended.wait(_LAST_LOOK_S)

    def stop(self) -> None:
        """Stop, whatever is under way."""
        for event in (self._stopped, self._ending, self._began):
            event.set()
        self._client.break_off()

    def complete(self, report: Report) -> None:
        """Put what was used into a report, for the report's own window. Call it after the end."""
        run = report.run
        if any(use.whole.mean is not None for use in self._nodes.values()):
            own = {**self._find_own(), **{pod.name: pod.node for pod in self._seen.pods}}
            for number, machine in enumerate(run.machines):
                use = self._nodes.get(machine.node)
                here = [name for name, node in own.items() if node == machine.node]
                if use and machine.cpus and (taken := use.share_of_others(here, machine.cpus)):
                    changes = {"others_share": taken[0], "others": taken[1]}
                    run.machines[number] = machine.model_copy(update=changes)
        window = find_window(run) if self._ended.is_set() else None
        if window is not None:
            resources = self._seen.summarize(window)
            if resources is None:
                if len(self._refusals) > 1:
                    role = "see Permissions in docs/how-to/private-clusters.md"
                    reason = f"{', and '.join(self._refusals)}: {role}"
                elif not self._seen.pods and self._pods.problem:
                    reason = self._pods.problem
                else:
                    reason = explain_too_little(self._seen.source, window.length_s)
                resources = Resources(reason=reason)
            run.resources = resources

    # --- the database's pods ----------------------------------------------------------------------

    def follow_database(self) -> None:
        """Sample until the end. Runs in a thread."""
        shortest_s = self._patience * _SHORTEST_PAUSE_S
        longest_s = self._patience * _LONGEST_PAUSE_S
        pause_s = shortest_s
        try:
            while True:
                ended = self._ending.wait(pause_s)
                if self._stopped.is_set():
                    return
                began = time.monotonic()
                is_new = False
                try:
                    if ended or self._is_over(self._listed_at, _LIST_EVERY_S):
                        self._seen.set_pods(self._pods.find())
                        self._listed_at = time.monotonic()
                    is_new = self._look()
                    self.use = self._seen.find_use()
                except UNREACHABLE as error:
                    _log.debug("the database's pods can't be read: %s", error)
                if ended or len(self._refusals) > 1:
                    return
                took_s = time.monotonic() - began
                grown_s = shortest_s if is_new else min(longest_s, 2 * pause_s)
                pause_s = max(grown_s, min(took_s / _MOST_SHARE, longest_s))
        finally:
            self._ended.set()

    def _is_over(self, since: float, pause_s: float) -> bool:
        return time.monotonic() - since >= self._patience * pause_s

    def _look(self) -> bool:
        """Sample the pods. Returns whether anything was new."""
        if not self._seen.nodes:
            return False
        if self._by_kubelets:
            try:
                return self._sample_kubelets()
            except ApiException:
                self._refusals.append("no permission to query the kubelets (get nodes/proxy)")
                self._by_kubelets = False
                again = Consumption("the metrics API")
                again.set_pods(self._seen.pods)
                self._seen = again
        is_new = False
        for labels, namespace in self._pods.selections:
            try:
                metrics = self._client.find(POD_METRICS, namespace, labels=labels)
            except ApiException as error:
                if error.status in (403, 404):
                    self._refusals.append(
                        "no permission to query the metrics API (list pods of metrics.k8s.io)"
                        if error.status == 403
                        else "the cluster has no metrics API"
                    )
                    return False
                _log.debug("the metrics API can't be queried: %s", error)
                continue
            is_new |= self._seen.add_means(read_pod_metrics(metrics))
        return is_new

    def _sample_kubelets(self) -> bool:
        nodes = self._seen.nodes
        is_new = False
        for text in self._ask_all(nodes, "metrics/resource").values():
            counts, sizes = read_resource_metrics(text)
            is_new |= self._seen.add_counts(counts)
            self._seen.add_memory(sizes)
        # The texts about disk and network are long.
        if not (self._ending.is_set() or self._is_over(self._bytes_at, _BYTES_EVERY_S)):
            return is_new
        covered: set[PodName] = set()
        for node, text in self._ask_all(nodes, "metrics/cadvisor").items():
            counts, cores = read_cadvisor_metrics(text)
            self._seen.add_counts(counts)
            covered |= {count.pod for count in counts if count.kind is Kind.RECEIVED}
            if cores is not None:
                self._seen.node_cpus[node] = cores
        if self._summaries_help and not covered >= set(self._seen.now):
            network = []
            for text in self._ask_all(nodes, "stats/summary").values():
                network += read_summary_network(json.loads(text))
            self._seen.add_counts(count for count in network if count.pod not in covered)
            self._summaries_help = bool(network)
        self._bytes_at = time.monotonic()
        return is_new

    def _ask_all(self, nodes: Sequence[str], path: str) -> dict[str, str]:
        """The answers of the nodes' kubelets that can be reached. ApiException if it isn't allowed."""

        def ask(node: str) -> tuple[str, str | None]:
            try:
                return node, self._client.read_text(
                    NODE.locate(None, node, "proxy", *path.split("/"))
                )
            except ApiException as error:
                if error.status == 403:
                    raise
                _log.debug("the kubelet of %s can't be queried: %s", node, error)
                return node, None

        with ThreadPoolExecutor(_READERS) as readers:
            return {node: text for node, text in readers.map(ask, nodes) if text is not None}

    # --- what others take of the run's nodes ------------------------------------------------------

    def follow_nodes(self) -> None:
        """Read until stopped. Runs in a thread."""
        self._began.wait()
        while not self._stopped.is_set() and not self._nodes_forbidden:
            nodes = sorted(set(self._find_own().values()))
            with ThreadPoolExecutor(_READERS) as readers:
                list(readers.map(self._read_node, nodes))
            self._stopped.wait(self._patience * max(_NODES_EVERY_S, _NODE_EVERY_S * len(nodes)))

    def _read_node(self, node: str) -> None:
        path = NODE.locate(None, node, "proxy", "stats", "summary")
        try:
            summary = self._client.read_json(path, only_cpu_and_memory="true")
            self._nodes.setdefault(node, NodeUse()).add(summary)
        except (ApiException, ValueError, KeyError, *UNREACHABLE) as error:
            self._nodes_forbidden |= isinstance(error, ApiException) and error.status == 403
            _log.debug("the statistics of node %s can't be read: %s", node, error)


def explain_too_little(source: str, window_s: float) -> str:
    """Why too little is known of a window of this length, with a remedy if the length is the cause."""
    reason = f"{source} covered less than half of the window"
    if window_s >= _LONG_WINDOW_S:
        return reason
    return (
        f"{reason}, as their figures come every 10 to 15 s: make it {_LONG_WINDOW_S:g} s or longer, or"
        " add a warm-up"
    )


# --- what others take of the nodes ----------------------------------------------------------------

Placement = Mapping[PodName, str]
"""Pods, and the nodes they run on."""


@dataclass
class Series:
    """CPU of a node or a pod: cores, each over the 10 to 15 seconds before its time stamp."""

    stamps: list[str] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    def add(self, cpu: Mapping[str, Any] | None) -> None:
        """Add a figure from the kubelet; ignored if there is none, or if it isn't new."""
        if cpu is None or cpu.get("usageNanoCores") is None or cpu["time"] in self.stamps[-1:]:
            return
        self.stamps.append(cpu["time"])
        self.cores.append(cpu["usageNanoCores"] / 1e9)

    @property
    def mean(self) -> float | None:
        """The mean over the run. The first figure is from before the run and the second one partly so, so
        both are left out. None if there are no more, as in runs below about 30 s."""
        within = self.cores[2:]
        return sum(within) / len(within) if within else None


@dataclass
class NodeUse:
    """CPU of a node and of its pods, since a run began."""

    whole: Series = field(default_factory=Series)
    pods: dict[PodName, Series] = field(default_factory=dict)

    def add(self, summary: Mapping[str, Any]) -> None:
        """Add the kubelet's current figures:
        https://kubernetes.io/docs/reference/instrumentation/node-metrics/"""
        self.whole.add(summary.get("node", {}).get("cpu"))
        for pod in summary.get("pods", []):
            name = pod["podRef"]["namespace"], pod["podRef"]["name"]
            self.pods.setdefault(name, Series()).add(pod.get("cpu"))

    def share_of_others(
        self, own: Collection[PodName], cpus: int
    ) -> tuple[float, dict[str, float]] | None:
        """The share of the node's CPU that was used by none of its pods `own`, and the pods that used most of
        it. None if too little is known of the node, or of one of those pods."""
        means = {name: series.mean for name, series in self.pods.items()}
        ours = [cores for name in own if (cores := means.get(name)) is not None]
        whole = self.whole.mean
        if whole is None or len(ours) < len(own):
            return None
        shares = {
            "/".join(name): cores / cpus
            for name, cores in means.items()
            if name not in own and cores is not None
        }
        return min(1.0, max(0.0, whole - sum(ours)) / cpus), name_most(shares)


def place_pods(namespace: str, pods: Iterable[Item]) -> dict[PodName, str]:
    """Pod -> its node, for pods that have one."""
    return {
        (namespace, pod["metadata"]["name"]): pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }
