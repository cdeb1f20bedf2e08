"""Delivers a recording to where it is mapped: packed into one file, transferred in whatever way there is, and
unpacked if it arrives unchanged."""

from __future__ import annotations

import fcntl
import hashlib
import io
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, cast
from urllib.request import urlopen

import httpx

from ...contract import Delivery
from ...errors import SimulatorError, one_line
from .store import (
    Tell,
    new_folder,
    recordings_folder,
    remove_abandoned,
    tell_nobody,
    write_whole,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PART_BYTES = 1 << 20
_LEVEL = 3
_TIMEOUT_S = 60.0

OpenPacked = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens the packed file for reading. Raises OSError or httpx.HTTPError if it isn't available."""


def name_packed(name: str) -> str:
    """The file name of a packed recording."""
    return f"{name}.tar.zst"


def pack(name: str, tell: Tell = tell_nobody) -> tuple[Delivery, Path]:
    """The recording of this name, packed into a file next to it. It is packed only once; the same content has
    the same hash."""
    store = recordings_folder() / name
    target = store.with_name(name_packed(name))
    known = store.with_name(f"{name}.delivery")
    if known.is_file() and target.is_file():
        return Delivery.model_validate_json(known.read_bytes()), target
    remove_abandoned(target.parent)
    with new_folder(target.parent) as folder:
        part = folder / target.name
        with zstd.ZstdFile(part, "wb", level=_LEVEL) as compressed:
            hashed = _Hashed(cast(BinaryIO, compressed))
            with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.GNU_FORMAT) as archive:
                paths = sorted(path for path in store.rglob("*") if path.is_file())
                whole = sum(path.stat().st_size for path in paths)
                for path in paths:
                    tell(f"packing the recording: {hashed.count / max(whole, 1):.0%}")
                    entry = tarfile.TarInfo(path.relative_to(store).as_posix())
                    entry.size = path.stat().st_size
                    with path.open("rb") as file:
                        archive.addfile(entry, file)
        delivery = Delivery(
            name=name,
            sha256=hashed.sha256.hexdigest(),
            size_bytes=hashed.count,
            packed_bytes=part.stat().st_size,
        )
        part.replace(target)
    write_whole(known, delivery.model_dump_json().encode())
    return delivery, target


def obtain(delivery: Delivery, ask_collector: OpenPacked) -> Path:
    """The recording's folder. If it isn't there, one of the processes that share the place fetches it.

    Raises SimulatorError if it isn't available, or isn't what `delivery` describes.
    """
    store = recordings_folder() / delivery.name
    with ExitStack() as stack:
        try:
            stack.enter_context(_locked(store.with_suffix(".lock")))
            if not store.is_dir():
                source = (
                    ask_collector if delivery.source is None else partial(_open_source, delivery)
                )
                with source() as packed:
                    _unpack(packed, delivery, store)
        except (OSError, HTTPException, httpx.HTTPError) as error:
            why = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
            raise SimulatorError(f"can't get {_describe(delivery)}: {one_line(why)}") from error
        except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
            remedy = "copy it there again" if delivery.source else "start the run again"
            problem = f"{_describe(delivery)} is damaged: {one_line(error)}"
            raise SimulatorError(f"{problem}; {remedy}") from error
    return store


def _describe(delivery: Delivery) -> str:
    # Anything after a question mark may be a signature.
    place = (delivery.source or "").partition("?")[0]
    return f"recording {place}" if place else f"recording {delivery.name} from the collector"


def _open_source(delivery: Delivery) -> AbstractContextManager[BinaryIO]:
    """The packed file at its source."""
    place = delivery.source or ""
    if place.startswith(("http://", "https://")):
        answer = urlopen(place, timeout=_TIMEOUT_S)  # noqa: S310 - no other kind of address
        return cast(AbstractContextManager[BinaryIO], answer)
    return Path(place).open("rb")


def _unpack(packed: BinaryIO, delivery: Delivery, store: Path) -> None:
    """Unpack into a temporary folder first: a folder under the final name is always complete."""
    remove_abandoned(store.parent)
    with new_folder(store.parent) as folder:
        part = folder / store.name
        with zstd.ZstdFile(packed) as content:
            hashed = _Hashed(cast(BinaryIO, content), delivery.size_bytes)
            with tarfile.open(fileobj=hashed, mode="r|") as archive:
                for entry in archive:
                    _extract(archive, entry, part)
            while hashed.read(_PART_BYTES):
                pass
        digest = hashed.sha256.hexdigest()
        if digest != delivery.sha256:
            raise tarfile.TarError(f"its hash is {digest[:12]}…, not {delivery.sha256[:12]}…")
        part.rename(store)


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Extract one file. `extractall` has no safe mode before Python 3.11.4."""
    content = archive.extractfile(entry) if entry.isfile() else None
    if content is None or ".." in (place := Path(entry.name)).parts or place.is_absolute():
        raise tarfile.TarError("it contains more than files of its folder")
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    with (folder / place).open("wb") as file:
        shutil.copyfileobj(content, file, _PART_BYTES)


class _Hashed(io.RawIOBase):
    """A file whose content is hashed as it is read or written, at most `most` bytes of it."""

    def __init__(self, file: BinaryIO, most: int | None = None) -> None:
        self.sha256 = hashlib.sha256()
        self.count = 0
        self._file = file
        self._most = most

    def read(self, size: int = -1) -> bytes:
        return self._note(self._file.read(size))

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._note(data)
        return self._file.write(data)

    def _note(self, data: bytes) -> bytes:
        self.count += len(data)
        if self._most is not None and self.count > self._most:
            raise tarfile.TarError(f"it is larger than {self._most:,} bytes")
        self.sha256.update(data)
        return data


class Streamed(io.RawIOBase):
    """Consecutive parts, as one file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
