"""What a recipe sends to the cluster, as its scripts print it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from cli.run.install.recipes import LOCAL, SIZES, Recipe, load_recipe, read_env, recipe_names
from cli.system.errors import ConfigError


@dataclass(frozen=True)
class Combination:
    """One way to install one database."""

    recipe: Recipe
    variant: str
    nodes: int
    size: str

    def __str__(self) -> str:
        return f"{self.recipe.name}-{self.variant}-{self.nodes}-{self.size}"

    @property
    def arguments(self) -> list[str]:
        return ["--variant", self.variant, "--nodes", str(self.nodes), "--size", self.size]


def recipes() -> list[Recipe]:
    """All recipes that install on Kubernetes."""
    loaded = []
    for name in recipe_names():
        try:
            loaded.append(load_recipe(name))
        except ConfigError as error:
            assert "README.md" in error.message  # noqa: PT017 - those that install elsewhere
    return loaded


RECIPES = recipes()


def combinations() -> Iterator[Combination]:
    for recipe in RECIPES:
        for variant in recipe.variants:
            # Larger numbers differ by the number alone, which a test of its own shows.
            for nodes in (count for count in recipe.nodes_of(variant) if count <= 3):
                for size in SIZES:
                    yield Combination(recipe, variant, nodes, size)


COMBINATIONS = list(combinations())


def run_script(
    recipe: Recipe, script: str, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a recipe's script; the test fails if it does."""
    done = subprocess.run(
        ["bash", str(recipe.folder / script), *arguments],
        capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done


@cache
def render(combination: Combination, storage_class: str = "", node_selector: str = "") -> list[Any]:
    """The YAML documents: objects, and a chart's values. Not to be changed: they are shared."""
    env = {"STORAGE_CLASS": storage_class, "NODE_SELECTOR": node_selector}
    done = run_script(combination.recipe, "install.sh", *combination.arguments, "--render", env=env)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def objects(documents: list[Any]) -> list[Any]:
    return [document for document in documents if "kind" in document]


def chart_values(documents: list[Any]) -> list[Any]:
    return [document for document in documents if "kind" not in document]


def is_core(document: Any) -> bool:
    """Whether every cluster knows this kind."""
    group = document["apiVersion"].rpartition("/")[0]
    return group in ("", "apps", "batch", "policy")


def values_of(document: Any, *keys: str) -> list[Any]:
    """The values of these keys, wherever in a document they are."""
    values: list[Any] = []
    if isinstance(document, dict):
        for key, value in document.items():
            if key in keys:
                values.append(value)
            values += values_of(value, *keys)
    elif isinstance(document, list):
        for item in document:
            values += values_of(item, *keys)
    return values


LOCAL_COMBINATIONS = [combination for combination in COMBINATIONS if combination.variant == LOCAL]


def without_nulls(value: Any) -> Any:
    """As the API server takes it: null is as good as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def rights_of(recipe: Recipe, variant: str) -> set[str]:
    """The resources that a recipe's scripts change in the namespace, beside Secrets and data volumes."""
    values = read_env(recipe.folder / "recipe.env")
    return set(values["LOCAL_RIGHTS" if variant == LOCAL else "RIGHTS"].split())


def resource_of(document: Any) -> str:
    """As kubectl names the kind of an object: plural.group."""
    kind = document["kind"].lower()
    group = document["apiVersion"].rpartition("/")[0]
    # The only one that is irregular.
    plural = "elasticsearches" if kind == "elasticsearch" else f"{kind}s"
    return f"{plural}.{group}" if group else plural
