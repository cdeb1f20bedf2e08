"""A campaign that installs its databases; with it `capacity` and `tune` on the cluster."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from .cluster import POSTGRES_IMAGE, Namespace
from .tool import ClusterTool

pytestmark = pytest.mark.cluster

FILE = f"""
install: {{variant: local, size: small, image: "{POSTGRES_IMAGE}", timeout: 5m}}
targets:
  postgresql: {{}}
  absent: {{target: influxdb, install: {{variant: local, size: small, image: "no-such:1", timeout: 1s}}}}
options: {{workers: 1, batch: 100}}
steps:
- capacity: {{limit: p99=5s, step-duration: 1s, max-steps: 1}}
- tune: {{over: batch=100, run-duration: 300ms, runs: 1}}
"""


@pytest.mark.timeout(600)
def test_installed_measured_and_removed(
    shipped: ClusterTool, namespace: Namespace, storage_class: str
) -> None:
    (shipped.place / "night.yaml").write_text(FILE)
    command = ("campaign", "night.yaml", "--config", shipped.config)
    planned = shipped.run_here(*command, "--dry-run").ok().out
    assert "install postgresql with 1 node" in planned and "size small" in planned
    assert "--confirm-context" in shipped.run_here(*command).error(2)

    running = shipped.start(*command, "--yes", env={"STORAGE_CLASS": storage_class})
    running.await_err("installing ", 60)
    refused = shipped.run_here(*command, "--yes", "--output", "elsewhere").error(2)
    assert "is using the database of target" in refused
    assert f"campaign {shipped.place / 'campaigns' / 'night'} of " in refused
    done = running.wait(400)

    assert "error: 1 of 4 jobs failed: absent capacity: influxdb with 1 node can't be" in done.err
    assert "absent tune: skipped" in done.err
    folder = shipped.place / "campaigns" / "night"
    results = [json.loads(file.read_text()) for file in folder.glob("results/*/result.json")]
    assert {(result["command"], result["executor"]) for result in results} == {
        ("capacity", "kubernetes"), ("tune", "kubernetes"),
    }  # fmt: skip
    for result in results:
        assert result["complete"] and result["runs"]
        assert result["environment"]["database"]["version"].startswith("PostgreSQL")
    assert all(
        trial["rate_per_s"]
        for result in results
        for trial in (result["tuning"] or {}).get("trials", ())
    )
    assert "can&#39;t be installed" in (folder / "report.html").read_text()
    # Neither databases nor their data are left, nor the campaign's claim on them.
    listed = namespace.cluster.core.list_namespaced_pod(namespace.name)
    assert not [pod.metadata.name for pod in listed.items]
    leases = client.CoordinationV1Api(namespace.cluster.api).list_namespaced_lease(namespace.name)
    assert not leases.items
