"""`run.py report`: everything about some results in one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from .options import debug_option, output_option, results_option


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
