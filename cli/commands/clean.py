"""`run.py clean`: remove what runs have left in the cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..plan.requests import Request
from .options import debug_option, options_of, place_options


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
    """Show the runs that are in the cluster's namespace, and remove them.

    The tool removes each run itself; this is for what is left when it could not, say because its
    machine crashed. Runs that are still running are shown, but left alone without --running.
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
    # A run's id may look like a number: 326379e5.
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
