"""`run.py insert`: how many events per second a database takes in."""

from __future__ import annotations

from typing import Any

import click

from .options import MAX_WORKERS, WorkerCounts, common, on_command_line, request_of


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
@click.option(
    "-r",
    "--runs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Runs per worker count.",
)
@click.option(
    "--primary-key",
    default="db",
    show_default=True,
    type=click.Choice(["sql", "db", "client", "uuid", "none"], case_sensitive=False),
    help="Who makes the primary key: the database by an identity column (sql), in its own older way"
    " (db: serial) or as a UUID (uuid), the worker from the event (client), or nobody (none).",
)
@click.option(
    "--tables",
    default="single",
    show_default=True,
    type=click.Choice(["single", "multiple"], case_sensitive=False),
    help="Insert into one table, or into four in turn.",
)
@click.option(
    "--num-inserts",
    default=10000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Events per worker.",
)
@click.option(
    "--prefill",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Insert this many events before the measured run, in batches.",
)
@click.option(
    "--batch",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Events per request; 0: each event is a request of its own.",
)
@click.option(
    "--clean/--no-clean",
    default=True,
    show_default=True,
    help="Drop and recreate the tables before each run.",
)
@click.option(
    "--steps",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Make this many runs on growing data; needs one worker count, --runs 1 and no --prefill.",
)
@click.option(
    "--timestamps",
    default="continue",
    show_default=True,
    type=click.Choice(["continue", "restart"]),
    help="On existing data: go on in time, or start again at the first timestamp.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**64 - 1),
    help="Other events of the same kind; the same seed gives the same events.",
)
@click.pass_context
def insert(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and print the rate for each worker count.

    The figures are events per second of all workers together, over the runs that are valid:
    every event acknowledged, counted in the database afterwards, all workers at work together.
    """  # fmt: skip
    from simulator.contract import PrimaryKey, Tables, Timestamps

    from ..inserting import run_inserts
    from ..plan import InsertOptions

    options = InsertOptions(
        workers=given["workers"],
        runs=given["runs"],
        primary_key=PrimaryKey(given["primary_key"].lower()),
        tables=Tables(given["tables"].lower()),
        num_inserts=given["num_inserts"],
        prefill=given["prefill"],
        batch=given["batch"],
        clean=given["clean"],
        steps=given["steps"],
        timestamps=Timestamps(given["timestamps"]),
        workload=given["workload"],
        seed=given["seed"],
        given=on_command_line(ctx),
    )
    ctx.exit(run_inserts(options, request_of(given), ctx.obj))
