"""`run.py results`: what is stored, one result in full, all runs as a table for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import debug_option, output_option, results_option

if TYPE_CHECKING:
    from ..results.store import StoredResult


class _ListByDefault(click.Group):
    """`results` means `results list`, with the same options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def results() -> None:
    """List what is stored, show one result, or export all runs.

    Without another word: list.
    """


@results.command("list", short_help="List what is stored, and what came out of each.")
@results_option
@debug_option
def list_(results_folder: Path, debug: bool) -> None:
    """When, which command and target, what came out, and whether that is valid and stable.

    Of the options, those are shown in which results of one command differ.
    """
    from ..output import say
    from ..results.store import list_results
    from ..show.stored import tabulate_results

    stored = list_results(results_folder)
    say(tabulate_results(stored).text() if stored else f"No results in {results_folder}.")


@results.command(short_help="Print one result with all its runs.")
@click.argument("name", metavar="RESULT")
@results_option
@debug_option
def show(name: str, results_folder: Path, debug: bool) -> None:
    """Print one result: figures, runs, latencies, workers, errors, phases, environment.

    RESULT is an ID or its beginning, a result's folder, or its JSON file.
    """
    from ..output import say
    from ..results.store import open_result
    from ..show.stored import describe_result

    say(describe_result(open_result(name, results_folder), sys.stdout.isatty()))


@results.command(short_help="Write all runs as a table for other programs.")
@click.argument("names", nargs=-1, metavar="[RESULT]…")
@output_option(None, "File to write: .csv or .parquet. Default: CSV to standard output.")
@results_option
@debug_option
def export(names: tuple[str, ...], output: Path | None, results_folder: Path, debug: bool) -> None:
    """Write all runs of the results given, or of all that are stored, one line for each run."""
    from ..output import note, say, write_whole
    from ..results.export import FORMATS, choose_format, export_runs

    form = FORMATS[".csv"] if output is None else choose_format(output)
    content = export_runs(_open_results(names, results_folder), form)
    if output is None:
        say(content.decode().rstrip("\n"))
    else:
        write_whole(output, content)
        note(f"Written: {output}")


def _open_results(names: tuple[str, ...], folder: Path) -> list[StoredResult]:
    from ..results.store import list_results, open_result

    return [open_result(name, folder) for name in names] if names else list_results(folder)
