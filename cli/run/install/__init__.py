"""The work of `db`: installs databases on Kubernetes with the recipes in dbinstall/."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from ...plan.config import Config
from ...plan.request import Request
from ...system.errors import ConfigError, RunFailed
from ...system.installation import CONFIG_FILE, program
from ...system.output import print_text
from ...system.processes import Interrupts
from ..cluster import Place, check_namespace, explain_errors
from ..diagnosis import check_database
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


# After the pods are ready, the Service's addresses have to spread, and users have to be created.
_ANSWER_PATIENCE_S = 30.0
_ANSWER_POLL_S = 3.0


_NOTED = "iot-database-benchmark/"


@dataclass
class Installed:
    """What the namespace has from one recipe."""

    choice: Choice | None = None
    """What was installed last; None if nothing was, or if its Secret is gone."""
    pods: int = 0
    ready: int = 0
    volumes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.pods:
            return "ready" if self.ready == self.pods else "not ready"
        return "removed, data kept" if self.volumes else "not installed"


def read_state(client: KubeClient, namespace: str, recipe: Recipe) -> Installed:
    """What the namespace has from a recipe. RunFailed if the cluster can't be reached."""
    # Imported late: a campaign that installs nothing does without the Kubernetes client.
    from ..kubeclient import POD, SECRET, VOLUME_CLAIM

    installed = Installed()
    selector = f"{DATABASE_LABEL}={recipe.name}"
    with explain_errors(f"can't see what is in namespace {namespace}"):
        for secret in client.find(SECRET, namespace, labels=selector):
            if secret["metadata"]["name"] == recipe.secret:
                noted = secret["metadata"].get("annotations") or {}
                with suppress(KeyError, ValueError):
                    variant, nodes, size = (
                        noted[_NOTED + key] for key in ("variant", "nodes", "size")
                    )
                    installed.choice = Choice(variant, int(nodes), size)
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


@dataclass(frozen=True)
class Consent:
    """What the user has agreed to in advance about the context to change."""

    yes: bool
    confirm_context: str | None


class Database(Scripts):
    """A target's database in one place, installed and removed by its recipe's scripts."""

    def __init__(
        self, config: Config, target: str, place: Place, timeout_s: int, interrupts: Interrupts
    ) -> None:
        """ConfigError if no recipe in dbinstall/ installs it."""
        self.config = config
        self.target = config.target(target)
        super().__init__(recipe_of(config, target), place, timeout_s, interrupts)

    def check(self) -> None:
        """ConfigError if the target looks for its credentials in another place than the recipe uses, or if
        its namespace is missing."""
        name, secret = self.target.name, self.recipe.secret
        if self.target.kubernetes.get("existingSecret") != secret:
            raise ConfigError(
                f"{self.config.where('targets', name)}: the recipe {self.recipe.name} puts the"
                f" credentials into the Secret {secret}: set kubernetes.existingSecret to it"
            )
        check_namespace(self.place.make_client(), self.place.namespace)

    def read_state(self) -> Installed:
        """What the namespace has of this database."""
        return read_state(self.place.make_client(), self.place.namespace, self.recipe)

    def install(self, choice: Choice) -> Sequence[str]:
        """Install it and wait until it answers. Returns the module's options that fit this number of
        nodes."""
        self.run("install.sh", install_arguments(choice))
        extra_options = self.recipe.extra_options(self.target.module, choice.nodes)
        place = self.place
        request = Request(
            target=self.target.name, config_file=self.config.path, extra_options=tuple(extra_options),
            executor="kubernetes", namespace=place.namespace, kubeconfig=place.kubeconfig,
            context=place.context,
        )  # fmt: skip
        installed = f"{self.recipe.name} is installed and its pods are ready, but"
        deadline = time.monotonic() + _ANSWER_PATIENCE_S
        try:
            # Collector and worker connect, which is what a run needs.
            while not (finding := check_database(request, self._interrupts)).ok:
                if time.monotonic() > deadline:
                    raise RunFailed(
                        f"{installed} a run can't reach it: {finding.text}\nOnce the cause is removed,"
                        f" check again with: {program()} doctor --target {request.target}"
                    )
                time.sleep(_ANSWER_POLL_S)
        except ConfigError as error:
            raise RunFailed(f"{installed} it could not be checked: {error.message}") from error
        print_text(f"{self.recipe.name} {finding.text}")
        return extra_options


def removal_arguments(installed: Installed, delete_volumes: bool) -> list[str]:
    """Options of uninstall.sh for what is installed."""
    arguments = ["--variant", installed.choice.variant if installed.choice else VENDOR]
    return [*arguments, "--delete-volumes"] if delete_volumes else arguments


def install_database(database: Database, choice: Choice, consent: Consent) -> None:
    """Show the plan, ask, install, wait until the database answers, and print the next command."""
    recipe = database.recipe
    database.check()
    before = database.read_state()
    if before.pods and before.choice and not before.choice.is_like(choice):
        raise ConfigError(
            f"{recipe.name} is already installed, with {before.choice}: uninstall it first"
        )
    print_text(database.plan("install.sh", install_arguments(choice)))
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


def print_status(config: Config, target: str | None, place: Place) -> None:
    """Print a line for each recipe, or only for the target's."""
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
    """Show the plan, ask, and remove the database; its volumes only if they are to be deleted."""
    recipe, place = database.recipe, database.place
    before = database.read_state()
    if not before.choice and not before.pods and not before.volumes:
        print_text(f"{recipe.name} is not installed in namespace {place.namespace}.")
        return
    arguments = removal_arguments(before, delete_volumes)
    print_text(database.plan("uninstall.sh", arguments))
    if delete_volumes and before.volumes:
        print_text(f"The data in {', '.join(before.volumes)} will be lost.")
    if not confirm(place, consent, f"Remove {recipe.name}"):
        return
    database.run("uninstall.sh", arguments)
    volumes = [] if delete_volumes else database.read_state().volumes
    print_text(f"Removed {recipe.name}." + (f" Kept: {', '.join(volumes)}." if volumes else ""))


def confirm(place: Place, consent: Consent, action: str) -> bool:
    """Whether the user means this context. ConfigError if the user has named another one, or if nobody is
    there to answer."""
    context = place.resolve_context() or "in-cluster"
    if consent.confirm_context not in (None, context):
        raise ConfigError(
            f"--confirm-context {consent.confirm_context}: the context is {context}; nothing was done"
        )
    where = f"context {context}, namespace {place.namespace}"
    if consent.yes or consent.confirm_context:
        print_text(f"{action}: {where}")
        return True
    if not sys.stdin.isatty():
        raise ConfigError(
            f"there is no terminal to confirm the context on: add --confirm-context {context}, or --yes"
        )
    return click.confirm(f"{action} in {where}?")


def next_command(target: str, place: Place, config_file: Path, extra_options: Sequence[str]) -> str:
    """The command to type after an installation."""
    words = [*program().split(), "insert", "--target", target]
    if config_file != Path(CONFIG_FILE):
        words += ["--config", str(config_file)]
    words += place.list_options()
    for option in extra_options:
        words += ["--extra-option", option]
    return shlex.join(words)
