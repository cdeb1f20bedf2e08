"""The commands that show stored results: `compare`, `plot`, `report`."""

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
    from ..results.comparison import check_comparable, find_breaches, find_failures, parse_threshold
    from ..results.naming import name_results
    from ..results.store import open_results
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


# As in cli.show.charts and cli.show.drawing, whose import would take time from `--help`; a test
# holds them together.
KINDS = (
    "workers",
    "fill-level",
    "storage",
    "queries",
    "rate",
    "tuning",
    "clients",
    "client-cpu",
    "time",
    "latency",
    "query-latency",
    "client",
    "phases",
)
THEMES = ("auto", "light", "dark")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RESULT...")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="What is drawn; default: the first of these that the results have data for.",
)
@output_option(None, "File to write: .svg or .png. Default: KIND.svg here.")
@click.option("--title", help="Title instead of the figure's own.")
@click.option(
    "--theme",
    default="auto",
    show_default=True,
    type=click.Choice(THEMES),
    help="Colours; auto: an SVG follows its viewer's setting, a PNG is light.",
)
@results_option
@debug_option
def plot(
    names: tuple[str, ...],
    kind: str | None,
    output: Path | None,
    title: str | None,
    theme: str,
    results_folder: Path,
    debug: bool,
) -> None:
    """Draw a figure of one result, or of several together.

    RESULT is an ID or its beginning, a result's folder, or its JSON file. No browser is needed.
    """
    from ..results.store import open_results
    from ..show.report import write_plot
    from ..system.output import note

    stored = open_results(names, results_folder)
    path, remarks = write_plot(stored, kind, output, title, theme)
    note(f"Written: {path}")
    for remark in remarks:
        note(remark)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RESULT...")
@output_option("report.html", "File to write.")
@click.option("--title", default="Database benchmark", show_default=True, help="Its heading.")
@click.option("--open", "open_it", is_flag=True, help="Open it in a browser.")
@results_option
@debug_option
def report(
    names: tuple[str, ...],
    output: Path,
    title: str,
    open_it: bool,
    results_folder: Path,
    debug: bool,
) -> None:
    """Write one HTML file: what was measured, the answer, its limitations, figures, tables.

    RESULT is an ID or its beginning, a result's folder, or its JSON file. The file needs no network
    and no other file.
    """
    from ..results.store import open_results
    from ..show.report import make_report
    from ..system.output import note, write_whole

    stored = open_results(names, results_folder)
    write_whole(output, make_report(stored, title))
    note(f"Written: {output}")
    if open_it:
        import webbrowser

        if not webbrowser.open(output.absolute().as_uri()):
            note(f"No browser could be started: open {output.absolute()} yourself.")
