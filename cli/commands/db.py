"""`run.py db`: install a target's database on Kubernetes, see what is there, remove it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..installation import program
from ..signals import Interrupts
from .options import Function, place_options

if TYPE_CHECKING:
    from ..cluster import Place
    from ..config import Config
    from ..recipes import Choice, Recipe

# After its pods are ready: for the Service's addresses to get around, and users to be made.
_ANSWER_PATIENCE_S = 30.0


def _of_all(function: Function) -> Function:
    """Options of every subcommand."""
    options: list[Callable[[Function], Function]] = [
        click.option(
            "-c", "--config", "config_file", default="config.yaml", show_default=True,
            type=click.Path(path_type=Path), help="Config file with the targets.",
        ),
        *place_options(),
        click.option("--debug", is_flag=True, help="Show a traceback with an error."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _of_changes(function: Function) -> Function:
    """Options of what changes the cluster."""
    options: list[Callable[[Function], Function]] = [
        click.option("--yes", is_flag=True, help="Don't ask whether the context is meant."),
        click.option(
            "--confirm-context", metavar="NAME",
            help="Don't ask if the context has this name; do nothing if it has another.",
        ),
        click.option(
            "--timeout", "timeout_s", default=900, show_default=True, type=click.IntRange(min=1),
            help="Seconds that a step may take.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def db() -> None:
    """Install databases on Kubernetes with the recipes in dbinstall/, and remove them.

    Each shows first what it will do, and asks whether the Kubernetes context is meant.
    """  # fmt: skip


@db.command(short_help="Install a target's database and wait until it answers.")
@click.argument("target")
@click.option("--nodes", type=click.IntRange(min=1), help="Database nodes; default: the recipe's.")
@click.option(
    "--size",
    type=click.Choice(["default", "small"]),
    default="default",
    show_default=True,
    help="What a node gets: 8 cores and 10 GB, or just enough to try it on a laptop.",
)
@click.option(
    "--variant",
    type=click.Choice(["vendor", "local"]),
    help="The vendor's operator or chart, or plain manifests; default: vendor.",
)
@click.option(
    "--image", help="The server's image, with --variant local; default: the official one."
)
@_of_changes
@_of_all
@click.pass_context
def install(ctx: click.Context, /, **given: Any) -> None:
    """Install TARGET's database, wait until it answers, and print the next command."""
    from ..config import load_config
    from ..errors import ConfigError
    from ..output import say
    from ..recipes import Scripts, choose, install_arguments, installed, next_command, recipe_of

    config = load_config(given["config_file"])
    target = config.target(given["target"])
    recipe = recipe_of(config, target.name)
    choice = choose(recipe, given["variant"], given["nodes"], given["size"], given["image"])
    place = _place(config, given)
    if target.kubernetes.get("existingSecret") != recipe.secret:
        raise ConfigError(
            f"{config.where('targets', target.name)}: the recipe {recipe.name} puts the credentials"
            f" into the Secret {recipe.secret}: set kubernetes.existingSecret to it"
        )
    scripts = Scripts(recipe, place, given["timeout_s"])
    before = installed(place, recipe)
    if before.pods and before.choice and not _same(before.choice, choice):
        raise ConfigError(
            f"{recipe.name} is there already, with {before.choice}: uninstall it first"
        )
    say(scripts.plan("install.sh", install_arguments(choice)))
    if before.volumes and not before.pods:
        say(f"Data volumes of an earlier installation will be used: {', '.join(before.volumes)}")
    if not _confirmed(place, given, f"Install {recipe.name}"):
        return
    scripts.run("install.sh", install_arguments(choice))
    extra_options = recipe.extra_options(target.module, choice.nodes)
    _await(ctx, recipe, place, given, extra_options)
    say(f"Next: {next_command(target.name, place, given['config_file'], extra_options)}")


def _same(before: Choice, choice: Choice) -> bool:
    return (before.variant, before.nodes, before.size) == (
        choice.variant,
        choice.nodes,
        choice.size,
    )


def _await(
    ctx: click.Context,
    recipe: Recipe,
    place: Place,
    given: dict[str, Any],
    extra_options: tuple[str, ...],
) -> None:
    """Until the database answers a collector and a worker, which is what a run needs of it."""
    from ..diagnosis import database_answers
    from ..errors import ConfigError, RunFailed
    from ..output import say
    from ..recipes import await_answer
    from ..session import Request

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    request = Request(
        given["target"], given["config_file"], extra_options, "kubernetes", 0, Path(), None,
        place.namespace, place.kubeconfig, place.context,
    )  # fmt: skip
    try:
        finding = await_answer(lambda: database_answers(request, interrupts), _ANSWER_PATIENCE_S)
    except ConfigError as error:
        raise RunFailed(
            f"{recipe.name} is installed and its pods are ready, but it could not be asked:"
            f" {error.message}"
        ) from error
    if not finding.ok:
        raise RunFailed(
            f"{recipe.name} is installed and its pods are ready, but a run can't reach it:"
            f" {finding.text}\nWhen that is mended: {program()} doctor --target {given['target']}"
        )
    say(f"{recipe.name} {finding.text}")


@db.command(short_help="Show which databases are installed, and whether they are ready.")
@click.argument("target", required=False)
@_of_all
def status(**given: Any) -> None:
    """Show which databases are installed in the namespace, and whether they are ready."""
    from tabulate import tabulate

    from ..config import load_config
    from ..errors import ConfigError
    from ..output import say
    from ..recipes import installed, load_recipe, recipe_names, recipe_of

    config = load_config(given["config_file"])
    place = _place(config, given)
    if given["target"]:
        recipes = [recipe_of(config, given["target"])]
    else:
        recipes = []
        for name in recipe_names():
            try:
                recipes.append(load_recipe(name))
            except ConfigError as error:
                say(error.message)
    rows = []
    for recipe in recipes:
        found = installed(place, recipe)
        choice = found.choice
        noted = [choice.variant, str(choice.nodes), choice.size] if choice else ["", "", ""]
        rows.append(
            [recipe.name, found.state, f"{found.ready}/{found.pods}", *noted, len(found.volumes)]
        )
    headers = ["Database", "State", "Pods ready", "Variant", "Nodes", "Size", "Data volumes"]
    say(tabulate(rows, headers, tablefmt="plain", disable_numparse=True))


@db.command(short_help="Remove a target's database, its data only if asked to.")
@click.argument("target")
@click.option(
    "--delete-volumes", is_flag=True, help="Delete the data, too, and the Secrets: for good."
)
@_of_changes
@_of_all
def uninstall(**given: Any) -> None:
    """Remove TARGET's database. Its data volumes and Secrets stay unless --delete-volumes is given.

    An operator that was installed for it stays: other databases may depend on it.
    """  # fmt: skip
    from ..config import load_config
    from ..output import say
    from ..recipes import VENDOR, Scripts, installed, recipe_of

    config = load_config(given["config_file"])
    recipe = recipe_of(config, given["target"])
    place = _place(config, given)
    scripts = Scripts(recipe, place, given["timeout_s"])
    before = installed(place, recipe)
    if not before.choice and not before.pods and not before.volumes:
        say(f"{recipe.name} is not installed in namespace {place.namespace}.")
        return
    arguments = ["--variant", before.choice.variant if before.choice else VENDOR]
    if given["delete_volumes"]:
        arguments.append("--delete-volumes")
    say(scripts.plan("uninstall.sh", arguments))
    if given["delete_volumes"] and before.volumes:
        say(f"The data in {', '.join(before.volumes)} will be lost.")
    if not _confirmed(place, given, f"Remove {recipe.name}"):
        return
    scripts.run("uninstall.sh", arguments)
    kept = installed(place, recipe).volumes if not given["delete_volumes"] else []
    say(f"Removed {recipe.name}." + (f" Kept: {', '.join(kept)}." if kept else ""))


def _place(config: Config, given: dict[str, Any]) -> Place:
    from ..cluster import Place

    return Place(given["namespace"] or config.namespace, given["kubeconfig"], given["context"])


def _confirmed(place: Place, given: dict[str, Any], what: str) -> bool:
    """Whether the user means this context; ConfigError if nobody is there to say so."""
    from ..errors import ConfigError
    from ..output import say
    from ..recipes import confirmed_context

    context = confirmed_context(place, given["confirm_context"])
    where = f"context {context}, namespace {place.namespace}"
    if given["yes"] or given["confirm_context"]:
        say(f"{what}: {where}")
        return True
    if not sys.stdin.isatty():
        raise ConfigError(
            f"nobody is there to confirm the context: add --confirm-context {context}, or --yes"
        )
    return click.confirm(f"{what} in {where}?")
