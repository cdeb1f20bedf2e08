"""Install a target's database, see what is there, remove it."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from ...plan.config import Config
from ...plan.requests import Request
from ...system.errors import ConfigError, RunFailed
from ...system.installation import CONFIG_FILE, program
from ...system.output import print_text
from ...system.signals import Interrupts
from ..cluster import Place, check_namespace, explain_errors
from ..diagnosis import Finding, check_database
from .recipes import (
    DATABASE_LABEL,
    VENDOR,
    Choice,
    Recipe,
    Scripts,
    install_arguments,
    load_recipe,
    recipe_names,
    recipe_of,
)

if TYPE_CHECKING:
    from ..kubeclient import KubeClient

# After its pods are ready: for the Service's addresses to get around, and users to be made.
_ANSWER_PATIENCE_S = 30.0
_ANSWER_POLL_S = 3.0


_NOTED = "iot-database-benchmark/"


@dataclass
class Installed:
    """What the namespace has of one recipe."""

    choice: Choice | None = None
    """What was installed last; None if nothing was, or its Secret is gone."""
    pods: int = 0
    ready: int = 0
    volumes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.pods:
            return "ready" if self.ready == self.pods else "not ready"
        return "removed, data kept" if self.volumes else "not installed"


def read_state(client: KubeClient, namespace: str, recipe: Recipe) -> Installed:
    """What the namespace has of a recipe; RunFailed if the cluster can't be asked."""
    # Late: a campaign that installs nothing does without the Kubernetes client.
    from ..kubeclient import POD, SECRET, VOLUME_CLAIM

    installed = Installed()
    selector = f"{DATABASE_LABEL}={recipe.name}"
    with explain_errors(f"can't see what is in namespace {namespace}"):
        for secret in client.find(SECRET, namespace, labels=selector):
            if secret["metadata"]["name"] == recipe.secret:
                installed.choice = _read_choice(secret["metadata"].get("annotations") or {})
        variant = installed.choice.variant if installed.choice else VENDOR
        for pod in client.find(POD, namespace, labels=selector):
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            installed.pods += 1
            installed.ready += any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in pod["status"].get("conditions") or []
            )
        volumes = client.find(VOLUME_CLAIM, namespace, labels=recipe.volumes_of(variant))
        installed.volumes = sorted(item["metadata"]["name"] for item in volumes)
    return installed


def _read_choice(annotations: Mapping[str, str]) -> Choice | None:
    try:
        variant, nodes, size = (annotations[_NOTED + key] for key in ("variant", "nodes", "size"))
        return Choice(variant, int(nodes), size)
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True)
class Consent:
    """What the user has said beforehand about the context in which something is changed."""

    yes: bool
    confirm_context: str | None


class Database:
    """A target's database in one place, which its recipe installs and removes."""

    def __init__(
        self, config: Config, target: str, place: Place, timeout_s: int, interrupts: Interrupts
    ) -> None:
        """ConfigError if nothing in dbinstall/ installs it."""
        self.config = config
        self.target = config.target(target)
        self.place = place
        self.recipe = recipe_of(config, self.target.name)
        self._interrupts = interrupts
        self._scripts = Scripts(self.recipe, place, timeout_s, interrupts)

    def check(self) -> None:
        """ConfigError if the target looks for its credentials elsewhere than the recipe puts them, or if
        its namespace isn't there."""
        name, secret = self.target.name, self.recipe.secret
        if self.target.kubernetes.get("existingSecret") != secret:
            raise ConfigError(
                f"{self.config.where('targets', name)}: the recipe {self.recipe.name} puts the"
                f" credentials into the Secret {secret}: set kubernetes.existingSecret to it"
            )
        check_namespace(self.place.make_client(), self.place.namespace)

    def read_state(self) -> Installed:
        """What the namespace has of it."""
        return read_state(self.place.make_client(), self.place.namespace, self.recipe)

    def plan(self, choice: Choice) -> str:
        """What `install` would do."""
        return self._scripts.plan("install.sh", install_arguments(choice))

    def install(self, choice: Choice) -> Sequence[str]:
        """Install it and wait until it answers. Returns options of the module that go with so many nodes."""
        self._scripts.run("install.sh", install_arguments(choice))
        extra_options = self.recipe.extra_options(self.target.module, choice.nodes)
        place = self.place
        request = Request(
            target=self.target.name, config_file=self.config.path, extra_options=tuple(extra_options),
            executor="kubernetes", namespace=place.namespace, kubeconfig=place.kubeconfig,
            context=place.context,
        )  # fmt: skip
        _await_database(self.recipe, request, self._interrupts)
        return extra_options

    def plan_removal(self, arguments: Sequence[str]) -> str:
        """What `remove` would do."""
        return self._scripts.plan("uninstall.sh", arguments)

    def remove(self, arguments: Sequence[str]) -> None:
        """Run uninstall.sh with these arguments."""
        self._scripts.run("uninstall.sh", arguments)


def removal_arguments(installed: Installed, delete_volumes: bool) -> list[str]:
    """Options of uninstall.sh for what is there."""
    arguments = ["--variant", installed.choice.variant if installed.choice else VENDOR]
    return [*arguments, "--delete-volumes"] if delete_volumes else arguments


def install_database(database: Database, choice: Choice, consent: Consent) -> None:
    """Show the plan, ask, install, wait until the database answers, print the next command."""
    recipe = database.recipe
    database.check()
    before = database.read_state()
    if before.pods and before.choice and not before.choice.is_like(choice):
        raise ConfigError(
            f"{recipe.name} is already installed, with {before.choice}: uninstall it first"
        )
    print_text(database.plan(choice))
    if before.volumes and not before.pods:
        print_text(
            f"Data volumes of an earlier installation will be used: {', '.join(before.volumes)}"
        )
    if not confirm(database.place, consent, f"Install {recipe.name}"):
        return
    extra_options = database.install(choice)
    command = next_command(
        database.target.name, database.place, database.config.path, extra_options
    )
    print_text(f"Next: {command}")


def _await_database(recipe: Recipe, request: Request, interrupts: Interrupts) -> None:
    """Wait until the database answers a collector and a worker, which is what a run needs."""
    try:
        finding = await_answer(lambda: check_database(request, interrupts), _ANSWER_PATIENCE_S)
    except ConfigError as error:
        raise RunFailed(
            f"{recipe.name} is installed and its pods are ready, but it could not be checked:"
            f" {error.message}"
        ) from error
    if not finding.ok:
        raise RunFailed(
            f"{recipe.name} is installed and its pods are ready, but a run can't reach it:"
            f" {finding.text}\nOnce the cause is removed, check again with: {program()} doctor"
            f" --target {request.target}"
        )
    print_text(f"{recipe.name} {finding.text}")


def await_answer(ask: Callable[[], Finding], patience_s: float) -> Finding:
    """Ask the database until it answers or patience ends. Returns the last outcome."""
    deadline = time.monotonic() + patience_s
    while True:
        finding = ask()
        if finding.ok or time.monotonic() > deadline:
            return finding
        time.sleep(_ANSWER_POLL_S)


def print_status(config: Config, target: str | None, place: Place) -> None:
    """Print a line for each recipe, or for the target's alone."""
    if target:
        recipes = [recipe_of(config, target)]
    else:
        recipes = []
        for name in recipe_names():
            try:
                recipes.append(load_recipe(name))
            except ConfigError as error:
                print_text(error.message)
    rows = []
    client = place.make_client()
    for recipe in recipes:
        installed = read_state(client, place.namespace, recipe)
        choice = installed.choice
        noted = [choice.variant, str(choice.nodes), choice.size] if choice else ["", "", ""]
        rows.append(
            [
                recipe.name,
                installed.state,
                f"{installed.ready}/{installed.pods}",
                *noted,
                len(installed.volumes),
            ]
        )
    headers = ["Database", "State", "Pods ready", "Variant", "Nodes", "Size", "Data volumes"]
    print_text(tabulate(rows, headers, tablefmt="plain", disable_numparse=True))


def uninstall_database(database: Database, delete_volumes: bool, consent: Consent) -> None:
    """Show the plan, ask, remove the database, its volumes only if they are to be deleted."""
    recipe, place = database.recipe, database.place
    before = database.read_state()
    if not before.choice and not before.pods and not before.volumes:
        print_text(f"{recipe.name} is not installed in namespace {place.namespace}.")
        return
    arguments = removal_arguments(before, delete_volumes)
    print_text(database.plan_removal(arguments))
    if delete_volumes and before.volumes:
        print_text(f"The data in {', '.join(before.volumes)} will be lost.")
    if not confirm(place, consent, f"Remove {recipe.name}"):
        return
    database.remove(arguments)
    volumes = [] if delete_volumes else database.read_state().volumes
    print_text(f"Removed {recipe.name}." + (f" Kept: {', '.join(volumes)}." if volumes else ""))


def confirm(place: Place, consent: Consent, action: str) -> bool:
    """Whether the user means this context; ConfigError if nobody is there to say so."""
    context = check_context(place, consent.confirm_context)
    where = f"context {context}, namespace {place.namespace}"
    if consent.yes or consent.confirm_context:
        print_text(f"{action}: {where}")
        return True
    if not sys.stdin.isatty():
        raise ConfigError(
            f"there is no terminal to confirm the context on: add --confirm-context {context}, or --yes"
        )
    return click.confirm(f"{action} in {where}?")


def check_context(place: Place, confirmed: str | None) -> str:
    """The context's name; ConfigError if the user has named another one."""
    context = place.resolve_context() or "in-cluster"
    if confirmed is not None and confirmed != context:
        raise ConfigError(
            f"--confirm-context {confirmed}: the context is {context}; nothing was done"
        )
    return context


def next_command(target: str, place: Place, config_file: Path, extra_options: Sequence[str]) -> str:
    """The command that a user types after an installation."""
    words = [*program().split(), "insert", "--target", target]
    if config_file != Path(CONFIG_FILE):
        words += ["--config", str(config_file)]
    words += place.list_options()
    for option in extra_options:
        words += ["--extra-option", option]
    return shlex.join(words)
