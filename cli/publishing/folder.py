"""A site's folder: made anew as a whole, and never over files of somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from simulator.documents import DocumentError, read_json

from ..errors import ConfigError, RunFailed
from ..output import explain
from .pages import list_digests
from .sources import MANIFEST


def write_site(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, and remove those of an earlier site. ConfigError if the folder has others."""
    earlier = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # First, so that a site that was only written in part is known as one.
        (folder / MANIFEST).write_bytes(list_digests(files))
        for path, content in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        for path in sorted(earlier - files.keys()):
            (folder / path).unlink(missing_ok=True)
            if (folder / path).parent != folder:
                with suppress(OSError):  # Others are still in it.
                    (folder / path).parent.rmdir()
    except OSError as error:
        raise RunFailed(f"can't write the site to {folder}: {explain(error)}") from error


def check_folder(folder: Path) -> set[str]:
    """The files of an earlier site in it. ConfigError if there is anything else."""
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: name another one with --output")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    known: set[str] = set()
    if MANIFEST in found:
        with suppress(DocumentError):
            known = {MANIFEST, *read_json(folder / MANIFEST)}
    foreign = sorted(found - known)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise ConfigError(
            f"{folder} has files that publish didn't make ({foreign[0]}{more}): it writes only to a new or"
            " empty folder, or over a site of its own; name another one with --output"
        )
    return found - {MANIFEST}
