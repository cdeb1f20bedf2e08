"""`run.py publish`: a static site of any results."""

from __future__ import annotations

from pathlib import Path

import click

from .options import debug_option


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
    files = make_site(sources, title)
    write_site(output, files)
    count, size = format_count(len(sources.done), "result"), sum(map(len, files.values()))
    note(f"Written: {output / 'index.html'}, from {count}; {len(files)} files, {size / 1e6:.1f} MB")
    if open_it:
        import webbrowser

        address = (output / "index.html").absolute().as_uri()
        if not webbrowser.open(address):
            note(f"No browser could be started: open {output / 'index.html'} yourself.")
