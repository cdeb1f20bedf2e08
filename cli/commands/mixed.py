"""`run.py mixed`: how fast a database takes in events while it is asked, and answers while it takes in."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load, Role

from .options import (
    common,
    disturb_option,
    fill_model,
    make_readers,
    on_command_line,
    option_of,
    options_of,
    queries_option,
    request_of,
    runs_option,
    workers_option,
)


@click.command()
@common
@workers_option("Workers that insert.")
@click.option(
    "--readers",
    default=1,
    show_default=True,
    type=click.IntRange(1, MAX_WORKERS),
    help="Workers that ask at the same time.",
)
@runs_option("How often the run is made.")
@option_of(Load, "duration_s", default=60.0, show_default="60s")
@option_of(Load, "warm_up_s")
@option_of(
    Load, "rate_per_s", help="Events per second of all writers together; without it: at once."
)
@click.option(
    "--query-rate",
    type=click.FloatRange(0, min_open=True),
    help="Queries per second of all readers together; without it: at once.",
)
@option_of(Load, "arrivals")
@queries_option
@click.option(
    "--baseline",
    is_flag=True,
    help="Make each run with writers alone and with readers alone, too, and say what each costs the"
    " other.",
)
@options_of(
    (Load, "batch"),
    (Load, "in_flight"),
    (Load, "patience_s"),
    (Load, "primary_key"),
    (Load, "tables"),
    (DataSet, "prefill"),
    (DataSet, "clean"),
    (DataSet, "compact"),
    (DataSet, "timestamps"),
    (DataSet, "seed"),
    (Load, "redraw"),
    (Load, "check"),
)
@disturb_option
@click.pass_context
def mixed(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and ask queries at the same time.

    Each group follows the answers to its own requests, or offers a rate of its own. What is acknowledged
    and answered within the window counts.
    """  # fmt: skip
    from ..experiments.mixed import run_mixed
    from ..plan import Mix

    runs = given.pop("runs")
    readers = make_readers(given)
    mix = Mix(
        writers=fill_model(Load, given, role=Role.WRITE),
        readers=readers,
        data=fill_model(DataSet, given),
        runs=runs,
        baseline=given["baseline"],
        given=on_command_line(ctx) - {"runs"},
    )
    ctx.exit(run_mixed(mix, request_of(given), ctx.obj))
