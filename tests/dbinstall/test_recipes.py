"""Each recipe without a cluster: its files, its scripts by shellcheck, its objects by their schema, and
that its names are those of config.yaml."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import psycopg2.extensions
import pytest

from cli.plan.config import Config, load_config
from cli.plan.target import Target
from cli.run.install.recipes import DATABASE_LABEL, FOLDER, LOCAL, Recipe, read_env, recipe_names
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.options import parse_options

from .rendering import (
    COMBINATIONS,
    RECIPES,
    Combination,
    chart_values,
    is_core,
    objects,
    render,
    resource_of,
    rights_of,
    run_script,
    values_of,
    without_nulls,
)

ROOT = FOLDER.parent
# The oldest that the package knows.
OLDEST_KUBERNETES = "1.25"

every_combination = pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
every_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


# --- files and scripts ----------------------------------------------------------------------------


def test_all_databases_are_there() -> None:
    assert {recipe.name for recipe in RECIPES} == {
        "postgresql", "timescaledb", "cockroachdb", "yugabytedb", "arangodb", "cassandra",
        "influxdb", "elasticsearch", "cratedb", "clickhouse", "questdb", "victoriametrics",
        "iotdb",
    }  # fmt: skip
    assert {recipe.name for recipe in RECIPES if LOCAL in recipe.variants} == {
        "postgresql", "cassandra", "influxdb",
    }  # fmt: skip


@every_recipe
def test_the_same_file_names_everywhere(recipe: Recipe) -> None:
    expected = {
        "README.md", "install.sh", "uninstall.sh", "recipe.env", "default.env", "small.env",
        "single-node.yaml",
    }  # fmt: skip
    if 3 in recipe.nodes:
        expected.add("multi-node.yaml")
    if LOCAL in recipe.variants:
        expected.add("local.yaml")
    assert {path.name for path in recipe.folder.iterdir()} == expected
    for script in ("install.sh", "uninstall.sh"):
        assert (recipe.folder / script).stat().st_mode & 0o111


SCRIPTS = [*FOLDER.rglob("*.sh"), *(ROOT / "tests" / "kubernetes").rglob("*.sh")]


@pytest.mark.parametrize(
    "folder", [*sorted({script.parent for script in SCRIPTS}), ROOT / ".ci"],
    ids=lambda folder: folder.name,
)  # fmt: skip
def test_shellcheck(folder: Path) -> None:
    """Folder by folder, as it takes seconds for all of them."""
    scripts = sorted(folder.glob("*.sh")) or [folder / "run"]
    program = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run(
        [program, "--external-sources", *scripts],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@every_recipe
def test_the_readme_names_what_is_pinned(recipe: Recipe) -> None:
    """So that it can't lag behind the scripts: versions of charts and operators, and the Secret."""
    text = (recipe.folder / "README.md").read_text()
    script = (recipe.folder / "install.sh").read_text()
    versions = re.findall(r"\b\d+\.\d+\.\d+\b", re.sub(r"#.*", "", script))
    for version in [*versions, recipe.secret]:
        assert version in text, version
    assert "https://" in text


@every_recipe
def test_the_recipe_says_when_its_versions_were_the_newest(recipe: Recipe) -> None:
    text = (recipe.folder / "recipe.env").read_text()
    assert re.search(
        r"^# The pinned versions were last known .* in 20\d\d-\d\d", text, re.MULTILINE
    )


# --- what they send -------------------------------------------------------------------------------


# The definitions of a version are megabytes, which the package reads for each object.
_read_schema = cache(kubernetes_validate.utils.schema_contents)


@every_combination
def test_objects_fit_their_schema(
    combination: Combination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", _read_schema)
    documents = render(combination)
    assert documents
    for document in documents:
        assert "${" not in str(document)
        if "kind" in document and is_core(document):
            for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
                kubernetes_validate.validate(without_nulls(document), version, strict=True)


@every_combination
def test_storage_class_and_node_selector_come_from_one_place(combination: Combination) -> None:
    documents = render(combination, "fast", "{pool: databases}")
    classes = values_of(documents, "storageClass", "storageClassName")
    assert classes and set(classes) == {"fast"}
    selectors = values_of(documents, "nodeSelector")
    assert selectors and all(selector == {"pool": "databases"} for selector in selectors)

    usual = render(combination)
    assert set(values_of(usual, "storageClass", "storageClassName")) == {None}
    assert all(selector == {} for selector in values_of(usual, "nodeSelector"))


@pytest.mark.parametrize(
    "recipe", [recipe for recipe in RECIPES if 6 in recipe.nodes], ids=lambda recipe: recipe.name
)
def test_six_nodes_are_three_but_for_their_number(recipe: Recipe) -> None:
    three, six = (render(Combination(recipe, "vendor", nodes, "small")) for nodes in (3, 6))
    changed = {
        (before, after)
        for before, after in zip(list_leaves(three), list_leaves(six), strict=True)
        if before != after
    }
    assert (3, 6) in changed
    assert {(str(before), str(after)) for before, after in changed} == {("3", "6")}


def list_leaves(value: Any) -> list[Any]:
    """All values that aren't made of parts."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in list_leaves(value[key])]
    if isinstance(value, list):
        return [leaf for item in value for leaf in list_leaves(item)]
    return [value]


@every_combination
def test_as_many_nodes_as_asked_for(combination: Combination) -> None:
    key = {
        "Cluster": "instances", "CassandraDatacenter": "size", "Elasticsearch": "count",
        "StatefulSet": "replicas",
    }  # fmt: skip
    for document in render(combination):
        kind = document.get("kind")
        if kind in key:
            assert values_of(document["spec"], key[kind])[0] == combination.nodes
        elif kind in ("ClickHouseInstallation", "ClickHouseKeeperInstallation"):
            [cluster] = document["spec"]["configuration"]["clusters"]
            assert cluster["layout"]["replicasCount"] == combination.nodes
        elif kind == "ArangoDeployment":
            mode = "Single" if combination.nodes == 1 else "Cluster"
            assert document["spec"]["mode"] == mode
            counts = values_of(document["spec"], "count")
            assert counts == ([] if combination.nodes == 1 else [3, 3, 3])
        elif kind is None and combination.recipe.name == "yugabytedb":
            assert document["replicas"] == {
                "master": combination.nodes, "tserver": combination.nodes,
            }  # fmt: skip
        elif kind is None and combination.recipe.name == "cockroachdb":
            assert document["statefulset"]["replicas"] == combination.nodes
            assert document["conf"].get("single-node", False) == (combination.nodes == 1)


@every_recipe
def test_sizes(recipe: Recipe) -> None:
    """The default is the reference's: 8 cores and 10 GB a node, guaranteed."""
    default = read_env(recipe.folder / "default.env")
    cores = sum(int(default[key]) for key in ("CPU", "COORDINATOR_CPU") if key in default)
    memory = sum(
        int(default[key].removesuffix("Gi"))
        for key in ("MEMORY", "COORDINATOR_MEMORY")
        if key in default
    )
    assert (cores, memory) == (8, 10)
    assert default["CPU_REQUEST"] == default["CPU"]
    small = read_env(recipe.folder / "small.env")
    assert small.keys() == default.keys()
    # Three of them fit a laptop with 8 GB.
    assert small["CPU_REQUEST"].endswith("m")
    assert small["MEMORY"] in ("512Mi", "1Gi", "1536Mi", "2Gi")


@every_recipe
def test_images_and_charts_are_pinned(recipe: Recipe) -> None:
    for combination in COMBINATIONS:
        if combination.recipe is not recipe:
            continue
        for image in values_of(objects(render(combination)), "image", "imageName", "reference"):
            if isinstance(image, str):
                tag = image.rpartition(":")[2]
                assert re.match(r"\d+\.\d+", tag), image


@every_recipe
def test_a_plan_changes_nothing(recipe: Recipe, tmp_path: Path) -> None:
    """No program of Kubernetes is run, so that it works without a cluster."""
    for program in ("kubectl", "helm"):
        (tmp_path / program).write_text("#!/bin/sh\necho called >&2\nexit 9\n")
        (tmp_path / program).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for variant in recipe.variants:
        done = run_script(recipe, "install.sh", "--plan", "--variant", variant, env=env)
        assert recipe.secret in done.stdout and "storage class" in done.stdout
        assert not done.stderr
        done = run_script(recipe, "uninstall.sh", "--plan", "--variant", variant, env=env)
        assert "data volumes and Secrets stay" in done.stdout
        assert "persistentvolumeclaim" not in done.stdout
        done = run_script(
            recipe, "uninstall.sh", "--plan", "--variant", variant, "--delete-volumes", env=env
        )
        assert (
            f"delete persistentvolumeclaim --selector {recipe.volumes_of(variant)}" in done.stdout
        )
        assert not done.stderr


@every_combination
def test_rights_are_those_of_what_is_sent(combination: Combination) -> None:
    """For what a chart makes of the values, see test_vendors.py."""
    recipe = combination.recipe
    rights = rights_of(recipe, combination.variant)
    for document in objects(render(combination)):
        if document["kind"] != "Secret":
            assert resource_of(document) in rights
    script = (recipe.folder / "install.sh").read_text()
    assert ("pods/exec" in rights) == ("sql_in_pod" in script)
    plan = run_script(recipe, "install.sh", *combination.arguments, "--plan").stdout
    for right in {"secrets", "persistentvolumeclaims"} | rights:
        assert re.search(rf"(^  |, ){re.escape(right)}(,|$)", plan, re.MULTILINE), right


# --- config.yaml ----------------------------------------------------------------------------------


CONFIG: Config = load_config(ROOT / "config.yaml")
TARGETS = [
    target
    for target in map(CONFIG.target, CONFIG.target_names)
    if target.recipe in {recipe.name for recipe in RECIPES}
]
every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def recipe_named(name: str | None) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.name == name)


def test_every_folder_is_a_targets_and_every_target_has_its_folder() -> None:
    named = {CONFIG.target(name).recipe for name in CONFIG.target_names} - {None}
    assert named >= set(recipe_names())
    without = {name for name in CONFIG.target_names if CONFIG.target(name).recipe is None}
    assert without == {"embedded", "blackhole", "opensearch"}


@every_target
def test_the_target_names_service_and_port(target: Target) -> None:
    """Without a namespace: the runs are in the database's."""
    recipe = recipe_named(target.recipe)
    host, port = address(target)
    assert host == recipe.service
    assert port is None or port in recipe.ports
    assert target.kubernetes["existingSecret"] == recipe.secret
    assert target.kubernetes["keepAwayFrom"] == {DATABASE_LABEL: recipe.name}


def address(target: Target) -> tuple[str, int | None]:
    """Host and, if it is given, port."""
    options = target.options
    if "connection_string" in options:
        parts = psycopg2.extensions.parse_dsn(options["connection_string"])
        return parts["host"], int(parts["port"])
    if "endpoint" in options:
        match = re.fullmatch(r"http://([\w.-]+):(\d+)", options["endpoint"])
        assert match, options["endpoint"]
        return match[1], int(match[2])
    if "host" in options:
        return options["host"], options.get("port")
    return options["contact_points"], None


@every_combination
def test_the_service_is_what_the_recipe_makes(combination: Combination) -> None:
    """By the rules of each operator and chart; the plain manifests name it themselves."""
    recipe = combination.recipe
    services: dict[str, list[int] | None] = {}
    documents = render(combination)
    for document in objects(documents):
        name, kind = document["metadata"]["name"], document["kind"]
        if kind == "Service":
            services[name] = [port["port"] for port in document["spec"]["ports"]]
        elif kind == "Cluster":
            # https://cloudnative-pg.io/docs/current/service_management
            services[f"{name}-rw"] = None
        elif kind == "CassandraDatacenter":
            services[f"{document['spec']['clusterName']}-{name}-service"] = None
        elif kind == "Elasticsearch":
            services[f"{name}-es-http"] = None
        elif kind == "ArangoDeployment":
            services[name] = None
        elif kind == "ClickHouseInstallation":
            [service] = document["spec"]["templates"]["serviceTemplates"]
            services[service["generateName"]] = [port["port"] for port in service["spec"]["ports"]]
    for values in chart_values(documents):
        if recipe.name == "cockroachdb":
            services["cockroachdb-public"] = None
        elif recipe.name == "yugabytedb":
            services["yb-tservers"] = None
        elif recipe.name == "victoriametrics":
            server = values["server"]
            services[server["fullnameOverride"]] = [server["service"]["servicePort"]]
        else:
            # A chart may have more ports, which are opened where they are wanted.
            exposed = values["service"].get("expose", {}).values()
            more = [port["port"] for port in exposed if port["enabled"]]
            services[values["fullnameOverride"]] = [values["service"]["port"], *more]
    assert recipe.service in services
    ports = services[recipe.service]
    assert ports is None or set(ports) == set(recipe.ports)


@every_combination
def test_pods_and_secret_are_labelled(combination: Combination) -> None:
    """`db status` and keepAwayFrom look for the label."""
    recipe = combination.recipe
    documents = render(combination)
    secrets = [document for document in documents if document.get("kind") == "Secret"]
    assert recipe.secret in [secret["metadata"]["name"] for secret in secrets]
    (password,) = secret_of(combination).values()
    for secret in secrets:
        assert secret["metadata"]["labels"] == {DATABASE_LABEL: recipe.name}
        # The database gets the password that the runs will use.
        assert base64.b64encode(password.encode()).decode() in secret["data"].values()
    others = [
        document for document in documents if document.get("kind") not in ("Secret", "Service")
    ]
    assert others
    for document in others:
        below = document.get("spec", document)
        below = below.get("template", below)
        assert recipe.name in values_of(below, DATABASE_LABEL)


@every_target
def test_the_secrets_keys_are_options(target: Target) -> None:
    """With them over the target's own options, the module has all it needs."""
    recipe = recipe_named(target.recipe)
    try:
        module = load_module(target.module)
    except OptionError:
        pytest.skip(f"there is no module {target.module} yet")
    for combination in COMBINATIONS:
        if combination.recipe is recipe:
            values = secret_of(combination)
            nodes = combination.nodes
            extra = recipe.extra_options(target.module, nodes)
            overrides = dict(option.split("=", 1) for option in extra)
            options = parse_options(
                module.options_model, target.options | values | overrides, lambda key: key
            )
            assert set(values.values()) <= set(options.secrets())


def secret_of(combination: Combination) -> dict[str, str]:
    secret = next(
        document
        for document in objects(render(combination))
        if document["metadata"]["name"] == combination.recipe.secret
    )
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


@every_target
def test_the_user_and_the_database_are_made(target: Target) -> None:
    recipe = recipe_named(target.recipe)
    if "connection_string" in target.options:
        parts = psycopg2.extensions.parse_dsn(target.options["connection_string"])
        user, database = parts["user"], parts["dbname"]
    else:
        user = target.options.get("username", target.options.get("user"))
        database = target.options.get("org")
    text = "".join(path.read_text() for path in recipe.folder.iterdir() if path.suffix != ".md")
    # YugabyteDB has these users from the start, and both have the database.
    built_in = recipe.name == "yugabytedb" and user in ("yugabyte", "cassandra")
    assert user is None or built_in or re.search(rf"\b{user}\b", text)
    database_there = database is None or recipe.name in ("yugabytedb", "questdb")
    assert database_there or re.search(rf"\b{database}\b", text)


@every_combination
def test_one_node_is_told_to_the_module(combination: Combination) -> None:
    """A keyspace with three copies can't be written to on one node."""
    for target in TARGETS:
        if target.recipe == combination.recipe.name and "replication_factor" in target.options:
            extra = dict(
                option.split("=", 1)
                for option in combination.recipe.extra_options(target.module, combination.nodes)
            )
            factor = int(extra.get("replication_factor", target.options["replication_factor"]))
            assert factor == combination.nodes
