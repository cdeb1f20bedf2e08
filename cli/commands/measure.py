"""The commands that measure: each is the options of its request, and a call."""

from __future__ import annotations

from typing import Any

import click

from ..plan.requests import (
    CapacityRequest,
    ClientsRequest,
    InsertRequest,
    MixedRequest,
    QueryRequest,
    TuneRequest,
)
from .options import options_of, run


@click.command()
@options_of(InsertRequest)
@click.pass_context
def insert(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and print the rate for each worker count.

    The figures are events per second of all workers together, over the runs that are valid:
    every event acknowledged, counted in the database afterwards, all workers running together.
    """  # fmt: skip
    run(ctx)


@click.command()
@options_of(QueryRequest)
@click.pass_context
def query(ctx: click.Context, /, **given: Any) -> None:
    """Ask the queries and print how long each takes, in seconds.

    Insert an appropriate amount of data first. A query's time ends when all rows of its answer
    have been fetched.
    """  # fmt: skip
    run(ctx)


@click.command()
@options_of(MixedRequest)
@click.pass_context
def mixed(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and ask queries at the same time.

    Each group follows the answers to its own requests, or offers a rate of its own. What is acknowledged
    and answered within the window counts.
    """  # fmt: skip
    run(ctx)


@click.command()
@options_of(CapacityRequest)
@click.pass_context
def capacity(ctx: click.Context, /, **given: Any) -> None:
    """Find the highest rate that holds: valid, not saturated, within all limits.

    A short closed loop shows where to look; then rates are tried, each on new tables. The
    two rates next to the limit are repeated until their verdicts are sure.
    """  # fmt: skip
    run(ctx)


@click.command()
@options_of(TuneRequest)
@click.pass_context
def tune(ctx: click.Context, /, **given: Any) -> None:
    """Find the settings with the highest throughput, or with --limit the highest capacity.

    All combinations get a short run each, in random order; the better half continues with longer
    runs, until two are left. They are compared with each other and with the defaults, in turns.
    """  # fmt: skip
    run(ctx)


@click.command()
@options_of(ClientsRequest)
@click.pass_context
def clients(ctx: click.Context, /, **given: Any) -> None:
    """Show what your application's client costs you compared with the lean path.

    The same events are inserted by the module's lean path and by the vendor's client, in turns, on
    new tables: throughput, CPU per event, latency of a request. With --queries events are
    inserted once (--prefill, or else --num-inserts of each worker), and each client asks the same
    questions about them: queries per second, CPU per question and per row, times.
    """
    run(ctx)
