"""One release of the chart: installed, used for its runs, and removed, while its logs are kept."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from kubernetes.client.exceptions import ApiException

from simulator.contract import Phase, Report, RunSettings, Status
from simulator.documents import merge_values
from simulator.units import format_span

from ....system.errors import ConfigError, RunFailed
from ....system.installation import describe_user, program
from ....system.output import note
from ....system.processes import Interrupts
from ...cluster import RELEASE_PREFIX, RUN_LABEL, Helm, Place, explain_no_namespace
from ...kubeclient import (
    COLLECTOR,
    EVENT,
    JOB,
    NODE,
    POD,
    UNREACHABLE,
    WORKER,
    Item,
    KubeClient,
    find_own_container,
    has_ended,
    is_running,
    read_component,
)
from ...probes.kubelets import PodSampler, place_pods
from .. import PartChanged, RunUnderWay, Series, Watch, await_report, ease
from .access import CollectorAccess
from .recordings import RecordingSender, find_room
from .watching import NODE_PATIENCE, Change, ReleaseWatch

_GONE_PATIENCE_S = 15.0
# What remains can be removed later: https://helm.sh/docs/helm/helm_uninstall/
_REMOVAL_PATIENCE_S = 30.0
# Longer than it can take to make a connection.
_THREADS_PATIENCE_S = 7.0
_RETRY_S = 1.0
# Pods that end make room for those of the next run within seconds.
_TOLD_AFTER_S = 10.0


class Release(RunUnderWay, Series):
    """Its pods make all runs with one worker count, each in new processes."""

    def __init__(
        self,
        interrupts: Interrupts,
        place: Place,
        helm: Helm,
        values: Mapping[str, Any],
        settings: Sequence[RunSettings],
        logs: Path,
        node_patience_s: tuple[float, float],
        packed: Path | None,
    ) -> None:
        """`node_patience_s`: as for `ReleaseWatch`; `packed`: the runs' recording, if they have one."""
        super().__init__()
        self._interrupts = interrupts
        self._place = place
        self._helm = helm
        self._values = values
        self._settings = settings
        self._logs = logs
        # A new one for each release: the kubeconfig's credentials may have been renewed.
        self._client = place.make_client()
        # The release is named after its first run.
        first = settings[0]
        self._name = RELEASE_PREFIX + first.run_id
        self._selector = f"{RUN_LABEL}={first.run_id}"
        self._workers = first.workers
        self._watch = ReleaseWatch(
            self._client, place.namespace, self._name, self._selector, self._workers,
            node_patience_s, self.events, self.problems,
        )  # fmt: skip
        self._collector = CollectorAccess(
            self._client, place.namespace, self._name, first, self.events, self._watch.find_collector,
        )  # fmt: skip
        self._sender: RecordingSender | None = None
        if packed is not None and first.delivery is not None and first.delivery.source is None:
            self._sender = RecordingSender(
                self._client, place.namespace, self._name, first, packed, self.events,
                self._watch.find_collector,
            )  # fmt: skip
        self._made: list[str] = []
        """The runs that have a report."""
        self._wait_told = False
        """Whether the user has been told that pods wait for a node."""
        self._installed = False
        self._refused = False
        """Whether the user lacks permission to install."""

    # --- start -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch, and install the release."""
        for kind in (POD, JOB, EVENT):
            self.begin(self._watch.follow, kind)
        first = self._settings[0]
        values = {
            **self._add_pod_network(self._values),
            "run": {
                "id": first.run_id,
                "workers": self._workers,
                "startedBy": describe_user(),
                "recordingSize": find_room(first.delivery) if first.delivery else "",
                "settings": "[" + ",".join(s.model_dump_json() for s in self._settings) + "]",
            },
        }
        with self._interrupts.shield():
            self._installed = True
            try:
                self._helm.install(self._name, values)
            except RunFailed as error:
                text = error.message.replace(first.token, "***")
                self._refused = _is_forbidden(error)
                if self._refused:
                    remedy = "see Permissions in docs/how-to/private-clusters.md"
                    raise ConfigError(f"{text}; {remedy}") from None
                if f'namespaces "{self._place.namespace}" not found' in error.message:
                    raise ConfigError(explain_no_namespace(self._place.namespace)) from None
                raise type(error)(text) from None
        self.begin(self._collector.follow)
        if self._sender is not None:
            self.begin(self._sender.send)

    def _add_pod_network(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with the pod network's ranges for the NetworkPolicy, if they are known."""
        if "podCidrs" in values.get("networkPolicy", {}):
            return dict(values)
        try:
            nodes = self._client.find(NODE)
        except ApiException:
            return dict(values)
        cidrs = sorted({cidr for node in nodes for cidr in node["spec"].get("podCIDRs") or []})
        return merge_values(values, {"networkPolicy": {"podCidrs": cidrs}})

    # --- a run -----------------------------------------------------------------------------------

    def goes_on_with(self, settings: RunSettings) -> bool:
        """Whether the pods make this run as their next one. For all but the first, this tells them to."""
        return not self._made or self._collector.go_on(self._made[-1], settings.after)

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        began = time.monotonic()
        space = self._place.namespace
        sampler = PodSampler(
            self._client, space, self._values, settings.options.values(),
            lambda: place_pods(space, list(self._watch.pods.values())), ease(settings.workers),
        )  # fmt: skip
        self.begin(sampler.follow_nodes, vital=False)
        self.begin(sampler.follow_database, vital=False)

        def notice(status: Status) -> None:
            sampler.notice(status)
            watch(status.model_copy(update={"database": sampler.use}))

        try:
            arrival = await_report(
                self, settings.run_id, began + timeout_s if timeout_s else None, notice
            )
            sampler.finish()
        finally:
            sampler.stop()
        ended = time.monotonic()
        report = arrival.report
        sampler.complete(report)
        if arrival.heard_at is not None:
            before = max(0.0, arrival.heard_at - began - arrival.age_s)
            report.run.phases_s[Phase.START] = report.run.phases_s.get(Phase.START, 0.0) + before
        self._made.append(settings.run_id)
        report.environment["kubernetes"] = self._describe_environment()
        report.run.phases_s[Phase.CLEAN_UP] = time.monotonic() - ended
        return report

    def _describe_environment(self) -> dict[str, Any]:
        kept = len(self._made) > 1
        return {
            "helm": self._helm.find_version(),
            "namespace": self._place.namespace,
            "pods": "kept for the runs of one worker count, with new processes for each run"
            if kept
            else "new for each run",
            **describe_environment(self._client, self._watch.pods),
        }

    def notice(self, news: Change) -> None:
        """Handle a change of a pod, a Job or an event."""
        self._watch.notice(news)

    def check(self) -> None:
        """Raise if the user has asked for the end again. Note what a run has been waiting for."""
        self._interrupts.insist()
        lasting = None if self._wait_told else self.problems.find_lasting(_TOLD_AFTER_S)
        if lasting is not None and lasting.patience_s > _TOLD_AFTER_S:
            self._wait_told = True
            limit = format_span(lasting.patience_s)
            note(f"{lasting.text}\nwaiting for a node, {limit} at most ({NODE_PATIENCE})")

    def describe_start(self) -> str:
        """Which pods have not started, or why the collector can't be heard."""
        problem = self._collector.problem
        pod = self._watch.find_collector()
        if problem is not None and pod is not None and is_running(pod):
            return f"no contact with the collector yet: {problem}"
        return self._watch.describe_pending()

    # --- the end ---------------------------------------------------------------------------------

    def clean_up(self, failed: bool) -> None:
        """Keep the logs, remove the release, and make sure that its pods are gone."""
        with self._interrupts.shield():
            self._collector.stop()
            try:
                if self._installed:
                    self._keep_evidence(failed)
                    self._remove()
            finally:
                self._end_threads()

    def _end_threads(self) -> None:
        # Repeatedly, in case a thread was just about to connect.
        def stop() -> None:
            self._watch.stop()
            self._collector.stop()
            if self._sender is not None:
                self._sender.stop()

        self.end_threads(stop, _THREADS_PATIENCE_S)

    def _keep_evidence(self, failed: bool) -> None:
        """Keep the pods' logs, and the events of a failed run, unless the collector is out of reach or the
        user is in a hurry."""
        if self._collector.is_lost or self._interrupts.hurry.is_set():
            return
        with suppress(ApiException, *UNREACHABLE):
            listed = self._client.find(POD, self._place.namespace, labels=self._selector)
            self._watch.pods |= {pod["metadata"]["name"]: pod for pod in listed}
        pods = self._watch.pods.values()
        keep_logs(self._client, self._place.namespace, pods, self._logs)
        if failed:
            keep_events(self._client, self._place.namespace, self._name, self._logs)

    def _remove(self) -> None:
        """Uninstall, and retry while the API server is away. RunFailed says what remains."""
        deadline = time.monotonic() + _REMOVAL_PATIENCE_S
        while True:
            try:
                self._helm.uninstall(self._name)
                break
            except RunFailed as error:
                forbidden = _is_forbidden(error)
                if forbidden and self._refused:
                    return  # nothing was installed either
                late = time.monotonic() > deadline
                if forbidden or late or self._interrupts.hurry.is_set():
                    options = " ".join(self._place.list_options())
                    raise RunFailed(
                        f"release {self._name} is left in the cluster ({error.message});"
                        f" remove it later: {program()} clean {options}"
                    ) from None
                time.sleep(_RETRY_S)
        self._await_gone()

    def _await_gone(self) -> None:
        """Wait until the pods have ended: the next run must not share the nodes with them."""
        remaining = {name for name, pod in self._watch.pods.items() if not has_ended(pod)}
        until = time.monotonic() + _GONE_PATIENCE_S
        while remaining and time.monotonic() < until and not self._interrupts.hurry.is_set():
            try:
                event = self.events.get(timeout=0.2)
            except Empty:
                continue
            change = event.news if isinstance(event, PartChanged) else None
            if not isinstance(change, Change) or change.kind is not POD:
                continue
            if change.how == "DELETED" or has_ended(change.item):
                remaining.discard(change.item["metadata"]["name"])


def _is_forbidden(error: RunFailed) -> bool:
    """Whether helm failed for lack of permission. A quota's refusal says "forbidden", too."""
    return "is forbidden: User" in error.message


# --- what is kept of it: logs, events, and where and on what it ran --------------------------------------

_LOG_READERS = 8
MOST_LOGS = 40
"""The most pods whose logs are kept: each takes a request, and nobody reads the logs of 1,000 workers."""


def choose_logged(pods: Iterable[Item]) -> list[Item]:
    """The pods whose logs to keep: the collector's, then those of failed pods, then others by name."""

    def order(pod: Item) -> tuple[bool, bool, str]:
        failed = pod["status"].get("phase") == "Failed"
        return read_component(pod) == WORKER, not failed, pod["metadata"]["name"]

    return sorted(pods, key=order)[:MOST_LOGS]


def keep_logs(client: KubeClient, namespace: str, pods: Iterable[Item], logs: Path) -> None:
    """Write the logs of the pods, each to its own file; if there are many pods, only the most telling."""

    def keep(pod: Item) -> None:
        name, container = pod["metadata"]["name"], read_component(pod) or COLLECTOR
        with suppress(ApiException, *UNREACHABLE):
            (logs / f"{name}.log").write_bytes(client.read_log(namespace, name, container))

    with ThreadPoolExecutor(_LOG_READERS) as readers:
        list(readers.map(keep, choose_logged(pods)))


def keep_events(client: KubeClient, namespace: str, release: str, logs: Path) -> None:
    """Write the events of a release's objects to a file."""
    with suppress(ApiException, *UNREACHABLE):
        events = client.find(EVENT, namespace)
        lines = [
            f"{event.get('lastTimestamp') or event.get('eventTime')} {event.get('type')}"
            f" {concerned.get('kind')}/{concerned.get('name')} {event.get('reason')}:"
            f" {event.get('message')}\n"
            for event in events
            if (concerned := event["involvedObject"]).get("name", "").startswith(release)
        ]
        (logs / "events.log").write_text("".join(lines), encoding="utf-8")


def describe_environment(client: KubeClient, pods: Mapping[str, Item]) -> dict[str, Any]:
    """Version, placement, nodes and image digests, for the result. None for what the user may not read."""
    version = None
    with suppress(ApiException, *UNREACHABLE):
        version = client.read_version()
    placement = {name: pod["spec"].get("nodeName") for name, pod in sorted(pods.items())}
    statuses = filter(None, map(find_own_container, pods.values()))
    images = {status["imageID"] for status in statuses if status.get("imageID")}
    nodes: dict[str, Item] = {}
    with suppress(ApiException, *UNREACHABLE):
        # All at once: with many workers, there would be a request for each node.
        nodes = {node["metadata"]["name"]: node for node in client.find(NODE)}
    return {
        "version": version,
        "placement": placement,
        "nodes": {
            name: _describe_node(nodes[name]) if name in nodes else None
            for name in sorted(set(filter(None, placement.values())))
        },
        "images": sorted(images),
    }


def _describe_node(node: Item) -> dict[str, Any]:
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
