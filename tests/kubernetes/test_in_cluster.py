"""The examples of examples/in-cluster, as a real API server takes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_in_cluster import JOBS, OBJECTS

from .cluster import Namespace

pytestmark = pytest.mark.cluster


def test_the_api_server_takes_the_examples_and_their_pods(namespace: Namespace) -> None:
    """In a namespace that enforces the restricted standard. Nothing is made but the account, without which no
    pod is let in."""
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


def _place(document: dict[str, Any], namespace: Namespace) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace.name}}
