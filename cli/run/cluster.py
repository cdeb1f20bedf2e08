"""The cluster to use: the same one for helm and for the Kubernetes client."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.documents import DocumentError, merge_values, read_yaml

from ..system.errors import ConfigError, NotStarted, RunFailed
from ..system.installation import shipped
from ..system.processes import run_program

if TYPE_CHECKING:
    from .kubeclient import KubeClient

RUN_LABEL = "iot-database-benchmark/run"
"""Label on every object of a run. Its value is the run's ID."""

RELEASE_PREFIX = "iotb-"
"""Prefix of a run's release name; the run's ID follows."""

STARTED_BY = "iot-database-benchmark/started-by"
"""Annotation of a run's Jobs."""

CHART = shipped("deployment")

OLDEST_HELM = (3, 4)
_HELM_TIMEOUT_S = 120.0
UNINSTALL_TIMEOUT_S = 60.0
# Even in a hurry, helm gets a moment: otherwise it would leave half of its work in the cluster.
_HURRIED_HELM_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Place:
    """A namespace of a cluster, chosen by --kubeconfig, --context and --namespace."""

    namespace: str
    kubeconfig: str | None = None
    context: str | None = None

    def move(self, context: str | None, namespace: str | None) -> Place:
        """The same place in another context or namespace, if not None."""
        return Place(namespace or self.namespace, self.kubeconfig, context or self.context)

    @property
    def files(self) -> list[Path]:
        """The kubeconfig files, in kubectl's order. Reads $KUBECONFIG now; it may be a list."""
        kubeconfig = self.kubeconfig or os.environ.get("KUBECONFIG")
        if kubeconfig:
            return [Path(part).expanduser() for part in kubeconfig.split(os.pathsep) if part]
        return [Path("~/.kube/config").expanduser()]

    @property
    def in_cluster(self) -> bool:
        """Whether this runs in a pod without a kubeconfig."""
        no_file = not any(path.exists() for path in self.files)
        return no_file and "KUBERNETES_SERVICE_HOST" in os.environ

    def resolve_context(self) -> str | None:
        """The context as kubectl sees it: the first file that sets one wins.

        The Python client merges the files differently (kubernetes-client/python #2180), so it always gets the
        context.
        """
        if self.context or self.in_cluster:
            return self.context
        for path in self.files:
            try:
                _, document = read_yaml(path)
            except FileNotFoundError:
                continue
            except DocumentError as error:
                raise ConfigError(f"kubeconfig {error.at(path)}") from error
            if isinstance(document, dict) and document.get("current-context"):
                return str(document["current-context"])
        names = ", ".join(map(str, self.files))
        raise ConfigError(
            f"no Kubernetes context is set in {names}: choose one with --context or --kubeconfig,"
            " or run on this machine with --executor local"
        )

    def make_client(self) -> KubeClient:
        """A client with the kubeconfig's current credentials. ConfigError if they don't lead to a cluster."""
        from kubernetes import client, config
        from kubernetes.client.rest import is_socks_proxy_url
        from kubernetes.utils.keepalive import tcp_keepalive_socket_options

        from .kubeclient import KubeClient

        configuration = client.Configuration()
        # This tool notices by itself that a cluster is gone; urllib3 would retry. A watch whose connection
        # was dropped silently is noticed within 15 s.
        configuration.retries = 0
        configuration.socket_options = tcp_keepalive_socket_options(idle=5, interval=5, count=2)
        try:
            if self.in_cluster:
                config.load_incluster_config(client_configuration=configuration)
            else:
                config.load_kube_config(
                    config_file=os.pathsep.join(map(str, self.files)),
                    context=self.resolve_context(),
                    client_configuration=configuration,
                    persist_config=False,
                )
        except config.ConfigException as error:
            raise ConfigError(f"kubeconfig: {error}; check --kubeconfig and --context") from error
        if is_socks_proxy_url(configuration.proxy) and find_spec("socks") is None:
            raise ConfigError(
                "the proxy to the API server uses SOCKS, and the package for that is missing:"
                " pip install 'urllib3[socks]'"
            )
        return KubeClient(configuration)

    def list_options(self) -> list[str]:
        """The options for this place, for a command that is suggested to the user."""
        options = ["--namespace", self.namespace]
        if self.context:
            options += ["--context", self.context]
        if self.kubeconfig:
            options += ["--kubeconfig", self.kubeconfig]
        return options


@contextmanager
def explain_errors(problem: str) -> Iterator[None]:
    """RunFailed if the API server can't be reached or refuses. `problem`: how the message begins."""
    from kubernetes.client.exceptions import ApiException

    from .kubeclient import UNREACHABLE

    try:
        yield
    except ApiException as error:
        raise RunFailed(
            f"{problem}: {error.status} {error.reason}: {read_refusal(error.body)}"
        ) from error
    except UNREACHABLE as error:
        raise RunFailed(
            f"{problem}: the API server can't be reached: {error}; check --kubeconfig, --context and"
            " the network"
        ) from error


@contextmanager
def pass_over(*statuses: int) -> Iterator[None]:
    """Ignore a refusal by the API server with one of these statuses."""
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as error:
        if error.status not in statuses:
            raise


def check_namespace(client: KubeClient, namespace: str) -> None:
    """ConfigError if there is no such namespace, or if the user isn't authenticated. Without permission to
    check, nothing happens."""
    from .kubeclient import NAMESPACE

    try:
        with explain_errors(f"can't see namespace {namespace}"):
            client.get(NAMESPACE, None, namespace)
    except RunFailed as error:
        status = getattr(error.__cause__, "status", None)
        if status is None:
            raise
        if status == HTTPStatus.NOT_FOUND:
            raise ConfigError(explain_no_namespace(namespace)) from error
        if status == HTTPStatus.UNAUTHORIZED:
            raise ConfigError(
                f"{error.message}; log in again, or name another --context"
            ) from error


def explain_no_namespace(namespace: str) -> str:
    """The remedy for a missing namespace."""
    return (
        f"there is no namespace {namespace}: make it with 'kubectl create namespace {namespace}', or name"
        " another one with --namespace"
    )


def read_refusal(body: Any) -> str:
    """Why the API server refuses, in its own words."""
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(body)


def is_allowed(
    client: KubeClient,
    namespace: str,
    group: str,
    resource: str,
    subresource: str | None,
    verb: str,
) -> bool:
    """Whether the user may do this in the namespace. Everyone may ask that."""
    from .kubeclient import ACCESS_REVIEW

    attributes = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.create(ACCESS_REVIEW, None, review)["status"].get("allowed"))


def merge_chart_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's values overridden by these, as helm sees them."""
    return merge_values(read_yaml(CHART / "values.yaml")[1], values)


class Helm:
    """helm for the same place. Keeps to what versions 3.4 to 4 have in common, where possible."""

    def __init__(self, place: Place, in_a_hurry: Callable[[], bool] = lambda: False) -> None:
        """`in_a_hurry`: whether the user wants to stop waiting."""
        program = shutil.which("helm")
        if program is None:
            raise ConfigError(
                "helm is not installed (https://helm.sh/docs/intro/install/), or run on this"
                " machine with --executor local"
            )
        self._program = program
        self._place = place
        self._in_a_hurry = in_a_hurry
        self._version: str | None = None

    def find_version(self) -> str:
        """The version, as in `v3.19.5`; ConfigError if it is too old."""
        if self._version:
            return self._version
        version = self._run(["version", "--template", "{{.Version}}"], cluster=False).strip()
        match = re.match(r"v(\d+)\.(\d+)", version)
        if match is None or (int(match[1]), int(match[2])) < OLDEST_HELM:
            oldest = ".".join(map(str, OLDEST_HELM))
            raise ConfigError(f"helm {version} is too old: {oldest} or later is needed")
        self._version = version
        return version

    def install(self, release: str, values: dict[str, Any]) -> None:
        """Install the chart.

        The values go through standard input, since they may contain passwords, and as JSON, which is
        unambiguous: PyYAML writes the text 4911e5 in a way that helm reads as a number.
        """
        command = ["install", release, str(CHART), "-f", "-"]
        if not self.find_version().startswith("v3."):
            # Helm 4 would apply on the server side, which needs permission to patch
            # (https://helm.sh/docs/helm/helm_install/). For new objects there is no difference.
            command.append("--server-side=false")
        self._run(command, text=json.dumps(values), refused=NotStarted)

    def uninstall(self, release: str) -> None:
        """Remove a release and its objects. It may already be gone."""
        try:
            self._run(["uninstall", release], timeout_s=UNINSTALL_TIMEOUT_S)
        except RunFailed as error:
            if "not found" not in error.message:
                raise

    def _run(
        self,
        arguments: Sequence[str],
        text: str | None = None,
        cluster: bool = True,
        timeout_s: float = _HELM_TIMEOUT_S,
        refused: type[RunFailed] = RunFailed,
    ) -> str:
        command = [self._program, *arguments]
        if cluster:
            command += ["--namespace", self._place.namespace]
            context = self._place.resolve_context()
            if context:
                command += ["--kube-context", context]
        environment = dict(os.environ)
        if self._place.kubeconfig:
            environment["KUBECONFIG"] = self._place.kubeconfig
        try:
            process = run_program(
                command, text, in_a_hurry=self._in_a_hurry, environment=environment,
                timeout_s=timeout_s, hurried_timeout_s=_HURRIED_HELM_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise RunFailed(
                f"helm {arguments[0]} took longer than {error.timeout:.0f} s"
            ) from error
        if process.returncode:
            lines = [line for line in process.stderr.splitlines() if not line.startswith("WARNING")]
            raise refused(f"helm {arguments[0]}: {' '.join(lines).removeprefix('Error: ')}")
        return process.stdout
