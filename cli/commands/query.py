"""`run.py query`: how fast a database answers."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import DataSet, Load, Role

from .options import (
    STATUS_3,
    abort_option,
    common,
    fill_model,
    fill_request,
    limit_option,
    option_of,
    options_of,
    queries_option,
    reader_in_flight_option,
    run,
    runs_option,
    take_queries,
    workers_option,
)
from .values import RATE, STAGES, StagedRate, take_stages


@click.command()
@common
@workers_option("Workers that query at the same time.")
@runs_option("How many times each worker runs each query.")
@queries_option
@reader_in_flight_option
@options_of(
    (Load, "duration_s"),
    (Load, "warm_up_s"),
)
@option_of(Load, "rate_per_s", type=StagedRate(0, min_open=True), help=f"{RATE} {STAGES}")
@options_of(
    (Load, "arrivals"),
    (DataSet, "seed"),
)
@option_of(DataSet, "prefill_span_s", help="Length of the history that the insert stored.")
@options_of((DataSet, "prefill_every_s"), (Load, "redraw"), (Load, "check"))
@limit_option(
    "each query",
    f"query:NAME:p99=2s is for that query, instead of the limit for all. {STATUS_3}",
)
@abort_option
@click.pass_context
def query(ctx: click.Context, /, **given: Any) -> None:
    """Ask the queries and print how long each takes, in seconds.

    Insert an appropriate amount of data first. A query's time ends when all rows of its answer
    have been fetched.
    """  # fmt: skip
    from ..plan.planning import Request
    from ..run.experiments.measuring import QueryExperiment

    take_stages(ctx, given)
    own = take_queries(given) | {"in_flight": given.pop("reader_in_flight")}
    load = fill_model(Load, given, role=Role.READ, **own)
    run(ctx, QueryExperiment, fill_request(ctx, Request, given, load=load), given)
