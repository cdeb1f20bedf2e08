"""Stored results: `results` lists, shows, exports and checks them; `compare`, `plot` and `report` show some
of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..plan.values import Pair
from .options import (
    Parsed,
    Since,
    combine,
    debug_option,
    output_option,
    results_option,
    whole,
)

if TYPE_CHECKING:
    from ..results.index import ResultLine


import shlex
from typing import TYPE_CHECKING, Any

from ..plan.fields import find_options, write_words
from ..plan.requests import REQUESTS

if TYPE_CHECKING:
    from ..results.model import Result


from ..plan.values import Number
from .options import NumberType


class _ListByDefault(click.Group):
    """`results` means `results list`, with the same options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def results() -> None:
    """List results, show one, export all runs, or check whether results may be published. Without a
    subcommand: list.
    """


selection_options = combine(
    click.option("-t", "--target", "targets", multiple=True,
                 help="Only of this target; may be repeated."),
    click.option(
        "--tag", "tags", multiple=True, type=Parsed(Pair()), metavar="KEY=VALUE",
        help="Only with this tag; repeat it to require several.",
    ),
    click.option(
        "--since", type=Parsed(Since()),
        help="Only results started since: 2h, 3d, or a date or time in UTC as in 2026-11-20T08:30.",
    ),
    click.option("--last", type=whole(1), help="Only this many, the newest."),
)  # fmt: skip
"""Options that filter the stored results."""


@results.command("list", short_help="List the stored results, each with its answer.")
@selection_options
@results_option
@debug_option
def list_(
    targets: tuple[str, ...],
    tags: tuple[tuple[str, str], ...],
    since: datetime | None,
    last: int | None,
    results_folder: Path,
    debug: bool,
) -> None:
    """Date, command, target and database, the answer, and whether it is valid and stable. Options are shown
    only if they aren't at their defaults. On a narrow terminal, columns that repeat the ID or `results show`

    are left out.
    """
    from ..results.index import Selection, list_lines
    from ..show.listing import write_list
    from ..system.output import print_text, terminal_width

    stored = list_lines(results_folder, _read_line, with_cells=True)
    chosen = Selection(targets, tags, since, last).choose(stored)
    if chosen:
        print_text(write_list(chosen, terminal_width()))
    elif stored:
        print_text(f"None of the {len(stored):,} results in {results_folder} matches.")
    else:
        print_text(f"No results in {results_folder}.")


def _read_line(folder: Path, id_: str) -> ResultLine | None:
    # Importing the reader takes longer than listing results that were read before.
    from ..show.stored import read_line

    return read_line(folder, id_)


@results.command(short_help="Print one result with all its runs.")
@click.argument("name", metavar="RESULT")
@results_option
@debug_option
def show(name: str, results_folder: Path, debug: bool) -> None:
    """Print one result: figures, runs, latencies, workers, errors, phases, environment.

    RESULT is an ID or its beginning, a label, `latest`, a result's folder, or its JSON file. For a campaign's
    folder, its verdict.json, or a file made by `results pack`: the verdict on its requirements, with the runs
    of each figure; without requirements, its results.
    """
    from ..results.index import list_lines
    from ..results.kept import find_results, unpack
    from ..results.store import is_campaign, open_result, open_verdict
    from ..show.listing import write_list
    from ..show.requirements import describe_whole_verdict
    from ..show.stored import describe_result
    from ..system.output import print_text, terminal_width

    verdict = open_verdict(unpack(Path(name)))
    if verdict is not None:
        print_text(describe_whole_verdict(verdict, terminal_width()))
        return
    if is_campaign(Path(name)):
        lines = list_lines(find_results(Path(name)), _read_line, with_cells=True)
        print_text(write_list(lines, terminal_width()))
        return
    stored = open_result(name, results_folder)
    print_text(describe_result(stored, sys.stdout.isatty(), terminal_width()))


@results.command(short_help="Export all runs as a table for other programs.")
@click.argument("names", nargs=-1, metavar="[RESULT]...")
@output_option(None, "File to write: .csv, .json, .md or .parquet. Default: standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "markdown", "parquet"]),
    help="Default: by the file's ending, else CSV. Markdown has the main columns, the others all.",
)
@results_option
@debug_option
def export(
    names: tuple[str, ...], output: Path | None, form: str | None, results_folder: Path, debug: bool
) -> None:
    """Export all runs of the given results, or of all stored ones, one line per run."""
    from ..results.export import Format, choose_format, export_runs
    from ..results.store import list_results, open_results
    from ..system.output import note, print_text, write_whole

    chosen = Format(form or "csv") if output is None or form else choose_format(output)
    if output is None and chosen is Format.PARQUET:
        raise click.UsageError("Parquet isn't text: name a file with --output")
    stored = open_results(names, results_folder) if names else list_results(results_folder)
    content = export_runs(stored, chosen)
    if output is None:
        print_text(content.decode().rstrip("\n"))
    else:
        write_whole(output, content)
        note(f"Written: {output}")


@results.command(short_help="Check whether results may be published.")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...",
                type=click.Path(path_type=Path))  # fmt: skip
@debug_option
@click.pass_context
def check(ctx: click.Context, folders: tuple[Path, ...], debug: bool) -> None:
    """Check whether results of campaigns or other commands may be published. FOLDER is a campaign's folder,
    one with results, or a file made by `results pack`. Results must be complete, valid and counted, with
    checked answers, known versions, settings and client, an idle machine, at least three repetitions, no
    secrets and, in a file, correct hashes. Prints what must be stated with the figures. Exit status 0: they
    may be published; 1: they may not, and why.
    """
    verdicts = [_check(folder) for folder in folders]
    ctx.exit(0 if all(verdicts) else 1)


def _check(folder: Path) -> bool:
    """Print whether a folder, or a packed one, may be published."""
    from simulator.units import format_count

    from ..results.publication import check_publication
    from ..system.output import print_prose, print_text

    publication = check_publication(folder)
    verdict = "not to be published" if publication.problems else "may be published"
    print_text(f"{folder}: {format_count(len(publication.results), 'result')}, {verdict}")
    for problem in publication.problems:
        print_prose(f"problem: {problem}")
    for line in publication.beside:
        print_prose(f"note: {line}")
    return not publication.problems


@results.command(short_help="Pack a campaign into one file, to publish or send it.")
@click.argument("folder", type=click.Path(path_type=Path))
@output_option(None, "File to write. Default: FOLDER.tar.xz.")
@debug_option
@click.pass_context
def pack(ctx: click.Context, folder: Path, output: Path | None, debug: bool) -> None:
    """Pack a folder, a campaign's or one with results, into one file. It holds everything but the logs, and a
    hash of each file. `publish` and all commands for results accept it in place of the folder. Exit status 1,
    and no file, if `results check` finds a problem.
    """
    from ..results.kept import SUFFIX, is_kept, pack
    from ..system.errors import ConfigError
    from ..system.output import note

    if is_kept(folder):
        raise ConfigError(f"{folder} is packed already")
    file = output or folder.with_name(folder.resolve().name + SUFFIX)
    if not file.name.endswith(SUFFIX):
        raise ConfigError(f"{file}: the name must end with {SUFFIX}")
    if not _check(folder):
        ctx.exit(1)
    size = pack(folder, file)
    note(f"Written: {file}, {size / 1e6:.1f} MB")


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(path_type=Path)
)
@click.option(
    "--output", default="site", show_default=True, type=click.Path(path_type=Path),
    help="Folder to write: a new or empty one, or an earlier site, which is replaced.",
)  # fmt: skip
@click.option(
    "--title", default="Databases for device events", show_default=True, help="Its heading."
)
@click.option("--open", "open_it", is_flag=True, help="Open it in a browser.")
@debug_option
def publish(
    folders: tuple[Path, ...], output: Path, title: str, open_it: bool, debug: bool
) -> None:
    """Write a static site that compares candidates, with the data behind each figure. FOLDER is a campaign's
    folder, one with results in it or below it, or a file made by `results pack`. The site needs no network,
    server or other program, and contains no passwords, host names or paths.
    """
    from simulator.units import format_count

    from ..results.sources import find_sources
    from ..show.site import check_folder, make_site, write_site
    from ..system.output import note

    check_folder(output)
    sources = find_sources(folders)
    files = make_site(sources, title, write_command)
    write_site(output, files)
    count, size = format_count(len(sources.done), "result"), sum(map(len, files.values()))
    note(f"Written: {output / 'index.html'}, from {count}; {len(files)} files, {size / 1e6:.1f} MB")
    if open_it:
        import webbrowser

        address = (output / "index.html").absolute().as_uri()
        if not webbrowser.open(address):
            note(f"No browser could be started: open {output / 'index.html'} yourself.")


# --- the command that repeats a result ------------------------------------------------------------

_KEYS = {
    "events": "num_inserts", "query_rate": "query_rate_per_s", "disturb": "disturbances",
    "reader_count": "readers",
}  # fmt: skip
"""Field of a request -> its key in a result, if different."""
_NO_OPTIONS = frozenset({"target", "label", "tags", "output", "workload_pairs", "extra_options"})


def write_command(result: Result) -> str:
    """The command line that produced a result, as far as the result has it, with the options that aren't at
    their defaults."""
    from simulator.contract import format_stages

    from ..results.conditions import find_declared
    from ..results.manifest import redact_text
    from ..results.naming import find_changed_options

    options: dict[str, Any] = {}
    kind = REQUESTS[result.command]
    settings = result.settings
    for name, (field, option) in find_options(kind).items():
        value = result.options.get(_KEYS.get(name, name))
        if name == "rate_per_s" and settings.load.stages:
            value = format_stages(settings.load.stages)
        default = field.default if option.written is None else option.written
        is_default = (
            value == default
            or [str(default)] == value
            or str(value).lower() == str(default).lower()
        )
        if name in _NO_OPTIONS or value in (None, [], {}) or is_default:
            continue
        if name.endswith("_s") and isinstance(value, int | float) and not name.endswith("_per_s"):
            value = f"{value:g}s"
        options[option.key] = list(map(str, value)) if isinstance(value, list) else value
    of_module = find_declared(result).option_names
    for name, value in find_changed_options(result).items():
        if name in settings.module:
            word = "extra-option" if name in of_module else "workload-option"
            options.setdefault(word, {})[name] = (
                value if isinstance(value, bool | int | float) else str(value)
            )
    words = ["iotbench", result.command, f"--target={result.target}"]
    return redact_text(shlex.join([*words, *write_words(kind, options)]))


# --- compare, plot and report ------------------------------------------------------------------------


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="BASE RESULT...")
@click.option(
    "--fail-below",
    type=NumberType(Number(0, above=True)),
    metavar="RATIO",
    help="Exit status 1 if a result's speed relative to the first is below this ratio, unless the interval"
    " shows no difference.",
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

    RESULT is an ID or its beginning, a label, `latest`, a result's folder, or its JSON file. Given two
    campaigns, as folders or files made by `results pack`: what changed for each candidate. A limit of
    --fail-if applies to rate, p50, p90, p99, p99_9, max, service_p99 and so on, bytes_per_event, or
    query:NAME, a query's mean time.
    """
    from ..results.comparison import check_comparable, find_breaches, find_failures, parse_threshold
    from ..results.kept import name_files
    from ..results.naming import name_results
    from ..results.sources import find_sources
    from ..results.store import is_campaign, open_results
    from ..show.comparison import describe_changes, describe_comparison
    from ..system.errors import ConfigError
    from ..system.output import note, print_text, terminal_width, write_whole

    thresholds = [parse_threshold(limit) for limit in limits]
    width = None if markdown or output else terminal_width()
    titles: Sequence[str]
    results: Sequence[Result]
    if len(names) == 2 and all(is_campaign(Path(name)) for name in names):
        if thresholds or fail_below is not None:
            raise ConfigError("limits are for results: compare two results of the campaigns")
        titles, results = name_files(names), ()
        sides = [find_sources([Path(name)]) for name in names]
        text = describe_changes(titles, sides, markdown, width)
    else:
        stored = open_results(names, results_folder)
        check_comparable(stored)
        titles, results = name_results(stored), [result.result for result in stored]
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


# As in cli.show.charts and cli.show.drawing, whose import would slow down `--help`; a test
# keeps them in sync.
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
    help="What to draw; default: the first of these that the results have data for.",
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
    """Write one self-contained HTML file: what was measured, the answer, its limitations, figures, tables.

    RESULT is an ID or its beginning, a result's folder, or its JSON file.
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
