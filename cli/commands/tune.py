"""`run.py tune`: which settings suit a database."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import DataSet, Load

from .options import (
    common,
    fill_request,
    limit_option,
    option_of,
    options_of,
    run,
    runs_option,
    set_warm_up,
    workers_option,
    write_options,
)

RUN_S = 5.0


@click.command()
@common
@click.option(
    "--over",
    "over",
    multiple=True,
    metavar="SETTING=VALUE,...",
    help="A setting and the values to try: workers, batch, in_flight, primary_key, tables, or an option of"
    " the module, as in batch=100,1000 or copy_format=text,binary; may be repeated.",
)
@limit_option("a rate", "With a limit, settings are compared by the highest rate that keeps it.")
@runs_option("Runs of each combination that is compared at the end.")
@option_of(
    Load,
    "duration_s",
    flag="--run-duration",
    default=RUN_S,
    show_default="5s",
    help="How long a run of the first stage takes, warm-up included; later ones up to eight times as long.",
)
@option_of(
    Load,
    "warm_up_s",
    default=None,
    help="How much of each run's beginning to exclude from all figures; default: a sixth.",
)
@workers_option("Workers, if they aren't varied.")
@option_of(DataSet, "prefill", flag="--fill", help="Insert this many events before each run.")
@write_options
@options_of(
    (DataSet, "seed"),
)
@click.pass_context
def tune(ctx: click.Context, /, **given: Any) -> None:
    """Find the settings with the highest throughput, or with --limit the highest capacity.

    All combinations get a short run each, in random order; the better half continues with longer
    runs, until two are left. They are compared with each other and with the defaults, in turns.
    """  # fmt: skip
    from ..run.experiments.tuning import TuneExperiment, TuneRequest

    set_warm_up(given, "--run-duration", "run")
    run(ctx, TuneExperiment, fill_request(ctx, TuneRequest, given), given)
