"""Pods that are deleted, scaled and restarted during the run, and what keeps the tool from doing so."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from tests.e2e.live import Reader
from tests.e2e.tool import PASSWORD, eventually, flatten

from ..helpers import counted
from .cluster import POSTGRES_IMAGE, Cluster, Namespace
from .test_access import documented_rules, use
from .tool import DATABASE, HALF, WORKER, ClusterTool

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
    """Make pods with a label `app` of their own; return the API of Deployments once one is ready."""
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


def check_refusals(tool: ClusterTool, namespace: Namespace) -> None:
    """What can't be done is refused before anything is started."""
    before = namespace.objects()
    for text, words in (
        (
            "4s delete-pods app in (nobody, no-one)",
            [f"namespace {namespace.name} has no pod with the labels app in (nobody, no-one)"],
        ),
        (f"4s delete-pods app={RELAY} in kube-system", ["403 Forbidden", '"kube-system"']),
        ("4s delete-pods app!=web", ["pods of this tool also have the labels app!=web"]),
        ("4s delete-pods app=", ["has no pod"]),
        ("4s delete-pods -app", ["400 Bad Request"]),
        (f"4s restart statefulset/{RELAY}", ["403 Forbidden", "statefulsets"]),
        ("4s scale deployment/nobody 0", ["404 Not Found", '"nobody" not found']),
    ):
        done = tool.run_here("insert", "--target", DATABASE, "--duration", "10s", "--disturb", text)
        error = done.error(2)
        assert f"--disturb '{text}': " in error
        for part in words:
            assert part in error
    assert namespace.objects() == before
    assert tool.folders() == []


def test_pods_are_deleted_scaled_and_restarted(
    tool: ClusterTool, namespace: Namespace, database: str
) -> None:
    """By a user who may do that in the run's namespace, and nowhere else."""
    apps = make_relay(namespace, database)
    patch = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}
    use(tool, [*documented_rules(), patch])
    tool.add_database(f"{RELAY}.{namespace.name}")
    check_refusals(tool, namespace)
    disturbances = (
        f"2s delete-pods app={RELAY}",
        f"5s scale deployment/{RELAY} 0",
        f"7s scale deployment/{RELAY} 1",
        f"9s restart deployment/{RELAY}",
    )
    options = [part for disturbance in disturbances for part in ("--disturb", disturbance)]
    done = tool.run(
        "insert", "--target", DATABASE, "--workers", 1, "--runs", 1, "--batch", 10, "--rate", 200,
        "--duration", "11s", "--patience", "1m", *options, "--json", tool.json, within_s=90,
    )  # fmt: skip
    tool.fine(done)
    (run,) = map(flatten, tool._read(tool.json)["runs"])
    assert [mark["action"] for mark in run["marks"]] == list(disturbances)
    _, down, up, _ = run["marks"]
    assert all(mark["ok"] for mark in run["marks"]), run["marks"]

    assert run["outages"][0]["gap_s"] > 0.5
    # Until there are pods again: the gap goes on after the second mark.
    assert run["outages"][1]["gap_s"] > up["at_s"] - down["at_s"] - 0.5
    assert run["retries"] >= 2
    assert run["verification"] == counted(run["count"])
    assert f"After delete-pods app={RELAY} at " in done.out
    assert "nothing was lost or stored twice." in done.out

    deployment = apps.read_namespaced_deployment(RELAY, namespace.name)
    assert deployment.spec.replicas == 1
    assert "kubectl.kubernetes.io/restartedAt" in deployment.spec.template.metadata.annotations


DURABLE = "durable"
"""A PostgreSQL whose data outlive its pod, and its Service."""

_DATA = "/data"


def make_durable_database(namespace: Namespace) -> str:
    """Make a StatefulSet of one pod with its data on the node; return its pod once it is ready."""
    apps: Any = client.AppsV1Api(namespace.cluster.api)
    labels = {"app": DURABLE}
    namespace.secret(DURABLE, password=PASSWORD)
    mount = {"name": "data", "mountPath": _DATA}
    image = {"image": POSTGRES_IMAGE, "imagePullPolicy": "IfNotPresent", "volumeMounts": [mount]}
    owner = {
        **image,
        "name": "owner",
        "command": ["chown", "999:999", _DATA],
        "securityContext": {"runAsUser": 0},
    }
    password = {"secretKeyRef": {"name": DURABLE, "key": "password"}}
    server = {
        **image,
        "name": DURABLE,
        "env": [
            {"name": "POSTGRES_PASSWORD", "valueFrom": password},
            {"name": "PGDATA", "value": f"{_DATA}/pg"},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
    }
    on_the_node = {"path": f"/var/tmp/{namespace.name}", "type": "DirectoryOrCreate"}
    pod = {
        "terminationGracePeriodSeconds": 5,
        "initContainers": [owner],
        "containers": [server],
        "volumes": [{"name": "data", "hostPath": on_the_node}],
    }
    namespace.cluster.core.create_namespaced_service(
        namespace.name,
        {"metadata": {"name": DURABLE}, "spec": {"selector": labels, "ports": [{"port": 5432}]}},
    )
    apps.create_namespaced_stateful_set(
        namespace.name,
        {
            "metadata": {"name": DURABLE},
            "spec": {
                "serviceName": DURABLE,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )

    def ready() -> bool:
        return bool(
            apps.read_namespaced_stateful_set(DURABLE, namespace.name).status.ready_replicas
        )

    eventually(ready, "a ready PostgreSQL with a volume", 90, 0.3)
    return f"{DURABLE}-0"


def ask(namespace: Namespace, pod: str, sql: str) -> str:
    """What psql in the database's pod answers."""
    return namespace.execute(
        pod,
        "import subprocess, os; print(subprocess.run(['/opt/postgresql/psql', '-h', '/tmp', '-U',"
        f" 'postgres', '-Atc', {sql!r}], env=os.environ | {{'PGPASSWORD': os.environ["
        "'POSTGRES_PASSWORD']}, capture_output=True, text=True).stdout)",
    ).strip()


def test_the_databases_pod_is_deleted_and_its_data_survive(
    tool: ClusterTool, cluster: Cluster
) -> None:
    """An open loop goes on: what was due while the pod was away is stored when it is back."""
    with cluster.namespace() as place:
        pod = make_durable_database(place)
        try:
            before = cluster.core.read_namespaced_pod(pod, place.name).metadata.uid
            tool.configure(resources={**WORKER, "cpu": HALF})
            tool.add_database(f"{DURABLE}.{place.name}")
            running = tool.start(
                "insert", "--target", DATABASE, "--workers", 2, "--runs", 1, "--batch", 10,
                "--rate", 400, "--duration", "15s", "--patience", "2m",
                "--disturb", f"5s delete-pods app={DURABLE} in {place.name}",
                "--live", "--json", tool.json,
            )  # fmt: skip
            page = Reader(running)
            done = tool.fine(running.wait(150))
            assert cluster.core.read_namespaced_pod(pod, place.name).metadata.uid != before
            (run,) = map(flatten, tool._read(tool.json)["runs"])
            stored = run["count"]
            assert run["verification"] == counted(stored)
            assert (run["lookup"]["missing"], run["lookup"]["doubled"]) == (0, 0)
            counts = "SELECT count(*), count(DISTINCT (device_id, sequence_number)) FROM events"
            assert ask(place, pod, counts) == f"{stored}|{stored}"
        finally:
            place.execute(pod, f"import shutil; shutil.rmtree('{_DATA}/pg')")
    (mark,), (outage,) = run["marks"], run["outages"]
    assert mark["ok"] is True
    assert outage["gap_s"] > 0.5
    assert outage["recovered_after_s"] is None or outage["recovered_after_s"] >= outage["gap_s"] - 1
    assert run["retries"] >= 2
    assert run["errors"].keys() <= {"connection_lost", "unavailable", "refused", "starting"}
    # A request that was due right after the deletion has waited for all of the outage.
    assert run["latency_ms"]["max"] >= 1000 * (outage["gap_s"] - 1)
    assert f"After delete-pods app={DURABLE} in {place.name} at 5." in done.out
    assert "nothing was lost or stored twice." in done.out
    page.wait()
    check_page(page, run)


def check_page(page: Reader, run: Any) -> None:
    """It showed the deletion, the backlog and the requests that were sent again, as they happened."""
    (mark,) = run["marks"]
    (shown,) = page.latest("marks")
    assert (shown["action"], shown["ok"], shown["number"]) == (mark["action"], True, 1)
    assert shown["took_s"] == pytest.approx(mark["ended_s"] - mark["at_s"], abs=0.01)
    states = [
        update["run"]
        for update in page.told
        if update["run"] and update["run"]["phase"] == "running"
    ]
    writers = [state["groups"][0] for state in states if state["groups"]]
    assert max(writer["backlog"] or 0 for writer in writers) > 100
    assert writers[-1]["retries"] >= 2
    last = page.metrics[-1]
    assert last["iot_benchmark_disturbances_total"] == 1
    assert last['iot_benchmark_retries_total{role="write"}'] >= 2
    backlog = 'iot_benchmark_backlog_events{role="write"}'
    assert max(sample.get(backlog, 0.0) for sample in page.metrics) > 100
