"""A result folder packed into one file: without the workers' logs, with the hash of each file. Everything
that reads such folders also takes the file, which is unpacked once, into a cache."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import mkdtemp

from ..system.errors import ConfigError
from ..system.output import explain, write_whole
from .manifest import MANIFEST, write_lines

SUFFIX = ".tar.xz"
UNPACKED = Path("~/.cache/iot-database-benchmark/kept")
_MOST_FILES, _MOST_BYTES = 20_000, 1_000_000_000
"""The most that an untrusted file may unpack to."""
_LOGS = "logs"
"""The logs of a result's processes: most of the files, and needed for no figure."""
_NOT_KEPT = frozenset({MANIFEST, "report.html", "installed.json", "started.json"})
"""Files that can be recreated, or that only matter while a campaign runs."""


def is_kept(path: Path) -> bool:
    """Whether a path names such a file."""
    return path.name.endswith(SUFFIX) and path.is_file()


def pack(folder: Path, file: Path) -> int:
    """Pack a folder into `file`, with the same bytes for the same content; return its size. ConfigError if
    the folder can't be read, RunFailed if the file can't be written."""
    try:
        contents = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in _list_kept(folder)
        }
    except OSError as error:
        raise ConfigError(f"can't read {folder}: {explain(error)}") from error
    digests = {name: sha256(content).hexdigest() for name, content in contents.items()}
    contents[MANIFEST] = write_lines(digests).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    write_whole(file, buffer.getvalue())
    return buffer.tell()


def _list_kept(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith("."):
            continue
        if path.is_dir() and path.name != _LOGS:
            yield from _list_kept(path)
        elif path.is_file() and path.name not in _NOT_KEPT:
            yield path


def unpack(path: Path) -> Path:
    """The folder that a path means: itself, or the unpacked content of such a file. ConfigError if that is
    damaged or unreasonably large."""
    if not is_kept(path):
        return path
    try:
        packed = path.read_bytes()
        place = UNPACKED.expanduser() / sha256(packed).hexdigest()[:16]
        name = path.name.removesuffix(SUFFIX)
        if not (place / name).is_dir():
            place.mkdir(parents=True, exist_ok=True)
            _unpack(path, packed, place, name)
        return place / name
    except (OSError, RuntimeError) as error:
        why = explain(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"can't unpack {path} into {UNPACKED}: {why}") from error


def _unpack(path: Path, packed: bytes, place: Path, name: str) -> None:
    """Atomic, since another command may do the same meanwhile."""
    begun = Path(mkdtemp(dir=place))
    try:
        size = number = 0
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as archive:
            for entry in archive:
                number, size = number + 1, size + entry.size
                if number > _MOST_FILES or size > _MOST_BYTES:
                    raise ConfigError(
                        f"{path} holds more than {_MOST_FILES:,} files or {_MOST_BYTES >> 20:,} MB:"
                        " no campaign is that large"
                    )
                parts = PurePosixPath(entry.name).parts
                content = archive.extractfile(entry) if entry.isreg() else None
                if content is None or not parts or {"..", "/"} & set(parts):
                    raise ConfigError(f"{path} holds {entry.name!r}, which is no file of a folder")
                file = begun.joinpath(*parts)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())
        try:
            begun.rename(place / name)
        except OSError:
            if not (place / name).is_dir():
                raise
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ConfigError(f"{path} is damaged: get it again, or pack its folder anew") from error
    finally:
        rmtree(begun, ignore_errors=True)


def find_results(path: Path) -> Path:
    """The folder that holds the results of a folder or file: a campaign has a subfolder for them."""
    folder = unpack(path)
    own = folder / "results"
    return own if own.is_dir() else folder


def name_files(names: Sequence[str]) -> Sequence[str]:
    """Names for folders or packed files: their own or, if two are equal, their paths."""
    own = [Path(name).name.removesuffix(SUFFIX) for name in names]
    return own if len(set(own)) == len(own) else names
