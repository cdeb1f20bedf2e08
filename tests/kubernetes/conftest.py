"""What the tests on a cluster share: namespaces, a database, the tool in a place of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from urllib3.exceptions import HTTPError

from tests.e2e.tool import ROOT, eventually

from .cluster import IMAGE, RESTRICTED, Cluster, Namespace, unreachable
from .tool import ClusterTool


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show the namespace's events beside a failure: it is gone afterwards."""
    report = yield
    namespace = getattr(item, "funcargs", {}).get("namespace")
    if report.when == "call" and report.failed and isinstance(namespace, Namespace):
        with suppress(client.ApiException, HTTPError):
            report.sections.append(("events of the namespace", "\n".join(namespace.list_events())))
    return report


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster of the current context; without one, the tests are skipped."""
    reason = unreachable()
    if reason is None and shutil.which("helm") is None:
        reason = "helm is not installed"
    if reason:
        if os.environ.get("REQUIRE_CLUSTER"):
            pytest.fail(f"REQUIRE_CLUSTER is set, but there is no cluster: {reason}")
        pytest.skip(f"no Kubernetes cluster: {reason}")
    return Cluster()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace that enforces the restricted Pod Security Standard, as every test could."""
    with cluster.namespace(RESTRICTED) as namespace:
        yield namespace


@pytest.fixture(scope="session")
def database(cluster: Cluster) -> Iterator[str]:
    """Host name of a PostgreSQL in the cluster that nobody but this process uses."""
    with cluster.namespace() as namespace:
        yield namespace.database()


@pytest.fixture
def tool(namespace: Namespace) -> Iterator[ClusterTool]:
    """The command line, watched: whatever a test does with it, it must leave nothing behind."""
    place = Path(tempfile.mkdtemp(prefix="k8s-"))
    tool = ClusterTool(place, namespace)
    try:
        yield tool
        tool.check_left_behind()
        namespace.check_nothing_left()
    finally:
        tool.end_all()
        shutil.rmtree(place)


@pytest.fixture
def storage_class(cluster: Cluster) -> Iterator[str]:
    """What $STORAGE_CLASS has to be: nothing if the cluster makes volumes by itself; otherwise the
    class of volumes that are made here, of folders of the node."""
    listed: Any = client.StorageV1Api(cluster.api).list_storage_class()
    default = "storageclass.kubernetes.io/is-default-class"
    if any(
        (existing.metadata.annotations or {}).get(default) == "true" for existing in listed.items
    ):
        yield ""
        return
    name = f"iotb-test-{uuid.uuid4().hex[:8]}"
    numbers = range(3)
    with cluster.namespace() as helper:
        folders = " ".join(f"/host/{name}/{number}" for number in numbers)
        # Any user may write there: fsGroup is not for folders of the node.
        on_the_node(helper, f"mkdir -p {folders} && chmod 777 {folders}")
        for number in numbers:
            cluster.core.create_persistent_volume(
                {
                    "metadata": {"name": f"{name}-{number}"},
                    "spec": {
                        "capacity": {"storage": "2Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": name,
                        "hostPath": {"path": f"/var/tmp/{name}/{number}"},
                    },
                }
            )
        try:
            yield name
        finally:
            for number in numbers:
                cluster.core.delete_persistent_volume(f"{name}-{number}")
            on_the_node(helper, f"rm -rf /host/{name}")


def on_the_node(namespace: Namespace, command: str) -> None:
    """Run a shell command with the node's /var/tmp at /host."""
    core = namespace.cluster.core
    name = f"node-{uuid.uuid4().hex[:8]}"
    core.create_namespaced_pod(
        namespace.name,
        {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "shell",
                        "image": IMAGE,
                        "command": ["sh", "-c", command],
                        "securityContext": {"runAsUser": 0},
                        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                    }
                ],
                "volumes": [{"name": "host", "hostPath": {"path": "/var/tmp"}}],
            },
        },
    )

    def ended() -> bool:
        phase = core.read_namespaced_pod(name, namespace.name).status.phase
        assert phase != "Failed", command
        return bool(phase == "Succeeded")

    eventually(ended, f"the end of {command!r} on the node", 60, 0.3)


@pytest.fixture
def shipped(tool: ClusterTool) -> ClusterTool:
    """The tool with config.yaml as shipped, except for image and size of the runs' pods."""
    ours = tool.document["kubernetes"]
    tool.document = yaml.safe_load((ROOT / "config.yaml").read_text())
    tool.document["namespace"] = tool.namespace.name
    tool.configure(**ours)
    tool.may_lack_results = True
    return tool
