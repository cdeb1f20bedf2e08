"""`run.py capacity`: the highest rate that a database holds within limits."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load

from .options import (
    common,
    fill_request,
    limit_option,
    make_readers,
    option_of,
    options_of,
    queries_option,
    reader_in_flight_option,
    run,
    set_warm_up,
    take_queries,
    workers_option,
    write_options,
)
from .values import Share, query_rate_option

STEP_S = 30.0


@click.command()
@common
@workers_option("Workers that insert.")
@limit_option(
    "a rate", "With --readers also query:NAME:p99=2s. Without a limit: that the database keeps up."
)
@option_of(
    Load,
    "duration_s",
    flag="--step-duration",
    default=STEP_S,
    show_default="30s",
    help="How long each step takes, warm-up included.",
)
@option_of(
    Load,
    "warm_up_s",
    default=None,
    help="How much of each step's beginning to exclude from all figures; default: a sixth.",
)
@click.option(
    "--precision",
    default="5%",
    show_default=True,
    type=Share(0.01, 1.0),
    help="How close the highest rate that holds and the lowest that fails must be.",
)
@click.option(
    "--max-steps",
    default=24,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of steps.",
)
@option_of(
    DataSet,
    "prefill",
    flag="--fill",
    help="Insert this many events before each step, in batches; all steps begin with the same number.",
)
@option_of(
    DataSet,
    "prefill_span_s",
    help="Store a history of this length before the first step (30d); the other steps keep it, with what"
    " earlier steps added.",
)
@option_of(DataSet, "prefill_every_s")
@option_of(
    DataSet,
    "clean",
    help="With --prefill-span: drop and recreate the tables before the first step, or keep the existing"
    " history.",
)
@click.option(
    "--readers",
    default=0,
    show_default=True,
    type=click.IntRange(0, MAX_WORKERS),
    help="Workers that query at the same time.",
)
@query_rate_option(click.FloatRange(0, min_open=True))
@queries_option
@reader_in_flight_option
@write_options
@option_of(
    Load, "arrivals", help="How requests follow each other: at equal intervals, or independently."
)
@options_of((DataSet, "seed"), (DataSet, "compact"), (Load, "redraw"), (Load, "check"))
@click.pass_context
def capacity(ctx: click.Context, /, **given: Any) -> None:
    """Find the highest rate that holds: valid, not saturated, within all limits.

    A short closed loop shows where to look; then rates are tried, each on new tables. The
    two rates next to the limit are repeated until their verdicts are sure.
    """  # fmt: skip
    from ..run.experiments.capacity import CapacityExperiment, CapacityRequest

    set_warm_up(given, "--step-duration", "step")
    readers = None
    if given["readers"]:
        readers = make_readers(given)
    elif take_queries(given) or given["query_rate"] or given["reader_in_flight"] > 1:
        raise click.UsageError(
            "--queries, --query-rate and --reader-in-flight are for readers: give --readers, too"
        )
    run(ctx, CapacityExperiment, fill_request(ctx, CapacityRequest, given, readers=readers), given)
