"""`run.py query`: how fast a database answers."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load, Role

from .options import (
    WeightedQueries,
    common,
    fill_model,
    on_command_line,
    options_of,
    request_of,
)


@click.command()
@common
@click.option(
    "-w",
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, MAX_WORKERS),
    help="Workers that ask at the same time.",
)
@click.option(
    "-r",
    "--runs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="How often each worker asks each query.",
)
@click.option(
    "--queries",
    type=WeightedQueries(),
    help="The queries to ask; with --duration also how often in proportion to each other, as in"
    " newest-per-device=3,temperature-stats. Default: the target's, or else the workload's own.",
)
@options_of(
    (Load, "duration_s"),
    (Load, "warm_up_s"),
    (Load, "rate_per_s"),
    (Load, "arrivals"),
    (DataSet, "seed"),
    (Load, "redraw"),
)
@click.pass_context
def query(ctx: click.Context, /, **given: Any) -> None:
    """Ask the queries and print how long each takes, in seconds.

    Insert an appropriate amount of data first. A query's time ends when all rows of its answer
    have been fetched.
    """  # fmt: skip
    from ..querying import run_queries

    weights = given.pop("queries")
    chosen = {"weights": weights, "queries": list(weights)} if weights else {}
    load = fill_model(Load, given, role=Role.READ, **chosen)
    data = fill_model(DataSet, given)
    ctx.exit(run_queries(load, data, request_of(given), on_command_line(ctx), ctx.obj))
