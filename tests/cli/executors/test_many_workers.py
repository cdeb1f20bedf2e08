"""What a run of 1,000 workers asks of the API server. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from cli.executors.base import POLL_S, ease
from cli.executors.kubernetes.release import MOST_LOGS, choose_logged
from cli.probes.kubernetes import kubelets
from simulator.collector.barrier import HOLD_S

GOAL_PER_MIN = 50


@pytest.mark.parametrize(("workers", "database_nodes", "nodes"), [(1_000, 1, 20), (2_000, 3, 40)])
def test_requests_a_minute(workers: int, database_nodes: int, nodes: int) -> None:
    """Progress, report, and what kubelets say of the database's pods and of the workers' nodes, of a database
    whose kubelets have new figures every 15 s."""
    patience = ease(workers)
    looks = 60 / (patience * kubelets._LONGEST_PAUSE_S)
    asked = [
        60 / (patience * POLL_S),
        60 / HOLD_S,
        60 / (patience * kubelets._LIST_EVERY_S),
        looks * database_nodes,
        60 / (patience * kubelets._BYTES_EVERY_S) * database_nodes,
        60 * nodes
        / (patience * max(kubelets._NODES_EVERY_S, kubelets._NODE_EVERY_S * nodes)),
    ]  # fmt: skip
    # Those that only a user with nodes/proxy makes come on top.
    assert sum(asked[:3]) < GOAL_PER_MIN
    assert sum(asked) < 1.4 * GOAL_PER_MIN


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
