"""`run.py insert`: how many events per second a database takes in."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load

from .options import (
    STATUS_3,
    abort_option,
    columns_option,
    common,
    disturb_option,
    fill_request,
    limit_option,
    option_of,
    options_of,
    run,
    runs_option,
)
from .values import RATE, STAGES, StagedRate, WorkerCounts, take_stages


@click.command()
@common
@click.option(
    "-w",
    "--workers",
    default="1,4,8,12,16",
    show_default=True,
    type=WorkerCounts(MAX_WORKERS),
    help="Worker counts to try, separated by commas.",
)
@runs_option("Runs per worker count.")
@options_of(
    (Load, "primary_key"),
    (Load, "tables"),
    (Load, "events"),
    (DataSet, "prefill"),
    (DataSet, "prefill_span_s"),
    (DataSet, "prefill_every_s"),
    (Load, "batch"),
    (Load, "in_flight"),
    (Load, "patience_s"),
)
@option_of(Load, "rate_per_s", type=StagedRate(0, min_open=True), help=f"{RATE} {STAGES}")
@options_of(
    (Load, "arrivals"),
    (Load, "duration_s"),
    (Load, "warm_up_s"),
    (DataSet, "clean"),
    (DataSet, "compact"),
    (DataSet, "retention_s"),
)
@click.option(
    "--steps",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Make this many runs on growing data; needs one worker count, --runs 1 and no --prefill.",
)
@options_of((DataSet, "timestamps"), (DataSet, "seed"))
@limit_option("each run", STATUS_3)
@abort_option
@disturb_option
@columns_option
@click.pass_context
def insert(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and print the rate for each worker count.

    The figures are events per second of all workers together, over the runs that are valid:
    every event acknowledged, counted in the database afterwards, all workers running together.
    """  # fmt: skip
    from ..plan.planning import Sweep
    from ..run.experiments.measuring import InsertExperiment

    take_stages(ctx, given)
    counts = given.pop("workers")
    run(ctx, InsertExperiment, fill_request(ctx, Sweep, given, counts=counts), given)
