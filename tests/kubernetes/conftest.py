"""What the tests on a cluster share: namespaces, a database, the tool in a place of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import RESTRICTED, Cluster, Namespace, unreachable
from .tool import ClusterTool


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
