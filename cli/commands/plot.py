"""`run.py plot`: one figure of stored results, as SVG or PNG."""

from __future__ import annotations

from pathlib import Path

import click

from .options import debug_option, output_option, results_option

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
