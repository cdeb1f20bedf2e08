"""Recipes against the vendors' own files: custom resources by the schemas of their CRDs, values by their
charts.

Needs checkouts of the vendors' repositories, as $VENDORS/OWNER/NAME; without them, skipped. Worth its time
whenever a version in dbinstall/ is changed:

    for name in cloudnative-pg/charts k8ssandra/cass-operator elastic/cloud-on-k8s arangodb/kube-arangodb \\
        Altinity/clickhouse-operator cockroachdb/helm-charts yugabyte/charts influxdata/helm-charts \\
        questdb/questdb-kubernetes VictoriaMetrics/helm-charts; do
      git clone --depth 1 https://github.com/$name vendors/$name; done
    cd vendors/VictoriaMetrics/helm-charts/charts  # a dependency from the same place
    ln -s ../../victoria-metrics-common victoria-metrics-single/charts; cd -
    VENDORS=vendors pytest tests/dbinstall/test_vendors.py
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.run.install.recipes import DATABASE_LABEL, VENDOR

from .rendering import (
    COMBINATIONS,
    Combination,
    chart_values,
    is_core,
    objects,
    render,
    resource_of,
    rights_of,
    values_of,
    without_nulls,
)
from .test_security import find_faults, pod_specs

_ALTINITY = (
    "Altinity/clickhouse-operator/deploy/helm/clickhouse-operator/crds/CustomResourceDefinition"
)
CRDS = {
    "Cluster": "cloudnative-pg/charts/charts/cloudnative-pg/templates/crds/crds.yaml",
    "CassandraDatacenter": "k8ssandra/cass-operator/config/crd/bases/"
    "cassandra.datastax.com_cassandradatacenters.yaml",
    "Elasticsearch": "elastic/cloud-on-k8s/config/crds/v1/all-crds.yaml",
    "ClickHouseInstallation": f"{_ALTINITY}-clickhouseinstallations.clickhouse.altinity.com.yaml",
    "ClickHouseKeeperInstallation": f"{_ALTINITY}-clickhousekeeperinstallations"
    ".clickhouse-keeper.altinity.com.yaml",
    "ArangoDeployment": "arangodb/kube-arangodb/pkg/crd/crds/database-deployment.schema.generated.yaml",
}  # fmt: skip
CHARTS = {
    "cockroachdb": "cockroachdb/helm-charts/cockroachdb",
    "yugabytedb": "yugabyte/charts/stable/yugabyte",
    "influxdb": "influxdata/helm-charts/charts/influxdb2",
    "questdb": "questdb/questdb-kubernetes/charts/questdb",
    "victoriametrics": "VictoriaMetrics/helm-charts/charts/victoria-metrics-single",
}

OPERATED = ("postgresql", "timescaledb", "cassandra", "elasticsearch", "arangodb", "clickhouse")

CUSTOM = [
    combination
    for combination in COMBINATIONS
    if combination.variant == VENDOR and combination.recipe.name in OPERATED
]
BY_CHART = [
    combination
    for combination in COMBINATIONS
    if combination.variant == VENDOR and combination.recipe.name in CHARTS
]


def checkout(path: str) -> Path:
    """A file or folder of a vendor's; the test is skipped without it."""
    folder = os.environ.get("VENDORS")
    if folder is None:
        pytest.skip("$VENDORS names no folder with the vendors' repositories")
    location = Path(folder) / path
    assert location.exists(), location
    return location


@cache
def schema_of(kind: str, version: str, path: Path) -> Any:
    """The schema of a custom resource, as strict as the API server can be asked to be."""
    # A chart's template: the lines of its language are no YAML.
    lines = [line for line in path.read_text().splitlines() if "{{" not in line]
    for document in yaml.safe_load_all("\n".join(lines)):
        if kind == "ArangoDeployment":
            definition = document[version]["openAPIV3Schema"]
        elif document and document.get("spec", {}).get("names", {}).get("kind") == kind:
            versions = document["spec"]["versions"]
            definition = next(entry for entry in versions if entry["name"] == version)["schema"]
            definition = definition["openAPIV3Schema"]
        else:
            continue
        schema = strict(definition)
        schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
        return schema
    raise AssertionError(f"{path} has no {kind}")


def strict(schema: Any) -> Any:
    """The schema with unknown fields forbidden, and Kubernetes' own keywords put into JSON Schema's."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    copy = dict(schema)
    if "properties" in copy:
        copy["properties"] = {key: strict(value) for key, value in copy["properties"].items()}
        copy.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(copy.get(key), dict):
            copy[key] = strict(copy[key])
    return copy


@pytest.mark.parametrize("combination", CUSTOM, ids=str)
def test_custom_resources(combination: Combination) -> None:
    checked = 0
    for document in objects(render(combination)):
        if not is_core(document):
            kind, version = document["kind"], document["apiVersion"].rpartition("/")[2]
            schema = schema_of(kind, version, checkout(CRDS[kind]))
            jsonschema.validate(without_nulls(document), schema)
            checked += 1
    # Three nodes of ClickHouse have a Keeper beside them.
    assert checked == (2 if str(combination).startswith("clickhouse-vendor-3") else 1)


@pytest.mark.parametrize("combination", BY_CHART, ids=str)
def test_charts(combination: Combination) -> None:
    """They take the values, and make of them what config.yaml expects."""
    recipe = combination.recipe
    chart = checkout(CHARTS[recipe.name])
    (values,) = chart_values(render(combination, "fast", "{pool: databases}"))
    done = subprocess.run(
        ["helm", "template", recipe.name, chart, "--namespace", "ns", "--values", "-",
         "--kube-version", "1.34.0"],
        input=yaml.safe_dump(values), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    service = next(
        document
        for document in documents
        if document["kind"] == "Service" and document["metadata"]["name"] == recipe.service
    )
    ports = {port["port"] for port in service["spec"]["ports"]}
    assert set(recipe.ports) <= ports
    assert not [
        document for document in documents if document.get("spec", {}).get("type") == "LoadBalancer"
    ]
    stateful_sets = [document for document in documents if document["kind"] == "StatefulSet"]
    for stateful_set in stateful_sets:
        pod = stateful_set["spec"]["template"]
        assert pod["metadata"]["labels"][DATABASE_LABEL] == recipe.name
        assert pod["spec"]["nodeSelector"] == {"pool": "databases"}
    assert combination.nodes in [stateful_set["spec"]["replicas"] for stateful_set in stateful_sets]
    assert set(values_of(documents, "storageClassName")) == {"fast"}
    for document in documents:
        if document["kind"].startswith("ClusterRole"):
            assert recipe.name == "cockroachdb"  # its CLUSTER_RIGHTS
        elif document["kind"] not in ("Secret", "PersistentVolumeClaim"):
            assert resource_of(document) in rights_of(recipe, VENDOR)
    faults = {owner: find_faults(spec) for owner, spec in pod_specs(documents)}
    # A Pod by itself is for `helm test`, which nobody runs.
    assert not {owner for owner in faults if faults[owner] and not owner.startswith("Pod/")}
    key, _, value = recipe.volumes.partition("=")
    # A StatefulSet gives its claims the labels by which it selects its pods, beside their own.
    labels = [
        {**claim["metadata"].get("labels", {}), **stateful_set["spec"]["selector"]["matchLabels"]}
        for stateful_set in stateful_sets
        for claim in stateful_set["spec"].get("volumeClaimTemplates", [])
    ]
    labels += [
        document["metadata"].get("labels", {})
        for document in documents
        if document["kind"] == "PersistentVolumeClaim"
    ]
    assert labels and all(claim_labels.get(key) == value for claim_labels in labels)
