"""The files of a recording: on this machine, or fetched from an address."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...errors import OptionError, one_line
from .settings import Format, Recorded
from .store import VERSION, Tell, recordings_folder, tell_nobody

_ADDRESS = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)://")
_OF_OBSTORE = frozenset({"s3", "gs", "az", "abfs", "abfss"})
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".br": "brotli"}
"""Extension of a file -> its codec, as pyarrow calls it."""
_FORMATS = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET,
    ".csv": Format.CSV, ".tsv": Format.CSV, ".txt": Format.CSV,
    ".json": Format.JSON, ".jsonl": Format.JSON, ".ndjson": Format.JSON,
}  # fmt: skip
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Source:
    """Files of one format, by name."""

    files: tuple[Path, ...]
    format: Format
    key: str
    """Changes with any of the files, and with the settings for reading them."""
    octets: int
    """The total size of the files."""


def names_recording(name: str) -> bool:
    """Whether a name has an extension of recordings."""
    return _find_format(name) is not None


def is_address(name: str) -> bool:
    """Whether this is an address, not a path."""
    return bool(_ADDRESS.match(name))


def _find_format(name: str) -> Format | None:
    path = Path(name.lower())
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    return _FORMATS.get(suffix)


def find_source(settings: Recorded, base: Path | None = None, tell: Tell = tell_nobody) -> Source:
    """The files that the settings name. OptionError if there are none, or of several formats."""
    named = settings.file
    with _explained(named):
        if is_address(named):
            files = [_fetch(named, tell)]
        else:
            files = _list_files(Path(base or ".") / Path(named).expanduser(), settings.format)
        stats = [file.stat() for file in files]
    for file, found in zip(files, stats, strict=True):
        if not stat.S_ISREG(found.st_mode):
            raise OptionError(f"{file} is not a regular file")
        if not found.st_size:
            raise OptionError(f"{file} is empty")
    formats = {settings.format or _find_format(file.name) for file in files}
    if len(formats) != 1 or (chosen := formats.pop()) is None:
        raise OptionError(
            f"{named}: is it Parquet, CSV or JSON lines? Use one ending for all (.parquet, .csv, .jsonl, also"
            " with .gz or .zst), or set recorded.format"
        )
    identity = [
        VERSION,
        [
            [str(file.resolve()), found.st_size, found.st_mtime_ns, found.st_ino]
            for file, found in zip(files, stats, strict=True)
        ],
        settings.reading,
    ]
    key = sha256(json.dumps(identity).encode()).hexdigest()
    return Source(tuple(files), chosen, key, sum(found.st_size for found in stats))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        why = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        raise OptionError(f"{name} can't be read: {why}") from error


def _list_files(path: Path, format_: Format | None) -> list[Path]:
    """The file; all files of a folder that can be recordings; or those that match a pattern."""
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and not file.name.startswith((".", "_"))
            if format_ or _find_format(file.name)
        )
        if not files:
            raise OptionError(f"folder {path} has no Parquet, CSV or JSON lines files")
        return files
    if has_magic(str(path)) and not path.exists():
        # A pattern may be absolute, which `Path.glob` refuses.
        files = [file for name in sorted(glob(str(path))) if (file := Path(name)).is_file()]  # noqa: PTH207
        if not files:
            raise OptionError(f"no file matches {path}")
        return files
    path.stat()
    return [path]


def _fetch(address: str, tell: Tell) -> Path:
    """A remote file, fetched once for each of its versions."""
    if "?" in address or "@" in address.partition("://")[2].partition("/")[0]:
        raise OptionError(
            "the address of a recording holds credentials or a query: results keep it; let credentials come"
            " from the environment"
        )
    folder = recordings_folder() / "fetched"
    folder.mkdir(parents=True, exist_ok=True)
    tell(f"fetching {address}")
    fetch = _fetch_by_http if address.startswith(("http://", "https://")) else _fetch_by_fsspec
    return fetch(address, folder)


def _place(folder: Path, address: str, version: object) -> Path:
    """Where a version is kept: its name ends like the address, so the format is known."""
    mark = sha256(f"{address} {version}".encode()).hexdigest()[:24]
    return folder / f"{mark}-{address.rpartition('/')[2]}"


@contextmanager
def _arriving(place: Path) -> Iterator[Path]:
    """A temporary file for writing; it appears under its final name only when complete."""
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _fetch_by_http(address: str, folder: Path) -> Path:
    import httpx

    try:
        with httpx.stream("GET", address, follow_redirects=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            headers = answer.headers
            version = [headers.get(name) for name in ("etag", "last-modified", "content-length")]
            place = _place(folder, address, version)
            if any(version) and place.is_file():
                return place
            with _arriving(place) as part, part.open("wb") as file:
                for octets in answer.iter_bytes():
                    file.write(octets)
            return place
    except httpx.HTTPError as error:
        raise OptionError(f"{address} can't be fetched: {one_line(error, 200)}") from error


def _fetch_by_fsspec(address: str, folder: Path) -> Path:
    try:
        from fsspec.core import url_to_fs

        protocol = address.partition("://")[0].lower()
        options: dict[str, Any] = {}
        if protocol in _OF_OBSTORE:
            from obstore.fsspec import register

            register(protocol)
        files, path = url_to_fs(address, **options)
    except (ImportError, ValueError) as error:
        raise OptionError(
            f"{address}: {one_line(error, 100)}; install its package: pip install"
            " 'iot-database-benchmark[remote]'"
        ) from error
    try:
        about = files.info(path)
        version = [about.get(name) for name in ("ETag", "e_tag", "mtime", "last_modified", "size")]
        place = _place(folder, address, version)
        if not place.is_file():
            with _arriving(place) as part:
                files.get_file(path, str(part))
    except Exception as error:
        why = one_line(str(error).partition("Debug source")[0], 200)
        raise OptionError(f"{address} can't be fetched: {type(error).__name__}: {why}") from error
    return place
