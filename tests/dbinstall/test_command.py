"""`run.py db` as far as it goes without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from cli.plan.config import load_config
from cli.run.cluster import Place
from cli.run.install import next_command, recipes
from cli.run.install.recipes import choose, install_arguments, load_recipe, read_env, recipe_of
from cli.system.errors import ConfigError

from ..e2e.tool import Done, Tool


class Db(Protocol):
    """`run.py db` with these arguments and variables, without a cluster."""

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None) -> Done: ...


@pytest.fixture
def db(tmp_path_factory: pytest.TempPathFactory) -> Db:
    """In the tests' own process: what is refused starts nothing."""
    tool = Tool(tmp_path_factory.mktemp("db"), tmp_path_factory.mktemp("none"))

    def run(*arguments: str, env: Mapping[str, str] | None = None) -> Done:
        base = {"PATH": "/usr/bin:/bin", "KUBECONFIG": "/nonexistent"}
        return tool.run_here("db", *arguments, env=base | dict(env or {}))

    return run


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["install", "postgres"], ["no target 'postgres'", "did you mean"]),
        (["install", "blackhole"], ["config.yaml:", "targets.blackhole", "recipe"]),
        (["install", "postgresql", "--nodes", "2"], ["--nodes 2", "1 or 3"]),
        (
            ["install", "postgresql", "--nodes", "3", "--variant", "local"],
            ["one node only", "--nodes 3"],
        ),
        (["install", "cockroachdb", "--variant", "local"], ["no variant local", "vendor"]),
        (["install", "questdb", "--nodes", "3"], ["questdb", "one node only"]),
        (["install", "postgresql", "--image", "x:1"], ["--image", "--variant local"]),
        (["install", "postgresql", "--storage-class", "A b"], ["--storage-class", "'A b'"]),
        (["install"], ["which target?", "postgresql", "--help"]),
        (["destroy", "postgresql"], ["destroy", "--help"]),
    ],
)
def test_wrong_usage(db: Db, arguments: list[str], texts: list[str]) -> None:
    done = db(*arguments)
    assert done.status == 2, done
    assert not done.out
    for text in texts:
        assert text in done.err, done


def test_kubectl_is_missed(db: Db, tmp_path: Path) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    done = db("install", "postgresql", env={"PATH": str(tmp_path)})
    assert done.status == 2
    assert "kubectl is not installed" in done.err and "https://" in done.err


def test_no_context(db: Db, tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "kubectl").chmod(0o755)
    done = db("install", "postgresql", "--yes", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.status == 2
    assert "no Kubernetes context" in done.err


def test_a_secret_that_the_target_does_not_name(db: Db, tmp_path: Path) -> None:
    """The run would not find the password."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "targets:\n  x: {module: postgres, recipe: postgresql, connection_string: host=x}\n"
    )
    done = db("install", "x", "--config", str(file))
    assert done.status == 2
    assert "existingSecret" in done.err and "postgresql-benchmark" in done.err


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("targets:\n  x: {module: postgres, recipe: oracle}\n")
    with pytest.raises(ConfigError, match=r"'oracle'.*cassandra.*postgresql"):
        recipe_of(load_config(file), "x")


def test_a_database_that_is_installed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Azure Data Explorer, a service: its folder has no recipe.env."""
    (tmp_path / "service").mkdir()
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    assert recipes.recipe_names() == ["service"]
    with pytest.raises(ConfigError, match=r"dbinstall/service/README\.md"):
        load_recipe("service")


def test_defaults() -> None:
    """What the shipped targets expect: the reference's numbers of nodes."""
    for name, nodes in (("postgresql", 1), ("influxdb", 1), ("cassandra", 3), ("cockroachdb", 3)):
        choice = choose(load_recipe(name), None, None, "default", None)
        assert (choice.variant, choice.nodes) == ("vendor", nodes)
    assert choose(load_recipe("cassandra"), "local", 1, "small", "x:1").image == "x:1"
    for image in ("x:1\n  hostNetwork: true", "x 1", "-x", "${PASSWORD}"):
        with pytest.raises(ConfigError, match="isn't the name of an image"):
            choose(load_recipe("cassandra"), "local", 1, "small", image)


@pytest.mark.parametrize(
    ("given", "told"),
    [(None, []), ("", ["--storage-class", ""]), ("fast", ["--storage-class", "fast"])],
)
def test_storage_class(given: str | None, told: list[str]) -> None:
    choice = choose(load_recipe("questdb"), None, None, "small", None, given)
    assert install_arguments(choice)[6:] == told


def test_next_command() -> None:
    place = Place("ns", "/my config", "ctx")
    command = next_command("x", place, Path("other.yaml"), ["a=b c"])
    assert command == (
        "python run.py insert --target x --config other.yaml --namespace ns --context ctx"
        " --kubeconfig '/my config' --extra-option 'a=b c'"
    )
    place = Place("ns")
    assert next_command("x", place, Path("config.yaml"), []) == (
        "python run.py insert --target x --namespace ns"
    )


def test_read_env(tmp_path: Path) -> None:
    file = tmp_path / "x.env"
    file.write_text('# Comment.\nA="1 2"  # more\nB=x=y\n\nC=\n')
    assert read_env(file) == {"A": "1 2", "B": "x=y", "C": ""}
