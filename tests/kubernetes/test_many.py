"""Many pods, and several users in one namespace."""

from __future__ import annotations

import pytest

from tests.e2e.tool import flatten

from .cluster import Namespace
from .tool import COLLECTOR, HALF, WORKER, ClusterTool

pytestmark = pytest.mark.cluster


def test_two_runs_in_one_namespace(tool: ClusterTool, namespace: Namespace) -> None:
    tool.configure(resources={**WORKER, "cpu": HALF}, collectorResources={**COLLECTOR, "cpu": HALF})
    commands = [
        tool.start_insert("--num-inserts", 2000, "--output", tool.place / name) for name in "ab"
    ]
    tool.outputs = [tool.place / name for name in "ab"]
    namespace.await_running("worker", 2)
    shown = tool.run_here("clean", "--config", tool.config, "--yes").ok()
    assert shown.out.count("at work") == 2, shown.out
    for command, output in zip(commands, tool.outputs, strict=True):
        done = command.wait()
        tool.fine(done, next(output.iterdir()) / "result.json")


@pytest.mark.timeout(240)
def test_thirty_workers(tool: ClusterTool) -> None:
    # Together as much as the pods of other tests leave: with less, a worker takes longer to start.
    tool.configure(
        resources={"cpu": "15m", "memory": "90Mi"},
        collectorResources={"cpu": "200m", "memory": "256Mi"},
    )
    running = tool.start_insert(
        "--workers", 30, "--num-inserts", 50, "--json", tool.json,
        "--extra-option", "delay_ms=100",
    )  # fmt: skip
    tool.fine(running.wait(200))
    result = tool._read(tool.json)
    run = flatten(result["runs"][0])
    assert len(run["per_worker"]) == 30
    assert run["count"] == 30 * 50
    assert len(result["environment"]["kubernetes"]["placement"]) == 31
