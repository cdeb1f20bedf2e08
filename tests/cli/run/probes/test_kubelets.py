"""The sampler of pods, with a stand-in for the API server and the kubelets behind it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.run.kubeclient import KubeClient
from cli.run.probes import kubelets
from cli.run.probes.kubelets import PodSampler
from simulator.contract import (
    CarriedState,
    GroupResult,
    Machine,
    Phase,
    Report,
    Role,
    RunResult,
    Status,
)

from ....e2e.tool import eventually
from ...api_server import Api

DATABASE, WORKER, OTHER = ("here", "db-0"), ("here", "worker-0"), ("there", "job")
CPUS = {DATABASE: 2.0, WORKER: 0.5, OTHER: 1.0}
"""What each uses all the time, of a node with eight."""


class Cluster:
    """One node, whose kubelet has new figures whenever it is asked."""

    def __init__(self, api: Api) -> None:
        self.refused = ""
        """Part of a path that may not be asked for."""
        api.answer = self._answer

    def _answer(self, _: str, path: str) -> tuple[int, bytes]:
        if self.refused and self.refused in path:
            return 403, json.dumps({"message": "no"}).encode()
        if path.endswith("/metrics/resource"):
            # As of the instant that it tells, however late that is.
            stamp = round(time.time() * 1000)
            return 200, (
                'container_cpu_usage_seconds_total{container="pg",namespace="here",pod="db-0"}'
                f" {CPUS[DATABASE] * stamp / 1000} {stamp}\n"
            ).encode()
        if path.endswith("/metrics/cadvisor"):
            return 200, b"machine_cpu_cores 8\n"
        answer: dict[str, Any] = {"items": []}
        if "/stats/summary" in path:
            cpu = {"time": str(time.time_ns())}
            answer = {
                "node": {"cpu": {**cpu, "usageNanoCores": round(4e9)}},
                "pods": [
                    {
                        "podRef": {"namespace": name[0], "name": name[1]},
                        "cpu": {**cpu, "usageNanoCores": round(cores * 1e9)},
                    }
                    for name, cores in CPUS.items()
                ],
            }
        elif path.startswith("/api/v1/namespaces/here/pods"):
            metadata = {"namespace": "here", "name": "db-0"}
            spec = {"nodeName": "n", "containers": [{"name": "pg"}]}
            answer = {"items": [{"metadata": metadata, "spec": spec}]}
        return 200, json.dumps(answer).encode()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, KubeClient]]:
    for name in (
        "_SHORTEST_PAUSE_S", "_LONGEST_PAUSE_S", "_NODES_EVERY_S", "_NODE_EVERY_S", "_LIST_EVERY_S",
    ):  # fmt: skip
        monkeypatch.setattr(kubelets, name, 0.05)
    with Api() as api:
        yield Cluster(api), KubeClient(api.configuration)


@contextmanager
def sampling(client: KubeClient) -> Iterator[PodSampler]:
    """One at work in a run that has begun; its threads end with it."""
    values = {"database": "app=db"}
    sampler = PodSampler(client, "here", values, [], lambda: {WORKER: "n"})
    threads = [
        threading.Thread(target=work, daemon=True)
        for work in (sampler.follow_database, sampler.follow_nodes)
    ]
    for thread in threads:
        thread.start()
    sampler.notice(Status(phase=Phase.RUN, age_s=1.0))
    try:
        yield sampler
        sampler.finish()
    finally:
        sampler.stop()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def complete(sampler: PodSampler, began: float, ended: float) -> RunResult:
    """A run of that window with what the sampler knows."""
    run = RunResult(
        began_at=datetime.fromtimestamp(began, UTC).isoformat(),
        ended_at=datetime.fromtimestamp(ended, UTC).isoformat(),
        machines=[Machine(node="n", cpus=8, busy_share=0.5)],
        groups=[GroupResult(role=Role.WRITE, workers=1)],
    )
    sampler.complete(
        Report(run=run, environment={}, carried=CarriedState(next_event=0, stored=None))
    )
    return run


def test_what_the_database_and_others_use(cluster: tuple[Cluster, KubeClient]) -> None:
    _, client = cluster
    with sampling(client) as sampler:
        eventually(lambda: sampler.use is not None, "what is used now")
        began = time.time()
        eventually(lambda: time.time() > began + 0.5, "some time")
        ended = time.time()
    run = complete(sampler, began, ended)
    assert sampler.use is not None
    assert sampler.use.cpus_used == pytest.approx(2.0, rel=0.01)
    assert sampler.use.cpus == 8.0
    assert run.resources is not None
    assert run.resources.cpu_s == pytest.approx(2 * (ended - began), rel=0.05)
    assert run.resources.names == ["here/db-0"]
    (machine,) = run.machines
    # Neither the database's nor the run's are others'.
    assert machine.others_share == pytest.approx((4 - 2.5) / 8)
    assert machine.others == {"there/job": pytest.approx(1 / 8)}


def test_who_may_not_ask_is_told_so(cluster: tuple[Cluster, KubeClient]) -> None:
    api, client = cluster
    api.refused = "nodes/n/proxy"
    with sampling(client) as sampler:
        eventually(lambda: not sampler._by_kubelets, "the metrics API")
    run = complete(sampler, time.time() - 60, time.time())
    assert run.resources is not None
    assert run.resources.reason == "the metrics API covered less than half of the window"
    assert run.machines[0].others_share is None
    api.refused = "metrics"
    with sampling(client) as sampler:
        eventually(lambda: len(sampler._refusals) == 2, "refusals")
    run = complete(sampler, time.time() - 60, time.time())
    assert run.resources is not None
    assert run.resources.reason == (
        "no permission to query the kubelets (get nodes/proxy), and no permission to query the"
        " metrics API (list pods of metrics.k8s.io): see Permissions in docs/how-to/private-clusters.md"
    )
