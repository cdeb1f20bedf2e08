"""Looks at the database's pods while a run goes on: by the kubelets, else by the metrics API."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from kubernetes.client.exceptions import ApiException

from simulator.contract import DatabaseUse, Report, Resources, RunResult

from ...kubeclient import NODE, POD_METRICS, UNREACHABLE, KubeClient
from .consumption import Consumption, Window
from .metrics import (
    Kind,
    PodName,
    read_cadvisor_metrics,
    read_pod_metrics,
    read_resource_metrics,
    read_summary_network,
)
from .pods import DatabasePods

_log = logging.getLogger(__name__)

# Most kubelets have new figures every 10 to 15 s; some look each time they are asked.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 4.0
_MOST_SHARE = 0.05
"""A kubelet that takes long to answer is asked less often: it works on the database's node."""
_LIST_EVERY_S = 4.0
_BYTES_EVERY_S = 8.0
_READERS = 8
_LAST_LOOK_S = 5.0
_LONG_WINDOW_S = 30.0
"""Most of so long a window is told of, wherever it begins."""

_KUBELETS, _METRICS_API = "the kubelets", "the metrics API"
_ROLE = "see Permissions in docs/kubernetes.md"


class DatabaseWatch:
    """Reads what the database's pods have used, from a thread of this machine."""

    def __init__(self, client: KubeClient, pods: DatabasePods) -> None:
        """`client`: of its own, to be broken off."""
        self._client = client
        self._pods = pods
        self._seen = Consumption(_KUBELETS)
        self._by_kubelets = True
        self._refusals: list[str] = []
        """Why who was asked doesn't tell anything."""
        self._summaries_help = True
        """Whether they have the network of pods that cAdvisor lacks."""
        self._listed_at = self._bytes_at = -1e9
        self._ending = threading.Event()
        self._abandoned = False
        self._ended = threading.Event()
        self.use: DatabaseUse | None = None
        """What the pods used when they were last looked at."""

    def finish(self) -> None:
        """Look once more, and end."""
        self._ending.set()
        self._ended.wait(_LAST_LOOK_S)

    def stop(self) -> None:
        """End, whatever is under way."""
        self._abandoned = True
        self._ending.set()
        self._client.break_off()

    # --- the thread -------------------------------------------------------------------------------

    def follow(self) -> None:
        """Look until the end; the work of a thread."""
        try:
            self._sample_repeatedly()
        finally:
            self._ended.set()

    def _sample_repeatedly(self) -> None:
        pause_s = _SHORTEST_PAUSE_S
        while True:
            ended = self._ending.wait(pause_s)
            if self._abandoned:
                return
            began = time.monotonic()
            is_new = False
            try:
                self._list_pods()
                is_new = self._look()
                self.use = self._seen.find_use()
            except UNREACHABLE as error:
                _log.debug("the database's pods can't be looked at: %s", error)
            if ended or len(self._refusals) > 1:
                return
            took_s = time.monotonic() - began
            grown_s = _SHORTEST_PAUSE_S if is_new else min(_LONGEST_PAUSE_S, 2 * pause_s)
            pause_s = max(grown_s, min(took_s / _MOST_SHARE, _LONGEST_PAUSE_S))

    def _list_pods(self) -> None:
        if self._ending.is_set() or time.monotonic() - self._listed_at >= _LIST_EVERY_S:
            found = self._pods.find()
            self._listed_at = time.monotonic()
            self._seen.know(found)

    def _look(self) -> bool:
        """Whether there was something new."""
        if not self._seen.nodes:
            return False
        if self._by_kubelets:
            try:
                return self._sample_kubelets()
            except ApiException:
                self._refusals.append("the kubelets may not be asked (get nodes/proxy)")
                self._by_kubelets = False
                again = Consumption(_METRICS_API)
                again.know(self._seen.pods)
                self._seen = again
        return self._sample_metrics_api()

    def _sample_kubelets(self) -> bool:
        nodes = self._seen.nodes
        is_new = False
        for text in self._ask_all(nodes, "metrics/resource").values():
            counts, sizes = read_resource_metrics(text)
            is_new |= self._seen.add_counts(counts)
            self._seen.add_memory(sizes)
        if self._ending.is_set() or time.monotonic() - self._bytes_at >= _BYTES_EVERY_S:
            self._sample_bytes(nodes)
            self._bytes_at = time.monotonic()
        return is_new

    def _sample_bytes(self, nodes: Sequence[str]) -> None:
        """Disk and network: texts that are long."""
        known: set[PodName] = set()
        for node, text in self._ask_all(nodes, "metrics/cadvisor").items():
            counts, cores = read_cadvisor_metrics(text)
            self._seen.add_counts(counts)
            known |= {one.pod for one in counts if one.kind is Kind.RECEIVED}
            if cores is not None:
                self._seen.node_cpus[node] = cores
        if not self._summaries_help or known >= set(self._seen.now):
            return
        found = []
        for text in self._ask_all(nodes, "stats/summary").values():
            found += read_summary_network(json.loads(text))
        self._seen.add_counts(one for one in found if one.pod not in known)
        self._summaries_help = bool(found)

    def _ask_all(self, nodes: Sequence[str], path: str) -> dict[str, str]:
        """What the nodes' kubelets say, as far as they can be reached. ApiException if it isn't allowed."""

        def ask(node: str) -> tuple[str, str | None]:
            try:
                return node, self._client.read_text(
                    NODE.locate(None, node, "proxy", *path.split("/"))
                )
            except ApiException as error:
                if error.status == 403:
                    raise
                _log.debug("the kubelet of %s can't be asked: %s", node, error)
                return node, None

        with ThreadPoolExecutor(_READERS) as readers:
            return {node: text for node, text in readers.map(ask, nodes) if text is not None}

    def _sample_metrics_api(self) -> bool:
        is_new = False
        for one in self._pods.selections:
            try:
                found = self._client.find(POD_METRICS, one.namespace, labels=one.labels)
            except ApiException as error:
                if error.status in (403, 404):
                    self._refusals.append(
                        "the metrics API may not be asked (list pods of metrics.k8s.io)"
                        if error.status == 403
                        else "the cluster has no metrics API"
                    )
                    return False
                _log.debug("the metrics API can't be asked: %s", error)
                continue
            is_new |= self._seen.add_means(read_pod_metrics(found))
        return is_new

    # --- afterwards -------------------------------------------------------------------------------

    @property
    def placement(self) -> dict[PodName, str]:
        """The pods that were seen, and their nodes."""
        return {pod.name: pod.node for pod in self._seen.pods}

    def complete(self, report: Report) -> None:
        """Put what the database used into a report, for its own window; to be called after the end."""
        if not self._ended.is_set():
            return
        run = report.run
        if run.began_at is not None and run.ended_at is not None:
            run.resources = self._summarize(run, run.began_at, run.ended_at)

    def _summarize(self, run: RunResult, began_at: str, ended_at: str) -> Resources:
        began, ended = (datetime.fromisoformat(text).timestamp() for text in (began_at, ended_at))
        events = run.writers.count if run.writers else None
        warm_up_s = run.groups[0].warm_up_s
        found = self._seen.summarize(Window(began, ended, began - warm_up_s), events)
        return found or Resources(reason=self._explain(ended - began))

    def _explain(self, window_s: float) -> str:
        """Why nothing is known of so long a window."""
        if len(self._refusals) > 1:
            return f"{', and '.join(self._refusals)}: {_ROLE}"
        if not self._seen.pods and self._pods.problem:
            return self._pods.problem
        return explain_too_little(self._seen.source, window_s)


def explain_too_little(source: str, window_s: float) -> str:
    """Why so long a window is not told of, with a remedy if its length is the cause."""
    reason = f"{source} tell of less than half of the window"
    if window_s >= _LONG_WINDOW_S:
        return reason
    return (
        f"{reason}: their figures come every 10 to 15 s, so let it be {_LONG_WINDOW_S:g} s or more, or"
        " add a warm-up"
    )
