"""`run.py publish`: a static site of any results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..plan.fields import find_options, write_words
from ..plan.requests import REQUESTS
from .options import debug_option

if TYPE_CHECKING:
    from ..results.model import Result


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
    """Write a static site: candidates beside each other, and all that is behind each figure.

    FOLDER is a campaign's folder, or one with results, its own or below it. The site needs no network, no
    server and no other program; passwords, host names and paths are left out of it.
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
"""Field of a request -> its key in a result, where that differs."""
_NO_OPTIONS = frozenset({"target", "label", "tags", "output", "workload_pairs", "extra_options"})


def write_command(result: Result) -> str:
    """The command line that gave a result, as far as the result says so, with the options that aren't at
    their defaults."""
    from simulator.contract import format_stages

    from ..results.conditions import find_declared
    from ..results.naming import find_changed_options
    from ..results.secrets import redact_text

    options: dict[str, Any] = {}
    kind = REQUESTS[result.command]
    settings = result.settings
    for name, (field, option) in find_options(kind).items():
        value = result.options.get(_KEYS.get(name, name))
        if name == "rate_per_s" and settings.load.stages:
            value = format_stages(settings.load.stages)
        default = field.default if option.written is None else option.written
        if name in _NO_OPTIONS or value in (None, [], {}) or _is_default(value, default):
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


def _is_default(value: Any, default: Any) -> bool:
    return value == default or [str(default)] == value or str(value).lower() == str(default).lower()
