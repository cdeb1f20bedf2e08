"""The recipes in dbinstall/: what each one installs, which choices it offers, and how its scripts are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...plan.config import Config
from ...system.errors import ConfigError, RunFailed
from ...system.installation import program, shipped
from ...system.processes import END_PATIENCE_S, Interrupted, Interrupts, end_group
from ..cluster import Place

FOLDER = shipped("dbinstall")

VENDOR = "vendor"
LOCAL = "local"
SIZES = ("default", "small")

DATABASE_LABEL = "iot-database-benchmark/database"
"""Label on a database's pods and on the Secret of its target. Its value is the recipe's name."""


_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
"""The characters of a name, a tag or a digest: a line break would add lines to the manifest."""

_STORAGE_CLASS = re.compile(r"[a-z0-9.-]{0,253}")
"""Empty for existing volumes without a class."""


@dataclass(frozen=True)
class Recipe:
    """A folder of dbinstall/ that installs a database on Kubernetes, as described by its recipe.env."""

    name: str
    folder: Path
    variants: tuple[str, ...]
    nodes: tuple[int, ...]
    """The numbers of nodes that can be installed; the first is the default."""
    local_nodes: tuple[int, ...]
    """The numbers of nodes for the variant `local`."""
    secret: str
    """The Secret whose keys are options of the target's module."""
    service: str
    ports: tuple[int, ...]
    volumes: str
    """Label selector of the data volumes."""
    single_node_options: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Module -> the KEY=VALUE that it needs if there is only one node."""

    def nodes_of(self, variant: str) -> tuple[int, ...]:
        return self.local_nodes if variant == LOCAL else self.nodes

    def volumes_of(self, variant: str) -> str:
        return f"{DATABASE_LABEL}={self.name}" if variant == LOCAL else self.volumes

    def extra_options(self, module: str, nodes: int) -> tuple[str, ...]:
        """What to add to the options of config.yaml for this number of nodes."""
        return self.single_node_options.get(module, ()) if nodes == 1 else ()


@dataclass(frozen=True)
class Choice:
    """What to install of a recipe."""

    variant: str
    nodes: int
    size: str
    image: str | None = None
    storage_class: str | None = None
    """The storage class of the data volumes; None: the one in dbinstall/settings.env."""

    def is_like(self, other: Choice) -> bool:
        """Whether one can replace the other: image and storage class may differ."""
        return (self.variant, self.nodes, self.size) == (other.variant, other.nodes, other.size)

    def __str__(self) -> str:
        plural = "" if self.nodes == 1 else "s"
        return f"variant {self.variant}, {self.nodes} node{plural}, size {self.size}"


def recipe_names() -> list[str]:
    """Folders of dbinstall/, whether they install on Kubernetes or elsewhere."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def load_recipe(name: str) -> Recipe:
    """The recipe of that name. ConfigError if there is none, or if it installs elsewhere."""
    folder = FOLDER / name
    if not folder.is_dir():
        names = ", ".join(recipe_names())
        raise ConfigError(f"there is no recipe {name!r} in dbinstall/ (known: {names})")
    if not (folder / "recipe.env").is_file():
        raise ConfigError(
            f"{name} is not installed on Kubernetes: dbinstall/{name}/README.md says how"
        )
    values = read_env(folder / "recipe.env")
    nodes = tuple(map(int, values["NODES"].split()))
    options: dict[str, tuple[str, ...]] = {}
    for word in values.get("SINGLE_NODE_OPTIONS", "").split():
        module, _, option = word.partition(":")
        options[module] = (*options.get(module, ()), option)
    return Recipe(
        name,
        folder,
        variants=tuple(values["VARIANTS"].split()),
        nodes=nodes,
        local_nodes=tuple(map(int, values.get("LOCAL_NODES", values["NODES"]).split())),
        secret=values["SECRET"],
        service=values["SERVICE"],
        ports=tuple(map(int, values["PORT"].split())),
        volumes=values["VOLUMES"],
        single_node_options=options,
    )


def read_env(path: Path) -> dict[str, str]:
    """The assignments of a file that shell scripts source: one KEY=VALUE per line, nothing else."""
    words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    return dict(word.split("=", 1) for word in words)


def recipe_of(config: Config, target: str) -> Recipe:
    """The recipe that installs a target's database; ConfigError if there is none."""
    name = config.target(target).recipe
    if name is None:
        raise ConfigError(
            f"{config.where('targets', target)}: nothing in dbinstall/ installs this target; set its"
            f" key `recipe` to a folder ({', '.join(recipe_names())})"
        )
    return load_recipe(name)


def choose(
    recipe: Recipe,
    variant: str | None,
    nodes: int | None,
    size: str,
    image: str | None,
    storage_class: str | None = None,
) -> Choice:
    """Fill in defaults. ConfigError for what the recipe doesn't offer."""
    variant = variant or recipe.variants[0]
    if variant not in recipe.variants:
        choices = " and ".join(recipe.variants)
        raise ConfigError(f"{recipe.name} has no variant {variant} (it has: {choices})")
    possible = recipe.nodes_of(variant)
    nodes = nodes or possible[0]
    if nodes not in possible:
        choices = " or ".join(map(str, possible))
        if possible == (1,):
            raise ConfigError(
                f"{recipe.name}, variant {variant}, can have one node only: leave out --nodes {nodes}"
            )
        raise ConfigError(
            f"{recipe.name}, variant {variant}: --nodes {nodes} is not available: use {choices}"
        )
    if image and variant != LOCAL:
        raise ConfigError(f"--image is for --variant {LOCAL}; else edit dbinstall/{recipe.name}/")
    if image and not _IMAGE.fullmatch(image):
        raise ConfigError(f"--image {image!r} isn't the name of an image, as in registry/name:tag")
    if storage_class is not None and not _STORAGE_CLASS.fullmatch(storage_class):
        raise ConfigError(
            f"--storage-class {storage_class!r} isn't the name of a storage class"
            " (kubectl get storageclass lists them)"
        )
    return Choice(variant, nodes, size, image, storage_class)


# --- install.sh and uninstall.sh -------------------------------------------------------------------

_POLL_S = 0.2

_GUARD = """
exec 3<&0 </dev/null
ended=
trap 'ended=yes' TERM
(
  trap '' TERM
  read -r -u 3
  kill -TERM 0
  sleep "$0"
  kill -KILL 0
) &
"$@" 3<&-
status=$?
if [ "$ended" ]; then kill -KILL 0; fi
{ kill -KILL $! && wait $!; } 2>/dev/null
exit $status
"""
"""Runs a script that must not outlive this process. $0 is how many seconds it may take to end. Standard input
is a pipe whose other end only this process has, so it closes when this process ends, even by SIGKILL. Then
the whole process group is told to end, and is killed after a while."""


class Scripts:
    """Runs a recipe's scripts against one place."""

    def __init__(
        self, recipe: Recipe, place: Place, timeout_s: int, interrupts: Interrupts
    ) -> None:
        for needed, remedy in (
            ("bash", "install it"),
            ("kubectl", "see https://kubernetes.io/docs/tasks/tools/"),
        ):
            if shutil.which(needed) is None:
                raise ConfigError(f"{needed} is not installed: {remedy}")
        self.recipe = recipe
        self.place = place
        self._timeout_s = timeout_s
        self._interrupts = interrupts

    def plan(self, script: str, arguments: Sequence[str]) -> str:
        """What a script would do, in its own words. Nothing is changed."""
        process = subprocess.run(
            self._command(script, [*arguments, "--plan"]),
            capture_output=True, encoding="utf-8", errors="replace", env=self._environment(), check=False,
        )  # fmt: skip
        if process.returncode:
            lines = [line for line in process.stderr.splitlines() if line.strip()]
            why = lines[-1].removeprefix("error: ") if lines else "failed"
            raise RunFailed(f"{script}: {why}")
        return process.stdout.rstrip()

    def run(self, script: str, arguments: Sequence[str]) -> None:
        """Run a script, with its output on standard error. RunFailed if it fails. An interrupt ends it, a
        second one at once, and so does the end of this process."""
        running = subprocess.Popen(
            ["bash", "-c", _GUARD, f"{END_PATIENCE_S:g}", *self._command(script, arguments)],
            stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=sys.stderr.fileno(),
            env=self._environment(), start_new_session=True,
        )  # fmt: skip
        unfinished = f"{script} of {self.recipe.name} was not finished; see {program()} db status"
        hurry = self._interrupts.hurry
        with running:  # this closes the pipe, whatever happens
            try:
                while running.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        running.wait(_POLL_S)
                    if running.returncode is None and hurry.is_set():
                        raise RunFailed(unfinished)
            except BaseException as error:
                if isinstance(error, Interrupted):
                    error.left = unfinished
                end_group(running.pid, END_PATIENCE_S, hurry.is_set)
                raise
        if running.returncode:
            raise RunFailed(
                f"{self.recipe.name}: {script} ended with status {running.returncode}; its output is above."
                f" See dbinstall/{self.recipe.name}/README.md"
            )

    def _command(self, script: str, arguments: Sequence[str]) -> list[str]:
        command = ["bash", str(self.recipe.folder / script), "--namespace", self.place.namespace]
        context = self.place.resolve_context()
        if context:
            command += ["--context", context]
        return [*command, "--timeout", str(self._timeout_s), *arguments]

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self.place.kubeconfig:
            environment["KUBECONFIG"] = self.place.kubeconfig
        return environment


def install_arguments(choice: Choice) -> list[str]:
    """Options of install.sh."""
    arguments = ["--variant", choice.variant, "--nodes", str(choice.nodes), "--size", choice.size]
    if choice.storage_class is not None:
        arguments += ["--storage-class", choice.storage_class]
    return [*arguments, "--image", choice.image] if choice.image else arguments
