"""The examples of examples/in-cluster: as a real API server takes them, and the Job as it runs."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.e2e.tool import eventually
from tests.test_in_cluster import JOB, JOBS, OBJECTS

from .cluster import Namespace, image_values
from .tool import COLLECTOR, WORKER

pytestmark = pytest.mark.cluster


def test_the_api_server_takes_the_examples_and_their_pods(namespace: Namespace) -> None:
    """In a namespace that enforces the restricted standard. Nothing is made but the account, without which no
    pod is admitted."""
    cluster = namespace.cluster
    create: dict[str, Any] = {
        "ConfigMap": cluster.core.create_namespaced_config_map,
        "CronJob": cluster.batch.create_namespaced_cron_job,
        "Job": cluster.batch.create_namespaced_job,
        "PersistentVolumeClaim": cluster.core.create_namespaced_persistent_volume_claim,
        "Role": cluster.rbac.create_namespaced_role,
        "RoleBinding": cluster.rbac.create_namespaced_role_binding,
    }
    account = _place(OBJECTS["ServiceAccount/iotbench"], namespace)
    cluster.core.create_namespaced_service_account(namespace.name, account)
    checked = {"dry_run": "All", "field_validation": "Strict"}
    for name, document in OBJECTS.items():
        if kind := create.get(name.split("/")[0]):
            kind(namespace.name, _place(document, namespace), **checked)
    for name, job in JOBS.items():
        pod = {"metadata": {"name": name}, "spec": job["template"]["spec"]}
        cluster.core.create_namespaced_pod(namespace.name, pod, **checked)


def test_the_job_measures_and_leaves_nothing_behind(namespace: Namespace) -> None:
    """With the account and the Role of the examples, in a namespace that enforces the restricted standard."""
    image = os.environ.get("E2E_CLI_IMAGE")
    if not image:
        pytest.skip("E2E_CLI_IMAGE names no image of the command line (Dockerfile)")
    cluster = namespace.cluster
    config = {
        "namespace": namespace.name,
        "kubernetes": {
            "image": image_values(),
            "resources": WORKER,
            "collectorResources": COLLECTOR,
        },
        "targets": {"blackhole": {"module": "blackhole"}},
    }
    job = deepcopy(JOB)
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = image
    pod["containers"][0]["args"] = [
        "insert", "--config=/etc/iotbench/config.yaml", "--target=blackhole", "--workers=2", "--runs=1",
        "--duration=2s",
    ]  # fmt: skip
    # In place of the claim: not every cluster makes volumes by itself.
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "results"]
    pod["volumes"].append({"name": "results", "emptyDir": {}})
    files = {**OBJECTS["ConfigMap/iotbench"], "data": {"config.yaml": yaml.safe_dump(config)}}
    binding = deepcopy(OBJECTS["RoleBinding/iotbench"])
    binding["subjects"][0]["namespace"] = namespace.name
    for create, document in (
        (cluster.core.create_namespaced_service_account, OBJECTS["ServiceAccount/iotbench"]),
        (cluster.rbac.create_namespaced_role, OBJECTS["Role/iotbench"]),
        (cluster.rbac.create_namespaced_role_binding, binding),
        (cluster.core.create_namespaced_config_map, files),
        (cluster.batch.create_namespaced_job, job),
    ):
        create(namespace.name, _place(document, namespace))
    name = job["metadata"]["name"]

    def ended() -> bool:
        status = cluster.batch.read_namespaced_job(name, namespace.name).status
        return bool(status.succeeded or status.failed)

    eventually(ended, "the end of the Job", within_s=180)
    (own,) = cluster.core.list_namespaced_pod(
        namespace.name, label_selector=f"job-name={name}"
    ).items
    log = cluster.core.read_namespaced_pod_log(own.metadata.name, namespace.name)
    assert own.status.container_statuses[0].state.terminated.exit_code == 0, log
    assert "Result: results/" in log
    namespace.check_nothing_left()


def _place(document: dict[str, Any], namespace: Namespace) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace.name}}
