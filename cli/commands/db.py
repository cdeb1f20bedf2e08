"""`run.py db`: install a target's database on Kubernetes, see what is there, remove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..system.signals import Interrupts
from .options import combine, config_option, debug_option, place_options, whole

if TYPE_CHECKING:
    from ..plan.config import Config
    from ..run.cluster import Place
    from ..run.install.work import Consent, Database


_of_all = combine(config_option, place_options, debug_option)
"""Options of every subcommand."""
_of_changes = combine(
    click.option("--yes", is_flag=True, help="Don't ask to confirm the context."),
    click.option(
        "--confirm-context", metavar="NAME",
        help="Don't ask if the context has this name; do nothing if it has another.",
    ),
    click.option(
        "--timeout", "timeout_s", default=900, show_default=True, type=whole(1),
        help="Seconds that a step may take.",
    ),
)  # fmt: skip
"""Options of what changes the cluster."""


@click.group()
def db() -> None:
    """Install databases on Kubernetes with the recipes in dbinstall/, and remove them.

    Each shows first what it will do, and asks you to confirm the Kubernetes context.
    """  # fmt: skip


@db.command(short_help="Install a target's database and wait until it answers.")
@click.argument("target")
@click.option("--nodes", type=whole(1), help="Database nodes; default: the recipe's.")
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
    "--storage-class", metavar="NAME",
    help="Storage class of the data volumes; default: the cluster's. '': existing volumes.",
)  # fmt: skip
@click.option(
    "--image", help="The server's image, with --variant local; default: the official one."
)
@_of_changes
@_of_all
@click.pass_context
def install(ctx: click.Context, /, **given: Any) -> None:
    """Install TARGET's database, wait until it answers, and print the next command."""
    from ..run.install.recipes import choose
    from ..run.install.work import install_database

    database = _open_database(ctx, given)
    choice = choose(
        database.recipe, given["variant"], given["nodes"], given["size"], given["image"],
        given["storage_class"],
    )  # fmt: skip
    install_database(database, choice, _consent(given))


@db.command(short_help="Show which databases are installed, and whether they are ready.")
@click.argument("target", required=False)
@_of_all
def status(**given: Any) -> None:
    """Show which databases are installed in the namespace, and whether they are ready."""
    from ..run.install.work import print_status

    config, place = _open_place(given)
    print_status(config, given["target"], place)


@db.command(short_help="Remove a target's database, its data only if asked to.")
@click.argument("target")
@click.option(
    "--delete-volumes", is_flag=True, help="Also delete the data and the Secrets, for good."
)
@_of_changes
@_of_all
@click.pass_context
def uninstall(ctx: click.Context, /, **given: Any) -> None:
    """Remove TARGET's database. Its data volumes and Secrets stay unless --delete-volumes is given.

    An operator that was installed for it stays: other databases may depend on it.
    """  # fmt: skip
    from ..run.install.work import uninstall_database

    uninstall_database(_open_database(ctx, given), given["delete_volumes"], _consent(given))


def _open_place(values: dict[str, Any]) -> tuple[Config, Place]:
    from ..plan.config import load_config
    from ..run.cluster import Place

    config = load_config(values["config_file"])
    namespace = values["namespace"] or config.namespace
    return config, Place(namespace, values["kubeconfig"], values["context"])


def _open_database(ctx: click.Context, values: dict[str, Any]) -> Database:
    from ..run.install.work import Database

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    config, place = _open_place(values)
    return Database(config, values["target"], place, values["timeout_s"], interrupts)


def _consent(values: dict[str, Any]) -> Consent:
    from ..run.install.work import Consent

    return Consent(values["yes"], values["confirm_context"])
