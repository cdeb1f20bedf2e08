"""The cluster of the current context: namespaces of the tests' own, what is in them, who may do what."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from cli.run.cluster import RELEASE_PREFIX, RUN_LABEL, Place
from cli.run.kubeclient import DISRUPTION_BUDGET, JOB, NETWORK_POLICY, POD, SECRET, SERVICE, Kind
from cli.system.errors import CliError
from simulator import __version__
from tests.e2e.tool import PASSWORD, eventually

from .proxy import Proxy

IMAGE = os.environ.get("E2E_IMAGE", f"iot-database-benchmark:{__version__}")
POSTGRES_IMAGE = os.environ.get("E2E_POSTGRES_IMAGE", "postgres:18")

CONFIG_MAP = Kind("configmap", "api/v1", "configmaps")

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

Rule = Mapping[str, Sequence[str]]


def image_values() -> dict[str, str]:
    """The image as the chart's values have it."""
    name, _, tag = IMAGE.rpartition(":")
    return {"name": name, "tag": tag}


def unreachable() -> str | None:
    """Why there is no cluster to test with; None if there is one."""
    try:
        with Place("default").make_client() as api:
            api.read_version()
    except (CliError, ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        return " ".join(str(error).split())[:200]
    return None


class Cluster:
    """The tests' own view of the cluster, as its administrator."""

    def __init__(self) -> None:
        self.api = Place("default").make_client()
        self.core: Any = client.CoreV1Api(self.api)
        self.batch: Any = client.BatchV1Api(self.api)
        self.rbac: Any = client.RbacAuthorizationV1Api(self.api)

    def kubeconfig(self) -> dict[str, Any]:
        """One document with the current context alone, its files named by their whole paths."""
        place = Place("default")
        name = str(place.resolve_context())
        merged: dict[str, dict[str, Any]] = {"contexts": {}, "clusters": {}, "users": {}}
        for path in place.files:
            if not path.exists():
                continue
            document = yaml.safe_load(path.read_text())
            for kind, entries in merged.items():
                for item in document.get(kind) or []:
                    entries.setdefault(item["name"], _with_whole_paths(item, path.parent))
        context = merged["contexts"][name]["context"]
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{**merged["clusters"][context["cluster"]], "name": "test"}],
            "users": [{**merged["users"][context["user"]], "name": "test"}],
        }

    @contextlib.contextmanager
    def proxied(self) -> Iterator[tuple[Proxy, dict[str, Any]]]:
        """A proxy in front of the API server, and a kubeconfig that uses it."""
        document = self.kubeconfig()
        entry = document["clusters"][0]["cluster"]
        server = urlsplit(entry["server"])
        assert server.hostname
        with Proxy(server.hostname, server.port or 443) as proxy:
            entry["server"] = f"https://127.0.0.1:{proxy.port}"
            entry["tls-server-name"] = server.hostname
            yield proxy, document

    @contextlib.contextmanager
    def namespace(self, labels: Mapping[str, str] | None = None) -> Iterator[Namespace]:
        """A namespace for the time of a test."""
        name = f"iotb-test-{uuid.uuid4().hex[:8]}"
        self.core.create_namespace({"metadata": {"name": name, "labels": dict(labels or {})}})
        try:
            yield Namespace(self, name)
        finally:
            # Nobody waits for its end: the next test has another one.
            self.core.delete_namespace(name)


def _with_whole_paths(item: Any, folder: Path) -> Any:
    for section in item.values():
        if isinstance(section, dict):
            for key in ("certificate-authority", "client-certificate", "client-key"):
                if key in section:
                    section[key] = str(folder / section[key])
    return item


@dataclass
class Namespace:
    """One namespace."""

    cluster: Cluster
    name: str

    # --- what is in it ----------------------------------------------------------------------------

    def pods(self, component: str | None = None) -> list[Any]:
        """Pods of runs, only those of `component` if it is given; in the order of their names."""
        selector = RUN_LABEL
        if component:
            selector += f",app.kubernetes.io/component={component}"
        listed = self.cluster.core.list_namespaced_pod(self.name, label_selector=selector)
        return sorted(listed.items, key=lambda pod: str(pod.metadata.name))

    def await_running(self, component: str, number: int = 1) -> list[Any]:
        """Wait until that many pods of a component run."""

        def running() -> list[Any]:
            pods = [pod for pod in self.pods(component) if pod.status.phase == "Running"]
            return pods if len(pods) >= number else []

        return eventually(running, f"{number} running pods: {component}", 60, 0.2)

    def objects(self) -> list[str]:
        """Everything that runs have made here, as `kind/name`."""
        names = []
        for kind in (JOB, POD, SERVICE, SECRET, CONFIG_MAP, NETWORK_POLICY, DISRUPTION_BUDGET):
            for item in self.cluster.api.find(kind, self.name):
                labels = item["metadata"].get("labels") or {}
                own = RUN_LABEL in labels or labels.get("owner") == "helm"
                name = item["metadata"]["name"]
                if own or name.startswith((RELEASE_PREFIX, "sh.helm.")):
                    names.append(f"{kind.name}/{name}")
        return sorted(names)

    def check_nothing_left(self, within_s: float = 10.0) -> None:
        """Check that nothing of any run is here, except for pods whose removal is under way."""
        remaining = [name for name in self.objects() if not name.startswith(("pod/", "job/"))]
        assert not remaining, remaining
        eventually(lambda: not self.objects(), f"an empty {self.name}", within_s, 0.2)

    def everything(self) -> str:
        """All pods, Jobs and Services as a text, to look for what must not be there."""
        cluster = self.cluster
        documents = [
            cluster.core.list_namespaced_pod(self.name),
            cluster.batch.list_namespaced_job(self.name),
            cluster.core.list_namespaced_service(self.name),
            cluster.core.list_namespaced_event(self.name),
        ]
        plain: Any = cluster.api
        return "".join(str(plain.sanitize_for_serialization(item)) for item in documents)

    def list_events(self) -> list[str]:
        """The namespace's events, one line each."""
        listed: Any = self.cluster.core.list_namespaced_event(self.name)
        return [
            f"{event.last_timestamp or event.event_time} {event.involved_object.name}: {event.reason}:"
            f" {event.message}"
            for event in listed.items
        ]

    def execute(self, pod: str, program: str) -> str:
        """Run a Python program in a pod's container; return what it printed."""
        command = ["python", "-c", program]
        answer: Any = stream(
            client.CoreV1Api(Place("default").make_client()).connect_get_namespaced_pod_exec,
            pod, self.name, command=command, stdout=True, stderr=True, stdin=False, tty=False,
        )  # fmt: skip
        return str(answer)

    # --- what is put into it ----------------------------------------------------------------------

    def secret(self, name: str, **content: str) -> None:
        self.cluster.core.create_namespaced_secret(
            self.name, {"metadata": {"name": name}, "stringData": content}
        )

    def quota(self, **hard: str) -> None:
        """A ResourceQuota that is in force."""
        self.cluster.core.create_namespaced_resource_quota(
            self.name, {"metadata": {"name": "quota"}, "spec": {"hard": hard}}
        )

        def in_force() -> bool:
            quota = self.cluster.core.read_namespaced_resource_quota("quota", self.name)
            return bool(quota.status.hard)

        eventually(in_force, "the quota's first count", 30)

    def account(self, rules: Sequence[Rule]) -> dict[str, Any]:
        """A kubeconfig of a new service account that has a Role with these rules and no more."""
        name = f"user-{uuid.uuid4().hex[:8]}"
        core, rbac = self.cluster.core, self.cluster.rbac
        core.create_namespaced_service_account(self.name, {"metadata": {"name": name}})
        if rules:
            rbac.create_namespaced_role(self.name, {"metadata": {"name": name}, "rules": rules})
            rbac.create_namespaced_role_binding(
                self.name,
                {
                    "metadata": {"name": name},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Role",
                        "name": name,
                    },
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.name}],
                },
            )
        token = core.create_namespaced_service_account_token(
            name, self.name, {"spec": {"expirationSeconds": 3600}}
        )
        document = self.cluster.kubeconfig()
        document["users"] = [{"name": "test", "user": {"token": token.status.token}}]
        return document

    def database(self) -> str:
        """Make a PostgreSQL pod with a Service and its password in a Secret; return its host name."""
        core = self.cluster.core
        self.secret("postgres", password=PASSWORD)
        labels = {"app.kubernetes.io/name": "postgresql"}
        core.create_namespaced_service(
            self.name,
            {
                "metadata": {"name": "postgres"},
                "spec": {"selector": labels, "ports": [{"port": 5432}]},
            },
        )
        password = {"secretKeyRef": {"name": "postgres", "key": "password"}}
        core.create_namespaced_pod(
            self.name,
            {
                "metadata": {"name": "postgres", "labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": "postgres",
                            "image": POSTGRES_IMAGE,
                            "imagePullPolicy": "IfNotPresent",
                            "env": [{"name": "POSTGRES_PASSWORD", "valueFrom": password}],
                            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                            "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
                        }
                    ],
                },
            },
        )

        def ready() -> bool:
            pod = core.read_namespaced_pod("postgres", self.name)
            conditions = pod.status.conditions or []
            return any(
                condition.type == "Ready" and condition.status == "True" for condition in conditions
            )

        eventually(ready, "a ready PostgreSQL pod", 90, 0.3)
        return f"postgres.{self.name}"
