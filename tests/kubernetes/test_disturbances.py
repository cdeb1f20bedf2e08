"""Pods that are deleted, scaled and restarted in mid-run, and what keeps the tool from doing so."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from tests.e2e.tool import eventually

from .cluster import POSTGRES_IMAGE, Namespace
from .test_access import documented_rules, use
from .tool import DATABASE, ClusterTool

pytestmark = pytest.mark.cluster

RELAY = "relay"
"""A Deployment between workers and database, and its Service: its pods have nothing to lose."""

_PROGRAM = """
import asyncio, sys

async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()

async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection(sys.argv[1], 5432)
    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)

async def main():
    await (await asyncio.start_server(serve, port=5432)).serve_forever()

asyncio.run(main())
"""


def make_relay(namespace: Namespace, database: str) -> Any:
    """Pods with a label `app` of their own; the API of Deployments, once one is ready."""
    apps: Any = client.AppsV1Api(namespace.cluster.api)
    labels = {"app": RELAY}
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 999,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": RELAY,
        "image": POSTGRES_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", _PROGRAM, database],
        "securityContext": restricted,
        "resources": {"requests": {"cpu": "20m", "memory": "16Mi"}},
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
    }
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    namespace.cluster.core.create_namespaced_service(
        namespace.name,
        {"metadata": {"name": RELAY}, "spec": {"selector": labels, "ports": [{"port": 5432}]}},
    )
    apps.create_namespaced_deployment(
        namespace.name,
        {
            "metadata": {"name": RELAY},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )

    def ready() -> bool:
        return bool(apps.read_namespaced_deployment(RELAY, namespace.name).status.ready_replicas)

    eventually(ready, "a ready relay", 60, 0.3)
    return apps


def test_pods_are_deleted_scaled_and_restarted(
    tool: ClusterTool, namespace: Namespace, database: str
) -> None:
    """By a user who may do that in the run's namespace, and nowhere else."""
    apps = make_relay(namespace, database)
    patch = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}
    use(tool, [*documented_rules(), patch])
    tool.add_database(f"{RELAY}.{namespace.name}")
    disturbances = (
        f"2s delete-pods app={RELAY}",
        "4.5s delete-pods app in (nobody, no-one)",
        f"4.6s delete-pods app={RELAY} in kube-system",
        f"4.7s restart statefulset/{RELAY}",
        f"5s scale deployment/{RELAY} 0",
        f"6s scale deployment/{RELAY} 1",
        f"8s restart deployment/{RELAY}",
    )
    options = [part for one in disturbances for part in ("--disturb", one)]
    done = tool.run(
        "insert", "--target", DATABASE, "--workers", 1, "--runs", 1, "--batch", 10, "--rate", 200,
        "--duration", "10s", "--patience", "1m", *options, "--json", tool.json, within_s=90,
    )  # fmt: skip
    tool.fine(done)
    (run,) = tool._read(tool.json)["runs"]
    assert [mark["action"] for mark in run["marks"]] == list(disturbances)
    deleted, nobody, elsewhere, other_kind, down, up, restarted = run["marks"]
    assert all(mark["ok"] for mark in (deleted, down, up, restarted)), run["marks"]
    assert f"namespace {namespace.name} has no pod with the labels app in" in nobody["said"]
    assert "403 Forbidden" in elsewhere["said"] and 'namespace "kube-system"' in elsewhere["said"]
    assert "403 Forbidden" in other_kind["said"] and "statefulsets" in other_kind["said"]
    assert not (nobody["ok"] or elsewhere["ok"] or other_kind["ok"])

    assert run["outages"][0]["gap_s"] > 0.5
    # Until there are pods again: the gap goes on after the second mark.
    assert run["outages"][4]["gap_s"] > up["at_s"] - down["at_s"] - 0.5
    assert run["retries"] >= 2
    assert run["verification"] == {"expected": run["events"], "stored": run["events"], "ok": True}
    assert f"After delete-pods app={RELAY} at " in done.out
    assert "nothing was lost or stored twice." in done.out

    found = apps.read_namespaced_deployment(RELAY, namespace.name)
    assert found.spec.replicas == 1
    assert "kubectl.kubernetes.io/restartedAt" in found.spec.template.metadata.annotations
