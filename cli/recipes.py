"""The recipes in dbinstall/: what each installs, how they are run, and what is there of them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cluster import Place, asked
from .config import Config
from .errors import ConfigError, RunFailed
from .installation import program, shipped
from .signals import Interrupted

if TYPE_CHECKING:
    from .diagnosis import Finding

FOLDER = shipped("dbinstall")

VENDOR = "vendor"
LOCAL = "local"
SIZES = ("default", "small")

DATABASE_LABEL = "iot-database-benchmark/database"
"""On a database's pods and on the Secret of its target; its value is the recipe's name."""
_NOTED = "iot-database-benchmark/"

_ANSWER_POLL_S = 3.0
_END_S = 10.0


@dataclass(frozen=True)
class Recipe:
    """One folder of dbinstall/ that installs a database on Kubernetes, as its recipe.env says."""

    name: str
    folder: Path
    variants: tuple[str, ...]
    nodes: tuple[int, ...]
    """Numbers of nodes that can be installed; the first is the default."""
    local_nodes: tuple[int, ...]
    """The same for the variant `local`."""
    secret: str
    """The Secret whose keys are options of the target's module."""
    service: str
    ports: tuple[int, ...]
    volumes: str
    """Label selector of the data volumes."""
    single_node_options: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Module -> KEY=VALUE that it must be told if there is one node."""

    def nodes_of(self, variant: str) -> tuple[int, ...]:
        return self.local_nodes if variant == LOCAL else self.nodes

    def volumes_of(self, variant: str) -> str:
        return f"{DATABASE_LABEL}={self.name}" if variant == LOCAL else self.volumes

    def extra_options(self, module: str, nodes: int) -> tuple[str, ...]:
        """What has to be added to the options of config.yaml for so many nodes."""
        return self.single_node_options.get(module, ()) if nodes == 1 else ()


@dataclass(frozen=True)
class Choice:
    """What of a recipe is to be installed."""

    variant: str
    nodes: int
    size: str
    image: str | None = None

    def __str__(self) -> str:
        return f"variant {self.variant}, {self.nodes} nodes, size {self.size}"


@dataclass
class Installed:
    """What is in the namespace of one recipe."""

    choice: Choice | None = None
    """As it was installed last; None: never, or its Secret is gone."""
    pods: int = 0
    ready: int = 0
    volumes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.pods:
            return "ready" if self.ready == self.pods else "not ready"
        return "removed, data kept" if self.volumes else "not installed"


def recipe_names() -> list[str]:
    """Folders of dbinstall/, whether they install on Kubernetes or elsewhere."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def load_recipe(name: str) -> Recipe:
    """The recipe of that name; ConfigError if there is none, or it installs elsewhere."""
    folder = FOLDER / name
    if not folder.is_dir():
        known = ", ".join(recipe_names())
        raise ConfigError(f"there is no recipe {name!r} in dbinstall/ (there is: {known})")
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
        local_nodes=tuple(map(int, values["LOCAL_NODES"].split()))
        if "LOCAL_NODES" in values
        else nodes,
        secret=values["SECRET"],
        service=values["SERVICE"],
        ports=tuple(map(int, values["PORT"].split())),
        volumes=values["VOLUMES"],
        single_node_options=options,
    )


def read_env(path: Path) -> dict[str, str]:
    """The assignments of a file that shell scripts source: KEY=VALUE, one a line, nothing else."""
    words = shlex.split(path.read_text(), comments=True)
    return dict(word.split("=", 1) for word in words)


def recipe_of(config: Config, target: str) -> Recipe:
    """The recipe that installs a target's database; ConfigError if there is none."""
    name = config.target(target).recipe
    if name is None:
        raise ConfigError(
            f"{config.where('targets', target)}: nothing in dbinstall/ installs this target; its key"
            f" `recipe` would name a folder ({', '.join(recipe_names())})"
        )
    return load_recipe(name)


def choose(
    recipe: Recipe, variant: str | None, nodes: int | None, size: str, image: str | None
) -> Choice:
    """Fill in defaults; ConfigError for what the recipe doesn't have."""
    variant = variant or recipe.variants[0]
    if variant not in recipe.variants:
        known = " and ".join(recipe.variants)
        raise ConfigError(f"{recipe.name} has no variant {variant} (it has: {known})")
    possible = recipe.nodes_of(variant)
    nodes = nodes or possible[0]
    if nodes not in possible:
        known = " or ".join(map(str, possible))
        raise ConfigError(
            f"{recipe.name}, variant {variant}: --nodes {nodes} is not there: use {known}"
        )
    if image and variant != LOCAL:
        raise ConfigError(f"--image is for --variant {LOCAL}; else edit dbinstall/{recipe.name}/")
    return Choice(variant, nodes, size, image)


class Scripts:
    """Runs a recipe's scripts against one place."""

    def __init__(self, recipe: Recipe, place: Place, timeout_s: int) -> None:
        for needed, remedy in (
            ("bash", "install it"),
            ("kubectl", "see https://kubernetes.io/docs/tasks/tools/"),
        ):
            if shutil.which(needed) is None:
                raise ConfigError(f"{needed} is not installed: {remedy}")
        self._recipe = recipe
        self._place = place
        self._timeout_s = timeout_s

    def plan(self, script: str, arguments: Sequence[str]) -> str:
        """What a script would do, in its own words; nothing is changed."""
        done = subprocess.run(
            self._command(script, [*arguments, "--plan"]),
            capture_output=True, text=True, env=self._environment(), check=False,
        )  # fmt: skip
        if done.returncode:
            raise RunFailed(_last_error(done.stderr, script))
        return done.stdout.rstrip()

    def run(self, script: str, arguments: Sequence[str]) -> None:
        """Run a script, its output to standard error; RunFailed if it fails. Ended with this tool."""
        running = subprocess.Popen(
            self._command(script, arguments),
            stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), stderr=sys.stderr.fileno(),
            env=self._environment(), start_new_session=True,
        )  # fmt: skip
        try:
            status = running.wait()
        except Interrupted as end:
            _end(running)
            end.left = (
                f"{script} of {self._recipe.name} was not finished; see {program()} db status"
            )
            raise
        if status:
            raise RunFailed(
                f"{self._recipe.name}: {script} ended with status {status}; what it said is above."
                f" See dbinstall/{self._recipe.name}/README.md"
            )

    def _command(self, script: str, arguments: Sequence[str]) -> list[str]:
        command = ["bash", str(self._recipe.folder / script), "--namespace", self._place.namespace]
        context = self._place.resolved_context()
        if context:
            command += ["--context", context]
        return [*command, "--timeout", str(self._timeout_s), *arguments]

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self._place.kubeconfig:
            environment["KUBECONFIG"] = self._place.kubeconfig
        return environment


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a script with everything that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_END_S)
            return


def _last_error(stderr: str, script: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return f"{script}: {lines[-1].removeprefix('error: ') if lines else 'failed'}"


def install_arguments(choice: Choice) -> list[str]:
    """Options of install.sh."""
    arguments = ["--variant", choice.variant, "--nodes", str(choice.nodes), "--size", choice.size]
    return [*arguments, "--image", choice.image] if choice.image else arguments


def installed(place: Place, recipe: Recipe) -> Installed:
    """What is there of a recipe; RunFailed if the cluster can't be asked."""
    from kubernetes import client

    found = Installed()
    selector = f"{DATABASE_LABEL}={recipe.name}"
    with asked(f"can't see what is in namespace {place.namespace}"), place.api_client() as api:
        core = client.CoreV1Api(api)
        secrets: Any = core.list_namespaced_secret(place.namespace, label_selector=selector)
        for secret in secrets.items:
            if secret.metadata.name == recipe.secret:
                found.choice = _noted(secret.metadata.annotations or {})
        variant = found.choice.variant if found.choice else VENDOR
        pods: Any = core.list_namespaced_pod(place.namespace, label_selector=selector)
        for pod in pods.items:
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            found.pods += 1
            conditions = pod.status.conditions or []
            found.ready += any(one.type == "Ready" and one.status == "True" for one in conditions)
        volumes: Any = core.list_namespaced_persistent_volume_claim(
            place.namespace, label_selector=recipe.volumes_of(variant)
        )
        found.volumes = sorted(item.metadata.name for item in volumes.items)
    return found


def _noted(annotations: Mapping[str, str]) -> Choice | None:
    try:
        variant, nodes, size = (annotations[_NOTED + key] for key in ("variant", "nodes", "size"))
        return Choice(variant, int(nodes), size)
    except (KeyError, ValueError):
        return None


def await_answer(ask: Callable[[], Finding], patience_s: float) -> Finding:
    """Ask the database until it answers or patience ends; the last outcome."""
    deadline = time.monotonic() + patience_s
    while True:
        finding = ask()
        if finding.ok or time.monotonic() > deadline:
            return finding
        time.sleep(_ANSWER_POLL_S)


def confirmed_context(place: Place, given: str | None) -> str:
    """The context's name; ConfigError if the user has named another one."""
    context = place.resolved_context() or "in-cluster"
    if given is not None and given != context:
        raise ConfigError(f"--confirm-context {given}: the context is {context}; nothing was done")
    return context


def next_command(target: str, place: Place, config_file: Path, extra_options: Sequence[str]) -> str:
    """The command that a user types after an installation."""
    words = [*program().split(), "insert", "--target", target]
    if config_file != Path("config.yaml"):
        words += ["--config", str(config_file)]
    words += place.options()
    for option in extra_options:
        words += ["--extra-option", option]
    return shlex.join(words)
