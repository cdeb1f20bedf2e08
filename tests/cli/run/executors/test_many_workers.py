"""What a run of 1,000 workers asks of the API server. Pure."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kubernetes.client.exceptions import ApiException

from cli.run.executors import ease
from cli.run.executors.kubernetes.release import MOST_LOGS, choose_logged, describe_environment
from cli.run.kubeclient import NODE, KubeClient
from cli.run.probes import kubelets

GOAL_PER_MIN = 50


@pytest.mark.parametrize(("workers", "database_nodes", "nodes"), [(1_000, 1, 20), (2_000, 3, 40)])
def test_requests_a_minute(workers: int, database_nodes: int, nodes: int) -> None:
    """Beside the collector's log, which is one request: what kubelets say of the database's pods and of the
    workers' nodes, of a database whose kubelets have new figures every 15 s."""
    patience = ease(workers)
    looks = 60 / (patience * kubelets._LONGEST_PAUSE_S)
    per_minute = [
        60 / (patience * kubelets._LIST_EVERY_S),
        looks * database_nodes,
        60 / (patience * kubelets._BYTES_EVERY_S) * database_nodes,
        60 * nodes
        / (patience * max(kubelets._NODES_EVERY_S, kubelets._NODE_EVERY_S * nodes)),
    ]  # fmt: skip
    assert sum(per_minute) < GOAL_PER_MIN


@pytest.mark.parametrize("workers", [1, 8, 250])
def test_a_usual_run_is_followed_closely(workers: int) -> None:
    assert ease(workers) == 1


def _pod(name: str, component: str, phase: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
        "status": {"phase": phase},
    }


def test_the_logs_that_tell_most_are_kept() -> None:
    pods = [_pod(f"x-worker-{number:03}", "worker", "Succeeded") for number in range(1_000)]
    pods[700]["status"]["phase"] = "Failed"
    pods.append(_pod("x-collector-0", "collector", "Succeeded"))
    chosen = [pod["metadata"]["name"] for pod in choose_logged(pods)]
    assert chosen[:3] == ["x-collector-0", "x-worker-700", "x-worker-000"]
    assert len(chosen) == MOST_LOGS
    assert len(choose_logged(pods[:8])) == 8


class _Client:
    """An API server that counts."""

    def __init__(self, may_list: bool) -> None:
        self.requests = 0
        self._may_list = may_list

    def read_version(self) -> str:
        self.requests += 1
        return "v1.34.0"

    def find(self, kind: object) -> list[dict[str, Any]]:
        assert kind is NODE
        self.requests += 1
        if not self._may_list:
            raise ApiException(403)
        info = {"kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2"}
        return [
            {"metadata": {"name": f"node-{number}"}, "status": {"nodeInfo": info}}
            for number in range(100)
        ]


@pytest.mark.parametrize("may_list", [True, False])
def test_all_nodes_are_one_request(may_list: bool) -> None:
    client = _Client(may_list)
    pods = {}
    for number in range(1_000):
        pod = _pod(f"x-worker-{number:03}", "worker", "Running")
        pods[pod["metadata"]["name"]] = pod | {"spec": {"nodeName": f"node-{number % 50}"}}
    environment = describe_environment(cast("KubeClient", client), pods)
    assert client.requests == 2
    assert len(environment["placement"]) == 1_000 and len(environment["nodes"]) == 50
    kernels = {node and node["kernel"] for node in environment["nodes"].values()}
    assert kernels == ({"6.1"} if may_list else {None})
