"""A site's folder: remade as a whole, and never over somebody else's files."""

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
    """Write the files, and remove those of an earlier site. ConfigError if the folder has other files."""
    earlier = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The manifest comes first, so that a site that was only partly written is known as one.
        (folder / MANIFEST).write_bytes(list_digests(files))
        for path, content in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        for path in sorted(earlier - files.keys()):
            (folder / path).unlink(missing_ok=True)
            if (folder / path).parent != folder:
                with suppress(OSError):  # Other files are still in it.
                    (folder / path).parent.rmdir()
    except OSError as error:
        raise RunFailed(f"can't write the site to {folder}: {explain(error)}") from error


def check_folder(folder: Path) -> set[str]:
    """The files of an earlier site in the folder. ConfigError if there is anything else."""
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise ConfigError(f"{folder} isn't a folder: name another one with --output")
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()
    }
    listed: set[str] = set()
    if MANIFEST in present:
        with suppress(DocumentError):
            listed = {MANIFEST, *read_json(folder / MANIFEST)}
    foreign = sorted(present - listed)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise ConfigError(
            f"{folder} has files that publish didn't make ({foreign[0]}{more}): it writes only to a new or"
            " empty folder, or over an earlier site; name another one with --output"
        )
    return present - {MANIFEST}
