"""The work of `doctor`: checks in the order in which a run needs things, each with a remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.contract import DataSet, Load, Role
from simulator.documents import read_yaml
from simulator.errors import OptionError, one_line
from simulator.machine import Reading, read_machine

from ..plan.config import load_config
from ..plan.planning import PlannedRun, check_workload
from ..plan.request import Request
from ..plan.target import ExecutorName
from ..plan.workloads import begin, complete_data, make_workload
from ..system.errors import EXIT_USAGE, CliError, ConfigError, RunFailed
from ..system.output import print_text
from ..system.processes import Interrupts
from .cluster import CHART, Helm, Place, is_allowed, merge_chart_values
from .experiments.context import make_settings, open_context
from .experiments.session import open_session

if TYPE_CHECKING:
    from .kubeclient import KubeClient

# What the tool and helm do in the namespace: (group, resource, subresource, verbs). The Role in
# docs/how-to/private-clusters.md grants exactly this; a test runs with it alone.
PERMISSIONS = (
    ("batch", "jobs", None, ("create", "delete", "get", "list", "watch")),
    ("", "pods", None, ("delete", "get", "list", "watch")),
    ("", "pods", "log", ("get",)),
    ("", "services", None, ("create", "delete", "get", "list")),
    ("", "services", "proxy", ("create", "get")),
    ("", "secrets", None, ("create", "delete", "get", "list", "update")),
    ("networking.k8s.io", "networkpolicies", None, ("create", "delete", "get", "list")),
    ("policy", "poddisruptionbudgets", None, ("create", "delete", "get", "list")),
    ("", "events", None, ("list", "watch")),
    ("metrics.k8s.io", "pods", None, ("list",)),
    ("coordination.k8s.io", "leases", None, ("create", "delete", "get", "patch")),
)

_FOR_ACCOUNTS = ("", "serviceaccounts", None, ("create", "delete", "get"))
"""Needed in addition with `serviceAccount.annotations` of the chart."""

_OF_TWO_GROUPS = {("metrics.k8s.io", "pods")}
"""Resources whose names are ambiguous between groups."""

_PODS_PATIENCE_S = 120.0

CHECK = Load(role=Role.CHECK)

BUSY_LOAD_PER_CPU = 0.5
"""Above this one-minute load average per CPU, a machine is busy."""

# A run works without these, too: differently, or with a gap in the result.
OPTIONAL = {
    ("", "services", "proxy"): "each run gets new pods, and recordings can't be sent to them",
    ("metrics.k8s.io", "pods", None): "only get nodes/proxy shows what the database uses",
    ("coordination.k8s.io", "leases", None): "a second campaign on a database isn't noticed",
}


@dataclass(frozen=True)
class Finding:
    """One check's outcome."""

    name: str
    ok: bool
    text: str
    remedy: str = ""


def diagnose(request: Request, interrupts: Interrupts) -> int:
    """Print each check's outcome and return the exit status. The request may lack a target.

    ConfigError if the workload is wrong, or the module can't store it.
    """
    config = load_config(request.config_file)
    target = config.target(request.target) if request.target else None
    make_workload(request.workload, config, request.workload_pairs, seed=0)
    healthy = True
    default = target.executor if target else ExecutorName.KUBERNETES
    if ExecutorName(request.executor or default) is ExecutorName.LOCAL:
        _show(judge_machine(read_machine()))
    else:
        place = Place(request.namespace or config.namespace, request.kubeconfig, request.context)
        values = target.kubernetes if target else config.chart_values()
        for finding in check_cluster(place, values):
            healthy = _show(finding) and healthy
            if not finding.ok and finding.name in ("context", "helm"):
                return EXIT_USAGE
        if healthy:
            healthy = _show(_check_pods(place, values, interrupts))
    if target and healthy:
        healthy = _show(check_database(request, interrupts))
    elif not target:
        print_text("      to check the connection to a database, add --target NAME")
    return 0 if healthy else EXIT_USAGE


def _show(finding: Finding) -> bool:
    print_text(f"{'ok   ' if finding.ok else 'FAIL '} {finding.name}: {finding.text}")
    if finding.remedy:
        print_text(f"      {finding.remedy}")
    return finding.ok


def judge_machine(reading: Reading) -> Finding:
    """Whether local processes would have this machine to themselves. A busy one isn't a failure."""
    load, cpus = reading.load_average_1m, reading.cpus or 1
    text = f"{cpus} CPUs" + ("" if load is None else f", load average {load:.1f}")
    busy = load is not None and load >= BUSY_LOAD_PER_CPU * cpus
    remedy = (
        "other programs are running on it: stop them, or figures will be too low" if busy else ""
    )
    return Finding("machine", True, text, remedy)


def check_cluster(place: Place, values: Any) -> Iterator[Finding]:
    """Context, helm, permissions, image. Each check needs the previous ones."""

    def describe_context() -> str:
        version = place.make_client().read_version()
        context = place.resolve_context() or "in-cluster"
        return f"{context}, namespace {place.namespace}, Kubernetes {version}"

    yield _check("context", describe_context, "check --kubeconfig, --context and the VPN")
    try:
        helm = Helm(place)
    except CliError:
        remedy = "see https://helm.sh/docs/intro/install/"
        yield Finding("helm", False, "not installed", remedy)
    else:
        yield _check("helm", helm.find_version, "install helm 3.4 or later")
    client = place.make_client()
    missing, optional = [], []
    for group, resource, subresource, verbs in list_permissions(values):
        for verb in verbs:
            if not is_allowed(client, place.namespace, group, resource, subresource, verb):
                name = f"{verb} {resource}" + (f"/{subresource}" if subresource else "")
                name += f" of {group}" if (group, resource) in _OF_TWO_GROUPS else ""
                if instead := OPTIONAL.get((group, resource, subresource)):
                    optional.append(f"no permission to {name}: {instead}")
                else:
                    missing.append(name)
    if missing:
        remedy = "ask for the Role in docs/how-to/private-clusters.md, section Permissions"
        yield Finding("permissions", False, f"not allowed: {', '.join(missing)}", remedy)
    else:
        yield Finding("permissions", True, "; ".join(optional) or "all there")
    yield _check_image(client, values)


def _check(name: str, check: Callable[[], str], remedy: str) -> Finding:
    from kubernetes.client.exceptions import ApiException

    from .kubeclient import UNREACHABLE

    try:
        return Finding(name, True, check())
    except CliError as error:
        return Finding(name, False, error.message, remedy)
    except (ApiException, *UNREACHABLE) as error:
        return Finding(name, False, one_line(error, 300), remedy)


def list_permissions(values: Any) -> list[tuple[str, str, str | None, tuple[str, ...]]]:
    """What a run with these chart values needs."""
    account = merge_chart_values(values)["serviceAccount"] or {}
    return [*PERMISSIONS, *([_FOR_ACCOUNTS] if account.get("annotations") else [])]


def name_image(values: Any) -> str:
    """`name:tag` as the chart would use it."""
    version = read_yaml(CHART / "Chart.yaml")[1]["appVersion"]
    image = merge_chart_values(values)["image"]
    return f"{image['name']}:{image['tag'] or version}"


def _check_image(client: KubeClient, values: Any) -> Finding:
    """Whether the nodes have the image. If not, it isn't a failure: they may be able to pull it."""
    from kubernetes.client.exceptions import ApiException

    from .kubeclient import NODE

    name = name_image(values)
    try:
        nodes = client.find(NODE)
    except ApiException:
        text = f"{name}; whether nodes have it can't be seen without permission to list nodes"
        return Finding("image", True, text)
    # docker.io/library/x:1 and x:1 are the same image.
    names = {name, f"docker.io/{name}", f"docker.io/library/{name}"}
    having = sum(
        any(names & set(image.get("names") or []) for image in node["status"].get("images") or [])
        for node in nodes
    )
    text = f"{name} is on {having} of {len(nodes)} nodes"
    if having == len(nodes):
        return Finding("image", True, text)
    return Finding(
        "image", True, text + "; the others must be able to pull it",
        "make image builds it; docs/how-to/kubernetes.md says how to bring it to a cluster",
    )  # fmt: skip


def _check_pods(place: Place, values: Any, interrupts: Interrupts) -> Finding:
    """A run without a database. It shows what Kubernetes would refuse in a real run, and why: image pull, Pod
    Security, quota, scheduling, name resolution."""
    from .executors import make_executor

    name = "image, Pod Security, quota, scheduling, DNS"
    # The Secret's keys are options of the target's module.
    values = dict(values, existingSecret="")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with make_executor(ExecutorName.KUBERNETES, interrupts, place, values) as executor:
                executor.check_capacity([1], 1)
                settings = make_settings("doctor", "blackhole", {}, DataSet(), CHECK)
                with executor.open_series([settings], Path(folder)) as series:
                    series.run(settings, _PODS_PATIENCE_S, lambda status: None)
        except CliError as error:
            return _report_failure(name, error)
    return Finding(name, True, "a worker connected to the collector")


def check_database(request: Request, interrupts: Interrupts) -> Finding:
    """A run with one worker: it and the collector connect to the database and change nothing."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(request.model_copy(update={"output": Path(folder)}))
        options = begin(session.workload.kind, session.workload_options)
        data = complete_data(DataSet(), session.workload, options, existing=False)
        try:
            check_workload(CHECK, data, session.module)
        except OptionError as error:
            raise ConfigError(str(error)) from error
        try:
            with open_context(session, "doctor", interrupts) as context:
                settings = context.make_settings(PlannedRun("check", 1, data, (CHECK,)))
                logs = context.folder.logs("check")
                with context.executor.open_series([settings], logs) as series:
                    report = series.run(settings, _PODS_PATIENCE_S, lambda status: None)
        except RunFailed as error:
            return _report_failure("database", error)
    version = report.environment["database"].get("version", "unknown")
    return Finding("database", True, f"answers collector and worker: {version}")


def _report_failure(name: str, error: CliError) -> Finding:
    """A failed check. A second line of the error is the remedy."""
    text, _, remedy = error.message.partition("\n")
    return Finding(name, False, text, remedy or "when this is solved, run doctor again")
