"""`run.py clients`: what the vendor's client costs beside the lean path."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import DataSet, Load

from .options import (
    common,
    fill_request,
    options_of,
    run,
    runs_option,
    workers_option,
)


@click.command()
@common
@click.option(
    "--client",
    "clients",
    multiple=True,
    help="What to compare with the lean path, as in official; may be repeated. Default: all clients of"
    " the module that insert as --batch and the target's insert mode say.",
)
@workers_option("Workers that insert.")
@runs_option("Runs of each client; they are made in turns.")
@options_of(
    (Load, "events"),
    (Load, "batch"),
    (Load, "in_flight"),
    (Load, "rate_per_s"),
    (Load, "arrivals"),
    (Load, "duration_s"),
    (Load, "warm_up_s"),
    (Load, "patience_s"),
    (Load, "primary_key"),
    (Load, "tables"),
    (DataSet, "prefill"),
    (DataSet, "seed"),
)
@click.pass_context
def clients(ctx: click.Context, /, **given: Any) -> None:
    """Say what your application's client costs you beside the shortest path.

    The same events are inserted by the module's lean path and by the vendor's client, in turns, on
    tables that are made anew: throughput, CPU per event, latency of a request.
    """
    from ..experiments.clients import ClientsExperiment, ClientsRequest

    run(ctx, ClientsExperiment, fill_request(ctx, ClientsRequest, given), given)
