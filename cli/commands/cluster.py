"""Commands for a cluster: `doctor`, `clean`, `db`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..plan.request import Request
from ..system.processes import Interrupts
from .options import (
    combine,
    config_option,
    debug_option,
    make_request,
    options_of,
    place_options,
    whole,
)

if TYPE_CHECKING:
    from ..plan.config import Config
    from ..run.cluster import Place
    from ..run.install import Consent, Database


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
"""Options of commands that change the cluster."""


@click.group()
def db() -> None:
    """Install databases on Kubernetes with the recipes in dbinstall/, and remove them. Each command first
    shows what it will do and asks you to confirm the Kubernetes context.
    """  # fmt: skip


@db.command(short_help="Install a target's database and wait until it answers.")
@click.argument("target")
@click.option("--nodes", type=whole(1), help="Database nodes; default: the recipe's.")
@click.option(
    "--size",
    type=click.Choice(["default", "small"]),
    default="default",
    show_default=True,
    help="Resources per node: 8 cores and 10 GB, or just enough to try it on a laptop.",
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
    from ..run.install import install_database
    from ..run.install.recipes import choose

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
    from ..run.install import print_status

    config, place = _open_place(given)
    print_status(config, given["target"], place)


@db.command(short_help="Remove a target's database, and on request its data.")
@click.argument("target")
@click.option(
    "--delete-volumes", is_flag=True, help="Also delete the data and the Secrets, for good."
)
@_of_changes
@_of_all
@click.pass_context
def uninstall(ctx: click.Context, /, **given: Any) -> None:
    """Remove TARGET's database. Its data volumes and Secrets stay unless --delete-volumes is given.

    An operator installed for it stays, since other databases may depend on it.
    """  # fmt: skip
    from ..run.install import uninstall_database

    uninstall_database(_open_database(ctx, given), given["delete_volumes"], _consent(given))


def _open_place(values: dict[str, Any]) -> tuple[Config, Place]:
    from ..plan.config import load_config
    from ..run.cluster import Place

    config = load_config(values["config_file"])
    namespace = values["namespace"] or config.namespace
    return config, Place(namespace, values["kubeconfig"], values["context"])


def _open_database(ctx: click.Context, values: dict[str, Any]) -> Database:
    from ..run.install import Database

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    config, place = _open_place(values)
    return Database(config, values["target"], place, values["timeout_s"], interrupts)


def _consent(values: dict[str, Any]) -> Consent:
    from ..run.install import Consent

    return Consent(values["yes"], values["confirm_context"])


@click.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN]...")
@options_of(Request, "config_file", help="Config file, for the namespace.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--running",
    is_flag=True,
    help="Include runs whose pods are still running; they may be another user's.",
)
@debug_option
@place_options
def clean(
    run_ids: tuple[str, ...],
    config_file: Path,
    yes: bool,
    running: bool,
    debug: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Show the runs in the cluster's namespace, and remove them. The tool cleans up after each run; this is
    for leftovers when it could not, for example after a crash. Without --running, runs that are still running
    are only shown.
    """  # fmt: skip
    from tabulate import tabulate

    from ..plan.config import load_config
    from ..run.cluster import Helm, Place
    from ..run.leftovers import find_runs, remove_run
    from ..system.errors import ConfigError
    from ..system.output import print_text

    if namespace is None:
        namespace = load_config(config_file).namespace
    place = Place(namespace, kubeconfig, context)
    helm = Helm(place)
    runs = find_runs(place)
    unknown = sorted(set(run_ids) - {run.run_id for run in runs})
    if unknown:
        raise ConfigError(f"there is no run {', '.join(unknown)} in namespace {namespace}")
    if run_ids:
        runs = [run for run in runs if run.run_id in run_ids]
    if not runs:
        print_text(f"Nothing is left in namespace {namespace}.")
        return
    rows = [[run.run_id, run.started_by, run.age, run.state, run.objects] for run in runs]
    headers = ["Run", "Started by", "Age", "State", "Objects"]
    # A run's ID may look like a number: 326379e5.
    print_text(tabulate(rows, headers, tablefmt="plain", disable_numparse=True))
    for run in runs:
        for kind, names in run.hanging.items():
            print_text(
                f"Kubernetes should have deleted {kind} {', '.join(names)} by now: see kubectl describe"
                f" {kind} --namespace {namespace} for a finalizer, or a node that is gone."
            )
    removable = [run for run in runs if run.removable]
    chosen = [run for run in removable if running or not run.at_work]
    if len(chosen) < len(removable):
        print_text("Those still running were left alone: remove them with --running.")
    if not chosen:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("there is no terminal to confirm on: add --yes to remove them")
        if not click.confirm(f"Remove {len(chosen)} of them?"):
            return
    for run in chosen:
        remove_run(place, helm, run)
        print_text(f"Removed {run.run_id}.")


@click.command()
@options_of(
    Request,
    "target",
    required=False,
    default=None,
    help="Also connect to this target's database, from where it would run.",
)
@options_of(Request, "config_file", "extra_options", "workload", "workload_pairs")
@options_of(
    Request,
    "executor",
    help="Where collector and workers would run; default: the target's.",
)
@debug_option
@place_options
@click.pass_context
def doctor(ctx: click.Context, /, **given: Any) -> None:
    """Check everything a run needs, in order, with a remedy for whatever is missing. Cluster and context,
    helm, permissions, Pod Security, the image on the nodes; with --target also name resolution and the
    database, by a run of one worker that changes nothing, and whether it can store the workload.
    """  # fmt: skip
    from ..run.diagnosis import diagnose

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    ctx.exit(diagnose(make_request(ctx, Request, target=""), interrupts))
