"""Each failure that Kubernetes can have in store, provoked: the run ends soon, with the reason and the
pod's name, its logs are kept, and nothing is left (which the fixture checks)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity

from tests.e2e.tool import Running, eventually

from .cluster import Namespace
from .test_access import documented_rules, use
from .tool import HALF, WORKER, ClusterTool

pytestmark = pytest.mark.cluster

LONG = ("--num-inserts", 100_000)
"""A run of 1,000 s."""

WITHIN_S = 15.0
"""From when Kubernetes knows to the end of the run; the tool's own end and clean-up come on top."""
CLEAN_UP_S = 12.0


def begin(tool: ClusterTool, *arguments: object, runs: int = 1) -> Running:
    """A long run in its window."""
    running = tool.start_insert(*LONG, "--runs", runs, *arguments)
    running.await_err("running,", 60)
    return running


def ended(tool: ClusterTool, running: Running, since: float) -> str:
    """The error of a run to which something happened at `since`."""
    text = tool.await_failure(running)
    assert time.monotonic() - since < WITHIN_S + CLEAN_UP_S
    return text


def failed_soon(tool: ClusterTool) -> str:
    """The error of a run that can't come to life."""
    done = tool.insert_here()
    assert done.seconds < WITHIN_S + CLEAN_UP_S
    return tool.check_failure(done)


def test_image_that_is_not_there(tool: ClusterTool) -> None:
    tool.configure(image={**tool.document["kubernetes"]["image"], "tag": "no-such-tag"})
    text = tool.check_failure(tool.insert_here())
    assert "pod iotb-" in text and "Image" in text and "no-such-tag" in text
    assert "image.tag" in text
    assert "no-such-tag" in tool.read_logs("events.log")


def test_image_that_may_not_be_pulled(tool: ClusterTool) -> None:
    image = {**tool.document["kubernetes"]["image"], "tag": "none", "pullPolicy": "Never"}
    tool.configure(image=image)
    text = failed_soon(tool)
    assert "ErrImageNeverPull" in text and "pod iotb-" in text


def test_no_node_for_it(tool: ClusterTool) -> None:
    """As a user who may not see nodes: only the pods show it."""
    use(tool, documented_rules())
    tool.keep_from_waiting()
    tool.configure(nodeSelector={"no-such-label": "at-all"})
    text = failed_soon(tool)
    assert "pod iotb-" in text and "can't be scheduled" in text
    assert "node affinity/selector" in text and "kubernetes: nodeSelector:" in text
    assert "FailedScheduling" in tool.read_logs("events.log")


def test_no_room_for_it(tool: ClusterTool) -> None:
    tool.keep_from_waiting()
    tool.configure(resources={**WORKER, "cpu": "500"})
    text = failed_soon(tool)
    assert "Of 1 worker, 1 has no node; each requests cpu 500 and memory 160Mi." in text
    assert "Insufficient cpu" in text and "kubernetes: resources:" in text and "config.yaml" in text


def test_no_room_for_all(tool: ClusterTool, namespace: Namespace) -> None:
    """Of counts that fit the results are kept."""
    nodes: Any = namespace.cluster.core.list_node()
    # Of something that no other test needs: their pods must find room.
    room = [node.status.allocatable["ephemeral-storage"] for node in nodes.items]
    disk = max(map(parse_quantity, room)) * 3 // 5
    resources = {"cpu": "10m", "memory": "90Mi", "ephemeral-storage": f"{disk}"}
    tool.configure(resources=resources, scheduling_patience="8s")
    text = tool.check_failure(tool.insert_here("--workers", f"1,{len(room) + 1}"))
    assert f"Of {len(room) + 1} workers, 1 has no node; each requests cpu 10m" in text
    assert "Insufficient ephemeral-storage" in text and "use fewer workers" in text
    first, second = tool._read(tool.folder() / "result.json")["runs"]
    assert first["groups"][0]["count"] == 100 and first["valid"] is not None
    assert "can't be scheduled" in str(second)


def test_quantities_that_are_none(tool: ClusterTool, namespace: Namespace) -> None:
    tool.may_lack_results = True
    for amount in ("abc", "300MB", "1e400"):
        tool.configure(resources={**WORKER, "cpu": amount})
        text = tool.insert_here().error(2)
        assert f"kubernetes: resources: cpu: '{amount}' is no quantity" in text
    assert not namespace.objects()


def test_crash_at_start(tool: ClusterTool) -> None:
    # Something that the image does not have: the process ends before it can tell the collector.
    tool.configure(resources={**WORKER, "memory": "20Mi"})
    text = failed_soon(tool)
    assert "pod iotb-" in text and "-worker-0-" in text


def test_settings_that_the_worker_refuses(tool: ClusterTool, namespace: Namespace) -> None:
    """What only the processes in the pods can find out is reported in their own words."""
    namespace.secret(
        "credentials", connection_string="host=nowhere", max_retries="many", **{"ca.crt": "PEM"}
    )
    tool.document["targets"]["hole"]["kubernetes"] = {"existingSecret": "credentials"}
    tool.document["targets"]["hole"]["module"] = "postgres"
    del tool.document["targets"]["hole"]["delay_ms"]
    tool.configure()
    text = tool.check_failure(tool.insert_here())
    assert "option max_retries" in text and "that are not options: ca.crt" in text
    assert "max_retries" in tool.read_logs("*collector*.log")


def test_secret_that_is_not_there(tool: ClusterTool) -> None:
    tool.configure(existingSecret="no-such-secret")
    text = failed_soon(tool)
    assert "pod iotb-" in text and "no-such-secret" in text


def test_out_of_memory(tool: ClusterTool) -> None:
    """A batch that is too much for the worker, in a forked process of several and in its first one."""
    tool.document["targets"]["hole"]["encoder"] = "postgres"
    tool.configure(resources={**WORKER, "memory": "80Mi"})
    for runs in (1, 2):
        text = tool.insert_here(
            "--num-inserts", 5_000_000, "--batch", 5_000_000, "--runs", runs,
            "--output", tool.place / f"results-{runs}",
        ).error(1)  # fmt: skip
        assert "-worker-0-" in text and "out of memory" in text and "resources.memory" in text
        names = [path.name for path in (tool.place / f"results-{runs}").rglob("*.log")]
        assert "events.log" in names
        assert any("-collector-" in name for name in names)
        assert any("-worker-0-" in name for name in names)


def test_evicted(tool: ClusterTool, namespace: Namespace) -> None:
    tool.configure(podDisruptionBudget={"enabled": False})
    running = begin(tool)
    name = namespace.await_running("worker")[0].metadata.name
    since = time.monotonic()
    evict(namespace, name)
    text = ended(tool, running, since)
    assert name in text and "evicted" in text
    assert "phase run" in tool.read_logs("*collector*.log")


def test_eviction_is_refused(tool: ClusterTool, namespace: Namespace) -> None:
    """As shipped: draining the node waits for the run's end."""
    running = tool.start_insert("--num-inserts", 500)
    running.await_err("running,", 60)
    for pod in namespace.await_running("worker") + namespace.await_running("collector"):
        with pytest.raises(ApiException) as refused:
            evict(namespace, pod.metadata.name)
        assert refused.value.status == 429
    tool.fine(running.wait())


def evict(namespace: Namespace, pod: str) -> None:
    """Evict it as draining a node does."""
    namespace.cluster.core.create_namespaced_pod_eviction(
        pod, namespace.name, {"metadata": {"name": pod, "namespace": namespace.name}}
    )


@pytest.mark.parametrize("component", ["worker", "collector"])
def test_deleted(tool: ClusterTool, namespace: Namespace, component: str) -> None:
    tool.configure(resources={**WORKER, "cpu": HALF})
    running = begin(tool, "--workers", 2) if component == "worker" else begin(tool)
    pods = namespace.pods()
    name = namespace.await_running(component)[0].metadata.name
    since = time.monotonic()
    namespace.cluster.core.delete_namespaced_pod(name, namespace.name)
    text = ended(tool, running, since)
    assert name in text and "deleted" in text
    # No new pod in its place.
    now = {pod.metadata.name for pod in namespace.pods()}
    assert now <= {pod.metadata.name for pod in pods}


@pytest.mark.parametrize("component", ["worker", "collector"])
def test_killed(tool: ClusterTool, namespace: Namespace, component: str) -> None:
    """SIGKILL to the process that does the work: what the kernel's OOM killer or a crash looks like."""
    running = begin(tool, runs=2)
    name = namespace.await_running(component)[0].metadata.name
    since = time.monotonic()
    namespace.execute(
        name,
        "import os, signal\n"
        "from pathlib import Path\n"
        "for path in Path('/proc').iterdir():\n"
        "    if path.name.isdigit() and int(path.name) not in (1, os.getpid()):\n"
        "        os.kill(int(path.name), signal.SIGKILL)\n",
    )
    text = ended(tool, running, since)
    assert name in text and "137" in text


def test_quota(tool: ClusterTool, namespace: Namespace) -> None:
    namespace.quota(**{"limits.memory": "250Mi"})
    text = failed_soon(tool)
    assert "exceeded quota" in text and "limits.memory" in text and "iotb-" in text


def test_quota_of_objects(tool: ClusterTool, namespace: Namespace) -> None:
    """A quota that already keeps helm from making what the chart has."""
    namespace.quota(**{"count/jobs.batch": "1"})
    tool.may_lack_results = True
    done = tool.insert_here()
    text = done.error(2)
    assert done.seconds < WITHIN_S
    assert "exceeded quota" in text and "jobs.batch" in text


def test_pod_security(tool: ClusterTool) -> None:
    """The namespace enforces the restricted standard, and the values ask for something else."""
    tool.configure(runAsUser=0)
    text = failed_soon(tool)
    assert "violates PodSecurity" in text and "restricted" in text and "iotb-" in text


def test_root(tool: ClusterTool, namespace: Namespace) -> None:
    """Where the namespace allows it, the pod itself does not."""
    name = namespace.name
    label = {"pod-security.kubernetes.io/enforce": None}
    namespace.cluster.core.patch_namespace(name, {"metadata": {"labels": label}})
    tool.configure(runAsUser=0)
    text = failed_soon(tool)
    assert "CreateContainerConfigError" in text and "non-root" in text and "pod iotb-" in text


def test_timeout(tool: ClusterTool) -> None:
    text = tool.check_failure(tool.insert_here(*LONG, "--timeout", 12))
    assert "--timeout" in text and "phase run" in text and "of 100000 done" in text
    assert "phase run" in tool.read_logs("*collector*.log")


def test_timeout_before_the_pods_run(tool: ClusterTool) -> None:
    use(tool, documented_rules())
    tool.configure(nodeSelector={"no-such-label": "at-all"})
    text = tool.check_failure(tool.insert_here("--timeout", 3))
    assert "--timeout" in text and "pods not started: iotb-" in text


def test_namespace_that_is_not_there(tool: ClusterTool) -> None:
    tool.may_lack_results = True
    text = tool.insert_here("--namespace", "no-such-namespace").error(2)
    assert text.startswith(
        "error: there is no namespace no-such-namespace: make it with 'kubectl create"
    )


def test_stuck_pods_are_waited_for(tool: ClusterTool, namespace: Namespace) -> None:
    """When the command has ended, none of its pods is at work any more."""
    running = begin(tool)
    pods: list[Any] = namespace.pods()
    assert len(pods) == 2
    namespace.cluster.batch.delete_namespaced_job(
        pods[1].metadata.labels["job-name"], namespace.name, propagation_policy="Background"
    )
    tool.await_failure(running)
    eventually(lambda: not namespace.pods(), "the end of all pods", 5)
