"""The commands that measure: each takes its request's options and makes one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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
from .options import (
    FolderType,
    MeasuringCommand,
    config_option,
    debug_option,
    live_options,
    options_of,
    run,
)


@click.command(cls=MeasuringCommand)
@options_of(InsertRequest)
@click.pass_context
def insert(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and print the rate for each worker count. The figures are events per second of all
    workers together, over the valid runs: every event acknowledged and counted in the database afterwards,
    with all workers active at the same time.
    """  # fmt: skip
    run(ctx)


@click.command(cls=MeasuringCommand)
@options_of(QueryRequest)
@click.pass_context
def query(ctx: click.Context, /, **given: Any) -> None:
    """Run the queries and print how long each takes, in seconds. Insert an appropriate amount of data
    first. A query's time ends when all rows of its answer
    have been fetched.
    """  # fmt: skip
    run(ctx)


@click.command(cls=MeasuringCommand)
@options_of(MixedRequest)
@click.pass_context
def mixed(ctx: click.Context, /, **given: Any) -> None:
    """Insert events and run queries at the same time. Each group sends its next request after an answer, or
    at its own rate. Only what is acknowledged or answered within the window counts.
    """  # fmt: skip
    run(ctx)


@click.command(cls=MeasuringCommand)
@options_of(CapacityRequest)
@click.pass_context
def capacity(ctx: click.Context, /, **given: Any) -> None:
    """Find the highest rate that holds: valid, not saturated, within all limits.

    A short closed loop finds where to look; then rates are tried, each on new tables. The two rates next to
    the limit are repeated until their verdicts are certain.
    """  # fmt: skip
    run(ctx)


@click.command(cls=MeasuringCommand)
@options_of(TuneRequest)
@click.pass_context
def tune(ctx: click.Context, /, **given: Any) -> None:
    """Find the settings with the highest throughput, or with --limit the highest capacity.

    Each combination gets a short run, in random order; the better half continues with longer runs until two
    are left. Those are compared with each other and with the defaults, in turns.
    """  # fmt: skip
    run(ctx)


@click.command(cls=MeasuringCommand)
@options_of(ClientsRequest)
@click.pass_context
def clients(ctx: click.Context, /, **given: Any) -> None:
    """Show what your application's client costs you compared with the lean path. The module's lean path and
    the vendor's client insert the same events, in turns, on new tables: throughput, CPU per event, latency of
    a request. With --queries, events are inserted once (--prefill, or else --num-inserts of each worker), and
    each client runs the same queries: queries per second, CPU per query and per row, times.
    """
    run(ctx)


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_option
@click.option(
    "--output",
    type=FolderType(
        "a campaign resumes from its folder: name a local one, and copy it", file_okay=False
    ),
    help="Folder for this campaign and its results; default: campaigns/ plus the file's name (and the"
    " size's with --size).",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything and print the plan with its time; start nothing.",
)
@click.option("--stop-on-error", is_flag=True, help="Stop at the first job that fails.")
@click.option(
    "--yes", is_flag=True, help="With install: don't ask to confirm the Kubernetes context."
)
@click.option(
    "--confirm-context",
    metavar="NAME",
    help="Don't ask if the context has this name; do nothing if it has another.",
)
@click.option(
    "--allow-run",
    is_flag=True,
    help="Allow, without asking, the commands that FILE runs and its options that send secrets.",
)
@click.option("--size", help="A size defined in FILE under `sizes`, as in quick.")
@click.option(
    "--report-only",
    is_flag=True,
    help="Run nothing; make the report, with ranking and verdict, from the results so far.",
)
@click.option(
    "--example",
    is_flag=False,
    flag_value="steps",
    type=click.Choice(["steps", "requirements"]),
    help="Print an example file: with custom steps, or with requirements that lead to a verdict.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also print the tables of each job, the rankings, and all details of the verdict; with --dry-run"
    " the options of each job.",
)
@live_options
@debug_option
@click.pass_context
def campaign(
    ctx: click.Context,
    /,
    file: Path | None,
    config_file: Path,
    output: Path | None,
    dry_run: bool,
    stop_on_error: bool,
    yes: bool,
    confirm_context: str | None,
    allow_run: bool,
    size: str | None,
    report_only: bool,
    example: str | None,
    verbose: bool,
    live: bool,
    open_live: bool,
    prometheus_file: Path | None,
    debug: bool,
) -> None:
    """Run the campaign in FILE: targets, variants of options, steps or requirements; then one report with a
    ranking, and the verdict on the requirements.

    If it is killed, the same command resumes after the last completed run. If a job fails, the others
    continue.
    """  # fmt: skip
    from ..run.campaign.campaign import open_campaign
    from ..run.campaign.definition import EXAMPLES
    from ..run.campaign.running import report_only as make_report
    from ..run.campaign.running import run_campaign, show_plan
    from ..run.install import Consent
    from ..run.live import choose_live
    from ..system.installation import read_example
    from ..system.output import print_text

    if example:
        print_text(read_example(EXAMPLES[example]))
        return
    if file is None:
        raise click.UsageError("name a FILE; to make one: campaign --example > campaign.yaml")
    opened = replace(open_campaign(file, config_file, output, ctx.obj, size), verbose=verbose)
    if dry_run:
        show_plan(opened)
        return
    if report_only:
        ctx.exit(make_report(opened))
    consent = Consent(yes, confirm_context)
    page = choose_live(live, open_live, prometheus_file)
    ctx.exit(run_campaign(opened, consent, stop_on_error, debug, page, allow_run))
