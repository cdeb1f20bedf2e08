"""Collector and workers as pods: the chart in deployment/ is installed for each worker count and removed
after its runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from simulator.contract import Phase, Report, RunSettings
from simulator.units import read_duration_s

from ....plan.disturbances import Action, Disturbance, parse_workload, split_namespace
from ....system.errors import ConfigError, RunFailed
from ....system.output import note
from ....system.processes import Interrupts
from ...cluster import RUN_LABEL, Helm, Place, check_namespace, explain_errors, merge_chart_values
from ...faults import Doer
from ...kubeclient import DAEMON_SET, DEPLOYMENT, POD, STATEFUL_SET, Item, KubeClient
from ...leftovers import describe_others
from .. import Executor, Series, Watch
from .recordings import find_delivery
from .release import Release

# Pulling the image over a slow line takes minutes. A pod that can never start is recognized by its state.
_READY_TIMEOUT_S = 900.0
# How long pods wait for a node without word from an autoscaler: other pods may be about to end.
_UNPROMISED_PATIENCE_S = 10.0
_QUANTITIES = ("resources", "collectorResources", "requests", "collectorRequests")
"""The chart's values that are quantities."""
_LARGEST = Decimal(2**63)
"""Kubernetes' own limit: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


class KubernetesExecutor(Executor):
    """Installs a release for each worker count, under its own name, and watches its Jobs and pods."""

    def __init__(self, interrupts: Interrupts, place: Place, values: Mapping[str, Any]) -> None:
        """`values`: the chart's, as in the config file."""
        self._interrupts = interrupts
        self._place = place
        self._values = dict(values)
        whole = merge_chart_values(values)
        try:
            patience_s = read_duration_s(whole["scheduling_patience"])
        except ValueError as error:
            raise ConfigError(f"kubernetes: scheduling_patience: {error}") from error
        # Users who set the patience, or queue pods at another scheduler, expect pods to wait.
        asked = "scheduling_patience" in values or bool(whole["schedulerName"])
        unpromised_s = patience_s if asked else min(patience_s, _UNPROMISED_PATIENCE_S)
        self._node_patience_s = unpromised_s, patience_s
        check_quantities(whole)
        self._helm = Helm(place, interrupts.hurry.is_set)
        self._others_told = self._ignored_told = False
        self._began: float | None = None

    def __enter__(self) -> KubernetesExecutor:
        self._began = time.monotonic()
        self._helm.find_version()
        self._client = self._place.make_client()
        check_namespace(self._client, self._place.namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def find_doers(self) -> Mapping[Action, Doer]:
        return PodFaultInjector(self._client, self._place.namespace).doers()

    def check_disturbances(self, disturbances: Sequence[Disturbance]) -> None:
        PodFaultInjector(self._client, self._place.namespace).check(disturbances)

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        with _Releases(self, settings, logs) as series:
            yield series

    def begin_start(self) -> float:
        """When the start of the next run began, by `time.monotonic()`. The first run's began with the
        executor, which checks helm's version and whether there is room."""
        began, self._began = self._began, None
        return time.monotonic() if began is None else began

    def warn_of_ignored(self, report: Report) -> None:
        """Say once which keys of the Secret the processes ignored."""
        ignored = report.environment.pop("ignored_secret_keys", None)
        if ignored and not self._ignored_told:
            self._ignored_told = True
            note(
                f"note: keys of the Secret {self._values.get('existingSecret')} that aren't options are"
                f" ignored: {', '.join(ignored)}; `kubernetes: secretKeys:` maps keys to options"
            )

    def _warn_of_other_runs(self, own: str) -> None:
        """Say once which other runs are at work: runs disturb each other's figures, or tables."""
        if not self._others_told:
            self._others_told = True
            warning = describe_others(self._client, self._place, own)
            if warning is not None:
                note(f"note: {warning}")

    @contextmanager
    def install(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Release]:
        """Install one release for these runs, and remove it at the end."""
        delivery, packed = find_delivery(settings[0], self._values)
        more = {
            "ready_timeout_s": _READY_TIMEOUT_S + self._node_patience_s[1],
            "delivery": delivery,
        }
        settings = [run.model_copy(update=more) for run in settings]
        release = Release(
            self._interrupts, self._place, self._helm, self._values, settings, logs,
            self._node_patience_s, packed,
        )  # fmt: skip
        try:
            self._warn_of_other_runs(settings[0].run_id)
            release.start()
            yield release
        except RunFailed as error:
            texts = [error.message]
            try:
                release.clean_up(failed=True)
            except RunFailed as leftover:
                texts.append(leftover.message)
            warning = describe_others(self._client, self._place, settings[0].run_id)
            if warning is not None:
                texts.append(warning)
            raise type(error)("\n".join(texts)) from error
        except BaseException:
            release.clean_up(failed=True)
            raise
        else:
            release.clean_up(failed=False)


def check_quantities(values: Mapping[str, Any]) -> None:
    """ConfigError if one of the chart's values isn't a quantity."""
    given = {"databaseLink": values["databaseLink"]} if values["databaseLink"] else {}
    for key in _QUANTITIES:
        if not isinstance(values[key], Mapping | None):
            raise ConfigError(f"kubernetes: {key}: write quantities below it, as in {{cpu: 500m}}")
        given |= {f"{key}: {name}": amount for name, amount in (values[key] or {}).items()}
    for place, amount in given.items():
        try:
            parsed = Decimal("NaN") if isinstance(amount, bool) else parse_quantity(amount)
        except (ValueError, TypeError):
            parsed = Decimal("NaN")
        if not 0 < (parsed if parsed.is_finite() else 0) < _LARGEST:
            raise ConfigError(
                f"kubernetes: {place}: {amount!r} is no quantity: write a number above 0, as in 2, 500m,"
                " 300M or 512Mi"
            )


class _Releases(Series):
    """One release for all runs. If a collector can't be told to begin its next run, for example where the
    service proxy is forbidden, the remaining runs get another release."""

    def __init__(
        self, executor: KubernetesExecutor, settings: Sequence[RunSettings], logs: Path
    ) -> None:
        self._executor = executor
        self._settings = list(settings)
        self._logs = logs
        self._installed = ExitStack()
        self._release: Release | None = None
        self._start_s = 0.0
        """How long it took to install the release, or to tell it to go on; not yet counted in any run."""
        self._last: Report | None = None

    def __enter__(self) -> _Releases:
        self._install(0)
        return self

    def __exit__(self, *error: Any) -> None:
        self._remove(*error)

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        assert self._release is not None
        began = time.monotonic()
        if self._release.goes_on_with(settings):
            self._start_s += time.monotonic() - began
        else:
            self._remove(None, None, None)
            self._install([run.run_id for run in self._settings].index(settings.run_id))
        report = self._release.run(settings, timeout_s, watch)
        self._executor.warn_of_ignored(report)
        report.run.phases_s[Phase.START] = report.run.phases_s.get(Phase.START, 0.0) + self._start_s
        self._start_s = 0.0
        self._last = report
        return report

    def _install(self, first: int) -> None:
        """Install a release for the runs from this index on."""
        began = self._executor.begin_start()
        logs = self._logs / f"run-{first + 1:02d}" if first else self._logs
        logs.mkdir(exist_ok=True)
        self._release = self._installed.enter_context(
            self._executor.install(self._settings[first:], logs)
        )
        self._start_s = time.monotonic() - began

    def _remove(self, *error: Any) -> None:
        """Remove the release. That time counts as its last run's clean-up, too."""
        began = time.monotonic()
        self._release = None
        try:
            self._installed.__exit__(*error)
        finally:
            if self._last is not None:
                self._last.run.phases_s[Phase.CLEAN_UP] += time.monotonic() - began
                self._last = None


# --- faults of pods ----------------------------------------------------------------------------------


_OWN_LABELS = (
    ("app.kubernetes.io/name", ("iot-database-benchmark",)),
    ("app.kubernetes.io/managed-by", ("Helm",)),
    ("app.kubernetes.io/component", ("worker", "collector")),
)
"""Labels of a run's pods (deployment/templates/_helpers.tpl), with the possible values of each."""

_TERM = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s*(?:(?P<sign>!=|==?)\s*(?P<value>[\w.-]*)"
    r"|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?|!\s*(?P<absent>[\w./-]+))\s*(?:,|$)"
)
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"""


def matches_own_pods(selector: str) -> bool:
    """Whether a label selector that the API server understands also selects a run's own pods."""
    own = dict(_OWN_LABELS)
    for term in _TERM.finditer(selector):
        if term["absent"]:
            if term["absent"] in own or term["absent"] == RUN_LABEL:
                return False
            continue
        own_values = own.get(term["key"])
        values = {value.strip() for value in (term["values"] or term["value"] or "").split(",")}
        if term["sign"] == "!=" or term["set"] == "notin":
            if own_values and set(own_values) <= values:
                return False
        elif term["sign"] or term["set"]:
            if not own_values or not values & set(own_values):
                return False
        elif own_values is None and term["key"] != RUN_LABEL:
            return False
    return True


_WORKLOADS = {kind.name: kind for kind in (STATEFUL_SET, DEPLOYMENT, DAEMON_SET)}


class PodFaultInjector:
    """Deletes pods, and restarts and scales workloads: in the run's namespace, or in one that is named as in
    `app=postgresql in databases`."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def doers(self) -> Mapping[Action, Doer]:
        """The actions it can do."""
        return {
            Action.DELETE_PODS: self.delete_pods,
            Action.RESTART: self.restart,
            Action.SCALE: self.scale,
        }

    def check(self, disturbances: Sequence[Disturbance]) -> None:
        """ConfigError if one can't be done: the API server gets the request, but only as a dry run
        (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run)."""
        for disturbance in disturbances:
            try:
                if disturbance.action is Action.DELETE_PODS:
                    self.delete_pods(disturbance.argument, dry_run=True)
                elif disturbance.action is Action.RESTART:
                    self.restart(disturbance.argument, dry_run=True)
                elif disturbance.action is Action.SCALE:
                    self.scale(disturbance.argument, dry_run=True)
            except RunFailed as error:
                raise ConfigError(f"--disturb '{disturbance}': {error.message}") from error

    def delete_pods(self, argument: str, dry_run: bool = False) -> None:
        """Delete the pods with these labels, as draining a node would."""
        labels, namespace = self._split(argument)
        with explain_errors(f"can't delete pods {labels} of namespace {namespace}"):
            pods = self._client.find(POD, namespace, labels=labels)
            if any(RUN_LABEL in (pod["metadata"].get("labels") or {}) for pod in pods) or (
                namespace == self._namespace and matches_own_pods(labels)
            ):
                raise RunFailed(
                    f"pods of this tool also have the labels {labels}: name the database's own"
                )
            for pod in pods:
                self._client.delete(POD, namespace, pod["metadata"]["name"], dry_run=dry_run)
        if not pods:
            raise RunFailed(f"namespace {namespace} has no pod with the labels {labels}")

    def restart(self, argument: str, dry_run: bool = False) -> None:
        """Replace a workload's pods one by one, as `kubectl rollout restart` does."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        annotations = {"kubectl.kubernetes.io/restartedAt": now}
        change = {"template": {"metadata": {"annotations": annotations}}}
        self._patch(Action.RESTART, argument, change, dry_run)

    def scale(self, argument: str, dry_run: bool = False) -> None:
        """Set the number of a workload's pods."""
        self._patch(Action.SCALE, argument, {}, dry_run)

    def _patch(self, action: Action, argument: str, change: Item, dry_run: bool) -> None:
        target, namespace = self._split(argument)
        try:
            workload = parse_workload(action, target)
        except ConfigError as error:
            raise RunFailed(error.message) from error
        if workload.replicas is not None:
            change = {"replicas": workload.replicas}
        with explain_errors(f"can't change {workload} of namespace {namespace}"):
            self._client.patch(
                _WORKLOADS[workload.kind],
                namespace,
                workload.name,
                {"spec": change},
                dry_run=dry_run,
            )

    def _split(self, argument: str) -> tuple[str, str]:
        subject, namespace = split_namespace(argument)
        return subject, namespace or self._namespace
