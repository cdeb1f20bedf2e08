"""`run.py clients`: what the vendor's client costs beside the lean path."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from simulator.contract import DataSet, Load, Role

from .options import (
    common,
    fill_model,
    fill_request,
    options_of,
    queries_option,
    reader_in_flight_option,
    run,
    runs_option,
    take_queries,
    workers_option,
)

_ASKING_S = 10.0
"""How long each run asks by default."""


@click.command()
@common
@click.option(
    "--client",
    "clients",
    multiple=True,
    help="What to compare with the lean path, as in official; may be repeated. Default: all clients of"
    " the module that insert with --batch and the target's insert mode, or query with --queries.",
)
@partial(queries_option, text="Ask instead of inserting. ", is_flag=False, flag_value={})
@workers_option("Workers that insert, or query with --queries.")
@runs_option("Runs of each client; clients take turns.")
@options_of(
    (Load, "events"),
    (Load, "batch"),
    (Load, "in_flight"),
)
@reader_in_flight_option
@options_of(
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
    """Show what your application's client costs you compared with the lean path.

    The same events are inserted by the module's lean path and by the vendor's client, in turns, on
    new tables: throughput, CPU per event, latency of a request. With --queries events are
    inserted once (--prefill, or else --num-inserts of each worker), and each client asks the same
    questions about them: queries per second, CPU per question and per row, times.
    """
    from ..run.experiments.clients import ClientsExperiment, ClientsRequest

    readers = None
    if given["queries"] is not None:
        readers = _make_readers(given)
        given["prefill"] = given["prefill"] or given["events"] * given["workers"]
    elif given["reader_in_flight"] > 1:
        raise click.UsageError("--reader-in-flight is for queries: give --queries, too")
    del given["queries"], given["reader_in_flight"]
    request = fill_request(ctx, ClientsRequest, given, readers=readers)
    run(ctx, ClientsExperiment, request, given)


def _make_readers(values: dict[str, Any]) -> Load:
    """The load of the readers in each run."""
    if values["duration_s"] is None:
        values["duration_s"] = _ASKING_S
    own = {
        name: value
        for name, value in values.items()
        if name not in ("runs", "in_flight", "queries")
    }
    queries = take_queries({"queries": values["queries"]})
    return fill_model(Load, own, role=Role.READ, in_flight=values["reader_in_flight"], **queries)
