"""`db install`, `status` and `uninstall` on the cluster: the plain manifests with real servers, benchmarked
as config.yaml is shipped; the vendors' recipes as far as the API server goes, without their operators."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from cli.run.install.recipes import DATABASE_LABEL, Recipe, load_recipe
from tests.dbinstall.rendering import (
    COMBINATIONS,
    Combination,
    is_core,
    objects,
    render,
    values_of,
)
from tests.e2e.tool import Done, Running, eventually, flatten

from .cluster import POSTGRES_IMAGE, Cluster, Namespace
from .test_access import documented_rules, use
from .tool import ClusterTool

pytestmark = pytest.mark.cluster

DATABASE_PATIENCE_S = 600


# --- the command ----------------------------------------------------------------------------------


class Databases:
    """`run.py db` in one namespace."""

    def __init__(self, tool: ClusterTool, storage_class: str) -> None:
        self._tool = tool
        self._storage_class = storage_class

    def start(self, *arguments: object, impatient: bool = False) -> Running:
        """Start it. `impatient`: by the tool's `start_impatient`."""
        begin = self._tool.start_impatient if impatient else self._tool.start
        return begin(
            "db", *arguments, "--config", self._tool.config,
            env={"STORAGE_CLASS": self._storage_class},
        )  # fmt: skip

    def run(self, *arguments: object, within_s: float = 120) -> Done:
        return self.start(*arguments).wait(within_s)

    def run_here(self, *arguments: object) -> Done:
        """Likewise in this process: for commands that change nothing."""
        return self._tool.run_here("db", *arguments, "--config", self._tool.config)

    def install(self, target: str, image: str, *arguments: object) -> Done:
        """Install the plain manifests; check that the database answers and the next command is printed."""
        done = self.run(
            "install", target, "--variant", "local", "--size", "small", "--image", image, "--yes",
            "--timeout", DATABASE_PATIENCE_S, *arguments, within_s=DATABASE_PATIENCE_S + 120,
        )  # fmt: skip
        assert done.status == 0, done
        assert "answers collector and worker" in done.out
        assert f"Next: python run.py insert --target {target}" in done.out
        return done

    def status(self, target: str) -> list[str]:
        """The line of a target's database, by words."""
        return self.run_here("status", target).ok().out.splitlines()[1].split()


@pytest.fixture
def databases(shipped: ClusterTool, storage_class: str) -> Databases:
    return Databases(shipped, storage_class)


def insert_and_query(tool: ClusterTool, target: str, events: int = 2000) -> None:
    """Insert as config.yaml has it, and query."""
    tool.insert("--batch", 100, "--num-inserts", events, "--json", tool.json, target=target)
    run = flatten(tool._read(tool.json)["runs"][0])
    assert run["count"] == events and run["verification"]["stored"] == events
    done = tool.run_here(
        "query", "--target", target, "--runs", 1, "--config", tool.config, "--json", tool.json,
    )  # fmt: skip
    assert done.status == 0, done
    assert "count-events" in done.out


def password_of(namespace: Namespace, recipe: Recipe, key: str) -> str:
    secret = namespace.cluster.core.read_namespaced_secret(recipe.secret, namespace.name)
    assert list(secret.data) == [key]
    return base64.b64decode(secret.data[key]).decode()


@pytest.mark.timeout(600)
def test_postgresql(databases: Databases, shipped: ClusterTool, namespace: Namespace) -> None:
    """Refused, installed, benchmarked, removed, and found again with its data; in a namespace that
    enforces the restricted Pod Security Standard, by a user with the documented Roles."""
    use(shipped, [*documented_rules(), *documented_rules("Permissions to install a database")])
    recipe = load_recipe("postgresql")
    words = ("install", "postgresql", "--variant", "local", "--size", "small")
    context = yaml.safe_load(Path(shipped.kubeconfig.split(":")[0]).read_text())["current-context"]

    # Nobody is there to confirm; another context is meant. It says what it would do, and does nothing.
    refused = databases.run_here(*words)
    assert f"--confirm-context {context}" in refused.error(2)
    assert "kubectl apply" in refused.out and recipe.secret in refused.out
    refused = databases.run_here(*words, "--confirm-context", "production")
    assert "production" in refused.error(2) and context in refused.err
    assert databases.status("postgresql")[:3] == ["postgresql", "not", "installed"]

    installed = databases.install("postgresql", POSTGRES_IMAGE)
    status = databases.status("postgresql")
    assert status == ["postgresql", "ready", "1/1", "local", "1", "small", "1"]
    insert_and_query(shipped, "postgresql")
    password = password_of(namespace, recipe, "password")
    for text in (namespace.everything(), installed.out, installed.err, shipped.json.read_text()):
        assert password not in text

    other = databases.run_here(*words, "--yes", "--size", "default").error(2)
    assert "uninstall it first" in other

    removed = databases.run("uninstall", "postgresql", "--confirm-context", context)
    assert removed.status == 0 and "Kept: data-postgresql-0" in removed.out, removed
    assert databases.status("postgresql")[:4] == ["postgresql", "removed,", "data", "kept"]

    again = databases.install("postgresql", POSTGRES_IMAGE)
    assert "Data volumes of an earlier installation" in again.out
    assert password_of(namespace, recipe, "password") == password
    shipped.insert(
        "--no-clean", "--batch", 100, "--num-inserts", 500, "--json", shipped.json,
        target="postgresql",
    )  # fmt: skip
    assert shipped._read(shipped.json)["runs"][0]["fill_level"] == 2000

    removed = databases.run("uninstall", "postgresql", "--yes", "--delete-volumes")
    assert removed.status == 0 and "will be lost" in removed.out, removed
    assert databases.status("postgresql")[:3] == ["postgresql", "not", "installed"]
    core = namespace.cluster.core
    assert not core.list_namespaced_secret(namespace.name, label_selector=DATABASE_LABEL).items
    nothing = databases.run_here("uninstall", "postgresql", "--yes").ok()
    assert "is not installed" in nothing.out


def test_a_database_that_is_not_installed(shipped: ClusterTool) -> None:
    """The run ends soon, and names what would help."""
    text = shipped.insert_here(target="postgresql").error(1)
    assert "postgresql-benchmark" in text and "python run.py db install" in text


def test_a_namespace_that_is_not_there(shipped: ClusterTool) -> None:
    done = shipped.run_here(
        "db", "install", "postgresql", "--config", shipped.config, "--yes",
        "--namespace", "no-such-namespace",
    )  # fmt: skip
    assert "there is no namespace no-such-namespace: make it with 'kubectl create" in done.error(2)
    assert done.out == ""


def image_of(variable: str) -> str:
    """The image that a variable names, official or of tests/kubernetes/; without one, a test is skipped."""
    image = os.environ.get(variable)
    if image is None:
        pytest.skip(f"{variable} names no image")
    return image


@pytest.mark.timeout(600)
def test_influxdb(databases: Databases, shipped: ClusterTool, namespace: Namespace) -> None:
    databases.install("influxdb", image_of("E2E_INFLUXDB_IMAGE"))
    insert_and_query(shipped, "influxdb")
    token = password_of(namespace, load_recipe("influxdb"), "token")
    assert token not in namespace.everything()
    databases.run("uninstall", "influxdb", "--yes", "--delete-volumes").ok()


@pytest.mark.timeout(1200)
def test_cassandra_on_three_nodes(
    databases: Databases, shipped: ClusterTool, namespace: Namespace
) -> None:
    databases.install("cassandra_async", image_of("E2E_CASSANDRA_IMAGE"))
    assert databases.status("cassandra_async")[:5] == ["cassandra", "ready", "3/3", "local", "3"]
    insert_and_query(shipped, "cassandra_async")
    databases.run("uninstall", "cassandra_async", "--yes", "--delete-volumes").ok()


@pytest.mark.timeout(600)
def test_installed_without_the_benchmarks_image(
    databases: Databases, shipped: ClusterTool, namespace: Namespace
) -> None:
    """The database is there, but nothing can ask it."""
    image = {**shipped.document["kubernetes"]["image"], "tag": "no-such-tag"}
    shipped.configure(image=image)
    done = databases.start(
        "install", "postgresql", "--variant", "local", "--size", "small", "--image",
        POSTGRES_IMAGE, "--yes", impatient=True,
    ).wait(240)  # fmt: skip
    assert done.status == 1
    assert "is installed and its pods are ready" in done.err and "no-such-tag" in done.err
    databases.run("uninstall", "postgresql", "--yes", "--delete-volumes").ok()


@pytest.mark.timeout(300)
def test_an_image_that_can_not_be_had(databases: Databases, namespace: Namespace) -> None:
    """Interrupted, it says what to do; when its time is over it ends with what Kubernetes says."""
    words = (
        "install", "postgresql", "--variant", "local", "--size", "small", "--image",
        "no-such-image:1.0", "--yes",
    )  # fmt: skip
    running = databases.start(*words)
    running.await_err("kubectl rollout status", 60)
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 128 + signal.SIGINT, done
    assert "install.sh of postgresql was not finished; see python run.py db status" in done.err
    assert "nothing is left" not in done.err

    # Its volume comes first, which takes longer on a busy cluster.
    eventually(
        lambda: any("no-such-image" in message for message in warnings_in(namespace)),
        "a warning of the image", 120, 0.5,
    )  # fmt: skip
    done = databases.run(*words, "--timeout", 5)
    assert done.status == 1, done
    assert "install.sh ended with status 1" in done.err.splitlines()[-1]
    assert "postgresql-0" in done.err and "no-such-image" in done.err
    assert databases.status("postgresql")[:4] == ["postgresql", "not", "ready", "0/1"]
    databases.run("uninstall", "postgresql", "--yes", "--delete-volumes").ok()


def warnings_in(namespace: Namespace) -> list[str]:
    listed = namespace.cluster.core.list_namespaced_event(
        namespace.name, field_selector="type=Warning"
    )
    return [str(event.message) for event in listed.items]


# --- what the API server takes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "combination",
    [combination for combination in COMBINATIONS if combination.size == "default"],
    ids=str,
)
def test_core_objects_are_taken(combination: Combination, namespace: Namespace) -> None:
    """By a dry run of the API server: with its defaults, admission and Pod Security."""
    documents = [document for document in objects(render(combination)) if is_core(document)]
    done = subprocess.run(
        [
            "kubectl", "apply", "--namespace", namespace.name, "--dry-run=server",
            "--validate=strict", "--filename", "-",
        ],
        input=yaml.safe_dump_all(documents), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert done.stdout.count("(server dry run)") == len(documents)


CUSTOM = {
    "postgresql": ("postgresql.cnpg.io", "v1", "clusters", "Cluster"),
    "timescaledb": ("postgresql.cnpg.io", "v1", "clusters", "Cluster"),
    "cassandra": (
        "cassandra.datastax.com", "v1beta1", "cassandradatacenters", "CassandraDatacenter",
    ),
    "elasticsearch": (
        "elasticsearch.k8s.elastic.co", "v1", "elasticsearches", "Elasticsearch",
    ),
    "arangodb": ("database.arangodb.com", "v1", "arangodeployments", "ArangoDeployment"),
}  # fmt: skip
READY = {
    "phase": "Ready",
    "conditions": [
        {
            "type": "Ready", "status": "True", "reason": "test", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}  # fmt: skip


@pytest.fixture
def custom_resources(cluster: Cluster) -> Iterator[None]:
    """Stand-ins for the operators' CRDs, which take anything; skipped where there are real ones."""
    api: Any = client.ApiextensionsV1Api(cluster.api)
    names = []
    try:
        for group, version, plural, kind in dict.fromkeys(CUSTOM.values()):
            body = {
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "schema": {
                                "openAPIV3Schema": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                        }
                    ],
                },
            }
            try:
                api.create_custom_resource_definition(body)
            except ApiException as error:
                if error.status != 409:
                    raise
                pytest.skip(f"{plural}.{group} is there")
            names.append(body["metadata"]["name"])  # type: ignore[index]

        def established() -> bool:
            return all(
                any(
                    condition.type == "Established" and condition.status == "True"
                    for condition in api.read_custom_resource_definition(name).status.conditions
                    or []
                )
                for name in names
            )

        eventually(established, "the custom resources", 30, 0.2)
        yield
    finally:
        for name in names:
            api.delete_custom_resource_definition(name)


@pytest.mark.timeout(300)
def test_the_vendors_recipes_without_their_operators(
    custom_resources: None, namespace: Namespace
) -> None:
    """Their scripts run with the real kubectl for as many nodes as they have, while a thread marks the
    resource as ready. Whether an operator makes a database of it is not tested here."""
    for name, (group, version, plural, _) in CUSTOM.items():
        recipe = load_recipe(name)
        stopped = threading.Event()
        readier = threading.Thread(
            target=keep_ready, args=[namespace, group, version, plural, stopped], daemon=True
        )
        readier.start()
        nodes = max(recipe.nodes)
        options = ("--variant", "vendor", "--nodes", str(nodes), "--timeout", "30")
        try:
            script(recipe, "install.sh", namespace, *options)
        finally:
            stopped.set()
            readier.join()
        resources = list_objects(namespace, group, version, plural)
        assert len(resources) == 1 and resources[0]["metadata"].get("name"), name
        assert nodes in values_of(resources[0]["spec"], "size", "count", "instances"), name
        core = namespace.cluster.core
        selector = f"{DATABASE_LABEL}={name}"
        secrets = core.list_namespaced_secret(namespace.name, label_selector=selector).items
        assert recipe.secret in [secret.metadata.name for secret in secrets]
        # The same password in each form.
        password = next(secret for secret in secrets if secret.metadata.name == recipe.secret).data[
            "password"
        ]
        assert all(secret.data["password"] == password for secret in secrets)

        script(recipe, "uninstall.sh", namespace)
        assert not list_objects(namespace, group, version, plural), name
        assert len(core.list_namespaced_secret(namespace.name, label_selector=selector).items) == 2
        script(recipe, "uninstall.sh", namespace, "--delete-volumes")
        assert not core.list_namespaced_secret(namespace.name, label_selector=selector).items


def script(recipe: Recipe, name: str, namespace: Namespace, *arguments: str) -> None:
    done = subprocess.run(
        ["bash", recipe.folder / name, "--namespace", namespace.name, *arguments],
        capture_output=True, text=True, check=False,
        # Whichever it is, no volume is made. A cluster without a default needs a name.
        env={**os.environ, "STORAGE_CLASS": "any"},
    )  # fmt: skip
    assert done.returncode == 0, done


def list_objects(namespace: Namespace, group: str, version: str, plural: str) -> list[Any]:
    api: Any = client.CustomObjectsApi(namespace.cluster.api)
    listed = api.list_namespaced_custom_object(group, version, namespace.name, plural)
    return list(listed["items"])


def keep_ready(
    namespace: Namespace, group: str, version: str, plural: str, stopped: threading.Event
) -> None:
    """What an operator would do last."""
    api: Any = client.CustomObjectsApi(namespace.cluster.api)
    while not stopped.wait(0.3):
        # For a moment after a CRD was made, its objects can't be listed.
        with suppress(ApiException):
            for item in list_objects(namespace, group, version, plural):
                if "status" not in item:
                    api.patch_namespaced_custom_object(
                        group, version, namespace.name, plural, item["metadata"]["name"],
                        {"status": READY},
                    )  # fmt: skip
