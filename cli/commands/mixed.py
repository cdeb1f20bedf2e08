"""`run.py mixed`: how fast a database takes in events while it is asked, and answers while it takes in."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load

from .options import (
    STATUS_3,
    abort_option,
    common,
    disturb_option,
    fill_request,
    limit_option,
    make_readers,
    option_of,
    options_of,
    queries_option,
    reader_in_flight_option,
    run,
    runs_option,
    workers_option,
    write_options,
)
from .values import STAGES, StagedRate, query_rate_option, take_stages


@click.command()
@common
@workers_option("Workers that insert.")
@click.option(
    "--readers",
    default=1,
    show_default=True,
    type=click.IntRange(1, MAX_WORKERS),
    help="Workers that query at the same time.",
)
@runs_option("Number of runs.")
@option_of(Load, "duration_s", default=60.0, show_default="60s")
@option_of(Load, "warm_up_s")
@option_of(
    Load,
    "rate_per_s",
    type=StagedRate(0, min_open=True),
    help=f"Events per second of all writers together; default: as fast as possible. {STAGES}",
)
@query_rate_option(StagedRate(0, min_open=True), "In stages, too.")
@option_of(Load, "arrivals")
@queries_option
@reader_in_flight_option
@click.option(
    "--baseline",
    is_flag=True,
    help="Also run writers alone and readers alone, and show what each costs the other.",
)
@write_options
@options_of(
    (DataSet, "prefill"),
    (DataSet, "prefill_span_s"),
    (DataSet, "prefill_every_s"),
    (DataSet, "clean"),
    (DataSet, "compact"),
    (DataSet, "retention_s"),
    (DataSet, "timestamps"),
    (DataSet, "seed"),
    (Load, "redraw"),
    (Load, "check"),
)
@limit_option(
    "each run",
    f"These are for writers; those for readers name the query: query:NAME:p99=2s. {STATUS_3}",
)
@abort_option
@disturb_option
@click.pass_context
def mixed(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and ask queries at the same time.

    Each group follows the answers to its own requests, or offers a rate of its own. What is acknowledged
    and answered within the window counts.
    """  # fmt: skip
    from ..plan.planning import Mix
    from ..run.experiments.measuring import MixedExperiment

    take_stages(ctx, given)
    run(ctx, MixedExperiment, fill_request(ctx, Mix, given, readers=make_readers(given)), given)
