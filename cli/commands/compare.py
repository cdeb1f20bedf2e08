"""`run.py compare`: is one result faster than another, and may they be compared at all?"""

from __future__ import annotations

from pathlib import Path

import click

from ..plan.values import Number
from .options import NumberType, debug_option, output_option, results_option


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="BASE RESULT...")
@click.option(
    "--fail-below",
    type=NumberType(Number(0, above=True)),
    metavar="RATIO",
    help="Exit status 1 if a result's speed is below this ratio to the first one's, unless the"
    " interval shows no difference.",
)
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="'METRIC < VALUE'",
    help="Exit status 1 if a result after the first crosses this limit, as in 'p99 > 50ms' or"
    " 'rate < 0.95 base'; may be repeated.",
)
@click.option("--markdown", is_flag=True, help="Tables in Markdown, for a README.")
@output_option(None, "Write the comparison to this file instead of printing it.")
@results_option
@debug_option
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    fail_below: float | None,
    limits: tuple[str, ...],
    markdown: bool,
    output: Path | None,
    results_folder: Path,
    debug: bool,
) -> None:
    """Compare results with the first one: how many times as fast they are, with the 95 % interval.

    RESULT is an ID or its beginning, a label, `latest`, a result's folder, or its JSON file. A limit of
    --fail-if is for rate, p50, p90, p99, p99_9, max, service_p99 and so on, bytes_per_event, or
    query:NAME, which is a query's mean time.
    """
    from ..results.comparison import check_comparable, find_failures
    from ..results.naming import name_results
    from ..results.store import open_results
    from ..results.thresholds import find_breaches, parse_threshold
    from ..show.comparison import describe_comparison
    from ..system.output import note, print_text, terminal_width, write_whole

    thresholds = [parse_threshold(limit) for limit in limits]
    stored = open_results(names, results_folder)
    check_comparable(stored)
    titles, results = name_results(stored), [result.result for result in stored]
    width = None if markdown or output else terminal_width()
    text = describe_comparison(titles, results, markdown, width)
    if output is None:
        print_text(text)
    else:
        write_whole(output, text + "\n")
        note(f"Written: {output}")
    failed = [f"failed: {reason}" for reason in find_breaches(titles, results, thresholds)]
    if fail_below is not None:
        below = find_failures(titles, results, fail_below)
        failed += [f"below {fail_below:g}: {reason}" for reason in below]
    for reason in failed:
        note(reason)
    ctx.exit(1 if failed else 0)
