"""`run.py query`: how fast a database answers."""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import MAX_WORKERS, DataSet, Load, Role

from .options import common, fill_model, request_of


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
@click.pass_context
def query(ctx: click.Context, /, **given: Any) -> None:
    """Ask the queries and print how long each takes, in seconds.

    Insert an appropriate amount of data first. A query's time ends when all rows of its answer
    have been fetched.
    """  # fmt: skip
    from ..querying import run_queries

    load = fill_model(Load, given, role=Role.READ)
    ctx.exit(run_queries(load, fill_model(DataSet, given), request_of(given), ctx.obj))
