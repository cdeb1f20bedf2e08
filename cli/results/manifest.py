"""The files of a folder with results that is published: their hashes, and what in them must not be public."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from ..system.errors import ConfigError
from ..system.output import explain, write_whole
from .secrets import find_secrets

MANIFEST = "SHA256SUMS"
"""As `sha256sum` writes and checks it."""

_LEFT_OUT = (MANIFEST, ".lock")
_PROGRAMS = re.compile(r"<script(?![^>]*json)[^>]*>.*?</script>", re.DOTALL)
"""Code in a report that comes with the tool."""
_SHOWN = 40
"""How many characters of a line before a secret are shown."""


def list_files(folder: Path) -> list[Path]:
    """All files that belong to the folder, in order."""
    try:
        return sorted(
            path for path in folder.rglob("*") if path.is_file() and path.name not in _LEFT_OUT
        )
    except OSError as error:
        raise ConfigError(f"can't read {folder}: {explain(error)}") from error


def hash_files(folder: Path) -> dict[str, str]:
    """Path below the folder -> its SHA-256."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in list_files(folder)
    }


def write_manifest(folder: Path) -> None:
    """Write the hashes of all files."""
    lines = [f"{digest}  {path}\n" for path, digest in hash_files(folder).items()]
    write_whole(folder / MANIFEST, "".join(lines))


def compare_manifest(folder: Path) -> list[str]:
    """What differs from the manifest, or that it is missing."""
    file = folder / MANIFEST
    if not file.is_file():
        return [f"{MANIFEST} is missing: add --write to make it"]
    noted = _read_manifest(file)
    digests = hash_files(folder)
    changed = [path for path in noted if path in digests and noted[path] != digests[path]]
    return [
        *(f"{path} is in {MANIFEST}, but missing" for path in noted if path not in digests),
        *(f"{path} is not in {MANIFEST}" for path in digests if path not in noted),
        *(f"{path} was changed since {MANIFEST} was written" for path in changed),
    ]


def _read_manifest(file: Path) -> Mapping[str, str]:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = [line.partition("  ") for line in lines if line.strip()]
    return {path: digest for digest, _, path in pairs}


def list_secrets(folder: Path) -> Iterator[str]:
    """Each place that seems to have a secret, with the text before it and without the secret."""
    for path in list_files(folder):
        text = path.read_bytes().decode(errors="replace")
        if path.suffix == ".html":
            text = _PROGRAMS.sub("", text)
        for match in find_secrets(text):
            place = match.start("value")
            begin = max(text.rfind("\n", 0, place) + 1, place - _SHOWN)
            line = text.count("\n", 0, match.start()) + 1
            before = " ".join(text[begin:place].split())
            yield f"{path.relative_to(folder)}:{line} may contain a secret: {before}…"
